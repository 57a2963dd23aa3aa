#include "experts/slot_policy.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/error.h"

namespace wader {

namespace {

constexpr EvictionRuleName kRules[] = {
    {EvictionRule::blend, "blend"},     {EvictionRule::lru, "lru"},
    {EvictionRule::lfu, "lfu"},         {EvictionRule::lfu_aged, "lfu-aged"},
    {EvictionRule::tinylfu, "tinylfu"}, {EvictionRule::layer_budget, "layer-budget"},
};
constexpr uint32_t kRecentShare = 8;       // tinylfu: one slot of so many is for the newest
constexpr uint32_t kNoLayer = UINT32_MAX;  // the slot is for no expert

}  // namespace

std::span<const EvictionRuleName> eviction_rules() {
  return kRules;
}

Result<EvictionRule> eviction_rule_from_name(std::string_view name) {
  std::string names;
  for (const EvictionRuleName& rule : kRules) {
    if (rule.name == name) return rule.rule;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", rule.name);
  }
  return invalid_argument_error("cache policy '{}' is not known; there are {}", name, names);
}

std::string_view name_of(EvictionRule rule) {
  for (const EvictionRuleName& known : kRules)
    if (known.rule == rule) return known.name;
  UNREACHABLE("no such case");
}

SlotPolicy::SlotPolicy(uint32_t slots, uint32_t layers, uint32_t experts, EvictionRule rule)
    : layers_(layers),
      experts_(experts),
      rule_(rule),
      history_(layers, experts),
      slots_(slots),
      taken_(layers, 0),
      slot_of_(static_cast<size_t>(layers) * experts, -1),
      uses_(slot_of_.size(), 0),
      last_use_(slot_of_.size(), 0) {
  CHECK(slots >= 1);
}

void SlotPolicy::count_uses(uint32_t layer, uint32_t expert, uint32_t uses) {
  if (uses == 0) return;
  uses_[key(layer, expert)] += uses;
  last_use_[key(layer, expert)] = ++clock_;
  history_.count(layer, expert, uses);
}

std::optional<uint32_t> SlotPolicy::pin_resident(uint32_t layer, uint32_t expert, uint32_t uses) {
  const int32_t slot = slot_of_[key(layer, expert)];
  if (slot < 0) return std::nullopt;
  CHECK(!slots_[slot].pinned);  // a pass asks for each expert once and unpins before the next
  slots_[slot].pinned = true;
  count_uses(layer, expert, uses);
  return static_cast<uint32_t>(slot);
}

SlotPolicy::Rank SlotPolicy::rank(const Slot& slot, uint32_t for_layer) const {
  const auto k = static_cast<size_t>(slot.key);
  Rank rank{.last_use = last_use_[k]};
  switch (rule_) {
    case EvictionRule::lru:
      break;
    case EvictionRule::lfu:
      rank.value = static_cast<double>(uses_[k]);
      break;
    case EvictionRule::lfu_aged:
    case EvictionRule::tinylfu:
      rank.value = history_.share(k, UseHistory::kMiddleSpan);
      break;
    case EvictionRule::layer_budget: {
      const uint32_t layer = static_cast<uint32_t>(k / experts_), budget = usable_count() / layers_;
      const uint32_t coming = layer == for_layer ? 1 : 0;
      rank.group = taken_[layer] + coming > budget ? 0 : 1;
      [[fallthrough]];
    }
    case EvictionRule::blend:
      rank.value = -history_.expected_wait(k);
      break;
  }
  return rank;
}

// A scan over all slots: 4,608 slots (GPT-OSS-120B whole) cost some µs, its read some ms.
template <typename May>
std::optional<uint32_t> SlotPolicy::first_of(uint32_t for_layer, May may) const {
  std::optional<uint32_t> best;
  Rank best_rank;
  for (uint32_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s].pinned || slots_[s].retired) continue;
    if (slots_[s].key < 0) return s;
    if (!may(slots_[s])) continue;
    const Rank own = rank(slots_[s], for_layer);
    if (!best || own < best_rank) best = s, best_rank = own;
  }
  return best;
}

std::optional<uint32_t> SlotPolicy::victim(uint32_t for_layer) {
  if (rule_ == EvictionRule::tinylfu) return tinylfu_victim(for_layer);
  return first_of(for_layer, [](const Slot&) { return true; });
}

std::optional<uint32_t> SlotPolicy::tinylfu_victim(uint32_t for_layer) {
  std::optional<uint32_t> queued;  // the longest unused of the queue
  for (uint32_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s].pinned || !slots_[s].recent) continue;
    if (!queued || last_use_of(s) < last_use_of(*queued)) queued = s;
  }
  const auto main = first_of(for_layer, [](const Slot& slot) { return !slot.recent; });
  if (main && slots_[*main].key < 0) return main;
  if (!queued || !main) return main ? main : queued;
  if (recent_count_ < recent_room()) return main;
  if (rank(slots_[*queued], for_layer).value <= rank(slots_[*main], for_layer).value) return queued;
  slots_[*queued].recent = false;
  --recent_count_;
  return main;
}

uint32_t SlotPolicy::recent_room() const {
  return std::max(1u, usable_count() / kRecentShare);
}

void SlotPolicy::forget(Slot& slot) {
  if (slot.key >= 0) {
    if (slot.resident) slot_of_[static_cast<size_t>(slot.key)] = -1;
    --taken_[static_cast<size_t>(slot.key) / experts_];
  }
  if (slot.recent) --recent_count_;
  slot = {};
}

std::optional<uint32_t> SlotPolicy::reserve(uint32_t layer, uint32_t expert, uint32_t uses) {
  CHECK(!is_resident(layer, expert));
  const auto slot = victim(layer);
  if (!slot) return std::nullopt;
  Slot& taken = slots_[*slot];
  forget(taken);
  taken.key = static_cast<int64_t>(key(layer, expert));
  taken.pinned = true;
  ++taken_[layer];
  count_uses(layer, expert, uses);
  if (rule_ == EvictionRule::tinylfu) add_recent(*slot);
  return slot;
}

// Free slots fill without a victim: the queue then hands its oldest on to the others.
void SlotPolicy::add_recent(uint32_t slot) {
  slots_[slot].recent = true;
  if (++recent_count_ <= recent_room()) return;
  std::optional<uint32_t> oldest;
  for (uint32_t s = 0; s < slots_.size(); ++s)
    if (slots_[s].recent && s != slot && (!oldest || last_use_of(s) < last_use_of(*oldest)))
      oldest = s;
  if (!oldest) return;
  slots_[*oldest].recent = false;
  --recent_count_;
}

void SlotPolicy::commit(uint32_t slot) {
  Slot& s = slots_[slot];
  CHECK(s.pinned && !s.resident && s.key >= 0);
  s.resident = true;
  slot_of_[static_cast<size_t>(s.key)] = static_cast<int32_t>(slot);
}

void SlotPolicy::release_failed(uint32_t slot) {
  CHECK(slots_[slot].pinned && !slots_[slot].resident);
  forget(slots_[slot]);
}

void SlotPolicy::unpin(uint32_t slot) {
  CHECK(slots_[slot].pinned && slots_[slot].resident);
  slots_[slot].pinned = false;
}

std::optional<uint32_t> SlotPolicy::retire() {
  const auto slot = victim(kNoLayer);
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
