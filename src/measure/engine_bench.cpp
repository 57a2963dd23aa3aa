#include "measure/engine_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "io/aligned_buffer.h"
#include "io/burst.h"
#include "measure/io_bench.h"
#include "measure/machine_rates.h"
#include "measure/stopwatch.h"
#include "model/container_experts.h"

namespace wader {
namespace {

using Clock = std::chrono::steady_clock;

// Bandwidth is measured over the trunk where that is at least this much, else over memory of its
// own, as far as the budget goes: more than any cache that a few threads share.
constexpr uint64_t kProbeBytes = 128 * kMiB;
constexpr uint32_t kWarmPasses = 16;                 // at most
constexpr uint64_t kWarmStream = uint64_t{1} << 32;  // ids that no measured round has

std::vector<TokenId> random_ids(uint64_t seed, uint64_t stream, uint32_t count, uint32_t vocab) {
  std::seed_seq mixed{seed, seed >> 32, stream, stream >> 32};
  std::mt19937_64 random(mixed);
  std::vector<TokenId> ids(count);
  for (TokenId& id : ids) id = static_cast<TokenId>(random() % vocab);
  return ids;
}

// What the machine can do, measured beside an engine and with as many threads.
class Probe {
 public:
  // `spare_bytes` of the budget are not planned for anything else.
  static Result<std::unique_ptr<Probe>> create(const Engine& engine, uint64_t spare_bytes) {
    std::unique_ptr<Probe> probe(new Probe(engine.plan().threads));
    std::span<const std::byte> memory = engine.trunk_bytes();
    const uint64_t own = std::clamp<uint64_t>(spare_bytes, kMiB, kProbeBytes);
    if (memory.size() < std::max(own, kMiB)) {
      ASSIGN_OR_RETURN(probe->own_, AlignedBuffer::allocate(own, AlignedBuffer::Pages::huge));
      std::memset(probe->own_.data(), 1, probe->own_.size());
      memory = probe->own_.span();
    }
    probe->rates_.emplace(probe->threads_, memory.first(std::min(memory.size(), kProbeBytes)));
    return probe;
  }

  // The best of three: what interrupts a sample says nothing about the memory.
  void measure(const Kernels& kernels, EngineRound& round) {
    for (int sample = 0; sample < 3; ++sample) {
      round.bandwidth = std::max(round.bandwidth, rates_->read_bytes_per_second());
      const auto peak = rates_->int8_operations_per_second(kernels.name);
      if (peak) round.int8_peak = std::max(round.int8_peak.value_or(0), *peak);
    }
  }

 private:
  explicit Probe(uint32_t threads) : threads_(static_cast<int>(threads)) {}
  ThreadPool threads_;
  AlignedBuffer own_;
  std::optional<MachineRates> rates_;
};

// A burst is no larger than one token's experts of a layer: a prompt's larger ones are read as
// fast. And so much is read at most, in some tenths of a second.
constexpr uint64_t kBurstProbeBytes = kGiB;

uint64_t burst_memory_bytes(const Container& container) {
  return uint64_t{container.spec().experts_per_token} * ContainerExperts::slot_bytes(container);
}

std::vector<uint32_t> moe_layers(const ArchitectureSpec& spec) {
  std::vector<uint32_t> layers;
  for (uint32_t layer = 0; layer < spec.layer_count(); ++layer)
    if (spec.layers[layer].ffn == FfnKind::moe) layers.push_back(layer);
  return layers;
}

// How fast the engine's queue reads bursts like the ones it was asked for, when nothing else is to
// be done between two.
Result<std::optional<double>> burst_limit(Engine& engine, const ExpertCounters& experts,
                                          uint64_t seed, bool real_disk) {
  const ArchitectureSpec& spec = engine.container().spec();
  const uint64_t record_bytes = engine.expert_source().record_bytes();
  uint64_t reads = 0;
  for (size_t n = 1; n < experts.bursts.size(); ++n) reads += n * experts.bursts[n];
  if (reads == 0) return std::optional<double>();
  const double share = std::min(
      1.0, static_cast<double>(kBurstProbeBytes) / static_cast<double>(reads * record_bytes));
  const auto records = random_expert_places(engine.expert_source(), moe_layers(spec), 1024, seed);
  size_t places = 1;  // of the record that has the most
  for (const std::vector<Extent>& record : records) places = std::max(places, record.size());
  const auto at_once = static_cast<uint32_t>(engine.read_queue().capacity() / places);
  std::vector<BurstCount> bursts;
  for (size_t n = 1; n < experts.bursts.size(); ++n)
    if (experts.bursts[n] > 0)
      bursts.push_back(
          {std::min({static_cast<uint32_t>(n), spec.experts_per_token, at_once}),
           static_cast<uint64_t>(std::ceil(share * static_cast<double>(experts.bursts[n])))});
  if (real_disk && !records.front().front().file->is_direct())
    for (const std::vector<Extent>& record : records) drop_cached(record);
  ASSIGN_OR_RETURN(
      AlignedBuffer memory,
      AlignedBuffer::allocate(burst_memory_bytes(engine.container()), AlignedBuffer::Pages::huge));
  std::memset(memory.data(), 1, memory.size());  // its pages are there before the first read
  ASSIGN_OR_RETURN(const double rate,
                   burst_rate(engine.read_queue(), records, bursts, memory.span()));
  return std::optional(rate);
}

// One open engine and its only session.
class Subject {
 public:
  static Result<std::unique_ptr<Subject>> open(const Container& container,
                                               const EngineOptions& settings,
                                               const EngineBenchOptions& options) {
    std::unique_ptr<Subject> subject(new Subject(options));
    ASSIGN_OR_RETURN(subject->engine_, Engine::open(container.directory(), settings));
    ASSIGN_OR_RETURN(subject->session_, subject->engine_->new_session());
    return subject;
  }

