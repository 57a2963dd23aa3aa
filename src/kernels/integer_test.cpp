// The integer products: `portable` against `ref` within a bound derived from the formats, every
// other back end against `portable` to the bit.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/ops.h"
#include "tensor/float_formats.h"

namespace wader {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Activations {
  uint32_t tokens, cols;
  std::vector<float> x;
  std::vector<int8_t> codes;
  std::vector<float> scales, sums;
  std::vector<int32_t> code_sums;
  size_t codes_stride, blocks_stride;
  QuantisedRows view() const {
    return {codes.data(),     scales.data(), sums.data(),
            code_sums.data(), codes_stride,  blocks_stride};
  }
};

// Strides wider than the rows, and what lies between filled with what must not be looked at.
Activations quantise(const Kernels& k, std::vector<float> x, uint32_t tokens, uint32_t cols,
                     uint32_t block) {
  Activations a{tokens, cols, std::move(x), {}, {}, {}, {}, cols + 64u, cols / 32 + 3u};
  a.codes.assign(tokens * a.codes_stride, 77);
  a.scales.assign(tokens * a.blocks_stride, NAN);
  a.sums.assign(tokens * a.blocks_stride, NAN);
  a.code_sums.assign(tokens * a.blocks_stride, 1 << 20);
  for (uint32_t t = 0; t < tokens; ++t)
    k.quantise_row(a.codes.data() + t * a.codes_stride, a.scales.data() + t * a.blocks_stride,
                   a.sums.data() + t * a.blocks_stride, a.code_sums.data() + t * a.blocks_stride,
                   a.x.data() + static_cast<size_t>(t) * cols, cols, block);
  return a;
}

// A matrix whose planes end where their allocations end, so that AddressSanitizer sees an overrun.
struct Matrix {
  std::vector<std::byte> codes, scales, biases;
  MatrixView view;
};

enum class Weights { ordinary, extreme };

Matrix random_matrix(MatrixFormat format, uint32_t rows, uint32_t cols, Weights kind,
                     std::mt19937& rng) {
  const RowBytes row = *row_bytes(format, cols);
  Matrix m;
  m.codes.resize(row.codes * rows);
  m.scales.resize(row.scales * rows);
  m.biases.resize(row.biases * rows);
  const bool extreme = kind == Weights::extreme;
  for (std::byte& b : m.codes) {
    // Saturating codes, equal ones side by side: what overflows if anything can.
    b = static_cast<std::byte>(extreme && rng() % 4 ? 0xff : rng());
    if (extreme && format.dtype == DType::mxfp4 && rng() % 2) b = std::byte{0x77};
  }
  if (format.dtype == DType::mxfp4) {
    constexpr uint8_t kExtremes[] = {0, 1, 2, 100, 127, 253, 254, 255};
    for (std::byte& s : m.scales)
      s = static_cast<std::byte>(extreme ? kExtremes[rng() % 8] : 118 + rng() % 12);
  } else {
    const auto fill = [&](std::vector<std::byte>& plane, float magnitude) {
      for (size_t i = 0; i < plane.size(); i += 2) {
        const float value = magnitude * (static_cast<float>(rng() % 2001) / 1000 - 1);
        uint16_t bits = format.scales == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
        if (extreme) bits = static_cast<uint16_t>(rng());  // any: NaN, infinity, denormal, −0
        std::memcpy(plane.data() + i, &bits, 2);
      }
    };
    fill(m.scales, 0.02f);
    fill(m.biases, 0.1f);
  }
  m.view = {format, rows, cols, m.codes.data(), m.scales.data(), m.biases.data()};
  return m;
}

std::vector<float> random_x(uint32_t tokens, uint32_t cols, Weights kind, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(tokens) * cols);
  for (float& v : x) v = normal(rng);
  if (kind == Weights::ordinary) return x;
  constexpr float kExtremes[] = {0.0f, -0.0f, 1e-45f, -1e-40f, 1e-37f, 3e38f, -3e38f, 1, -1};
  for (size_t b = 0; b < x.size(); b += kActivationBlock) {
    const uint32_t choice = rng() % 6;
    for (uint32_t c = 0; c < kActivationBlock; ++c) {
      if (choice == 0) x[b + c] = rng() % 2 ? 0.0f : -0.0f;
      if (choice == 1) x[b + c] = rng() % 5 ? 1.0f : -1.0f;  // all codes ±127
      if (choice == 2) x[b + c] = kExtremes[rng() % 5];
      if (choice == 3) x[b + c] = kExtremes[rng() % std::size(kExtremes)];
    }
    if (choice == 4 && rng() % 8 == 0) x[b + rng() % 32] = rng() % 2 ? kInfinity : NAN;
  }
  return x;
}

