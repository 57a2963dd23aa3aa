#include "experts/slot_policy.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "base/error.h"

namespace wader {

Result<EvictionRule> eviction_rule_from_name(std::string_view name) {
  if (name == "lfu") return EvictionRule::lfu;
  if (name == "lru") return EvictionRule::lru;
  return invalid_argument_error("cache policy '{}' is not known; there are lfu and lru", name);
}

SlotPolicy::SlotPolicy(uint32_t slots, uint32_t layers, uint32_t experts, EvictionRule rule)
    : experts_(experts),
      rule_(rule),
      slots_(slots),
      slot_of_(static_cast<size_t>(layers) * experts, -1),
      uses_(slot_of_.size(), 0),
      last_use_(slot_of_.size(), 0) {
  CHECK(slots >= 1);
}

void SlotPolicy::count_use(size_t key) {
  ++uses_[key];
  last_use_[key] = ++clock_;
}

std::optional<uint32_t> SlotPolicy::pin_resident(uint32_t layer, uint32_t expert) {
  const int32_t slot = slot_of_[key(layer, expert)];
  if (slot < 0) return std::nullopt;
  CHECK(!slots_[slot].pinned);  // a pass asks for each expert once and unpins before the next
  slots_[slot].pinned = true;
  count_use(key(layer, expert));
  return static_cast<uint32_t>(slot);
}

// A scan over all slots: 4,608 slots (GPT-OSS-120B whole) cost some µs, its read some ms.
std::optional<uint32_t> SlotPolicy::victim() const {
  std::optional<uint32_t> best;
  std::tuple<uint64_t, uint64_t> best_rank{};
  for (uint32_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s].pinned) continue;
    if (slots_[s].key < 0) return s;
    const auto k = static_cast<size_t>(slots_[s].key);
    const std::tuple rank{rule_ == EvictionRule::lfu ? uses_[k] : 0, last_use_[k]};
    if (!best || rank < best_rank) best = s, best_rank = rank;
  }
  return best;
}

std::optional<uint32_t> SlotPolicy::reserve(uint32_t layer, uint32_t expert) {
  CHECK(!is_resident(layer, expert));
  const auto slot = victim();
  if (!slot) return std::nullopt;
  Slot& taken = slots_[*slot];
  if (taken.key >= 0) slot_of_[static_cast<size_t>(taken.key)] = -1;
  taken = {static_cast<int64_t>(key(layer, expert)), true, false};
  count_use(key(layer, expert));
  return slot;
}

void SlotPolicy::commit(uint32_t slot) {
  Slot& s = slots_[slot];
  CHECK(s.pinned && !s.resident && s.key >= 0);
  s.resident = true;
  slot_of_[static_cast<size_t>(s.key)] = static_cast<int32_t>(slot);
}

void SlotPolicy::release_failed(uint32_t slot) {
  CHECK(slots_[slot].pinned && !slots_[slot].resident);
  slots_[slot] = {};
}

void SlotPolicy::unpin(uint32_t slot) {
  CHECK(slots_[slot].pinned && slots_[slot].resident);
  slots_[slot].pinned = false;
}

uint32_t SlotPolicy::resident_count() const {
  return static_cast<uint32_t>(
      std::count_if(slots_.begin(), slots_.end(), [](const Slot& s) { return s.resident; }));
}

}  // namespace wader
