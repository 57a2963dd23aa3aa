#include "measure/predict.h"

#include <gtest/gtest.h>

#include "container/container_testing.h"
#include "measure/active_work.h"

namespace wader {
namespace {

// Qwen3-30B-A3B's shape, as far as predictions look at it.
Manifest qwen3_manifest() {
  Manifest m;
  m.spec = testing::small_attention_spec();
  m.spec.experts = 128;
  m.spec.experts_per_token = 8;
  m.spec.layers.assign(48, LayerKind::full_attention);
  m.experts.stride_bytes = 2654208;
  m.experts.payload_bytes = 2654208;
  m.trunk.push_back({"head", DType::bf16, {2, 2}, 0, 1500000000});
  return m;
}
constexpr uint32_t kAll = 48 * 128;
constexpr MachineSpeed kSpeed{2e9, 30e9, 1e12};

PredictionRequest request(uint32_t slots) {
  return {
      .slots = slots, .chunk = 128, .kv_dtype = DType::f16, .position = 0, .prompt_tokens = 512};
}

TEST(Predict, WithoutSlotsTheDiskDecides) {
  const Prediction p = predict(qwen3_manifest(), request(0), kSpeed);
  EXPECT_EQ(p.uniform.hit_rate, 0);
  EXPECT_EQ(p.uniform.read_bytes_per_token, 48.0 * 8 * 2654208);
  const double read_seconds = p.uniform.read_bytes_per_token / 2e9;
  const double memory_seconds =
      1.2 * static_cast<double>(active_bytes(qwen3_manifest(), 0, DType::f16).total()) / 30e9 +
      2 * p.uniform.read_bytes_per_token / 30e9;
  EXPECT_NEAR(1 / p.uniform.tokens_per_second, read_seconds + memory_seconds, 1e-9);
}

TEST(Predict, WithAllSlotsOnlyMemoryDoes) {
  const Prediction p = predict(qwen3_manifest(), request(kAll), kSpeed);
  EXPECT_EQ(p.uniform.hit_rate, 1);
  EXPECT_EQ(p.skewed.read_bytes_per_token, 0);
  const double floor_seconds =
      static_cast<double>(active_bytes(qwen3_manifest(), 0, DType::f16).total()) / 30e9;
  EXPECT_NEAR(p.skewed.tokens_per_second, 1 / (1.2 * floor_seconds), 1e-9);
  EXPECT_EQ(p.skewed.tokens_per_second, p.uniform.tokens_per_second);
}

TEST(Predict, GivesTheReportedHitRates) {
  EXPECT_NEAR(predict(qwen3_manifest(), request(48 * 8), kSpeed).skewed.hit_rate, 0.32, 0.005);
  Manifest gpt_oss = qwen3_manifest();
  gpt_oss.spec.experts = 32;
  gpt_oss.spec.experts_per_token = 4;
  EXPECT_NEAR(predict(gpt_oss, request(48 * 8), kSpeed).skewed.hit_rate, 0.40, 0.005);
}

TEST(Predict, MoreSlotsAndFasterPartsNeverCostSpeed) {
  double last = 0, last_hits = -1, last_reads = 1e300;
  for (uint32_t slots = 0; slots <= kAll; slots += 64) {
    const Prediction p = predict(qwen3_manifest(), request(slots), kSpeed);
    EXPECT_GE(p.skewed.hit_rate, p.uniform.hit_rate);
    EXPECT_GE(p.skewed.hit_rate, last_hits);
    EXPECT_GE(p.skewed.tokens_per_second, last);
    EXPECT_LE(p.first_prompt_read_bytes, last_reads);
    last = p.skewed.tokens_per_second;
    last_hits = p.skewed.hit_rate;
    last_reads = p.first_prompt_read_bytes;
  }
  const auto speed_of = [](MachineSpeed speed) {
    return predict(qwen3_manifest(), request(1000), speed).skewed.tokens_per_second;
  };
  EXPECT_GT(speed_of({4e9, 30e9}), speed_of({2e9, 30e9}));
  EXPECT_GT(speed_of({2e9, 60e9}), speed_of({2e9, 30e9}));
}

TEST(Predict, TheFirstPromptReadsWhatItWants) {
  PredictionRequest one = request(0);
  one.prompt_tokens = 1;
  const Manifest m = qwen3_manifest();
  EXPECT_NEAR(predict(m, one, kSpeed).first_prompt_read_bytes, 48.0 * 8 * 2654208, 1);
  // 512 tokens in one pass want nearly all, once; in four passes with few slots, nearly all each.
  PredictionRequest whole = request(48 * 8);
  whole.chunk = 512;
  const double all = 48.0 * 128 * 2654208;
  EXPECT_NEAR(predict(m, whole, kSpeed).first_prompt_read_bytes, all, all / 100);
  EXPECT_GT(predict(m, request(48 * 8), kSpeed).first_prompt_read_bytes, 3.5 * all);
  EXPECT_NEAR(predict(m, request(kAll), kSpeed).first_prompt_read_bytes, all, all / 100);
}

TEST(Predict, TheFirstTokenWaitsForTheLongerOfReadingAndComputing) {
  const Manifest m = qwen3_manifest();
  const Prediction slow_disk = predict(m, request(384), {1e8, 30e9, 1e15});
  EXPECT_NEAR(*slow_disk.first_token_seconds, slow_disk.first_prompt_read_bytes / 1e8, 0.5);
  const Prediction slow_chip = predict(m, request(384), {1e15, 30e9, 1e9});
  EXPECT_NEAR(*slow_chip.first_token_seconds, matrix_operations(m.spec, 512) / 0.45e9, 0.5);
  EXPECT_FALSE(predict(m, request(384), {1e9, 30e9}).first_token_seconds.has_value());
}

TEST(Predict, AModelWithoutExpertsReadsNothing) {
  Manifest m = qwen3_manifest();
  m.spec.experts = m.spec.experts_per_token = 0;
  for (LayerSpec& layer : m.spec.layers) layer.ffn = FfnKind::dense;
  m.spec.dense_inner = 64;
  const Prediction p = predict(m, request(0), kSpeed);
  EXPECT_EQ(p.first_prompt_read_bytes, 0);
  EXPECT_GT(p.skewed.tokens_per_second, 0);
}

}  // namespace
}  // namespace wader
