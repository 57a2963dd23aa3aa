#include "tensor/quantise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "tensor/float_formats.h"
#include "tensor/matrix.h"

namespace wader {
namespace {

using Floats = std::vector<float>;

// One row's bytes, planes one after the other, as a (1, cols) matrix holds them.
struct Row {
  std::vector<std::byte> bytes;
  bool finite;
};

Row quantise(const MatrixFormat& format, const Floats& values) {
  const auto cols = static_cast<uint32_t>(values.size());
  const RowBytes size = *row_bytes(format, cols);
  Row row{std::vector<std::byte>(size.total()), false};
  const auto all = std::span(row.bytes);
  row.finite = quantise_row(
      format, values.data(), cols,
      {all.first(size.codes), all.subspan(size.codes, size.scales), all.last(size.biases)});
  return row;
}

Floats decode(const MatrixFormat& format, const Row& row, size_t cols) {
  Floats out(cols);
  dequantise_row(matrix_view(format, 1, static_cast<uint32_t>(cols), row.bytes), 0, out.data());
  return out;
}

Floats round_trip(const MatrixFormat& format, const Floats& values) {
  const Row row = quantise(format, values);
  EXPECT_TRUE(row.finite);
  return decode(format, row, values.size());
}

double squared_error(const Floats& a, const Floats& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return sum;
}

double snr_db(const Floats& exact, const Floats& stored) {
  return 10 * std::log10(squared_error(exact, Floats(exact.size())) / squared_error(exact, stored));
}

constexpr size_t kMany = 1 << 17;

Floats gaussian(size_t count = kMany, float deviation = 0.02f, float mean = 0) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(mean, deviation);
  Floats out(count);
  for (float& value : out) value = normal(random);
  return out;
}

Floats student_t(size_t count = kMany) {
  std::mt19937 random(8);
  std::student_t_distribution<float> heavy(5);
  Floats out(count);
  for (float& value : out) value = 0.02f * heavy(random);
  return out;
}

// Extremes of a group to the first and last code, restated: what a search may not fall behind.
Floats of_extremes(const Floats& w, float top) {
  const auto [low, high] = std::minmax_element(w.begin(), w.end());
  const float bias = bf16_to_f32(f32_to_bf16(*low));
  const float scale = bf16_to_f32(f32_to_bf16((*high - bias) / top));
  Floats out;
  for (float value : w) {
    const float code = scale != 0 ? std::nearbyint((value - bias) / scale) : 0;
    out.push_back(std::clamp(code, 0.0f, top) * scale + bias);
  }
  return out;
}

// The floors are what plain extremes (21.0 and 19.2 dB) do not reach.
TEST(Quantise, Affine4BeatsExtremesOnWeightsAsTheyAre) {
  const Floats normal = gaussian(), heavy = student_t();
  EXPECT_GE(snr_db(normal, round_trip(DType::affine4, normal)), 21.75);
  EXPECT_GE(snr_db(heavy, round_trip(DType::affine4, heavy)), 19.9);
  const MatrixFormat g32(DType::affine4, 32), g128(DType::affine4, 128);
  EXPECT_GE(snr_db(normal, round_trip(g32, normal)), 23.0);
  EXPECT_GE(snr_db(normal, round_trip(g128, normal)), 20.7);
}

TEST(Quantise, TheOtherFormatsReachWhatTheyCan) {
  const Floats normal = gaussian(), heavy = student_t();
  EXPECT_NEAR(snr_db(normal, round_trip(DType::mxfp4, normal)), 19.0, 0.1);
  EXPECT_NEAR(snr_db(heavy, round_trip(DType::mxfp4, heavy)), 18.3, 0.1);
  EXPECT_GE(snr_db(normal, round_trip(DType::affine8, normal)), 45.0);
  EXPECT_GE(snr_db(heavy, round_trip(DType::affine8, heavy)), 43.0);
  EXPECT_GE(snr_db(normal, round_trip(DType::bf16, normal)), 55.0);
}

// In every group, and for groups that the search was not made for.
TEST(Quantise, NeverWorseThanExtremes) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  const std::vector<std::function<float(size_t)>> kinds = {
      [&](size_t) { return normal(random); },
      [&](size_t) { return normal(random) + 100; },  // an offset that bf16 rounds coarsely
      [&](size_t i) { return i == 5 ? 1e4f : normal(random); },
      [&](size_t i) { return i % 2 ? 1.0f : -1.0f; },
      [&](size_t i) { return static_cast<float>(i % 16); },
      [&](size_t) { return std::exp(3 * normal(random)); },
      [&](size_t) { return 1e30f * normal(random); },
      [&](size_t) { return 1e-41f * normal(random); },  // denormals
      [&](size_t) { return 1e-30f * normal(random); },
      [&](size_t) { return random() % 64 == 0 ? normal(random) : 0.0f; }};
  for (const uint16_t group : {32, 64, 128})
    for (size_t kind = 0; kind < kinds.size(); ++kind)
      for (int repeat = 0; repeat < 50; ++repeat) {
        Floats w(group);
        for (size_t i = 0; i < group; ++i) w[i] = kinds[kind](i);
        for (const auto& [dtype, top] :
             {std::pair(DType::affine4, 15.f), {DType::affine8, 255.f}}) {
          const double got = squared_error(w, round_trip({dtype, group}, w));
          const double plain = squared_error(w, of_extremes(w, top));
          ASSERT_LE(got, plain * (1 + 1e-12)) << "kind " << kind << ", group " << group;
          if (dtype == DType::affine8) ASSERT_EQ(got, plain) << "kind " << kind;
        }
      }
}

