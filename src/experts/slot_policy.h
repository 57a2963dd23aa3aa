// SlotPolicy: which expert sits in which slot. Pure bookkeeping: no I/O, no locks, no clock.
//
// A slot is free, being read (reserved), or resident; it is pinned while an expert in it is read or
// computed on, and a pinned slot is never given away. An expert becomes findable only by commit(),
// after its bytes were read and verified; a failed read leaves the slot free. A slot may also be
// retired: its memory is given back and nothing is put into it until it is restored.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "experts/use_history.h"

namespace wader {

// Who gives up a slot. Among equals the longest unused goes first.
enum class EvictionRule : uint8_t {
  blend,         // the longest expected wait until its next use (use_history.h)
  lru,           // the longest unused
  lfu,           // the fewest uses since start
  lfu_aged,      // the least share of its layer's uses, in a memory that fades
  tinylfu,       // an eighth of the slots are a queue of the newest; who leaves it and the least
                 // used of the others are compared, and the rarer one goes (after W-TinyLFU)
  layer_budget,  // as blend, but from a layer that holds more than its equal share of the slots
};

struct EvictionRuleName {
  EvictionRule rule;
  std::string_view name;
};
std::span<const EvictionRuleName> eviction_rules();
Result<EvictionRule> eviction_rule_from_name(std::string_view name);
std::string_view name_of(EvictionRule rule);

class SlotPolicy {
 public:
  // All memory is taken here.
  SlotPolicy(uint32_t slots, uint32_t layers, uint32_t experts, EvictionRule rule);

  // Pins the expert's slot when it is resident. `uses`: tokens of the pass that want it; 0 when it
  // is only predicted.
  std::optional<uint32_t> pin_resident(uint32_t layer, uint32_t expert, uint32_t uses);
  // Takes a slot for an expert that is not resident, evicting one if need be, and pins it. Nothing
  // when every slot is pinned.
  std::optional<uint32_t> reserve(uint32_t layer, uint32_t expert, uint32_t uses);
  // Counts uses of an expert whose slot was pinned or reserved with 0 before.
  void count_uses(uint32_t layer, uint32_t expert, uint32_t uses);

  void commit(
      uint32_t slot);  // a reserved slot's read succeeded: its expert is resident, still pinned
  void release_failed(uint32_t slot);  // it failed: the slot is free and unpinned
  void unpin(uint32_t slot);           // computed on: may be evicted from now on

  // Retires the slot that would be given away next; nothing when all others are pinned.
  std::optional<uint32_t> retire();
  // Makes a retired slot free again; nothing when none is.
  std::optional<uint32_t> restore();

  // What is known of the experts' uses: to be kept between runs, and to begin with.
  const UseHistory& history() const { return history_; }
  UseHistory& history() { return history_; }

  uint32_t slot_count() const { return static_cast<uint32_t>(slots_.size()); }
  uint32_t usable_count() const { return slot_count() - retired_count_; }
  uint32_t resident_count() const;
  bool is_resident(uint32_t layer, uint32_t expert) const {
    return slot_of_[key(layer, expert)] >= 0;
  }

 private:
  struct Slot {
    int64_t key = -1;  // layer · experts + expert, −1 when free
    bool pinned = false;
    bool resident = false;
    bool retired = false;
    bool recent = false;  // tinylfu: in the queue of the newest
  };
  // Goes first where it is less. The last part is the same in every rule: the time of the last use.
  struct Rank {
    int group = 0;
    double value = 0;
    uint64_t last_use = 0;
    auto operator<=>(const Rank&) const = default;
  };
  size_t key(uint32_t layer, uint32_t expert) const {
    return static_cast<size_t>(layer) * experts_ + expert;
  }
  void forget(Slot& slot);
  Rank rank(const Slot& slot, uint32_t for_layer) const;
  // The slot that goes first of those that `may` go; a free one before all.
  template <typename May>
  std::optional<uint32_t> first_of(uint32_t for_layer, May may) const;
  // The slot to give up for an expert of the layer.
  std::optional<uint32_t> victim(uint32_t for_layer);
  std::optional<uint32_t> tinylfu_victim(uint32_t for_layer);
  void add_recent(uint32_t slot);
  uint32_t recent_room() const;
  uint64_t last_use_of(uint32_t slot) const {
    return last_use_[static_cast<size_t>(slots_[slot].key)];
  }

  const uint32_t layers_, experts_;
  const EvictionRule rule_;
  uint64_t clock_ = 0;  // counts calls that count uses
  uint32_t retired_count_ = 0, recent_count_ = 0;
  UseHistory history_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> taken_;   // by layer: slots that hold an expert of it
  std::vector<int32_t> slot_of_;  // by key: slot of a resident expert, −1 otherwise
  std::vector<uint64_t>
      uses_;  // by key; kept when the expert leaves, so that a returning one has its history
  std::vector<uint64_t> last_use_;  // by key, clock_
};

}  // namespace wader
