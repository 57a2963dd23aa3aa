#include "server/stats_figures.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/json.h"

namespace wader {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr uint64_t kMostBytes = uint64_t{1} << 53;  // eight of them still add up in 64 bits
constexpr double kMostCounted = 9e15;
// Two answers are a second apart; a rate over less than this would be noise.
constexpr double kShortestSpan = 0.001;

using enum StatsCounter;
constexpr std::array<std::string_view, kStatsCounters> kCounterNames = {"hits",
                                                                        "misses",
                                                                        "bytes_read",
                                                                        "wait_seconds",
                                                                        "predicted",
                                                                        "predicted_right",
                                                                        "hidden_seconds",
                                                                        "prefill_tokens",
                                                                        "decode_tokens",
                                                                        "mixer_seconds",
                                                                        "router_seconds",
                                                                        "experts_seconds",
                                                                        "lookahead_seconds",
                                                                        "head_seconds",
                                                                        "finished",
                                                                        "cancelled",
                                                                        "failed",
                                                                        "refused",
                                                                        "pool_shrinks",
                                                                        "pool_growths"};
static_assert(static_cast<size_t>(pool_growths) + 1 == kStatsCounters);

Status read_plan(const Json& json, MemoryPlan& plan) {
  struct Part {
    std::string_view name;
    uint64_t MemoryPlan::*bytes;
  };
  constexpr Part kParts[] = {{"budget_bytes", &MemoryPlan::budget_bytes},
                             {"process_bytes", &MemoryPlan::process_bytes},
                             {"trunk_bytes", &MemoryPlan::trunk_bytes},
                             {"state_bytes", &MemoryPlan::state_bytes},
                             {"snapshots_bytes", &MemoryPlan::snapshots_bytes},
                             {"scratch_bytes", &MemoryPlan::scratch_bytes},
                             {"io_bytes", &MemoryPlan::io_bytes},
                             {"slots_bytes", &MemoryPlan::slots_bytes},
                             {"reserve_bytes", &MemoryPlan::reserve_bytes}};
  for (const Part& part : kParts) {
    ASSIGN_OR_RETURN(plan.*part.bytes, json_uint(json, part.name, 0, kMostBytes));
  }
  ASSIGN_OR_RETURN(const uint64_t slots, json_uint(json, "slots", 0, UINT32_MAX));
  ASSIGN_OR_RETURN(const uint64_t sessions, json_uint(json, "sessions", 0, UINT32_MAX));
  plan.slots = static_cast<uint32_t>(slots);
  plan.sessions = static_cast<uint32_t>(sessions);
  return {};
}

Status read_now(const Json& json, StatsSnapshot& snapshot) {
  ASSIGN_OR_RETURN(snapshot.resident_bytes, json_uint(json, "resident_bytes", 0, kMostBytes));
  ASSIGN_OR_RETURN(snapshot.usable_slots, json_uint(json, "usable_slots", 0, UINT32_MAX));
  ASSIGN_OR_RETURN(snapshot.running, json_uint(json, "running", 0, UINT32_MAX));
  ASSIGN_OR_RETURN(snapshot.queued, json_uint(json, "queued", 0, UINT32_MAX));
  return {};
}

Result<StatsSnapshot> read_members(const Json& json) {
  if (!json.is_object()) return corrupt_error("it is no JSON object");
  StatsSnapshot snapshot;
  ASSIGN_OR_RETURN(snapshot.uptime_seconds, json_number(json, "uptime_seconds", 0, kMostCounted));
  ASSIGN_OR_RETURN(snapshot.started_unix_ms, json_number(json, "started_unix_ms", 0, kMostCounted));
  ASSIGN_OR_RETURN(snapshot.version, json_string(json, "version"));
  const Json* part = nullptr;
  const auto enter = [&](std::string_view key) -> Status {
    ASSIGN_OR_RETURN(part, json_member(json, key));
    if (!part->is_object()) return corrupt_error("key '{}' must be an object", key);
    return {};
  };
  RETURN_IF_ERROR(enter("model"));
  ASSIGN_OR_RETURN(snapshot.model, json_string(*part, "id"));
  ASSIGN_OR_RETURN(snapshot.family, json_string(*part, "family"));
  RETURN_IF_ERROR(enter("plan"));
  RETURN_IF_ERROR(read_plan(*part, snapshot.plan));
  RETURN_IF_ERROR(enter("now"));
  RETURN_IF_ERROR(read_now(*part, snapshot));
  RETURN_IF_ERROR(enter("counters"));
  for (size_t i = 0; i < kStatsCounters; ++i) {
    ASSIGN_OR_RETURN(snapshot.counters[i], json_number(*part, kCounterNames[i], 0, kMostCounted));
  }
  if (!json_has(json, "engine")) return snapshot;
  RETURN_IF_ERROR(enter("engine"));
  if (json_has(*part, "disk_bytes_per_second")) {
    ASSIGN_OR_RETURN(snapshot.disk_bytes_per_second,
                     json_number(*part, "disk_bytes_per_second", 0, kMostCounted));
  }
  return snapshot;
}

bool continues(const StatsSnapshot& before, const StatsSnapshot& after) {
  return after.started_unix_ms == before.started_unix_ms &&
         after.uptime_seconds >= before.uptime_seconds && after.model == before.model &&
         std::ranges::equal(before.counters, after.counters, std::ranges::less_equal());
}

}  // namespace