// What a format can hold, it gives back.
TEST(Quantise, KeepsWhatIsOnItsGrid) {
  for (const auto& [dtype, top] : {std::pair(DType::affine4, 15), {DType::affine8, 255}}) {
    Floats w(128);
    for (size_t i = 0; i < w.size(); ++i)
      w[i] = static_cast<float>(i * 37 % 64 * top / 63) * 0.125f - 3.5f;
    w[0] = w[64] = -3.5f;
    w[63] = w[127] = static_cast<float>(top) * 0.125f - 3.5f;
    EXPECT_EQ(round_trip(dtype, w), w);
  }
  Floats w(32);
  for (size_t i = 0; i < w.size(); ++i) w[i] = kE2M1[i % 16] * 0x1p-40f;
  EXPECT_EQ(round_trip(DType::mxfp4, w), w);
}

TEST(Quantise, ZerosAndConstants) {
  for (const DType dtype : {DType::affine4, DType::affine8, DType::mxfp4, DType::bf16}) {
    EXPECT_EQ(round_trip(dtype, Floats(64, 0.0f)), Floats(64, 0.0f));
    EXPECT_EQ(round_trip(dtype, Floats(64, -0.0f)), Floats(64, 0.0f));
    EXPECT_EQ(round_trip(dtype, Floats(64, -1.5f)), Floats(64, -1.5f));
    // What the bias's eight bits leave over goes into the scale.
    const float odd = 1.2345678f;
    const float allowed = is_affine(dtype) ? 1e-4f : dtype == DType::bf16 ? 3e-3f : 0.2f;
    for (float value : round_trip(dtype, Floats(64, odd))) EXPECT_NEAR(value, odd, odd * allowed);
  }
  EXPECT_EQ(static_cast<int>(quantise(DType::mxfp4, Floats(32)).bytes.back()), 127);
}

TEST(Quantise, AHugeOutlierCostsItsGroupOnly) {
  Floats w = gaussian(256);
  w[70] = 1000;
  for (const DType dtype : {DType::affine4, DType::affine8, DType::mxfp4}) {
    const Floats clean = round_trip(dtype, gaussian(256)), got = round_trip(dtype, w);
    for (size_t i = 0; i < w.size(); ++i)
      if (i / 64 != 1) ASSERT_EQ(got[i], clean[i]) << dtype_name(dtype) << ' ' << i;
    EXPECT_NEAR(got[70], 1000, dtype == DType::mxfp4 ? 100 : 5) << dtype_name(dtype);
  }
}

