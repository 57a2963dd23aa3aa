#include "measure/statistics.h"

#include <gtest/gtest.h>

#include <vector>

namespace wader {
namespace {

TEST(Statistics, SpreadOfOddAndEvenNumbers) {
  const Spread odd = spread_of(std::vector<double>{3, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.smallest, 1);
  EXPECT_EQ(odd.largest, 3);
  EXPECT_EQ(spread_of(std::vector<double>{4, 1, 2, 10}).median, 3);
  EXPECT_EQ(spread_of(std::vector<double>{7}).median, 7);
}

TEST(Statistics, MedianRoundIsOneOfTheRounds) {
  EXPECT_EQ(median_index(std::vector<double>{3, 1, 2}), 2u);
  EXPECT_EQ(median_index(std::vector<double>{4, 1, 2, 10}), 2u);  // the lower of the middle two
  EXPECT_EQ(median_index(std::vector<double>{5, 5, 5}), 1u);
  EXPECT_EQ(median_index(std::vector<double>{9}), 0u);
}

// Tables of the binomial distribution.
TEST(Statistics, SignTestIsExactAndTwoSided) {
  EXPECT_EQ(sign_test(0, 0), 1);
  EXPECT_EQ(sign_test(3, 3), 1);
  EXPECT_NEAR(sign_test(1, 0), 1, 1e-12);
  EXPECT_NEAR(sign_test(5, 0), 2 / 32.0, 1e-12);
  EXPECT_NEAR(sign_test(0, 5), 2 / 32.0, 1e-12);
  EXPECT_NEAR(sign_test(8, 1), 2 * 10 / 512.0, 1e-12);
  EXPECT_NEAR(sign_test(9, 3), 2 * (1 + 12 + 66 + 220) / 4096.0, 1e-12);
  EXPECT_LT(sign_test(5'000, 4'000), 1e-20);
  EXPECT_NEAR(sign_test(5'000, 5'000), 1, 1e-9);
}

TEST(Statistics, PairsAreComparedOneByOne) {
  // The machine slows down tenfold; b is a little faster each time.
  const std::vector<double> a = {100, 50, 25, 10}, b = {110, 55, 24, 10};
  const Comparison c = compare_pairs(a, b);
  EXPECT_NEAR(c.ratio.median, 1.05, 1e-12);
  EXPECT_NEAR(c.ratio.smallest, 0.96, 1e-12);
  EXPECT_NEAR(c.ratio.largest, 1.1, 1e-12);
  EXPECT_EQ(c.larger, 2u);
  EXPECT_EQ(c.smaller, 1u);
  EXPECT_EQ(c.p_value, 1);
}

TEST(Statistics, PercentilesAreNearestRanks) {
  std::vector<double> values(100);
  for (size_t i = 0; i < 100; ++i) values[i] = static_cast<double>(i + 1);
  EXPECT_EQ(percentile(values, 0.5), 50);
  EXPECT_EQ(percentile(values, 0.99), 99);
  EXPECT_EQ(percentile(values, 1), 100);
  EXPECT_EQ(percentile(values, 0), 1);
  EXPECT_EQ(percentile(std::vector<double>{7}, 0.9), 7);
}

}  // namespace
}  // namespace wader
