#include "sampler/logit_blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace wader {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

LogitBlock random_block(std::mt19937_64& random) {
  std::normal_distribution<float> normal(0, 2);
  LogitBlock block;
  for (float& x : block) x = std::round(normal(random) * 4) / 4;  // many ties
  return block;
}

TEST(LogitBlocks, MaxSeesEveryPosition) {
  std::mt19937_64 random(1);
  for (uint32_t i = 0; i < kLogitBlock; ++i) {
    LogitBlock block = random_block(random);
    EXPECT_EQ(block_max(block.data()).max, *std::max_element(block.begin(), block.end()));
    block[i] = 99;
    EXPECT_EQ(block_max(block.data()).max, 99);
    EXPECT_TRUE(block_max(block.data()).clean);
    block[i] = -kInfinity;
    EXPECT_TRUE(block_max(block.data()).clean);
    for (const float bad : {kInfinity, std::nanf(""), -std::nanf("")}) {
      block[i] = bad;
      EXPECT_FALSE(block_max(block.data()).clean) << i;
    }
  }
  LogitBlock none;
  none.fill(-kInfinity);
  EXPECT_EQ(block_max(none.data()).max, -kInfinity);
}

// A sample of all floats; over every one of them the error is at most 0.99 ulp.
TEST(LogitBlocks, ExponentialIsWithinTwoUlp) {
  EXPECT_EQ(exp_of_nonpositive(0.0f), 1.0f);
  EXPECT_EQ(exp_of_nonpositive(-0.0f), 1.0f);
  EXPECT_EQ(exp_of_nonpositive(std::nextafter(kLowestExponent, -88.0f)), 0.0f);
  EXPECT_EQ(exp_of_nonpositive(-88.0f), 0.0f);
  const uint32_t lowest = std::bit_cast<uint32_t>(kLowestExponent);
  for (uint32_t bits = std::bit_cast<uint32_t>(-1e-9f); bits <= lowest; bits += 997) {
    const auto x = std::bit_cast<float>(bits);
    const double want = std::exp(double{x});
    const double ulp = std::ldexp(1.0, std::ilogb(want) - 23);
    ASSERT_NEAR(exp_of_nonpositive(x), want, 2 * ulp) << x;
  }
}

TEST(LogitBlocks, WeighsAtAnyTemperature) {
  std::mt19937_64 random(2);
  LogitBlock logits = random_block(random);
  logits[7] = -kInfinity, logits[8] = -3e38f, logits[9] = 20;
  for (const double temperature : {std::numeric_limits<double>::denorm_min(), 0.1, 1.0, 1e308}) {
    LogitBlock weights;
    weigh_block(logits.data(), 20, temperature, weights.data());
    for (uint32_t i = 0; i < kLogitBlock; ++i) {
      const double x = (double{logits[i]} - 20) / temperature;
      EXPECT_NEAR(weights[i], x < -87 ? 0 : std::exp(x), 1e-5 * std::exp(x)) << i;
    }
    EXPECT_EQ(weights[7], 0);
    EXPECT_EQ(weights[9], 1);
  }
}

TEST(LogitBlocks, KeepsAPrefixOfTheOrderAndTheSum) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    const LogitBlock logits = random_block(random);
    const int32_t id = 640;
    const auto cut_id = static_cast<int32_t>(600 + random() % 150);  // before, within and after
    const Cut cut{logits[random() % kLogitBlock], cut_id};
    const float min_weight = random() % 2 ? 0.0f : 0.2f;
    LogitBlock weights;
    weigh_block(logits.data(), 8, 3, weights.data());
    LogitBlock kept = weights;
    double sum = 0;
    const double got = keep_in_block(logits.data(), id, cut, min_weight, kept.data());
    for (int32_t i = 0; i < int32_t{kLogitBlock}; ++i) {
      const bool before = logits[i] > cut.logit || (logits[i] == cut.logit && id + i <= cut.id);
      const float want = before && weights[i] >= min_weight ? weights[i] : 0;
      ASSERT_EQ(kept[i], want) << "round " << round << " token " << i;
      sum += want;
    }
    EXPECT_NEAR(got, sum, 1e-13);
  }
}

}  // namespace
}  // namespace wader
