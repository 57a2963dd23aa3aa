#include "experts/use_history.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace wader {
namespace {

constexpr uint32_t kLayers = 3, kExperts = 32, kPerToken = 4;

// Tokens whose experts are drawn by weights; the weights turn every `drift` tokens (0: never).
void run(UseHistory& history, uint32_t tokens, uint32_t drift, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<double> weights(kExperts);
  for (uint32_t t = 0; t < tokens; ++t) {
    if (t == 0 || (drift > 0 && t % drift == 0))
      for (double& w : weights) w = std::exp(1.5 * std::normal_distribution<>()(random));
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      auto left = weights;
      for (uint32_t k = 0; k < kPerToken; ++k) {
        const auto expert = static_cast<uint32_t>(
            std::discrete_distribution<int>(left.begin(), left.end())(random));
        left[expert] = 0;
        history.count(layer, expert, 1);
      }
    }
  }
}

TEST(UseHistory, SharesOfALayerAddUpToOne) {
  UseHistory history(kLayers, kExperts);
  EXPECT_EQ(history.predicted_share(5), 0);
  run(history, 300, 50, 1);
  for (uint32_t layer = 0; layer < kLayers; ++layer)
    for (uint32_t span = 0; span < UseHistory::kSpans; ++span) {
      double sum = 0;
      for (uint32_t e = 0; e < kExperts; ++e) sum += history.share(layer * kExperts + e, span);
      EXPECT_NEAR(sum, 1, 1e-4);
    }
}

TEST(UseHistory, TheOrderWithinAPassDoesNotCount) {
  UseHistory up(2, 8), down(2, 8);
  for (int pass = 0; pass < 20; ++pass)
    for (uint32_t layer = 0; layer < 2; ++layer)
      for (uint32_t i = 0; i < 8; ++i) {
        const auto uses = [&](uint32_t e) { return 1 + (e * 7 + pass * 3u) % 40; };
        up.count(layer, i, uses(i));
        down.count(layer, 7 - i, uses(7 - i));
      }
  for (size_t key = 0; key < 16; ++key)
    for (uint32_t span = 0; span < UseHistory::kSpans; ++span)
      EXPECT_NEAR(up.share(key, span), down.share(key, span), 1e-6);
}

TEST(UseHistory, ShortSpansForgetAndTheWholeOneDoesNot) {
  UseHistory history(1, 16);
  for (int i = 0; i < 100; ++i) history.count(0, 3, 1);
  for (int i = 0; i < 100; ++i) history.count(0, 4, 1);
  EXPECT_LT(history.share(3, 0), 1e-3);
  EXPECT_NEAR(history.share(3, UseHistory::kWholeSpan), 0.5, 1e-6);
  EXPECT_LT(history.share(3, 1), history.share(3, UseHistory::kMiddleSpan));
}

TEST(UseHistory, StandingPopularityGivesTheLongSpansItsWeightAndDriftTheShortOnes) {
  UseHistory still(kLayers, kExperts), drifting(kLayers, kExperts);
  run(still, 2000, 0, 2);
  run(drifting, 2000, 10, 3);
  const auto w = still.weights(), v = drifting.weights();
  EXPECT_GT(w[3] + w[4], 0.9);
  EXPECT_GT(v[0] + v[1], 0.3);
  EXPECT_LT(v[4], 0.6);
}

TEST(UseHistory, OfTwoEqualsTheLayerThatHasPassedWaitsLonger) {
  UseHistory history(4, 8);
  for (uint32_t layer = 0; layer < 4; ++layer) history.count(layer, 1, 1);
  history.count(0, 1, 1);
  history.count(1, 1, 1);
  const auto wait = [&](uint32_t layer) { return history.expected_wait(layer * 8 + 1); };
  EXPECT_LT(wait(2), wait(3));
  EXPECT_LT(wait(3), wait(0));
  EXPECT_LT(wait(0), wait(1));
}

TEST(UseHistory, APastIsPassedOn) {
  UseHistory first(kLayers, kExperts), second(kLayers, kExperts);
  EXPECT_FALSE(first.has_counted());
  run(first, 500, 0, 4);
  EXPECT_TRUE(first.has_counted());
  second.begin_with(first.whole_past());
  EXPECT_FALSE(second.has_counted());
  size_t best = 0;
  for (size_t key = 1; key < kExperts; ++key)
    if (first.share(key, UseHistory::kWholeSpan) > first.share(best, UseHistory::kWholeSpan))
      best = key;
  for (size_t key = 0; key < kExperts; ++key) {
    EXPECT_NEAR(second.share(key, UseHistory::kWholeSpan), first.share(key, UseHistory::kWholeSpan),
                1e-5);
    if (key != best) EXPECT_GE(second.expected_wait(key), second.expected_wait(best));
  }
  // A layer without a past has none to pass on.
  UseHistory third(2, 4);
  third.begin_with(std::vector<float>(8, 0.0f));
  EXPECT_EQ(third.predicted_share(0), 0);
}

TEST(UseHistory, VeryLongPromptsAndRunsStayFinite) {
  UseHistory history(2, 8);
  for (int pass = 0; pass < 3000; ++pass)
    for (uint32_t layer = 0; layer < 2; ++layer)
      for (uint32_t e = 0; e < 8; ++e)
        if ((pass + e) % 3 != 0) history.count(layer, e, pass % 5 == 0 ? 1u << 20 : 1);
  for (size_t key = 0; key < 16; ++key) {
    EXPECT_TRUE(std::isfinite(history.expected_wait(key)));
    EXPECT_GT(history.share(key, UseHistory::kWholeSpan), 0.02);
    EXPECT_LT(history.share(key, UseHistory::kWholeSpan), 0.3);
  }
}

}  // namespace
}  // namespace wader
