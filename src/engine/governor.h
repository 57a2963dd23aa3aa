// MemoryGovernor: how many slots of the expert pool may be used now. Pure: no files, no clock.
//
// It gives memory up fast, by what is missing, and takes it back slowly and in small steps, so that
// two programs that watch the same memory do not chase each other. It never asks for more slots
// than the plan has, so that --memory stays a hard bound, nor for fewer than one working set.
#pragma once

#include <cstdint>
#include <optional>

namespace wader {

struct GovernorLimits {
  uint32_t most_slots;   // of the plan
  uint32_t least_slots;  // one working set
  uint64_t slot_bytes;
  uint64_t keep_bytes;  // of the machine's room that shall stay free
};

// Never less than this share of the budget stays free; more where the machine was asked how much it
// has (--memory auto), which left an eighth of it free: half of that may be lost before slots go.
uint64_t governor_keep_bytes(uint64_t budget_bytes, bool memory_is_automatic);

struct MemoryReading {
  double seconds = 0;  // of a steady clock
  // What the machine has left for this process; nothing: unknown.
  std::optional<uint64_t> room_bytes = {};
  // What the process was granted and has not touched yet: it takes that much of the room without
  // being asked again. Of it the slots still empty are what fewer slots save.
  uint64_t promised_bytes = 0;
  // Counters of time in which tasks stood still for memory, of the machine and of our cgroup.
  std::optional<uint64_t> machine_stall_microseconds = {}, cgroup_stall_microseconds = {};
  uint64_t swapped_bytes = 0;  // of this process
};

class MemoryGovernor {
 public:
  explicit MemoryGovernor(const GovernorLimits& limits);

  // To be asked once a reading, in the order of time, with the slots that are usable now.
  uint32_t target_slots(const MemoryReading& reading, uint32_t now_slots);

 private:
  bool is_short(const MemoryReading& reading) const;
  bool has_stalled(const MemoryReading& reading) const;
  bool has_swapped(const MemoryReading& reading) const;
  uint32_t slots_to_give(const MemoryReading& reading, uint32_t now_slots) const;
  uint32_t slots_to_take(const MemoryReading& reading, uint32_t now_slots) const;

  const GovernorLimits limits_;
  std::optional<MemoryReading> last_;
  std::optional<double> tight_at_, grown_at_;  // when no step of growth had room; when one was made
  double calm_seconds_;                        // with room for a step before it is made
};

}  // namespace wader
