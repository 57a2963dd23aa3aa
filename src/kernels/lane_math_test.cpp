// The exponential and the emulated fused multiply-add that the float operations are made of.
#include "kernels/lane_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/lanes_portable.h"

namespace wader {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Lanes = portable::Lanes;

float exp_of(float x) {
  float out[Lanes::kCount];
  Lanes::store(out, LaneMath<Lanes>::exp(Lanes::set1(x)));
  return out[3];
}

TEST(LaneMath, ExpIsWithinOneUlp) {
  double worst = 0;
  std::mt19937 rng(1);
  std::uniform_real_distribution<float> uniform(-87.3365f, 88.7228f);
  for (int i = 0; i < 20000; ++i) {
    // Half of them near 0, in every binade.
    const float x =
        i % 2 == 0 ? uniform(rng) : std::ldexp(uniform(rng) / 88, -static_cast<int>(rng() % 30));
    const double exact = std::exp(static_cast<double>(x));
    const auto nearest = static_cast<float>(exact);
    const double ulp = std::nextafter(nearest, kInfinity) - static_cast<double>(nearest);
    worst = std::max(worst, std::fabs(exp_of(x) - exact) / ulp);
  }
  EXPECT_LE(worst, 1.0);
}

TEST(LaneMath, ExpAtTheEnds) {
  EXPECT_EQ(exp_of(0.0f), 1.0f);
  EXPECT_EQ(exp_of(-0.0f), 1.0f);
  EXPECT_EQ(exp_of(0x1p-149f), 1.0f);
  EXPECT_EQ(exp_of(-kInfinity), 0.0f);
  EXPECT_EQ(exp_of(-3e38f), 0.0f);
  EXPECT_EQ(exp_of(kInfinity), kInfinity);
  EXPECT_EQ(exp_of(3e38f), kInfinity);
  EXPECT_TRUE(std::isnan(exp_of(NAN)));
  const float highest = 88.72283f;  // e^ of it is below 2^128, and of the next above
  EXPECT_NEAR(exp_of(highest) / 3.402797e38, 1, 1e-6);
  EXPECT_EQ(exp_of(std::nextafter(highest, 100.0f)), kInfinity);
  const float lowest = -0x1.5d589ep6f;
  EXPECT_NEAR(exp_of(lowest) / 0x1p-126, 1, 5e-6);
  EXPECT_EQ(exp_of(std::nextafter(lowest, -100.0f)), 0.0f);
}

// The emulation of the fused multiply-add, where rounding twice would show.
TEST(LaneMath, FusedMultiplyAddRoundsOnce) {
  std::mt19937 rng(2);
  const auto any = [&](int spread) {
    const auto mantissa = static_cast<float>(rng() % (1u << 24)) - 0x1p23f;
    return std::ldexp(mantissa, static_cast<int>(rng() % spread) - spread / 2);
  };
  for (int i = 0; i < 200000; ++i) {
    const int spread = i % 3 == 0 ? 8 : i % 3 == 1 ? 60 : 240;
    const float a = any(spread), b = any(spread), c = any(spread);
    ASSERT_EQ(std::bit_cast<uint32_t>(portable::fused_multiply_add(a, b, c)),
              std::bit_cast<uint32_t>(std::fma(a, b, c)))
        << a << " * " << b << " + " << c;
  }
  // 1 + 2^-24 + 2^-70 lies just above the middle between two f32.
  EXPECT_EQ(portable::fused_multiply_add(0x1p-35f, 0x1p-35f, 1 + 0x1p-23f), 1 + 0x1p-23f);
  EXPECT_EQ(portable::fused_multiply_add(1 + 0x1p-12f, 1 + 0x1p-12f, 0x1p-70f),
            std::fma(1 + 0x1p-12f, 1 + 0x1p-12f, 0x1p-70f));
  EXPECT_EQ(std::bit_cast<uint32_t>(portable::fused_multiply_add(1.0f, -0.0f, 0.0f)),
            std::bit_cast<uint32_t>(0.0f));
  EXPECT_EQ(std::bit_cast<uint32_t>(portable::fused_multiply_add(1.0f, -0.0f, -0.0f)),
            std::bit_cast<uint32_t>(-0.0f));
  EXPECT_TRUE(std::isnan(portable::fused_multiply_add(kInfinity, 0.0f, 1.0f)));
  EXPECT_EQ(portable::fused_multiply_add(kInfinity, 1.0f, 3e38f), kInfinity);
}

}  // namespace
}  // namespace wader
