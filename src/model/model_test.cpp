#include <gtest/gtest.h>

#include <cmath>

#include "arch/arch_testing.h"
#include "base/units.h"
#include "model/memory_plan.h"
#include "model/rope.h"
#include "model/state.h"

namespace wader {
namespace {

const Rope kGptOssRope = {150000, Yarn{32, 4096, 32, 1, false, 0.1 * std::log(32.0) + 1}};

ArchitectureSpec small_spec() {
  ArchitectureSpec spec = testing::small_attention_spec();
  spec.experts = 16;
  spec.experts_per_token = 4;
  spec.sliding_window = 128;
  spec.max_context = 131072;
  spec.vocab_rows = 1024;
  spec.layers = {LayerKind::sliding_attention, LayerKind::full_attention,
                 LayerKind::sliding_attention, LayerKind::full_attention};
  return spec;
}

// Case C-01: the range is not rounded, and the factor is 0.1 ln 32 + 1.
TEST(Rope, YarnOfGptOss) {
  const YarnRange range = yarn_range(kGptOssRope, 64);
  EXPECT_NEAR(range.low, 8.092779115512402, 1e-12);
  EXPECT_NEAR(range.high, 17.39802450158856, 1e-12);
  const RopeTable table(kGptOssRope, 64);
  EXPECT_NEAR(table.attention_factor(), 1.3465735902799727, 1e-6);
  const auto& f = table.inverse_frequencies();
  EXPECT_FLOAT_EQ(f[0], 1.0f);
  EXPECT_NEAR(f[8] / std::pow(150000.0, -16.0 / 64), 1.0, 1e-6);        // below low: unchanged
  EXPECT_NEAR(f[18] * 32 / std::pow(150000.0, -36.0 / 64), 1.0, 1e-6);  // above high: / 32
  const double ramp = (12 - range.low) / (range.high - range.low);
  EXPECT_NEAR(f[12] / (std::pow(150000.0, -24.0 / 64) * ((1 - ramp) + ramp / 32)), 1.0, 1e-6);
}

TEST(Rope, TruncateRoundsOutwards) {
  Rope rope = kGptOssRope;
  rope.yarn->truncate = true;
  EXPECT_EQ(yarn_range(rope, 64).low, 8);
  EXPECT_EQ(yarn_range(rope, 64).high, 18);
}

TEST(Rope, PositionZeroIsTheFactorAlone) {
  const RopeTable table(kGptOssRope, 64);
  std::vector<float> cos(32), sin(32);
  table.at(0, cos.data(), sin.data());
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(cos[i], table.attention_factor());
    EXPECT_EQ(sin[i], 0.0f);
  }
}

PlanRequest request(uint64_t budget, uint32_t context = 2048, uint32_t chunk = 32) {
  return {.trunk_bytes = 4 * kMiB,
          .expert_stride_bytes = 32768,
          .budget_bytes = budget,
          .context = context,
          .chunk = chunk,
          .slots = 0,
          .threads = 2};
}
constexpr MachineMemory kMachine = {.available_bytes = 8 * kGiB, .process_bytes = 9 * kMiB};

TEST(MemoryPlan, EverythingFitsTheBudgetAndSlotsAreWholeWorkingSets) {
  uint32_t last = 0;
  for (uint64_t budget = 32 * kMiB; budget < 48 * kMiB; budget += 100000) {
    const auto plan = plan_memory(small_spec(), request(budget), kMachine);
    if (!plan.ok()) {
      EXPECT_EQ(last, 0u);  // once a budget fits, every larger one does
      continue;
    }
    EXPECT_LE(plan->total_bytes(), budget);
    EXPECT_TRUE(plan->slots % 4 == 0 && plan->slots >= 4 && plan->slots <= 64);
    EXPECT_GE(plan->slots, last);
    last = plan->slots;
  }
  EXPECT_EQ(last, 64u);
}

TEST(MemoryPlan, AShortfallIsNamedInBytesAndWhatWouldFitDoes) {
  const auto plan = plan_memory(small_spec(), request(16 * kMiB), kMachine);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::over_budget);
  const std::string& message = plan.error().message;
  const auto at = message.find("try --memory ");
  ASSERT_NE(at, std::string::npos) << message;
  const std::string size = message.substr(at + 13, message.find(' ', at + 13) - at - 13);
  EXPECT_TRUE(plan_memory(small_spec(), request(parse_bytes(size).value()), kMachine).ok()) << size;
}