std::vector<float> multiply(const Kernels& k, const Matrix& m, const Activations& x,
                            const float* bias, uint32_t split) {
  const uint32_t rows = m.view.rows;
  std::vector<float> y(static_cast<size_t>(x.tokens) * rows, -7.0f);
  std::vector<float> scratch(matmul_scratch_floats(x.cols, x.tokens), NAN);
  const QuantisedRows view = x.view();
  for (uint32_t begin = 0; begin < rows; begin += split)
    k.matmul({y.data(), rows, x.x.data(), x.cols, x.tokens, m.view, bias, begin,
              std::min(begin + split, rows), scratch.data(),
              k.quantise_row != nullptr ? &view : nullptr});
  return y;
}

// Equal to the bit, except that a NaN is any NaN: which of two operands' payloads an addition keeps
// is up to the compiler.
::testing::AssertionResult same_bits(std::span<const float> a, std::span<const float> b) {
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i)
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) &&
        !(std::isnan(a[i]) && std::isnan(b[i])))
      return ::testing::AssertionFailure() << "at " << i << ": " << a[i] << " and " << b[i];
  return ::testing::AssertionSuccess();
}

const Kernels& portable() {
  return **select_kernels("portable");
}

const std::vector<MatrixFormat>& formats() {
  static const std::vector<MatrixFormat> all = [] {
    std::vector<MatrixFormat> list = {DType::mxfp4};
    for (const DType dtype : {DType::affine4, DType::affine8})
      for (const uint16_t group : {32, 64, 128})
        for (const DType scales : {DType::bf16, DType::f16})
          list.emplace_back(dtype, group, scales);
    return list;
  }();
  return all;
}

uint32_t random_cols(const MatrixFormat& format, std::mt19937& rng) {
  const uint32_t unit = std::max<uint32_t>(format.group, 32);
  const uint32_t limit = rng() % 4 == 0 ? 3000 : 800;
  return (1 + rng() % (limit / unit)) * unit;
}

std::vector<const Kernels*> integer_kernels() {
  std::vector<const Kernels*> list;
  for (const Kernels* k : available_kernels())
    if (k->quantise_row != nullptr) list.push_back(k);
  return list;
}

class IntegerTest : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& k = *GetParam();
};
INSTANTIATE_TEST_SUITE_P(Backends, IntegerTest, ::testing::ValuesIn(integer_kernels()),
                         [](const auto& suite) { return std::string(suite.param->name); });

