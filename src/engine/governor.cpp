#include "engine/governor.h"

#include <algorithm>

#include "base/check.h"
#include "base/units.h"

namespace wader {
namespace {

// Share of time in which some task waited for memory. Idle machines show 0, one that reclaims clean
// page cache a few per cent, one that thrashes far more than this.
constexpr double kStallShare = 0.1;
// Stalls say less than a shortage: the tasks that wait may be another's, below a limit of their
// own, and nothing that we give back helps them. With this many times what shall stay free to spare
// they are that, and else they cost at most half of the pool.
constexpr uint64_t kAmpleKeeps = 8;
constexpr uint32_t kStallFloorDivisor = 2;
constexpr uint32_t kStallStepDivisor = 8;
constexpr uint32_t kUrgentStepDivisor = 4;
constexpr uint32_t kGrowthStepDivisor = 16;

// How long there must have been room for the next step before slots are taken back. Doubled by each
// shortage that comes soon after growth: somebody else wants that memory again and again.
constexpr double kCalmSeconds = 5, kMostCalmSeconds = 80;
constexpr double kSoonSeconds = 30;
constexpr double kGrowthSeconds = 1;  // between two steps of growth

constexpr uint64_t kLeastKeepBytes = kMiB / 2, kMostKeepBytes = 512 * kMiB;

uint64_t divide_up(uint64_t value, uint64_t by) {
  return value / by + (value % by != 0 ? 1 : 0);
}

double stall_share(std::optional<uint64_t> before, std::optional<uint64_t> after, double seconds) {
  if (!before || !after || *after < *before || seconds <= 0) return 0;
  return static_cast<double>(*after - *before) * 1e-6 / seconds;
}

// Of unknown room nothing is spare.
uint64_t spare_bytes(const MemoryReading& reading) {
  const uint64_t room = reading.room_bytes.value_or(0);
  return room - std::min(room, reading.promised_bytes);
}

}  // namespace

uint64_t governor_keep_bytes(uint64_t budget_bytes, bool memory_is_automatic) {
  return std::clamp(budget_bytes / (memory_is_automatic ? 16 : 32), kLeastKeepBytes,
                    kMostKeepBytes);
}

MemoryGovernor::MemoryGovernor(const GovernorLimits& limits)
    : limits_(limits), calm_seconds_(kCalmSeconds) {
  CHECK(limits.least_slots >= 1 && limits.least_slots <= limits.most_slots &&
        limits.slot_bytes >= 1);
}

bool MemoryGovernor::is_short(const MemoryReading& reading) const {
  return reading.room_bytes && *reading.room_bytes < limits_.keep_bytes + reading.promised_bytes;
}

bool MemoryGovernor::has_stalled(const MemoryReading& reading) const {
  if (!last_ || spare_bytes(reading) >= kAmpleKeeps * limits_.keep_bytes) return false;
  const double seconds = reading.seconds - last_->seconds;
  return std::max(stall_share(last_->machine_stall_microseconds, reading.machine_stall_microseconds,
                              seconds),
                  stall_share(last_->cgroup_stall_microseconds, reading.cgroup_stall_microseconds,
                              seconds)) > kStallShare;
}

bool MemoryGovernor::has_swapped(const MemoryReading& reading) const {
  return last_ && reading.swapped_bytes > last_->swapped_bytes;
}

uint32_t MemoryGovernor::slots_to_give(const MemoryReading& reading, uint32_t now_slots) const {
  const uint32_t step = std::max(1u, now_slots / kStallStepDivisor);
  uint64_t slots = 0;
  // Up to the double of what shall stay free: the gap is what keeps the next small want from
  // shrinking the pool again.
  if (is_short(reading))
    slots = divide_up(2 * limits_.keep_bytes + reading.promised_bytes - *reading.room_bytes,
                      limits_.slot_bytes);
  // Room is never below 0, so that what is missing may be more than it says.
  if (is_short(reading) && *reading.room_bytes < limits_.keep_bytes / 2)
    slots = std::max(slots, uint64_t{now_slots / kUrgentStepDivisor});
  if (has_swapped(reading))
    slots = std::max({slots, uint64_t{step},
                      divide_up(reading.swapped_bytes - last_->swapped_bytes, limits_.slot_bytes)});
  if (has_stalled(reading)) {
    const uint32_t floor = limits_.most_slots / kStallFloorDivisor;
    slots = std::max<uint64_t>(slots, std::min(step, now_slots - std::min(now_slots, floor)));
  }
  return static_cast<uint32_t>(std::min<uint64_t>(slots, now_slots - limits_.least_slots));
}

// A whole step or nothing: no nibbling at what is left over.
uint32_t MemoryGovernor::slots_to_take(const MemoryReading& reading, uint32_t now_slots) const {
  const uint32_t slots = std::min(std::max(1u, limits_.most_slots / kGrowthStepDivisor),
                                  limits_.most_slots - now_slots);
  if (!reading.room_bytes) return slots;
  const uint64_t spare = spare_bytes(reading);
  const bool fits = spare / limits_.slot_bytes >= slots &&
                    spare - slots * limits_.slot_bytes >= 2 * limits_.keep_bytes;
  return fits ? slots : 0;
}

uint32_t MemoryGovernor::target_slots(const MemoryReading& reading, uint32_t now_slots) {
  CHECK(now_slots >= limits_.least_slots && now_slots <= limits_.most_slots);
  const double now = reading.seconds;
  const bool in_trouble = is_short(reading) || has_swapped(reading) || has_stalled(reading);
  const uint32_t give = in_trouble ? slots_to_give(reading, now_slots) : 0;
  const uint32_t take = in_trouble ? 0 : slots_to_take(reading, now_slots);
  last_ = reading;
  if (now_slots < limits_.most_slots && take == 0) tight_at_ = now;
  if (in_trouble) {
    if (give > 0 && grown_at_ && now - *grown_at_ < kSoonSeconds) {
      calm_seconds_ = std::min(2 * calm_seconds_, kMostCalmSeconds);
      grown_at_.reset();  // one growth doubles once, however many steps the shortage takes
    }
    tight_at_ = now;
    return now_slots - give;
  }
  if (now_slots == limits_.most_slots) {
    // All is back and has stayed: the next shortage is another story.
    if (grown_at_ && now - *grown_at_ >= kMostCalmSeconds) calm_seconds_ = kCalmSeconds;
    return now_slots;
  }
  if (tight_at_ && now - *tight_at_ < calm_seconds_) return now_slots;
  if (grown_at_ && now - *grown_at_ < kGrowthSeconds) return now_slots;
  if (take > 0) grown_at_ = now;
  return now_slots + take;
}

}  // namespace wader