TEST(MemoryPlan, AMachineThatHasTooLittleIsNotToldToPromiseMore) {
  const auto plan = plan_memory(small_spec(), request(0), {16 * kMiB, 9 * kMiB});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::over_budget);
  EXPECT_NE(plan.error().message.find("--memory auto found, 16.0 MiB is"), std::string::npos)
      << plan.error().message;
  EXPECT_EQ(plan.error().message.find("try --memory"), std::string::npos);
}

TEST(MemoryPlan, ALongChunkStaysSmallBesideTheBudget) {
  uint32_t longest = 0;
  for (uint64_t budget = 32 * kMiB; budget <= kGiB; budget += 16 * kMiB) {
    const auto plan = plan_memory(small_spec(), request(budget, 2048, 0), {kGiB, 8 * kMiB});
    if (!plan.ok()) continue;
    EXPECT_GE(plan->chunk, longest);
    longest = plan->chunk;
    if (plan->chunk > 128) EXPECT_LE(plan->scratch_bytes, budget / 16);
  }
  EXPECT_EQ(longest, 512u);
}

TEST(MemoryPlan, AutoShrinksContextBeforeItGivesUp) {
  const auto roomy = plan_memory(small_spec(), request(kGiB, 0, 0), kMachine);
  ASSERT_TRUE(roomy.ok());
  EXPECT_EQ(roomy->context, 8192u);
  EXPECT_EQ(roomy->chunk, 512u);
  EXPECT_EQ(roomy->slots, 64u);
  const auto tight = plan_memory(small_spec(), request(23 * kMiB, 0, 0), kMachine);
  ASSERT_TRUE(tight.ok()) << tight.error().message;
  EXPECT_LT(tight->context, 8192u);
}

// Snapshots go before slots do: where the budget is small there are none.
TEST(MemoryPlan, SnapshotsTakeAThirtySecondOfTheBudget) {
  const ArchitectureSpec spec = testing::small_hybrid_spec();
  const uint64_t each = snapshot_bytes(spec, {512, 32, DType::f32});
  ASSERT_GT(each, 0u);
  uint64_t last = 0;
  for (const uint64_t budget : {24 * kMiB, 40 * kMiB, 80 * kMiB, kGiB}) {
    const auto plan = plan_memory(spec, request(budget, 512), kMachine);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_LE(plan->total_bytes(), budget);
    EXPECT_EQ(plan->snapshots_bytes, plan->snapshots * each);
    EXPECT_LE(plan->snapshots_bytes, budget / 16);
    EXPECT_GE(plan->snapshots, last);
    last = plan->snapshots;
  }
  EXPECT_EQ(last, 8u);
  PlanRequest asked = request(kGiB, 512);
  asked.snapshots = 20;
  EXPECT_EQ(plan_memory(spec, asked, kMachine)->snapshots, 20u);
  ArchitectureSpec full = spec;
  full.layers = {LayerKind::full_attention};
  EXPECT_EQ(plan_memory(full, asked, kMachine)->snapshots_bytes, 0u);
}

// A dense layer streams nothing: it needs no slots.
TEST(MemoryPlan, DenseLayersNeedNoSlots) {
  EXPECT_EQ(plan_memory(testing::small_hybrid_spec(), request(kGiB, 512), kMachine)->slots, 2 * 8u);
}

TEST(MemoryPlan, RefusesWhatCannotWork) {
  EXPECT_FALSE(plan_memory(small_spec(), request(kGiB, 131073), kMachine).ok());
  PlanRequest few = request(kGiB);
  few.slots = 3;
  const auto plan = plan_memory(small_spec(), few, kMachine);
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.error().message.find("working set"), std::string::npos);
  few.slots = 1000000;
  EXPECT_EQ(plan_memory(small_spec(), few, kMachine)->slots, 64u);
}

}  // namespace
}  // namespace wader