// |x − x̂| ≤ scale / 2 (and a rounding of the quotient), so y is off by Σ |w| · scale / 2 at most;
// the rest is the rounding of f32 sums, of which the longest path has cols/512 + 4 additions here
// (twice cols/512 with biases), cols/16 + 5 in ref, and two roundings inside a term.
TEST(PortableTest, IsWithinTheFormatsBoundOfRef) {
  std::mt19937 rng(11);
  for (const MatrixFormat& format : formats())
    for (int round = 0; round < 4; ++round) {
      const uint32_t cols = random_cols(format, rng), rows = 1 + rng() % 24, tokens = 1 + rng() % 5;
      const Matrix m = random_matrix(format, rows, cols, Weights::ordinary, rng);
      const Activations x = quantise(portable(), random_x(tokens, cols, Weights::ordinary, rng),
                                     tokens, cols, activation_block(format));
      const std::vector<float> bias = random_x(1, rows, Weights::ordinary, rng);
      const auto exact = multiply(kRefKernels, m, x, bias.data(), rows);
      const auto y = multiply(portable(), m, x, bias.data(), rows);
      std::vector<float> w(cols);
      double worst = 0;
      for (uint32_t r = 0; r < rows; ++r) {
        dequantise_row(m.view, r, w.data());
        for (uint32_t t = 0; t < tokens; ++t) {
          double bound = 0, magnitude = std::fabs(bias[r]);
          for (uint32_t c = 0; c < cols; ++c) {
            const double scale = x.scales[t * x.blocks_stride + c / 32];
            bound += std::fabs(w[c]) * scale * 0.5;
            // An affine term is the difference of a product and a bias, each up to this large.
            const double affine = is_affine(format.dtype) ? 0.3 + std::fabs(w[c]) : 0;
            magnitude += (2 * affine + std::fabs(w[c])) * 127 * scale;
          }
          const double rounding = magnitude * (cols / 16 + 16) * 0x1p-24;
          const double error = std::fabs(double{y[t * rows + r]} - exact[t * rows + r]);
          EXPECT_LE(error, bound + rounding) << format_name(format);
          worst = std::max(worst, error / (bound + rounding));
        }
      }
      // Errors of random signs: far below the bound, and not nothing.
      EXPECT_GT(worst, 1e-4) << format_name(format);
    }
}

// By hand: two blocks, one row. x = 1 … 32 halves to codes of 32/127; w = 2 · x of a ramp.
TEST_P(IntegerTest, ComputesTheWrittenArithmetic) {
  std::vector<float> x(64, 0.0f);
  x[0] = 127;
  x[1] = -3.5f;   // to even: −4
  x[2] = 2.5f;    // to even: 2
  x[32] = -0.5f;  // scale 0.5/127, code −127
  const Activations a = quantise(k, x, 1, 64, 32);
  EXPECT_EQ(a.codes[0], 127);
  EXPECT_EQ(a.codes[1], -4);
  EXPECT_EQ(a.codes[2], 2);
  EXPECT_EQ(a.codes[32], -127);
  EXPECT_EQ(a.scales[0], 1.0f);
  EXPECT_EQ(a.scales[1], 0.5f / 127);
  EXPECT_EQ(a.code_sums[0], 125);
  EXPECT_EQ(a.code_sums[1], -127);
  // mxfp4: codes 6, −0.5, 1.5, 0 …; block 0 at 2^1, block 1 at 2^-1 with w[32] = −4.
  Matrix m = {std::vector<std::byte>(32), {std::byte{128}, std::byte{126}}, {}, {}};
  m.codes[0] = std::byte{0x97};
  m.codes[1] = std::byte{0x03};
  m.codes[16] = std::byte{0x0e};
  m.view = {DType::mxfp4, 1, 64, m.codes.data(), m.scales.data(), nullptr};
  const float bias = 0.25f;
  const float first = (12 * 127 + 4 + 3 * 2) * 1.0f;
  const float second = (8 * 127) * (0.25f * (0.5f / 127));
  EXPECT_EQ(multiply(k, m, a, &bias, 1)[0], (first + second) + bias);
}

// A group of 64 is one term, with one activation scale: by hand, three columns of two groups.
TEST_P(IntegerTest, TakesAGroupOfSixtyFourAsOneBlock) {
  std::vector<float> x(128, 0.0f);
  x[1] = 127;
  x[63] = -2.5f;  // to even: −2, at the scale of x[1]
  x[64] = 0.25f;
  const Activations a = quantise(k, x, 1, 128, 64);
  EXPECT_EQ(a.codes[63], -2);
  EXPECT_EQ(a.codes[64], 127);
  for (const uint32_t b : {0u, 1u}) EXPECT_EQ(a.scales[b], 1.0f);
  for (const uint32_t b : {2u, 3u}) EXPECT_EQ(a.scales[b], 0.25f / 127);
  EXPECT_EQ(a.code_sums[0], 127);
  EXPECT_EQ(a.code_sums[1], -2);
  EXPECT_EQ(a.sums[0], 125.0f);
  EXPECT_EQ(a.sums[1], 0.25f / 127 * 127);
  Matrix m = {
      std::vector<std::byte>(128), std::vector<std::byte>(4), std::vector<std::byte>(4), {}};
  m.codes[1] = std::byte{255};
  m.codes[63] = std::byte{17};
  m.codes[64] = std::byte{3};
  const uint16_t scales[2] = {f32_to_bf16(0.5f), f32_to_bf16(2.0f)};
  const uint16_t biases[2] = {f32_to_bf16(-1.0f), f32_to_bf16(4.0f)};
  std::memcpy(m.scales.data(), scales, 4);
  std::memcpy(m.biases.data(), biases, 4);
  m.view = {DType::affine8, 1, 128, m.codes.data(), m.scales.data(), m.biases.data()};
  const float first = (255 * 127 - 17 * 2) * 0.5f - 125.0f;
  const float second = std::fma(4.0f, a.sums[1], 3 * 127 * (2.0f * (0.25f / 127)));
  EXPECT_EQ(multiply(k, m, a, nullptr, 1)[0], first + second);
}

