#include "engine/pool_governor.h"

#include <algorithm>
#include <chrono>

namespace wader {
namespace {

// A reading costs some 100 µs; memory that others take in less time than this must be in what is
// kept free.
constexpr double kReadingSeconds = 0.25;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

PoolGovernor::PoolGovernor(ExpertCache& cache, const MemoryPlan& plan, uint64_t slot_bytes,
                           bool memory_is_automatic, bool stalls_count,
                           std::function<MemoryReading()> read)
    : cache_(cache),
      policy_({.most_slots = plan.slots,
               .least_slots = plan.working_set_slots,
               .slot_bytes = slot_bytes,
               .keep_bytes = governor_keep_bytes(plan.budget_bytes, memory_is_automatic)}),
      planned_bytes_(plan.total_bytes()),
      slot_bytes_(slot_bytes),
      stalls_count_(stalls_count),
      injected_(std::move(read)) {
  if (!injected_) watch_.emplace();
}

std::optional<MemoryReading> PoolGovernor::read() {
  if (injected_) return injected_();
  const double now = steady_seconds();
  if (read_at_ && now - *read_at_ < kReadingSeconds) return std::nullopt;
  read_at_ = now;
  const MemoryState state = watch_->read();
  const uint64_t retired_bytes =
      uint64_t{cache_.slot_count() - cache_.usable_count()} * slot_bytes_;
  const uint64_t granted = planned_bytes_ - std::min(planned_bytes_, retired_bytes);
  MemoryReading reading{.seconds = now,
                        .room_bytes = state.room_bytes,
                        .promised_bytes = granted - std::min(granted, state.resident_bytes),
                        .swapped_bytes = state.swapped_bytes};
  if (stalls_count_) {
    reading.machine_stall_microseconds = state.machine_stall_microseconds;
    reading.cgroup_stall_microseconds = state.cgroup_stall_microseconds;
  }
  return reading;
}

void PoolGovernor::tick(EngineStats& stats) {
  const auto reading = read();
  if (!reading) return;
  const uint32_t now = cache_.usable_count();
  const uint32_t target = policy_.target_slots(*reading, now);
  if (target == now) return;
  cache_.set_usable_slots(target);
  if (target < now)
    ++stats.pool_shrinks;
  else
    ++stats.pool_growths;
}

}  // namespace wader