Result<StatsSnapshot> read_stats(std::string_view json) {
  ASSIGN_OR_RETURN(const Json parsed, parse_json(json, "/wader/stats"));
  auto snapshot = read_members(parsed);
  if (!snapshot.ok())
    return corrupt_error("/wader/stats of another version than this program's: {}",
                         snapshot.error().message);
  return snapshot;
}

double share_of(double part, double whole) {
  return whole > 0 ? part / whole : kUnknown;
}

StatsRates rates_between(const StatsSnapshot& before, const StatsSnapshot& after) {
  const auto grown = [&](StatsCounter counter) { return after[counter] - before[counter]; };
  StatsRates rates;
  rates.seconds = after.uptime_seconds - before.uptime_seconds;
  CHECK(rates.seconds >= kShortestSpan);
  rates.answer_tokens_per_second = grown(decode_tokens) / rates.seconds;
  rates.prompt_tokens_per_second = grown(prefill_tokens) / rates.seconds;
  rates.read_bytes_per_second = grown(bytes_read) / rates.seconds;
  rates.hit_share = share_of(grown(hits), grown(hits) + grown(misses));
  rates.right_share = share_of(grown(predicted_right), grown(predicted));
  rates.hidden_share = share_of(grown(hidden_seconds), grown(hidden_seconds) + grown(wait_seconds));
  const std::array<double, kStatsPhases> phases = {
      grown(mixer_seconds),
      grown(router_seconds),
      std::max(0.0, grown(experts_seconds) - grown(wait_seconds)),
      grown(lookahead_seconds),
      grown(head_seconds),
      grown(wait_seconds)};
  for (const double phase : phases) rates.passes_seconds += phase;
  for (size_t i = 0; i < kStatsPhases; ++i)
    rates.phase_shares[i] = share_of(phases[i], rates.passes_seconds);
  return rates;
}

void StatsHistory::push(StatsSnapshot snapshot) {
  if (!snapshots_.empty() && !continues(snapshots_.back(), snapshot)) snapshots_.clear();
  // So close to the one before that it takes its place, unless that leaves no span at all.
  if (snapshots_.size() > 1 &&
      snapshot.uptime_seconds - snapshots_.back().uptime_seconds < kShortestSpan)
    snapshots_.pop_back();
  snapshots_.push_back(std::move(snapshot));
  // One that is older than the minute stays: the oldest second begins with it.
  const double begin = last().uptime_seconds - static_cast<double>(kSeconds);
  while (snapshots_.size() > 2 && snapshots_[1].uptime_seconds <= begin) snapshots_.pop_front();
}

std::optional<StatsRates> StatsHistory::rates(double seconds) const {
  if (snapshots_.empty()) return std::nullopt;
  // Answers do not come to the millisecond: half a second more is still "the last seconds".
  const double begin = last().uptime_seconds - seconds - 0.5;
  const auto first = std::ranges::find_if(
      snapshots_, [&](const StatsSnapshot& snapshot) { return snapshot.uptime_seconds >= begin; });
  // After a silence, the time since the answer before it is all that is known.
  const StatsSnapshot& before = &*first == &last() && snapshots_.size() > 1 ? *(first - 1) : *first;
  if (last().uptime_seconds - before.uptime_seconds < kShortestSpan) return std::nullopt;
  return rates_between(before, last());
}

std::vector<double> StatsHistory::answer_tokens_by_second() const {
  std::vector<double> tokens;
  for (size_t i = 1; i < snapshots_.size(); ++i) {
    const double span = snapshots_[i].uptime_seconds - snapshots_[i - 1].uptime_seconds;
    if (span < kShortestSpan) continue;
    const double rate = (snapshots_[i][decode_tokens] - snapshots_[i - 1][decode_tokens]) / span;
    const double whole = std::clamp(std::round(span), 1.0, static_cast<double>(kSeconds));
    tokens.insert(tokens.end(), static_cast<size_t>(whole), rate);
  }
  if (tokens.size() > kSeconds)
    tokens.erase(tokens.begin(), tokens.end() - static_cast<ptrdiff_t>(kSeconds));
  return tokens;
}

}  // namespace wader