// Blocks 0 and 16 share a lane. Among many values are some with which a product rounded before it
// is added gives other bits, in the scale's product and in the bias's.
TEST_P(IntegerTest, FusesTheLastMultiplicationOfATerm) {
  for (const uint32_t group : {32u, 64u}) {
    const uint32_t cols = 17 * group, far = 16 * group;
    Matrix m;
    m.codes.resize(cols);
    m.scales.resize(34);
    m.biases.resize(34);
    m.codes[0] = std::byte{201};
    m.codes[far] = std::byte{157};
    const auto put = [](std::vector<std::byte>& plane, uint32_t block, float value) {
      const uint16_t bits = f32_to_bf16(value);
      std::memcpy(plane.data() + 2 * block, &bits, 2);
      return bf16_to_f32(bits);
    };
    const float w0 = put(m.scales, 0, 0.013f), w1 = put(m.scales, 16, 0.017f);
    const float b0 = put(m.biases, 0, -0.31f), b1 = put(m.biases, 16, -2.3f);
    m.view = {{DType::affine8, static_cast<uint16_t>(group), DType::bf16},
              1,
              cols,
              m.codes.data(),
              m.scales.data(),
              m.biases.data()};
    int scales_tell = 0, biases_tell = 0;
    for (int n = 0; n < 100; ++n) {
      std::vector<float> x(cols, 0.0f);
      x[0] = 0.5f + 0.013f * static_cast<float>(n);
      x[far] = 1.9f - 0.007f * static_cast<float>(n);
      const Activations a = quantise(k, x, 1, cols, group);
      const auto i0 = static_cast<float>(201 * a.codes[0]);
      const auto i1 = static_cast<float>(157 * a.codes[far]);
      const float x0 = a.scales[0], x1 = a.scales[far / 32];
      const float sum0 = x0 * static_cast<float>(a.codes[0]);
      const float sum1 = x1 * static_cast<float>(a.codes[far]);
      const float block_0 = std::fma(b0, sum0, i0 * (w0 * x0));
      const float scaled = std::fma(i1, w1 * x1, block_0);
      const float whole = std::fma(b1, sum1, scaled);
      EXPECT_EQ(multiply(k, m, a, nullptr, 1)[0], whole) << n;
      scales_tell += whole != std::fma(b1, sum1, block_0 + i1 * (w1 * x1));
      biases_tell += whole != scaled + b1 * sum1;
    }
    EXPECT_GT(scales_tell, 5) << group;
    EXPECT_GT(biases_tell, 5) << group;
  }
}

TEST_P(IntegerTest, QuantisesAsPortableDoes) {
  std::mt19937 rng(12);
  for (int round = 0; round < 60; ++round) {
    const uint32_t block = round % 4 < 2 ? 32 : 64, cols = block * (1 + rng() % 60);
    const auto kind = round % 2 ? Weights::extreme : Weights::ordinary;
    const auto x = random_x(2, cols, kind, rng);
    const Activations ours = quantise(k, x, 2, cols, block);
    const Activations theirs = quantise(portable(), x, 2, cols, block);
    EXPECT_EQ(ours.codes, theirs.codes);
    EXPECT_EQ(ours.code_sums, theirs.code_sums);
    EXPECT_TRUE(same_bits(ours.scales, theirs.scales));
    EXPECT_TRUE(same_bits(ours.sums, theirs.sums));
  }
}

