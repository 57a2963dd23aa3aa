#include "engine/governor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "base/units.h"

namespace wader {
namespace {

constexpr uint64_t kSlot = 4 * kMiB;
constexpr GovernorLimits kLimits = {
    .most_slots = 256, .least_slots = 8, .slot_bytes = kSlot, .keep_bytes = 64 * kMiB};

// A machine with `machine_bytes` for all: what others take of it is a function of time, ours is the
// pool. Read four times a second, as the engine does.
class Machine {
 public:
  explicit Machine(uint64_t machine_bytes) : machine_bytes_(machine_bytes) {}

  void run(double seconds, const std::function<uint64_t(double)>& others_bytes) {
    for (double end = now_ + seconds; now_ < end; now_ += 0.25) {
      const uint64_t used = others_bytes(now_) + slots * kSlot;
      overcommitted |= used > machine_bytes_;
      MemoryReading reading = extra;
      reading.seconds = now_;
      reading.room_bytes = machine_bytes_ - std::min(machine_bytes_, used);
      const uint32_t next = governor.target_slots(reading, slots);
      ASSERT_GE(next, kLimits.least_slots);
      ASSERT_LE(next, kLimits.most_slots);
      shrinks += next<slots, growths += next> slots;
      slots = next;
    }
  }

  MemoryGovernor governor{kLimits};
  uint32_t slots = kLimits.most_slots, shrinks = 0, growths = 0;
  MemoryReading extra;
  bool overcommitted = false;

