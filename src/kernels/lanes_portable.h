// Sixteen f32 lanes: what the float operations of every back end but ref are written in
// (float_ops.h and its neighbours, templates over one such struct). Each instruction set has its
// own struct of this interface; all give the same bits, so the operations do too.
//
// Every operation is IEEE 754 single precision, rounded once, denormals kept. An internal type of
// each file that includes it: templates over it are then internal, too, and no code compiled for a
// wider instruction set can become the program's only copy.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "tensor/float_formats.h"

namespace wader::portable {
namespace {

// a · b + c, rounded once, where the baseline has no such instruction. The product is exact in
// double; the sum is rounded to odd there, after which rounding to f32 is the only one that counts
// (Boldo & Melquiond 2008, doi:10.1109/TC.2007.70819). The error of the sum is exact (Knuth).
inline float fused_multiply_add(float a, float b, float c) {
#if defined(__FP_FAST_FMAF)
  return __builtin_fmaf(a, b, c);
#else
  const double product = static_cast<double>(a) * b, addend = c;
  const double sum = product + addend;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (addend - part);
  auto bits = std::bit_cast<int64_t>(sum);
  const bool inexact = error > 0 || error < 0;
  const int64_t towards = (error > 0) == (sum > 0) ? 1 : -1;
  bits += inexact && (bits & 1) == 0 ? towards : 0;
  return static_cast<float>(std::bit_cast<double>(bits));
#endif
}

struct Lanes {
  static constexpr uint32_t kCount = 16;
  // Vectors of accumulators that stay in registers beside what is loaded: how far the operations
  // unroll. No bit depends on it.
  static constexpr uint32_t kAccumulators = 8;

  struct Vec {
    float v[kCount];
  };

  static Vec set1(float x) {
    return map([&](uint32_t) { return x; });
  }
  static Vec zero() { return set1(0.0f); }

  // The _n forms read and write the first n <= 16 alone; lanes beyond are 0.
  static Vec load(const float* from) {
    return map([&](uint32_t l) { return from[l]; });
  }
  static Vec load_n(const float* from, uint32_t n) {
    return map([&](uint32_t l) { return l < n ? from[l] : 0.0f; });
  }
  static Vec load_f16(const uint16_t* from) {
    return map([&](uint32_t l) { return f16_to_f32(from[l]); });
  }
  static Vec load_f16_n(const uint16_t* from, uint32_t n) {
    return map([&](uint32_t l) { return l < n ? f16_to_f32(from[l]) : 0.0f; });
  }
  static Vec load_bf16(const uint16_t* from) {
    return map([&](uint32_t l) { return bf16_to_f32(from[l]); });
  }
  static Vec load_bf16_n(const uint16_t* from, uint32_t n) {
    return map([&](uint32_t l) { return l < n ? bf16_to_f32(from[l]) : 0.0f; });
  }
  // Sixteen pairs: the first of each, and the second.
  static void load_pairs(const float* from, Vec& first, Vec& second) {
    first = map([&](uint32_t l) { return from[2 * l]; });
    second = map([&](uint32_t l) { return from[2 * l + 1]; });
  }
  static void store(float* to, Vec a) { std::memcpy(to, a.v, sizeof a.v); }
  static void store_n(float* to, Vec a, uint32_t n) { std::memcpy(to, a.v, n * sizeof(float)); }
  // Rounded to nearest even; |a| < 65520 or NaN.
  static void store_f16(uint16_t* to, Vec a) { store_f16_n(to, a, kCount); }
  static void store_f16_n(uint16_t* to, Vec a, uint32_t n) {
    for (uint32_t l = 0; l < n; ++l) to[l] = f32_to_f16(a.v[l]);
  }

  static Vec add(Vec a, Vec b) {
    return map([&](uint32_t l) { return a.v[l] + b.v[l]; });
  }
  static Vec sub(Vec a, Vec b) {
    return map([&](uint32_t l) { return a.v[l] - b.v[l]; });
  }
  static Vec mul(Vec a, Vec b) {
    return map([&](uint32_t l) { return a.v[l] * b.v[l]; });
  }
  static Vec div(Vec a, Vec b) {
    return map([&](uint32_t l) { return a.v[l] / b.v[l]; });
  }
  // a · b + c, rounded once.
  static Vec fma(Vec a, Vec b, Vec c) {
    return map([&](uint32_t l) { return fused_multiply_add(a.v[l], b.v[l], c.v[l]); });
  }
  // a > b ? a : b and a < b ? a : b, so b where either is NaN, as x86 has it.
  static Vec max(Vec a, Vec b) {
    return map([&](uint32_t l) { return a.v[l] > b.v[l] ? a.v[l] : b.v[l]; });
  }
  static Vec min(Vec a, Vec b) {
    return map([&](uint32_t l) { return a.v[l] < b.v[l] ? a.v[l] : b.v[l]; });
  }
  // a < b ? x : y.
  static Vec select_less(Vec a, Vec b, Vec x, Vec y) {
    return map([&](uint32_t l) { return a.v[l] < b.v[l] ? x.v[l] : y.v[l]; });
  }
  // To the nearest whole number, halves to even; |a| < 2^22.
  static Vec round(Vec a) {
    return map([&](uint32_t l) {
      constexpr float kUnitsAlone = 0x1.8p23f;  // from here on f32 has no halves
      return __builtin_copysignf((a.v[l] + kUnitsAlone) - kUnitsAlone, a.v[l]);
    });
  }
  // a · 2^n for whole n with −126 <= n <= 127.
  static Vec scale_by_power(Vec a, Vec n) {
    return map([&](uint32_t l) {
      return a.v[l] * std::bit_cast<float>((static_cast<int32_t>(n.v[l]) + 127) << 23);
    });
  }

  static float sqrt(float x) { return __builtin_sqrtf(x); }

  // Lane l + 8 to l, then l + 4 to l, l + 2, l + 1.
  static float add_as_tree(Vec a) {
    for (uint32_t half = kCount / 2; half > 0; half /= 2)
      for (uint32_t l = 0; l < half; ++l) a.v[l] += a.v[l + half];
    return a.v[0];
  }
  // The largest lane; none is NaN.
  static float max_of(Vec a) {
    float most = a.v[0];
    for (uint32_t l = 1; l < kCount; ++l) most = most < a.v[l] ? a.v[l] : most;
    return most;
  }

 private:
  template <typename Fn>
  static Vec map(Fn&& fn) {
    Vec r;
    for (uint32_t l = 0; l < kCount; ++l) r.v[l] = fn(l);
    return r;
  }
};

}  // namespace
}  // namespace wader::portable