TEST_P(IntegerTest, EqualsPortableToTheBit) {
  std::mt19937 rng(13);
  for (const MatrixFormat& format : formats())
    for (int round = 0; round < 24; ++round) {
      const auto kind = round % 2 ? Weights::extreme : Weights::ordinary;
      const uint32_t cols = random_cols(format, rng), rows = 1 + rng() % 70;
      const uint32_t tokens = 1 + rng() % (round < 12 ? 3 : round < 20 ? 17 : 70);
      const Matrix m = random_matrix(format, rows, cols, kind, rng);
      // Weights that take blocks of 32 take those of 64 too.
      const uint32_t block = cols % 64 == 0 && rng() % 2 ? 64 : activation_block(format);
      const Activations x =
          quantise(portable(), random_x(tokens, cols, kind, rng), tokens, cols, block);
      const std::vector<float> bias = random_x(1, 96, Weights::ordinary, rng);
      const float* b = rng() % 3 ? bias.data() : nullptr;
      EXPECT_TRUE(same_bits(multiply(k, m, x, b, rows), multiply(portable(), m, x, b, rows)))
          << format_name(format) << " " << rows << " × " << cols << ", " << tokens << " tokens";
    }
}

// Groups of tokens that a back end lays out together: just more than one, and so many of them that
// shares rounded up leave the last one almost nothing.
TEST_P(IntegerTest, ManyTokensEqualPortableToTheBit) {
  std::mt19937 rng(16);
  const MatrixFormat all[] = {DType::mxfp4, {DType::affine4, 64, DType::bf16}};
  for (const MatrixFormat& format : all)
    for (const uint32_t tokens : {127u, 129u, 257u, 15'622u}) {
      const uint32_t cols = tokens > 1000 ? 64 : 576, rows = 33;
      const Matrix m = random_matrix(format, rows, cols, Weights::ordinary, rng);
      const Activations x = quantise(portable(), random_x(tokens, cols, Weights::ordinary, rng),
                                     tokens, cols, activation_block(format));
      EXPECT_TRUE(
          same_bits(multiply(k, m, x, nullptr, rows), multiply(portable(), m, x, nullptr, rows)))
          << format_name(format) << ", " << tokens << " tokens";
    }
}

TEST_P(IntegerTest, BitsDoNotDependOnTokensOrSplit) {
  std::mt19937 rng(14);
  for (const MatrixFormat& format : formats()) {
    const uint32_t cols = random_cols(format, rng), rows = 71;
    const uint32_t tokens = &format == &formats().front() ? 11 : 37;  // 37: tiles that share tokens
    const Matrix m = random_matrix(format, rows, cols, Weights::ordinary, rng);
    const uint32_t block = activation_block(format);
    const Activations x =
        quantise(k, random_x(tokens, cols, Weights::ordinary, rng), tokens, cols, block);
    const auto whole = multiply(k, m, x, nullptr, rows);
    for (const uint32_t split : {1u, 7u, 16u, 48u})
      EXPECT_TRUE(same_bits(multiply(k, m, x, nullptr, split), whole)) << split;
    for (uint32_t t = 0; t < tokens; ++t) {
      const auto row = x.x.begin() + static_cast<size_t>(t) * cols;
      const Activations one = quantise(k, {row, row + cols}, 1, cols, block);
      EXPECT_TRUE(same_bits(multiply(k, m, one, nullptr, rows),
                            std::span(whole).subspan(size_t{t} * rows, rows)))
          << format_name(format) << " " << t;
    }
  }
}

// A NaN or an infinity must reach the logits, where it is reported, and not vanish in a code.
TEST_P(IntegerTest, WhatIsNotFiniteStaysSo) {
  std::mt19937 rng(15);
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    auto x = random_x(5, 96, Weights::ordinary, rng);
    x[96 + 40] = bad;
    const Matrix m = random_matrix(DType::mxfp4, 33, 96, Weights::ordinary, rng);
    const auto y = multiply(k, m, quantise(k, x, 5, 96, 32), nullptr, 33);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 33 == 1) << i;
  }
}

}  // namespace
}  // namespace wader