TEST(Quantise, DenormalsStayWhatTheyNearlyAre) {
  for (const float unit : {0x1p-126f, 0x1p-130f, 0x1p-145f}) {
    Floats w(64);
    for (size_t i = 0; i < w.size(); ++i) w[i] = unit * (static_cast<float>(i % 13) - 6);
    for (const DType dtype : {DType::affine4, DType::affine8, DType::mxfp4, DType::bf16}) {
      const Floats got = round_trip(dtype, w);
      // bf16 scales go in steps of 2^-133, and code 255 multiplies half a one.
      const float step = std::max(unit * 2, 0x1p-126f);
      for (size_t i = 0; i < w.size(); ++i) ASSERT_NEAR(got[i], w[i], step) << dtype_name(dtype);
    }
  }
}

TEST(Quantise, SaysWhatItsFormatCannotHold) {
  const float most = std::numeric_limits<float>::max();
  Floats far(64), near(64, most), wide(64);
  far[3] = most, far[4] = -most;  // their distance is beyond f32
  wide[0] = most;
  for (const DType dtype : {DType::affine4, DType::affine8}) {
    EXPECT_FALSE(quantise(dtype, far).finite);
    EXPECT_FALSE(quantise(dtype, near).finite);  // bf16 rounds it to infinity
    const Row row = quantise(dtype, wide);       // may be held or not, but not wrongly
    if (row.finite)
      for (float value : decode(dtype, row, 64)) EXPECT_TRUE(std::isfinite(value));
  }
  EXPECT_FALSE(quantise(DType::bf16, near).finite);
  EXPECT_TRUE(quantise(DType::bf16, Floats(64, 3.38e38f)).finite);
  // MXFP4 saturates.
  EXPECT_EQ(round_trip(DType::mxfp4, far)[3], 0x1.8p127f);
  EXPECT_EQ(round_trip(DType::mxfp4, far)[4], -0x1.8p127f);
  // A later group's failure is not forgotten, nor an earlier one's.
  for (const size_t at : {size_t{1}, size_t{65}, size_t{129}}) {
    Floats w(192, 0.5f);
    w[at] = most, w[at + 1] = -most;
    EXPECT_FALSE(quantise(DType::affine4, w).finite) << at;
  }
}

// Each value to the nearest of the format, ties to the even code.
TEST(Quantise, Mxfp4RoundsToNearest) {
  Floats w(32);
  for (size_t i = 0; i < 25; ++i) w[i] = 0.25f * static_cast<float>(i);
  w[25] = -0.25f, w[26] = -0.26f, w[27] = -5.0f, w[28] = -5.1f, w[29] = -6, w[30] = 6,
  w[31] = 1.74f;
  const Floats want = {0, 0, 0.5f, 1, 1, 1, 1.5f, 2, 2, 2, 2,     3,  3,  3,  4, 4,
                       4, 4, 4,    4, 4, 6, 6,    6, 6, 0, -0.5f, -4, -6, -6, 6, 1.5f};
  EXPECT_EQ(round_trip(DType::mxfp4, w), want);
  for (size_t i = 0; i < 32; ++i)
    EXPECT_FALSE(want[i] == 0 && std::signbit(round_trip(DType::mxfp4, w)[i]));
}

// The scale is the best of all 253 that can be, tried one by one.
TEST(Quantise, Mxfp4FindsTheBestScale) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  for (int repeat = 0; repeat < 200; ++repeat) {
    Floats w(32);
    for (float& value : w) value = normal(random);
    double least = std::numeric_limits<double>::infinity();
    for (int scale = 0; scale < 253; ++scale) {
      double error = 0;
      for (float value : w) {
        double nearest = std::numeric_limits<double>::infinity();
        for (float code : kE2M1)
          nearest = std::min(nearest, std::fabs(std::ldexp(double{code}, scale - 127) - value));
        error += nearest * nearest;
      }
      least = std::min(least, error);
    }
    EXPECT_NEAR(squared_error(w, round_trip(DType::mxfp4, w)), least, 1e-6);
  }
}

}  // namespace
}  // namespace wader
