#include "sampler/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "sampler/sampler.h"

namespace wader {
namespace {

TEST(Logprobs, AreTheSoftmaxOfTheLogits) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 4);
  for (const uint32_t size : {1u, 5u, 64u, 1000u}) {
    std::vector<float> logits(size);
    for (float& logit : logits) logit = normal(random);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(double{logit});
    const auto id = static_cast<int32_t>(random() % size);
    const GeneratedToken token = token_with_logprobs(id, logits, 20);
    EXPECT_EQ(token.id, id);
    EXPECT_NEAR(*token.logprob, std::log(std::exp(double{logits[id]}) / sum), 1e-5);
    std::vector<int32_t> order(size);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return std::pair(-logits[a], a) < std::pair(-logits[b], b);
    });
    ASSERT_EQ(token.top.size(), std::min(size, 20u));
    for (size_t i = 0; i < token.top.size(); ++i) {
      EXPECT_EQ(token.top[i].id, order[i]);
      EXPECT_NEAR(token.top[i].logprob, logits[order[i]] - std::log(sum), 1e-5);
    }
  }
}

TEST(Logprobs, TiesGoByIdAndExtremesStayNumbers) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {3e38f, -kInfinity, 3e38f, -3e38f, 3e38f};
  const GeneratedToken token = token_with_logprobs(1, logits, 2);
  EXPECT_EQ(*token.logprob, -kInfinity);
  ASSERT_EQ(token.top.size(), 2u);
  EXPECT_EQ(token.top[0].id, 0);
  EXPECT_EQ(token.top[1].id, 2);
  EXPECT_NEAR(token.top[1].logprob, -std::log(3.0), 1e-6);
  EXPECT_TRUE(token_with_logprobs(0, logits, 0).top.empty());
}

TEST(LogitBias, MovesTheChoiceAndNothingElse) {
  const std::vector<float> logits = {1, 3, 2, -std::numeric_limits<float>::infinity()};
  SamplingParams params;
  params.temperature = 0;
  const auto choose = [&](std::vector<std::pair<int32_t, float>> bias) {
    params.logit_bias = std::move(bias);
    EXPECT_TRUE(validate_sampling(params).ok());
    return Sampler(params, 4).sample(logits).value();
  };
  EXPECT_EQ(choose({}), 1);
  EXPECT_EQ(choose({{1, -100}}), 2);
  EXPECT_EQ(choose({{1, -100}, {0, 5}}), 0);
  EXPECT_EQ(choose({{3, 100}}), 1) << "what the model rules out stays so";
  params.logit_bias = {{0, 100.5f}};
  EXPECT_FALSE(validate_sampling(params).ok());
  params.logit_bias = {{0, std::nanf("")}};
  EXPECT_FALSE(validate_sampling(params).ok());
}

TEST(LogitBias, OfDrawnTokensIsAFactorOfTheirWeight) {
  const std::vector<float> logits = {0, 0};
  SamplingParams params;
  params.logit_bias = {{1, std::log(3.0f)}};
  Sampler sampler(params, 2);
  int ones = 0;
  for (int i = 0; i < 4000; ++i) ones += sampler.sample(logits).value();
  EXPECT_NEAR(ones / 4000.0, 0.75, 0.03);
}

}  // namespace
}  // namespace wader
