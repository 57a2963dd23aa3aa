// The products of f32 activations, written once over sixteen lanes (lanes_portable.h): bf16, f16
// and f32 weights as they stand, quantised ones without quantised activations dequantised row by
// row.
//   lane l = fma chain over columns l, l + 16, l + 32 … from +0; y = tree(lanes) + bias, + 0
//   without one.
// One token reads memory: a few rows at once against one load of x. Many tokens are taken in groups
// whose activations stay in the second-level cache while all rows pass by.
#pragma once

#include "kernels/lane_math.h"
#include "kernels/ops.h"

namespace wader {
namespace {

struct F32Row {
  const float* at;
  size_t stride;  // elements to the next row
};
struct F16Row {
  const uint16_t* at;
  size_t stride;
};
struct Bf16Row {
  const uint16_t* at;
  size_t stride;
};

template <typename L>
struct PlainMatmul {
  using M = LaneMath<L>;
  using Vec = typename L::Vec;
  static constexpr uint32_t kLanes = L::kCount;
  static constexpr uint32_t kRows = L::kAccumulators >= 16 ? 4 : 2;
  static constexpr uint32_t kTokens = L::kAccumulators / kRows;
  static constexpr uint32_t kRowsOfOne = 4;  // for one token
  static_assert(kRows <= kRowsOfOne);
  static constexpr size_t kTokensBytes = 384u << 10;  // of activations that stay in the cache
  static constexpr uint32_t kFewestTokens = 4 * kTokens;

  static void matmul(const MatmulArgs& a) {
    const size_t from = size_t{a.row_begin} * a.w.cols;
    const uint32_t rows = a.row_end - a.row_begin;
    switch (a.w.format.dtype) {
      case DType::f32:
        return by_tokens(a, F32Row{reinterpret_cast<const float*>(a.w.codes) + from, a.w.cols},
                         a.row_begin, rows);
      case DType::f16:
        return by_tokens(a, F16Row{reinterpret_cast<const uint16_t*>(a.w.codes) + from, a.w.cols},
                         a.row_begin, rows);
      case DType::bf16:
        return by_tokens(a, Bf16Row{reinterpret_cast<const uint16_t*>(a.w.codes) + from, a.w.cols},
                         a.row_begin, rows);
      default:
        break;
    }
    for (uint32_t row = a.row_begin, count; row < a.row_end; row += count) {
      count = a.row_end - row < kRowsOfOne ? a.row_end - row : kRowsOfOne;
      for (uint32_t r = 0; r < count; ++r)
        dequantise_row(a.w, row + r, a.scratch + size_t{r} * a.w.cols);
      by_tokens(a, F32Row{a.scratch, a.w.cols}, row, count);
    }
  }

 private:
  static Vec load(F32Row w, size_t at) { return L::load(w.at + at); }
  static Vec load(F16Row w, size_t at) { return L::load_f16(w.at + at); }
  static Vec load(Bf16Row w, size_t at) { return L::load_bf16(w.at + at); }
  static Vec load_n(F32Row w, size_t at, uint32_t n) { return L::load_n(w.at + at, n); }
  static Vec load_n(F16Row w, size_t at, uint32_t n) { return L::load_f16_n(w.at + at, n); }
  static Vec load_n(Bf16Row w, size_t at, uint32_t n) { return L::load_bf16_n(w.at + at, n); }

  // `rows` rows of w, the first of which is row `row` of the matrix.
  template <typename W>
  static void by_tokens(const MatmulArgs& a, W w, uint32_t row, uint32_t rows) {
    if (a.tokens == 1) return by_rows<kRowsOfOne, 1>(a, w, row, rows, 0);
    const size_t fit = kTokensBytes / sizeof(float) / a.w.cols / kTokens * kTokens;
    const uint32_t group = fit < kFewestTokens ? kFewestTokens : static_cast<uint32_t>(fit);
    for (uint32_t begin = 0; begin < a.tokens; begin += group) {
      const uint32_t end = a.tokens - begin < group ? a.tokens : begin + group;
      uint32_t r = 0;
      for (; r + kRows <= rows; r += kRows) tokens_of<kRows, kTokens>(a, w, row + r, r, begin, end);
      for (; r < rows; ++r) tokens_of<1, kTokens>(a, w, row + r, r, begin, end);
    }
  }

  template <uint32_t kR, uint32_t kT, typename W>
  static void tokens_of(const MatmulArgs& a, W w, uint32_t row, uint32_t r, uint32_t token,
                        uint32_t end) {
    for (; token + kT <= end; token += kT) tile<kR, kT>(a, w, row, r, token);
    if constexpr (kT > 1) tokens_of<kR, kT / 2>(a, w, row, r, token, end);
  }

  template <uint32_t kR, uint32_t kT, typename W>
  static void by_rows(const MatmulArgs& a, W w, uint32_t row, uint32_t rows, uint32_t r) {
    for (; r + kR <= rows; r += kR) tile<kR, kT>(a, w, row + r, r, 0);
    if constexpr (kR > 1) by_rows<kR / 2, kT>(a, w, row, rows, r);
  }

  template <uint32_t kR, uint32_t kT, typename W>
  static void tile(const MatmulArgs& a, W w, uint32_t row, uint32_t r, uint32_t token) {
    const float* x = a.x + token * a.x_stride;
    w.at += r * w.stride;
    Vec acc[kR][kT], weight[kR];
    WADER_UNROLL for (uint32_t i = 0; i < kR; ++i) WADER_UNROLL for (uint32_t t = 0; t < kT; ++t)
        acc[i][t] = L::zero();
    const auto add = [&](const auto& load_x, const auto& load_w) {
      WADER_UNROLL for (uint32_t i = 0; i < kR; ++i) weight[i] = load_w(i * w.stride);
      WADER_UNROLL for (uint32_t t = 0; t < kT; ++t) {
        const Vec activation = load_x(x + t * a.x_stride);
        WADER_UNROLL for (uint32_t i = 0; i < kR; ++i) acc[i][t] =
            L::fma(activation, weight[i], acc[i][t]);
      }
    };
    uint32_t c = 0;
    for (; c + kLanes <= a.w.cols; c += kLanes)
      add([&](const float* from) { return L::load(from + c); },
          [&](size_t at) { return load(w, at + c); });
    if (const uint32_t left = a.w.cols - c; left > 0)
      add([&](const float* from) { return L::load_n(from + c, left); },
          [&](size_t at) { return load_n(w, at + c, left); });
    WADER_UNROLL for (uint32_t i = 0; i < kR; ++i) {
      const float bias = a.bias ? a.bias[row + i] : 0.0f;
      WADER_UNROLL for (uint32_t t = 0; t < kT; ++t) a.y[(token + t) * a.y_stride + row + i] =
          L::add_as_tree(acc[i][t]) + bias;
    }
  }
};

}  // namespace
}  // namespace wader
