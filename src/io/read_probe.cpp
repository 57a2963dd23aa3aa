#include "io/read_probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>

#include "base/check.h"
#include "base/error.h"
#include "io/burst.h"

namespace wader {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kMostBurst = 4;
constexpr uint32_t kRounds = 3;

struct Candidate {
  ReadMethod method;
  std::vector<File> files;
  std::unique_ptr<ReadQueue> queue;
  double fastest_rate = 0;  // of its rounds
};

Result<Candidate> open_candidate(const ProbeJob& job, ReadMethod method) {
  Candidate candidate{method, {}, nullptr, 0};
  for (const auto& path : job.files) {
    ASSIGN_OR_RETURN(File file,
                     File::open(path, method.direct ? File::Mode::read_direct : File::Mode::read));
    candidate.files.push_back(std::move(file));
  }
  ASSIGN_OR_RETURN(candidate.queue, make_queue(method.engine, kMostBurst, job.record_bytes));
  return candidate;
}

class Probe {
 public:
  explicit Probe(const ProbeJob& job) : job_(job), rng_(job.seed) {}

  Result<std::vector<MeasuredMethod>> run(std::span<const ReadMethod> methods) {
    const auto start = Clock::now();
    // Touched once, so that no burst pays for the first use of its pages.
    std::memset(job_.memory.data(), 1, job_.memory.size());
    for (const ReadMethod method : methods) keep_if_ok(open_candidate(job_, method));
    if (candidates_.empty()) return std::move(last_error_);
    const auto spent = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
    // One record of each tells how many fit into the time; where no more do, it counts itself.
    double one_round = 0;
    for (Candidate& candidate : candidates_)
      if (const auto rate = measure(candidate, 1)) {
        candidate.fastest_rate = *rate;
        one_round += static_cast<double>(job_.record_bytes) / *rate;
      }
    const double fit = (job_.target_seconds - spent()) / (kRounds * std::max(one_round, 1e-9));
    const auto burst =
        static_cast<uint32_t>(std::clamp(fit, 1.0, static_cast<double>(most_burst())));
    for (uint32_t round = 0; round < kRounds; ++round) {
      if (spent() + burst * one_round > job_.target_seconds) break;
      for (size_t i = 0; i < candidates_.size(); ++i) {
        Candidate& candidate = candidates_[(i + round) % candidates_.size()];
        if (const auto rate = measure(candidate, burst))
          candidate.fastest_rate = std::max(candidate.fastest_rate, *rate);
      }
    }
    drop_failed();
    return fastest_rounds();
  }

 private:
  uint32_t most_burst() const {
    return static_cast<uint32_t>(
        std::min<uint64_t>(kMostBurst, job_.memory.size() / job_.record_bytes));
  }

  void keep_if_ok(Result<Candidate> candidate) {
    if (candidate.ok())
      candidates_.push_back(std::move(candidate).value());
    else
      last_error_ = std::move(candidate).error();
  }

  // Bytes per second of one burst; nothing, and no queue any more, when a read failed.
  std::optional<double> measure(Candidate& candidate, uint32_t reads) {
    if (candidate.queue == nullptr) return {};
    std::vector<Extent> places;
    for (uint32_t i = 0; i < reads; ++i) {
      const File& file = candidate.files[rng_() % candidate.files.size()];
      const uint64_t record = rng_() % job_.records_a_file;
      places.push_back({&file, record * job_.record_bytes, job_.record_bytes});
    }
    // A candidate without O_DIRECT is not to live on what another left in memory, nor to leave it.
    drop_cached(places);
    const auto seconds = burst_seconds(*candidate.queue, places, job_.memory);
    drop_cached(places);
    if (seconds.ok())
      return static_cast<double>(reads * job_.record_bytes) / std::max(*seconds, 1e-9);
    last_error_ = seconds.error();
    candidate.queue = nullptr;
    return {};
  }

  void drop_failed() {
    std::erase_if(candidates_, [](const Candidate& c) { return c.queue == nullptr; });
  }

  // What else the machine does only slows a round.
  Result<std::vector<MeasuredMethod>> fastest_rounds() {
    if (candidates_.empty()) return std::move(last_error_);
    std::vector<MeasuredMethod> out;
    for (const Candidate& candidate : candidates_)
      out.push_back({candidate.method, candidate.fastest_rate});
    return out;
  }

  const ProbeJob& job_;
  std::mt19937_64 rng_;
  std::vector<Candidate> candidates_;
  Error last_error_{ErrorCode::invalid_argument, "no way to read was given"};
};

}  // namespace

Result<std::vector<MeasuredMethod>> measure_methods(const ProbeJob& job,
                                                    std::span<const ReadMethod> methods) {
  CHECK(!job.files.empty() && job.records_a_file > 0 && job.record_bytes > 0 &&
        job.record_bytes % kDirectAlignment == 0 && job.memory.size() >= job.record_bytes);
  return Probe(job).run(methods);
}

}  // namespace wader