 private:
  uint64_t machine_bytes_;
  double now_ = 100;
};

TEST(Governor, AMachineWithRoomChangesNothing) {
  Machine machine(2 * kGiB);
  machine.run(600, [](double) { return 100 * kMiB; });
  EXPECT_EQ(machine.slots, kLimits.most_slots);
  EXPECT_EQ(machine.shrinks + machine.growths, 0u);
}

TEST(Governor, AShortageIsMetAtOnceAndByWhatIsMissing) {
  MemoryGovernor governor(kLimits);
  MemoryReading reading{.seconds = 1, .room_bytes = 40 * kMiB};
  // 24 MiB are missing, 88 up to the double.
  EXPECT_EQ(governor.target_slots(reading, 256), 256u - 22);
  reading = {.seconds = 2, .room_bytes = 600 * kMiB, .promised_bytes = 600 * kMiB};
  EXPECT_EQ(governor.target_slots(reading, 256), 256u - 32);
  reading = {.seconds = 3, .room_bytes = 0, .promised_bytes = 5 * kGiB};
  EXPECT_EQ(governor.target_slots(reading, 100), kLimits.least_slots);
}

TEST(Governor, ASpikeShrinksAndAfterwardsAllComesBackSlowly) {
  Machine machine(2 * kGiB);
  machine.run(10, [](double) { return 500 * kMiB; });
  machine.run(20, [](double) { return 1500 * kMiB; });
  EXPECT_LE(machine.slots * kSlot, 548 * kMiB);
  EXPECT_GT(machine.slots * kSlot, 400 * kMiB);
  EXPECT_LE(machine.shrinks, 3u);
  const uint32_t shrunk = machine.slots;
  machine.run(4.75, [](double) { return 500 * kMiB; });
  EXPECT_EQ(machine.slots, shrunk);
  machine.run(60, [](double) { return 500 * kMiB; });
  EXPECT_EQ(machine.slots, kLimits.most_slots);
}

TEST(Governor, ASlowLeakIsFollowedWithoutOvercommitting) {
  Machine machine(2 * kGiB);
  machine.run(1000, [](double now) {
    return std::min<uint64_t>(static_cast<uint64_t>((now - 100) * 3.0 * kMiB), 1900 * kMiB);
  });
  EXPECT_FALSE(machine.overcommitted);
  EXPECT_LT(machine.slots, 40u);
  // Steps of a gap, not of a slot: 1 GiB given back in tens of steps.
  EXPECT_LT(machine.shrinks, 30u);
  EXPECT_EQ(machine.growths, 0u);
}

TEST(Governor, ANeighbourThatComesAndGoesIsNotChased) {
  Machine machine(2 * kGiB);
  const auto others = [](double now) { return std::fmod(now, 20) < 6 ? 1500 * kMiB : 200 * kMiB; };
  machine.run(200, others);
  const uint32_t early = machine.shrinks;
  machine.run(2000, others);
  // Every 20 seconds at first; once that is known, the pool stays where it fits.
  EXPECT_GE(early, 2u);
  EXPECT_LE(machine.shrinks - early, 15u);
  machine.run(300, [](double) { return 200 * kMiB; });
  EXPECT_EQ(machine.slots, kLimits.most_slots);
}

TEST(Governor, TwoThatWatchTheSameMemorySettle) {
  constexpr uint64_t kAll = 1536 * kMiB;  // three quarters of what both pools want
  MemoryGovernor governors[2] = {MemoryGovernor(kLimits), MemoryGovernor(kLimits)};
  uint32_t slots[2] = {256, 8};
  uint32_t late_changes = 0;
  for (int i = 0; i < 4 * 900; ++i) {
    for (int who : {0, 1}) {
      const uint64_t used = (slots[0] + slots[1]) * kSlot;
      const MemoryReading reading{.seconds = i * 0.25 + who * 0.1,
                                  .room_bytes = kAll - std::min(kAll, used)};
      const uint32_t next = governors[who].target_slots(reading, slots[who]);
      if (i > 4 * 300) late_changes += next != slots[who];
      slots[who] = next;
    }
  }
  EXPECT_LE(late_changes, 4u);
  EXPECT_GT((slots[0] + slots[1]) * kSlot, kAll - 256 * kMiB);
}

TEST(Governor, StallsCostHalfAPoolAtMostAndNothingBesideAmpleRoom) {
  struct Case {
    uint64_t spare_bytes;
    uint32_t slots;
  };
  for (const auto& [spare, slots] : {Case{200 * kMiB, 128}, {500 * kMiB, 128}, {512 * kMiB, 256}}) {
    MemoryGovernor governor(kLimits);
    uint32_t now_slots = 256;
    uint64_t stalled = 0;
    MemoryReading reading{.room_bytes = spare + kGiB, .promised_bytes = kGiB};
    for (int i = 0; i < 80; ++i) {
      reading.seconds += 0.25;
      reading.cgroup_stall_microseconds = stalled += 100000;  // 40 % of the time
      now_slots = governor.target_slots(reading, now_slots);
    }
    EXPECT_EQ(now_slots, slots) << spare;
    for (int i = 0; i < 400; ++i) {  // no new ones
      reading.seconds += 0.25;
      now_slots = governor.target_slots(reading, now_slots);
    }
    EXPECT_EQ(now_slots, kLimits.most_slots);
  }
}

TEST(Governor, WhatIsSwappedOutCostsSlotsOnce) {
  Machine machine(4 * kGiB);
  const auto others = [](double) { return 100 * kMiB; };
  for (int i = 0; i < 80; ++i) {
    machine.extra.swapped_bytes += kMiB;
    machine.run(0.25, others);
  }
  EXPECT_LT(machine.slots, 16u);
  machine.run(90, others);  // what is out stays out; only more of it is trouble
  EXPECT_EQ(machine.slots, kLimits.most_slots);
}

TEST(Governor, FewStallsAndCountersThatStartAgainAreNothing) {
  Machine machine(1224 * kMiB);
  for (int i = 0; i < 200; ++i) {
    machine.extra.machine_stall_microseconds = i % 50 * 5000;  // 2 %, from 0 again and again
    machine.run(0.25, [](double) { return 10 * kMiB; });
  }
  EXPECT_EQ(machine.shrinks, 0u);
}

TEST(Governor, WithoutInformationNothingShrinks) {
  MemoryGovernor governor(kLimits);
  uint32_t slots = 100;
  for (int i = 0; i < 400; ++i) slots = governor.target_slots({.seconds = i * 0.25}, slots);
  EXPECT_EQ(slots, kLimits.most_slots);  // and --memory is the only bound
}

TEST(Governor, WhateverIsReadTheBoundsHold) {
  std::mt19937_64 rng(7);
  for (const uint32_t least : {1u, 4u, 16u}) {
    MemoryGovernor governor(
        {.most_slots = 16, .least_slots = least, .slot_bytes = 1, .keep_bytes = ~uint64_t{0} / 8});
    uint32_t slots = 16;
    double now = 0;
    for (int i = 0; i < 20000; ++i) {
      MemoryReading reading{.seconds = now += static_cast<double>(rng() % 100) * 0.1};
      if (rng() % 4) reading.room_bytes = rng() >> (rng() % 64);
      if (rng() % 2) reading.promised_bytes = rng() >> (1 + rng() % 63);
      if (rng() % 2) reading.machine_stall_microseconds = rng() >> (rng() % 64);
      reading.swapped_bytes = rng() >> (rng() % 64);
      slots = governor.target_slots(reading, slots);
      ASSERT_GE(slots, least);
      ASSERT_LE(slots, 16u);
    }
  }
}

TEST(Governor, KeepsMoreWhereTheMachineWasAsked) {
  EXPECT_EQ(governor_keep_bytes(64 * kMiB, false), 2 * kMiB);
  EXPECT_EQ(governor_keep_bytes(64 * kMiB, true), 4 * kMiB);
  EXPECT_EQ(governor_keep_bytes(0, false), kMiB / 2);
  EXPECT_EQ(governor_keep_bytes(~uint64_t{0}, true), 512 * kMiB);
}

}  // namespace
}  // namespace wader
