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

void SlotPolicy::count_uses(uint32_t layer, uint32_t expert, uint32_t uses) {
  if (uses == 0) return;
  uses_[key(layer, expert)] += uses;
  last_use_[key(layer, expert)] = ++clock_;
}

std::optional<uint32_t> SlotPolicy::pin_resident(uint32_t layer, uint32_t expert, uint32_t uses) {
  const int32_t slot = slot_of_[key(layer, expert)];
  if (slot < 0) return std::nullopt;
  CHECK(!slots_[slot].pinned);  // a pass asks for each expert once and unpins before the next
  slots_[slot].pinned = true;
  count_uses(layer, expert, uses);
  return static_cast<uint32_t>(slot);
}

// A scan over all slots: 4,608 slots (GPT-OSS-120B whole) cost some µs, its read some ms.
std::optional<uint32_t> SlotPolicy::victim() const {
  std::optional<uint32_t> best;
  std::tuple<uint64_t, uint64_t> best_rank{};
  for (uint32_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s].pinned || slots_[s].retired) continue;
    if (slots_[s].key < 0) return s;
    const auto k = static_cast<size_t>(slots_[s].key);
    const std::tuple rank{rule_ == EvictionRule::lfu ? uses_[k] : 0, last_use_[k]};
    if (!best || rank < best_rank) best = s, best_rank = rank;
  }
  return best;
}

void SlotPolicy::forget(Slot& slot) {
  if (slot.key >= 0) slot_of_[static_cast<size_t>(slot.key)] = -1;
  slot = {};
}

std::optional<uint32_t> SlotPolicy::reserve(uint32_t layer, uint32_t expert, uint32_t uses) {
  CHECK(!is_resident(layer, expert));
  const auto slot = victim();
  if (!slot) return std::nullopt;
  Slot& taken = slots_[*slot];
  forget(taken);
  taken.key = static_cast<int64_t>(key(layer, expert));
  taken.pinned = true;
  count_uses(layer, expert, uses);
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

std::optional<uint32_t> SlotPolicy::retire() {
  const auto slot = victim();
  if (!slot) return std::nullopt;
  forget(slots_[*slot]);
  slots_[*slot].retired = true;
  ++retired_count_;
  return slot;
}

std::optional<uint32_t> SlotPolicy::restore() {
  const auto slot =
      std::find_if(slots_.begin(), slots_.end(), [](const Slot& s) { return s.retired; });
  if (slot == slots_.end()) return std::nullopt;
  slot->retired = false;
  --retired_count_;
  return static_cast<uint32_t>(slot - slots_.begin());
}

uint32_t SlotPolicy::resident_count() const {
  return static_cast<uint32_t>(
      std::count_if(slots_.begin(), slots_.end(), [](const Slot& s) { return s.resident; }));
}

}  // namespace wader