  Engine& engine() { return *engine_; }

  // Fills the slots by passes over random tokens, as long as they read anything to speak of; then
  // lets the policy settle in a round like the measured ones.
  Status warm_up() {
    const ArchitectureSpec& spec = engine_->container().spec();
    const uint64_t wanted =
        std::min<uint64_t>(engine_->plan().slots, uint64_t{spec.moe_layer_count()} * spec.experts);
    const uint64_t a_token = uint64_t{spec.moe_layer_count()} * spec.experts_per_token;
    const auto tokens = static_cast<uint32_t>(std::clamp<uint64_t>(
        2 * wanted / std::max<uint64_t>(1, a_token), 1, engine_->plan().context));
    uint64_t read = 0;  // experts, of which each took a slot that was free as long as there was one
    for (uint32_t pass = 0; pass < kWarmPasses && read < wanted; ++pass) {
      RETURN_IF_ERROR(check_cancel());
      const uint64_t before = engine_->stats().experts.misses;
      RETURN_IF_ERROR(
          evaluate(random_ids(options_.seed, kWarmStream + 1 + pass, tokens, spec.vocab_rows)));
      const uint64_t added = engine_->stats().experts.misses - before;
      read += added;
      if (added * 100 <= wanted) break;  // those left are as good as never chosen
    }
    const auto settled = run(kWarmStream);
    return settled.ok() ? Status() : Status(settled.error());
  }

  // Round `stream`: its own token ids.
  Result<EngineRound> run(uint64_t stream) {
    RETURN_IF_ERROR(check_cancel());
    session_->reset();
    return options_.work == EngineWork::decode ? decode(stream) : prefill(stream);
  }

 private:
  explicit Subject(const EngineBenchOptions& options) : options_(options) {}

  Status check_cancel() const {
    const bool stopped = options_.cancel != nullptr && options_.cancel->load();
    return stopped ? Status(cancelled_error("stopped")) : Status();
  }

  Status evaluate(const std::vector<TokenId>& ids) {
    return session_->evaluate(
        ids, static_cast<uint32_t>(ids.size()) - 1, [](uint32_t, std::span<const float>) {},
        nullptr);
  }

  // Begins at the first token, which the prompt's logits gave; `count` passes follow.
  Result<EngineRound> decode(uint64_t stream) {
    EngineStats before;
    Clock::time_point start;
    bool started = false;
    GenerateOptions generate;
    generate.sampling.temperature = options_.temperature;
    generate.sampling.seed = options_.seed + stream;
    generate.max_tokens = options_.count + 1;
    generate.cancel = options_.cancel;
    generate.on_token = [&](TokenId) {
      if (!std::exchange(started, true)) {
        before = engine_->stats();
        start = Clock::now();
      }
      return true;
    };
    ASSIGN_OR_RETURN(const Generation generation,
                     session_->generate(random_ids(options_.seed, stream, options_.prompt_tokens,
                                                   engine_->container().spec().vocab_rows),
                                        generate));
    EngineRound round;
    round.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (generation.reason == FinishReason::cancelled) return cancelled_error("stopped");
    CHECK(generation.ids.size() == size_t{options_.count} + 1);
    round.engine = stats_between(before, engine_->stats());
    return round;
  }

