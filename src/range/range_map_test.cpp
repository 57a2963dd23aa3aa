#include "range/range_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "range/principal_components.h"
#include "range/range_testing.h"

namespace wader {
namespace {

using testing::Each;
using testing::Eq;

TEST(Specialisation, RunsFromEvenToOne) {
  EXPECT_EQ(specialisation(std::vector<double>{0.25, 0.25, 0.25, 0.25}), 0);
  EXPECT_EQ(specialisation(std::vector<double>{0, 0, 1, 0}), 1);
  // Two of four alike: H = ln 2, half of ln 4.
  EXPECT_NEAR(specialisation(std::vector<double>{0.5, 0.5, 0, 0}), 0.5, 1e-15);
  EXPECT_EQ(specialisation(std::vector<double>{0, 0, 0}), 0);  // never used
  EXPECT_EQ(specialisation(std::vector<double>{1}), 0);        // one topic: nothing to choose
  EXPECT_EQ(specialisation({}), 0);
}

// Layers 2 and 5 with three experts each, three topics of 100 tokens; every answer by hand.
TEST(RangeMap, CreditsWhatTheCountsSay) {
  const RangeShape shape{{2, 5}, 3};
  TopicCounts counts{{100, 100, 100}, {}}, held_out{{50, 50, 50}, {}};
  const auto expert = [&](std::vector<uint32_t> first, std::vector<uint32_t> second) {
    counts.uses.insert(counts.uses.end(), first.begin(), first.end());
    held_out.uses.insert(held_out.uses.end(), second.begin(), second.end());
  };
  expert({0, 40, 0}, {0, 30, 0});    // all of topic 1, and again
  expert({0, 0, 40}, {25, 3, 0});    // topic 2, but topic 0 in the held-out texts
  expert({40, 40, 40}, {0, 0, 30});  // no favourite
  expert({24, 0, 0}, {30, 0, 0});    // used too rarely, by one
  expert({25, 0, 0}, {24, 0, 0});    // just often enough, but not in the held-out texts
  expert({0, 0, 0}, {0, 0, 0});
  const RangeMap map = build_range_map(shape, {"a", "b", "c"}, counts, held_out);

  ASSERT_EQ(map.experts.size(), 6u);
  EXPECT_EQ(map.experts[4].layer, 5u);
  EXPECT_EQ(map.experts[4].expert, 1u);
  const auto check = [&](size_t at, uint64_t activations, double special,
                         std::optional<uint32_t> topic, std::optional<bool> repeats) {
    EXPECT_EQ(map.experts[at].activations, activations) << at;
    EXPECT_EQ(map.experts[at].specialisation, special) << at;
    EXPECT_EQ(map.experts[at].topic, topic) << at;
    EXPECT_EQ(map.experts[at].repeats, repeats) << at;
  };
  check(0, 40, 1, 1, true);
  check(1, 40, 1, 2, false);
  check(2, 120, 0, std::nullopt, std::nullopt);
  check(3, 24, 1, std::nullopt, std::nullopt);
  check(4, 25, 1, 0, std::nullopt);
  check(5, 0, 0, std::nullopt, std::nullopt);
  EXPECT_THAT(map.experts[5].position, Each(Eq(0)));

  const RangeTally sum = tally(map);
  EXPECT_EQ(sum.credited, 3u);
  EXPECT_EQ(sum.tested, 2u);
  EXPECT_EQ(sum.repeated, 1u);
  EXPECT_EQ(sum.repeat_rate(), 0.5);
  EXPECT_EQ(tally(map, 0).repeat_rate(), std::nullopt);  // credited, not tested
  // Credits of 1 and 2, leads of 1 and 0: they agree by chance on topic 1 alone, 1/2 · 1/2.
  EXPECT_EQ(map.by_chance.repeat_rate, 0.25);
}

// A topic with ten times the tokens leads in every plain count; per token it does not.
TEST(RangeMap, LongerTextsWeighNoMore) {
  const TopicCounts counts{{1000, 100}, {90, 60, 500, 50}}, held_out{{100, 1000}, {1, 90, 50, 500}};
  const RangeMap map = build_range_map({{0}, 2}, {"long", "short"}, counts, held_out);
  // 0.09 and 0.6 a token: affinities 3/23 and 20/23.
  const double a = 3.0 / 23, b = 20.0 / 23;
  EXPECT_NEAR(map.experts[0].specialisation, 1 + (a * std::log(a) + b * std::log(b)) / std::log(2),
              1e-6);
  EXPECT_EQ(map.experts[0].topic, 1u);
  EXPECT_EQ(map.experts[0].repeats, true);
  EXPECT_EQ(map.experts[1].specialisation, 0);
}

TEST(RangeMap, NothingToSay) {
  // No activation at all; one topic; equal counts everywhere.
  const RangeShape shape{{0}, 4};
  const TopicCounts none{{0, 0}, std::vector<uint32_t>(8)};
  const TopicCounts one{{100}, {50, 50, 100, 0}};
  const TopicCounts even{{100, 100}, std::vector<uint32_t>(8, 50)};
  for (const TopicCounts& counts : {none, one, even}) {
    const std::vector<std::string> names(counts.tokens.size(), "x");
    const RangeMap map = build_range_map(shape, names, counts, counts);
    EXPECT_EQ(tally(map).credited, 0u);
    EXPECT_EQ(tally(map).repeat_rate(), std::nullopt);
    EXPECT_EQ(map.by_chance.repeat_rate, std::nullopt);
    EXPECT_THAT(map.variance_explained, Each(Eq(0)));
    for (const ExpertRange& expert : map.experts) {
      EXPECT_EQ(expert.specialisation, 0);
      EXPECT_THAT(expert.position, Each(Eq(0)));
    }
    const RangeByChance chance = shuffled_range(counts, counts, 3, 1);
    EXPECT_EQ(chance.credited, 0);
    EXPECT_EQ(chance.repeated, 0);
  }
  EXPECT_TRUE(build_range_map({{}, 4}, {"x"}, {{5}, {}}, {{5}, {}}).experts.empty());
}

// Experts of a model that has specialists, as its tokens' choices.
TEST(RangeMap, FindsPlantedSpecialistsAndNoneAmongShuffledTopics) {
  testing_range::Model model(12, 40, 7);
  const TopicCounts counts = model.count(model.texts(400)),
                    held_out = model.count(model.texts(400));
  const RangeMap map =
      build_range_map({{0}, 40}, std::vector<std::string>(12, "t"), counts, held_out);
  const RangeTally sum = tally(map);
  EXPECT_EQ(sum.credited, model.specialists());
  EXPECT_EQ(sum.repeated, sum.credited);
  for (const ExpertRange& expert : map.experts)
    EXPECT_EQ(expert.topic, model.favourite(expert.expert)) << expert.expert;

  const RangeByChance chance = shuffled_range(counts, held_out, 100, 1);
  EXPECT_EQ(chance.credited, 0);
  EXPECT_EQ(chance.repeated, 0);
}

// The shuffle of uses against what it stands for: each token's topic drawn anew, the map built from
// that. So many topics that chance credits some: about 27 uses of an expert over 130 topics.
TEST(RangeMap, ShufflingUsesIsShufflingTokens) {
  constexpr uint32_t kTopics = 130, kExperts = 78, kRuns = 400;
  testing_range::Model model(kTopics, kExperts, 5);
  const auto texts = model.texts(2);
  const TopicCounts counts = model.count(texts);
  const RangeByChance by_uses = shuffled_range(counts, counts, kRuns, 3);
  double credited = 0;
  for (uint32_t run = 0; run < kRuns; ++run) {
    TopicCounts shuffled = model.count(model.shuffled(texts));
    shuffled.tokens = counts.tokens;  // the shuffle of uses keeps these at their mean
    const std::vector<std::string> names(kTopics, "t");
    credited += tally(build_range_map({{0}, kExperts}, names, shuffled, counts)).credited;
  }
  credited /= kRuns;
  EXPECT_GT(credited, 1);
  EXPECT_LT(credited, 0.8 * kExperts);
  EXPECT_NEAR(by_uses.credited, credited, 0.05 * credited);
}

// What the comment of kActivationsOver says.
TEST(RangeMap, ChanceLooksSpecialisedByATenth) {
  std::mt19937_64 random(1);
  double sum = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<double> affinities(12);
    for (uint64_t u = 0; u < kActivationsOver; ++u)
      affinities[random() % 12] += 1.0 / kActivationsOver;
    sum += specialisation(affinities);
  }
  EXPECT_NEAR(sum / 2000, 0.10, 0.01);
}

// Against power iteration with deflation on the covariance, written out.
TEST(PrincipalComponents, AgreeWithADirectComputation) {
  constexpr size_t kRows = 200, kColumns = 7;
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal;
  std::vector<double> points(kRows * kColumns);
  for (size_t r = 0; r < kRows; ++r) {
    const double a = 4 * normal(random), b = 2 * normal(random), c = normal(random);
    for (size_t i = 0; i < kColumns; ++i)
      points[r * kColumns + i] = a * std::sin(double(i)) + b * std::cos(2.0 * double(i)) +
                                 c * double(i % 3) + 0.1 * normal(random) + 5;
  }
  const PrincipalComponents found = principal_components(points, kColumns);

  std::vector<double> mean(kColumns), covariance(kColumns * kColumns);
  for (size_t r = 0; r < kRows; ++r)
    for (size_t i = 0; i < kColumns; ++i) mean[i] += points[r * kColumns + i] / kRows;
  for (size_t r = 0; r < kRows; ++r)
    for (size_t i = 0; i < kColumns; ++i)
      for (size_t j = 0; j < kColumns; ++j)
        covariance[i * kColumns + j] +=
            (points[r * kColumns + i] - mean[i]) * (points[r * kColumns + j] - mean[j]) / kRows;
  double total = 0;
  for (size_t i = 0; i < kColumns; ++i) total += covariance[i * kColumns + i];
  for (size_t c = 0; c < 3; ++c) {
    std::vector<double> axis(kColumns, 1), next(kColumns);
    double value = 0;
    for (int step = 0; step < 2000; ++step) {
      for (size_t i = 0; i < kColumns; ++i) {
        next[i] = 0;
        for (size_t j = 0; j < kColumns; ++j) next[i] += covariance[i * kColumns + j] * axis[j];
      }
      value = 0;
      for (const double x : next) value += x * x;
      value = std::sqrt(value);
      for (size_t i = 0; i < kColumns; ++i) axis[i] = next[i] / value;
    }
    EXPECT_NEAR(found.explained[c], value / total, 1e-10);
    double dot = 0, largest = 0;
    for (size_t i = 0; i < kColumns; ++i) dot += axis[i] * found.axes[c][i];
    EXPECT_NEAR(std::abs(dot), 1, 1e-9) << c;
    for (const double x : found.axes[c])
      if (std::abs(x) > std::abs(largest)) largest = x;
    EXPECT_GT(largest, 0) << c;
    for (size_t i = 0; i < kColumns; ++i)
      for (size_t j = 0; j < kColumns; ++j)
        covariance[i * kColumns + j] -= value * axis[i] * axis[j];
  }
  EXPECT_EQ(principal_components(points, kColumns).axes, found.axes);
}

TEST(PrincipalComponents, FewerDirectionsThanThree) {
  // On a line: one direction, whatever is asked for; the sign is that of its largest component.
  const std::vector<double> line = {0, 0, 0, 3, -4, 0, 6, -8, 0};
  const PrincipalComponents found = principal_components(line, 3);
  EXPECT_NEAR(found.explained[0], 1, 1e-12);
  EXPECT_EQ(found.explained[1], 0);
  EXPECT_NEAR(found.axes[0][0], -0.6, 1e-12);
  EXPECT_NEAR(found.axes[0][1], 0.8, 1e-12);
  EXPECT_THAT(found.axes[1], Each(Eq(0)));
  EXPECT_NEAR(project(found, std::vector<double>{0, 0, 0})[0], 5, 1e-12);
  EXPECT_EQ(project(found, std::vector<double>{0, 0, 9})[1], 0);
  // No points, one point, equal points, one column.
  EXPECT_THAT(principal_components({}, 4).explained, Each(Eq(0)));
  EXPECT_THAT(principal_components(std::vector<double>{1, 2}, 2).explained, Each(Eq(0)));
  const std::vector<double> equal(12, 0.1);
  EXPECT_THAT(principal_components(equal, 3).explained, Each(Eq(0)));
  EXPECT_NEAR(principal_components(std::vector<double>{1, 2, 3}, 1).explained[0], 1, 1e-12);
}

}  // namespace
}  // namespace wader
