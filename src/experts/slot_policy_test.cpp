// Every rule keeps the contract of the slots, whatever is asked in whatever order; and each does
// what it is named for.
#include "experts/slot_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace wader {
namespace {

std::string test_name(const ::testing::TestParamInfo<EvictionRuleName>& info) {
  std::string name(info.param.name);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// A second, plain book of what must hold, driven by random passes, predictions, failures and
// retirements.
class Book {
 public:
  static constexpr uint32_t kSlots = 24, kLayers = 4, kExperts = 16;
  explicit Book(EvictionRule rule, uint32_t seed)
      : policy_(kSlots, kLayers, kExperts, rule), random_(seed) {}

  void step() {
    const uint32_t dice = pick(20);
    if (dice < 12)
      pass(pick(kLayers));
    else if (dice < 16)
      predict(pick(kLayers), pick(kExperts));
    else if (dice < 18)
      retire();
    else
      restore();
    check();
  }

 private:
  using Key = std::pair<uint32_t, uint32_t>;
  uint32_t pick(uint32_t below) { return static_cast<uint32_t>(random_() % below); }

  // A slot for the expert, which must be one that may be taken.
  std::optional<uint32_t> reserve(const Key& key, uint32_t uses) {
    const auto slot = policy_.reserve(key.first, key.second, uses);
    EXPECT_EQ(slot.has_value(), pinned_.size() + retired_.size() < kSlots);
    if (!slot) return slot;
    EXPECT_LT(*slot, kSlots);
    EXPECT_FALSE(pinned_.contains(*slot)) << "a pinned slot was given away";
    EXPECT_FALSE(retired_.contains(*slot)) << "a retired slot was given away";
    const bool free_one = resident_.size() + pinned_reads_ + retired_.size() < kSlots;
    std::erase_if(resident_, [&](const auto& held) {
      EXPECT_FALSE(free_one && held.second == *slot) << "evicted although a slot was free";
      return held.second == *slot;
    });
    pinned_[*slot] = key;
    ++pinned_reads_;
    EXPECT_FALSE(policy_.is_resident(key.first, key.second));
    return slot;
  }
  // Its read ends, one in eight badly; true when it is resident.
  bool land(uint32_t slot) {
    const Key key = pinned_.at(slot);
    --pinned_reads_;
    if (pick(8) == 0) {
      policy_.release_failed(slot);
      pinned_.erase(slot);
      return false;
    }
    policy_.commit(slot);
    resident_[key] = slot;
    return true;
  }
  void unpin(uint32_t slot) {
    policy_.unpin(slot);
    pinned_.erase(slot);
  }

  void pass(uint32_t layer) {
    std::vector<uint32_t> held;
    for (uint32_t expert = 0; expert < kExperts; ++expert) {
      if (pick(3) != 0) continue;
      const uint32_t uses = 1 + pick(9);
      const Key key{layer, expert};
      if (const auto predicted = predicted_.find(key); predicted != predicted_.end()) {
        policy_.count_uses(layer, expert, uses);  // pinned since it was read ahead
        held.push_back(predicted->second);
        predicted_.erase(predicted);
      } else if (const auto slot = policy_.pin_resident(layer, expert, uses)) {
        ASSERT_TRUE(resident_.contains(key));
        EXPECT_EQ(resident_[key], *slot);
        pinned_[*slot] = key;
        held.push_back(*slot);
      } else {
        EXPECT_FALSE(resident_.contains(key));
        const auto taken = reserve(key, uses);
        if (taken && land(*taken)) held.push_back(*taken);
      }
    }
    // Predictions for this layer that nobody wanted.
    std::erase_if(predicted_, [&](const auto& prediction) {
      if (prediction.first.first != layer) return false;
      held.push_back(prediction.second);
      return true;
    });
    for (const uint32_t slot : held) unpin(slot);
  }
  void predict(uint32_t layer, uint32_t expert) {
    const Key key{layer, expert};
    if (resident_.contains(key) || predicted_.size() > kSlots / 2) return;
    const auto slot = reserve(key, 0);
    if (slot && land(*slot)) predicted_[key] = *slot;
  }
  void retire() {
    if (retired_.size() >= kSlots - 4) return;
    const auto slot = policy_.retire();
    EXPECT_EQ(slot.has_value(), pinned_.size() + retired_.size() < kSlots);
    if (!slot) return;
    EXPECT_FALSE(pinned_.contains(*slot));
    EXPECT_TRUE(retired_.insert(*slot).second);
    std::erase_if(resident_, [&](const auto& held) { return held.second == *slot; });
  }
  void restore() {
    const auto slot = policy_.restore();
    EXPECT_EQ(slot.has_value(), !retired_.empty());
    if (slot) EXPECT_EQ(retired_.erase(*slot), 1u);
  }
  void check() {
    EXPECT_EQ(policy_.usable_count(), kSlots - retired_.size());
    EXPECT_EQ(policy_.resident_count(), resident_.size());
    for (uint32_t layer = 0; layer < kLayers; ++layer)
      for (uint32_t expert = 0; expert < kExperts; ++expert)
        EXPECT_EQ(policy_.is_resident(layer, expert), resident_.contains({layer, expert}));
  }

  SlotPolicy policy_;
  std::mt19937 random_;
  std::map<Key, uint32_t> resident_, predicted_;
  std::map<uint32_t, Key> pinned_;
  std::set<uint32_t> retired_;
  size_t pinned_reads_ = 0;  // reserved, not landed
};

class EveryRule : public ::testing::TestWithParam<EvictionRuleName> {};
INSTANTIATE_TEST_SUITE_P(SlotPolicy, EveryRule,
                         ::testing::ValuesIn(eviction_rules().begin(), eviction_rules().end()),
                         test_name);

TEST_P(EveryRule, KeepsTheContractUnderRandomWork) {
  for (uint32_t seed = 1; seed <= 6 && !HasFailure(); ++seed) {
    Book book(GetParam().rule, seed);
    for (int i = 0; i < 400 && !HasFailure(); ++i) book.step();
  }
}

TEST_P(EveryRule, IsFoundByItsName) {
  EXPECT_EQ(eviction_rule_from_name(GetParam().name).value(), GetParam().rule);
  EXPECT_EQ(name_of(GetParam().rule), GetParam().name);
}

TEST(SlotPolicy, UnknownRuleIsRefusedWithTheKnownOnes) {
  const auto rule = eviction_rule_from_name("fifo");
  ASSERT_FALSE(rule.ok());
  for (const EvictionRuleName& known : eviction_rules())
    EXPECT_NE(rule.error().message.find(known.name), std::string::npos);
}

void use(SlotPolicy& policy, uint32_t layer, uint32_t expert, uint32_t uses) {
  auto slot = policy.pin_resident(layer, expert, uses);
  if (!slot) {
    slot = policy.reserve(layer, expert, uses);
    policy.commit(*slot);
  }
  policy.unpin(*slot);
}

// A prompt's pass over two layers wants all experts, some by many tokens: those are there after it.
TEST(SlotPolicy, BlendKeepsWhatManyTokensOfAPromptWanted) {
  SlotPolicy policy(8, 2, 16, EvictionRule::blend);
  for (uint32_t layer = 0; layer < 2; ++layer)
    for (uint32_t expert = 0; expert < 16; ++expert)
      use(policy, layer, expert, expert % 4 == 0 ? 100 : 3);
  uint32_t kept = 0;
  for (uint32_t layer = 0; layer < 2; ++layer)
    for (uint32_t expert = 0; expert < 16; expert += 4)
      kept += policy.is_resident(layer, expert) ? 1 : 0;
  EXPECT_GE(kept, 7u);  // the last one read may stand in the place of one of eight
}

TEST(SlotPolicy, WhatWasReadAheadInVainGoesFirst) {
  SlotPolicy policy(3, 2, 8, EvictionRule::blend);
  use(policy, 0, 1, 1);
  use(policy, 0, 2, 1);
  const auto slot = policy.reserve(1, 5, 0);
  policy.commit(*slot);
  policy.unpin(*slot);
  use(policy, 0, 3, 1);
  EXPECT_FALSE(policy.is_resident(1, 5));
}

TEST(SlotPolicy, LayerBudgetTakesFromTheLayerThatHasMost) {
  SlotPolicy policy(4, 2, 8, EvictionRule::layer_budget);
  for (uint32_t expert = 0; expert < 4; ++expert) use(policy, 0, expert, 5);
  use(policy, 1, 0, 1);
  use(policy, 1, 1, 1);
  use(policy, 0, 6, 1);  // its own layer is at its budget
  EXPECT_TRUE(policy.is_resident(1, 0));
  EXPECT_TRUE(policy.is_resident(1, 1));
}

TEST(SlotPolicy, TinylfuKeepsTheUsedFromAStreamOfNewOnes) {
  SlotPolicy policy(8, 1, 64, EvictionRule::tinylfu);
  for (int round = 0; round < 4; ++round)
    for (uint32_t expert = 0; expert < 6; ++expert) use(policy, 0, expert, 1);
  for (uint32_t expert = 10; expert < 30; ++expert) use(policy, 0, expert, 1);
  for (uint32_t expert = 0; expert < 6; ++expert) EXPECT_TRUE(policy.is_resident(0, expert));
}

}  // namespace
}  // namespace wader