  Result<EngineRound> prefill(uint64_t stream) {
    const std::vector<TokenId> ids =
        random_ids(options_.seed, stream, options_.count, engine_->container().spec().vocab_rows);
    EngineRound round;
    const EngineStats before = engine_->stats();
    Status status;
    round.seconds = seconds_of([&] { status = evaluate(ids); });
    RETURN_IF_ERROR(std::move(status));
    round.engine = stats_between(before, engine_->stats());
    return round;
  }

  const EngineBenchOptions& options_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Session> session_;  // goes before its engine
};

// The engines and the order in which their rounds come.
class Bench {
 public:
  Bench(const Container& container, const EngineBenchOptions& options)
      : container_(container), options_(options) {}

  // Makes every setting's plan as if it were alone, and pins what it says: beside another engine
  // the same sizes hold.
  Status plan(std::span<const EngineOptions> settings) {
    const uint32_t needed = context_needed(options_);
    if (needed > container_.spec().max_context)
      return over_budget_error("{} tokens are more than the model's context of {}", needed,
                               container_.spec().max_context);
    for (EngineOptions setting : settings) {
      if (setting.context == 0) setting.context = needed;
      setting.extra_bytes += burst_memory_bytes(container_);
      CHECK(setting.context >= needed);
      ASSIGN_OR_RETURN(const MemoryPlan plan, plan_for(container_, setting));
      setting.memory_bytes = plan.budget_bytes;
      setting.chunk = plan.chunk;
      setting.slots = plan.slots;
      setting.snapshots = plan.snapshots;
      setting.process_bytes = plan.process_bytes;
      settings_.push_back(std::move(setting));
      total_bytes_ += plan.total_bytes();
      budget_bytes_ = std::min(budget_bytes_, plan.budget_bytes);
    }
    runs_.resize(settings_.size());
    return {};
  }

  Result<std::vector<EngineRun>> run() {
    if (total_bytes_ <= budget_bytes_) {
      RETURN_IF_ERROR(run_side_by_side());
    } else {
      RETURN_IF_ERROR(run_one_by_one());
    }
    return std::move(runs_);
  }

 private:
  Status run_side_by_side() {
    std::vector<std::unique_ptr<Subject>> subjects;
    for (size_t i = 0; i < settings_.size(); ++i) {
      tell(fmt::format("warming up{}", name_of(i)));
      ASSIGN_OR_RETURN(auto subject, Subject::open(container_, settings_[i], options_));
      RETURN_IF_ERROR(subject->warm_up());
      subjects.push_back(std::move(subject));
    }
    // One for each: the two may have different numbers of threads.
    std::vector<std::unique_ptr<Probe>> probes;
    for (const auto& subject : subjects) {
      const uint64_t spare = (budget_bytes_ - total_bytes_) / subjects.size();
      ASSIGN_OR_RETURN(auto probe, Probe::create(subject->engine(), spare));
      probes.push_back(std::move(probe));
    }
    for (uint32_t round = 0; round < options_.rounds; ++round)
      for (const size_t i : order_of(round))
        RETURN_IF_ERROR(measure(*subjects[i], *probes[i], i, round));
    return {};
  }

  Status run_one_by_one() {
    for (uint32_t round = 0; round < options_.rounds; ++round) {
      for (const size_t i : order_of(round)) {
        tell(
            fmt::format("warming up for round {} of {}{}", round + 1, options_.rounds, name_of(i)));
        ASSIGN_OR_RETURN(const auto subject, Subject::open(container_, settings_[i], options_));
        RETURN_IF_ERROR(subject->warm_up());
        const MemoryPlan& plan = subject->engine().plan();
        const uint64_t total = plan.total_bytes();
        ASSIGN_OR_RETURN(const auto probe,
                         Probe::create(subject->engine(),
                                       plan.budget_bytes - std::min(plan.budget_bytes, total)));
        RETURN_IF_ERROR(measure(*subject, *probe, i, round));
      }
    }
    return {};
  }

