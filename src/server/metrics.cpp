#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "base/machine.h"

namespace wader {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;

const Histogram::BucketBoundaries kSeconds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                              2.5,   5,    10,    25,   50,  100,  250};
const Histogram::BucketBoundaries kTokenSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                   0.25,  0.5,    1,     2.5,  5,     10};

std::string_view end_name(GenerationEnd end) {
  switch (end) {
    case GenerationEnd::stop:
      return "stop";
    case GenerationEnd::length:
      return "length";
    case GenerationEnd::context_full:
      return "context_full";
    case GenerationEnd::cancelled:
      return "cancelled";
    case GenerationEnd::deadline:
      return "deadline";
    case GenerationEnd::failed:
      return "failed";
  }
  UNREACHABLE("no such case");
}

// A counter of the process that follows a total of the model that is served, which begins anew with
// each.
struct Follower {
  Counter& counter;
  double last = 0;
  void follow(double total) {
    if (const double more = total >= last ? total - last : total; more > 0) counter.Increment(more);
    last = total;
  }
};

}  // namespace

struct Metrics::Families {
  prometheus::Registry registry;
  prometheus::Family<Counter>& requests = BuildCounter()
                                              .Name("wader_http_requests_total")
                                              .Help("Requests answered, by route and status")
                                              .Register(registry);
  prometheus::Family<Counter>& generations = BuildCounter()
                                                 .Name("wader_generations_total")
                                                 .Help("Answers, by what ended them")
                                                 .Register(registry);
  prometheus::Family<Counter>& tokens =
      BuildCounter()
          .Name("wader_tokens_total")
          .Help("Tokens of prompts, of them taken from state, and of answers")
          .Register(registry);
  Histogram& request_seconds = histogram("wader_http_request_seconds",
                                         "From a request's head to its answer's end", kSeconds);
  Histogram& first_token_seconds = histogram("wader_time_to_first_token_seconds",
                                             "From the request to its first token", kSeconds);
  Histogram& token_seconds =
      histogram("wader_token_seconds", "Between two tokens of an answer", kTokenSeconds);
  Histogram& queue_seconds =
      histogram("wader_queue_seconds", "Before a request's work began", kSeconds);
  Gauge& running = gauge("wader_requests_running", "Answers being generated");
  Gauge& queued = gauge("wader_requests_queued", "Answers waiting");
  Gauge& connections = gauge("wader_http_connections", "Open connections");
  Gauge& resident = gauge("wader_memory_resident_bytes", "Resident memory of the process");
  Gauge& budget = gauge("wader_memory_budget_bytes", "--memory, or what auto made of it");
  Gauge& slots = gauge("wader_expert_slots", "Slots for experts in memory");
  Gauge& usable_slots = gauge("wader_expert_slots_usable", "Slots that the governor grants now");
  Gauge& hit_rate = gauge("wader_expert_hit_rate", "Share of experts found in memory, since start");
  Follower hits{counter("wader_expert_hits_total", "Experts found in memory")};
  Follower misses{counter("wader_expert_misses_total", "Experts read for a pass that waited")};
  Follower bytes_read{counter("wader_expert_read_bytes_total", "Bytes of experts read")};
  Follower wait_seconds{
      counter("wader_expert_wait_seconds_total", "Seconds that passes waited for reads")};
  Follower busy_seconds{
      counter("wader_expert_reading_seconds_total", "Seconds with at least one read outstanding")};
  Follower refused{counter("wader_requests_refused_total", "Requests refused by a full queue")};

  Histogram& histogram(const char* name, const char* help,
                       const Histogram::BucketBoundaries& buckets) {
    return BuildHistogram().Name(name).Help(help).Register(registry).Add({}, buckets);
  }
  Gauge& gauge(const char* name, const char* help) {
    return BuildGauge().Name(name).Help(help).Register(registry).Add({});
  }
  Counter& counter(const char* name, const char* help) {
    return BuildCounter().Name(name).Help(help).Register(registry).Add({});
  }
};

Metrics::Metrics() : families_(std::make_unique<Families>()) {}
Metrics::~Metrics() = default;

void Metrics::count_request(std::string_view route, int status, double seconds) {
  families_->requests.Add({{"route", std::string(route)}, {"status", std::to_string(status)}})
      .Increment();
  families_->request_seconds.Observe(seconds);
}

void Metrics::count_first_token(double seconds) {
  families_->first_token_seconds.Observe(seconds);
}

void Metrics::count_token_gap(double seconds) {
  families_->token_seconds.Observe(seconds);
}

void Metrics::count_generation(const GenerationResult& result) {
  families_->generations.Add({{"end", std::string(end_name(result.end))}}).Increment();
  const GenerationTimings& timings = result.timings;
  families_->tokens.Add({{"kind", "prompt"}}).Increment(timings.prompt_tokens);
  families_->tokens.Add({{"kind", "reused"}}).Increment(timings.reused_tokens);
  families_->tokens.Add({{"kind", "completion"}}).Increment(timings.completion_tokens);
  families_->queue_seconds.Observe(timings.queue_seconds);
}

std::string Metrics::text(const SchedulerStats& stats, uint64_t budget_bytes,
                          uint32_t connections) {
  Families& f = *families_;
  const ExpertCounters& experts = stats.engine.experts;
  f.running.Set(stats.running);
  f.queued.Set(stats.queued);
  f.connections.Set(connections);
  f.resident.Set(static_cast<double>(process_memory().resident_bytes));
  f.budget.Set(static_cast<double>(budget_bytes));
  f.slots.Set(stats.engine.slots);
  f.usable_slots.Set(stats.engine.usable_slots);
  const auto asked = static_cast<double>(experts.hits + experts.misses);
  f.hit_rate.Set(asked > 0 ? static_cast<double>(experts.hits) / asked : 0);
  f.hits.follow(static_cast<double>(experts.hits));
  f.misses.follow(static_cast<double>(experts.misses));
  f.bytes_read.follow(static_cast<double>(experts.bytes_read));
  f.wait_seconds.follow(experts.wait_seconds);
  f.busy_seconds.follow(experts.busy_seconds);
  f.refused.follow(static_cast<double>(stats.refused));
  return prometheus::TextSerializer().Serialize(f.registry.Collect());
}

}  // namespace wader
