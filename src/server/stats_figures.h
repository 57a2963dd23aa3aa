// What GET /wader/stats says, and the rates between two such answers. Pure: time is the server's
// own uptime, which comes with its counters, so that neither the network nor a busy client shows in
// a rate.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/memory_plan.h"

namespace wader {

// The counters of the server that are shown, all growing from its start. Seconds and bytes as their
// names in JSON say; whole numbers are exact up to 2^53.
enum class StatsCounter : uint8_t {
  hits,
  misses,
  bytes_read,
  wait_seconds,
  predicted,
  predicted_right,
  hidden_seconds,
  prefill_tokens,
  decode_tokens,
  mixer_seconds,
  router_seconds,
  experts_seconds,
  lookahead_seconds,
  head_seconds,
  finished,
  cancelled,
  failed,
  refused,
  pool_shrinks,
  pool_growths,
};
constexpr size_t kStatsCounters = 20;

struct StatsSnapshot {
  std::string model, family, version;  // as the server sent them: not safe for a terminal
  double uptime_seconds = 0, started_unix_ms = 0;
  MemoryPlan plan = {};  // its bytes, slots and sessions
  uint64_t resident_bytes = 0;
  uint64_t usable_slots = 0, running = 0, queued = 0;
  std::optional<double> disk_bytes_per_second = {};  // what the disk can do, where it is known
  std::array<double, kStatsCounters> counters = {};

  double operator[](StatsCounter counter) const { return counters[static_cast<size_t>(counter)]; }
};

// corrupt, with the key, for what this version cannot read.
Result<StatsSnapshot> read_stats(std::string_view json);

// part / whole; NaN where there was no whole.
double share_of(double part, double whole);

// The phases of passes, none in another: the wait for the disk is not in `experts`.
enum class StatsPhase : uint8_t { mixer, router, experts, lookahead, head, waiting };
constexpr size_t kStatsPhases = 6;

// Of a span of time. A share is NaN when nothing of its kind happened in it.
struct StatsRates {
  double seconds = 0;  // the span
  double answer_tokens_per_second = 0, prompt_tokens_per_second = 0;
  double read_bytes_per_second = 0;
  double hit_share = 0;       // of the experts that passes asked for
  double right_share = 0;     // of the reads that lookahead started
  double hidden_share = 0;    // of the time that reads took: computing covered it
  double passes_seconds = 0;  // in passes, all phases together
  std::array<double, kStatsPhases> phase_shares = {};  // of those
};
// `before` is an earlier answer of the same server, at least a millisecond.
StatsRates rates_between(const StatsSnapshot& before, const StatsSnapshot& after);

// The answers of the last minute, oldest first.
class StatsHistory {
 public:
  static constexpr size_t kSeconds = 60;

  // Begins anew when `snapshot` is of another server or model, or of one that has started again.
  void push(StatsSnapshot snapshot);
  bool empty() const { return snapshots_.empty(); }
  const StatsSnapshot& last() const { return snapshots_.back(); }
  // Over the last `seconds`, or the time that is known where that is less; nothing before there are
  // two answers.
  std::optional<StatsRates> rates(double seconds) const;
  // Tokens of answers a second, one value a second, oldest first, at most a minute. Where an answer
  // came late, each second since the one before has the mean of that time.
  std::vector<double> answer_tokens_by_second() const;

 private:
  std::deque<StatsSnapshot> snapshots_;
};

}  // namespace wader