  Status measure(Subject& subject, Probe& probe, size_t i, uint32_t round) {
    tell(fmt::format("round {} of {}{}", round + 1, options_.rounds, name_of(i)));
    EngineRound rates;
    probe.measure(subject.engine().kernels(), rates);
    const std::span<const LayerPredictions> predictions = subject.engine().predictions();
    const std::vector<LayerPredictions> before(predictions.begin(), predictions.end());
    ASSIGN_OR_RETURN(EngineRound measured, subject.run(round));
    for (size_t layer = 0; layer < before.size(); ++layer)
      measured.predictions.push_back({predictions[layer].predicted - before[layer].predicted,
                                      predictions[layer].right - before[layer].right});
    measured.bandwidth = rates.bandwidth;
    measured.int8_peak = rates.int8_peak;
    ASSIGN_OR_RETURN(measured.read_rate_limit,
                     burst_limit(subject.engine(), measured.engine.experts, options_.seed + round,
                                 settings_[i].make_read_queue == nullptr));
    EngineRun& run = runs_[i];
    if (run.rounds.empty()) describe(subject.engine(), settings_[i], run);
    run.rounds.push_back(std::move(measured));
    return {};
  }

  void describe(const Engine& engine, const EngineOptions& setting, EngineRun& run) const {
    const Manifest& manifest = container_.manifest();
    run.plan = engine.plan();
    run.kernels = engine.kernels().name;
    run.io = setting.make_experts ? "memory-mapped" : engine.io_description();
    run.lookahead = engine.lookahead_description();
    run.active = active_bytes(manifest, options_.prompt_tokens + options_.count / 2,
                              engine.kernels().kv_dtype);
    run.experts_per_token = manifest.spec.experts_per_token;
    run.prompt_operations = matrix_operations(manifest.spec, options_.count);
  }

  // The first of a pair is the second of the next: what one leaves in caches favours neither.
  std::vector<size_t> order_of(uint32_t round) const {
    if (settings_.size() == 1) return {0};
    return round % 2 == 0 ? std::vector<size_t>{0, 1} : std::vector<size_t>{1, 0};
  }

  std::string name_of(size_t i) const {
    if (settings_.size() == 1) return "";
    return i == 0 ? ", setting A" : ", setting B";
  }

  void tell(const std::string& step) const {
    if (options_.on_step) options_.on_step(step);
  }

  const Container& container_;
  const EngineBenchOptions& options_;
  std::vector<EngineOptions> settings_;
  std::vector<EngineRun> runs_;
  uint64_t total_bytes_ = 0, budget_bytes_ = ~uint64_t{0};
};

}  // namespace

uint32_t context_needed(const EngineBenchOptions& options) {
  return options.work == EngineWork::prefill ? options.count
                                             : options.prompt_tokens + options.count;
}

PhaseSeconds phases_of(const EngineRound& round) {
  const PassSeconds& pass = round.engine.pass_seconds;
  const double wait = round.engine.experts.wait_seconds;
  return {pass.mixer,     pass.router, pass.experts - wait,         wait,
          pass.lookahead, pass.head,   round.seconds - pass.total()};
}

std::optional<double> streaming_floor_seconds(const EngineRound& round, EngineWork work,
                                              uint32_t experts_per_token) {
  if (!round.read_rate_limit || *round.read_rate_limit <= 0) return {};
  const PhaseSeconds phases = phases_of(round);
  const double reading =
      static_cast<double>(round.engine.experts.bytes_read) / *round.read_rate_limit;
  const double computing = round.seconds - phases.expert_wait;
  if (work == EngineWork::prefill) return std::max(reading, computing);
  return reading + computing - phases.expert_compute +
         phases.expert_compute / std::max(1u, experts_per_token);
}

Result<std::vector<EngineRun>> bench_engine(const Container& container,
                                            std::span<const EngineOptions> settings,
                                            const EngineBenchOptions& options) {
  CHECK((settings.size() == 1 || settings.size() == 2) && options.count >= 1 &&
        options.rounds >= 1 && (options.prompt_tokens >= 1 || options.work == EngineWork::prefill));
  Bench bench(container, options);
  RETURN_IF_ERROR(bench.plan(settings));
  return bench.run();
}

}  // namespace wader
