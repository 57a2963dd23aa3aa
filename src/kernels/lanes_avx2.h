// The sixteen lanes of lanes_portable.h in two registers of AVX2 with FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace wader::avx2 {
namespace {

struct Lanes {
  static constexpr uint32_t kCount = 16;
  static constexpr uint32_t kAccumulators = 4;  // 8 of 16 registers

  struct Vec {
    __m256 low, high;
  };

  static Vec set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static Vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }

  static Vec load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
  static Vec load_n(const float* from, uint32_t n) {
    const Masks m = first(n);
    return {_mm256_maskload_ps(from, m.low), _mm256_maskload_ps(from + 8, m.high)};
  }
  static Vec load_f16(const uint16_t* from) {
    return {_mm256_cvtph_ps(load_128(from)), _mm256_cvtph_ps(load_128(from + 8))};
  }
  static Vec load_f16_n(const uint16_t* from, uint32_t n) {
    uint16_t all[kCount] = {};
    __builtin_memcpy(all, from, n * sizeof(uint16_t));
    return load_f16(all);
  }
  static Vec load_bf16(const uint16_t* from) {
    return {widen(load_128(from)), widen(load_128(from + 8))};
  }
  static Vec load_bf16_n(const uint16_t* from, uint32_t n) {
    uint16_t all[kCount] = {};
    __builtin_memcpy(all, from, n * sizeof(uint16_t));
    return load_bf16(all);
  }
  static void load_pairs(const float* from, Vec& even, Vec& odd) {
    split(_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8), even.low, odd.low);
    split(_mm256_loadu_ps(from + 16), _mm256_loadu_ps(from + 24), even.high, odd.high);
  }
  static void store(float* to, Vec a) {
    _mm256_storeu_ps(to, a.low);
    _mm256_storeu_ps(to + 8, a.high);
  }
  static void store_n(float* to, Vec a, uint32_t n) {
    const Masks m = first(n);
    _mm256_maskstore_ps(to, m.low, a.low);
    _mm256_maskstore_ps(to + 8, m.high, a.high);
  }
  static void store_f16(uint16_t* to, Vec a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), narrow(a.low));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 8), narrow(a.high));
  }
  static void store_f16_n(uint16_t* to, Vec a, uint32_t n) {
    uint16_t all[kCount];
    store_f16(all, a);
    __builtin_memcpy(to, all, n * sizeof(uint16_t));
  }

  static Vec add(Vec a, Vec b) {
    return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
  }
  static Vec sub(Vec a, Vec b) {
    return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
  }
  static Vec mul(Vec a, Vec b) {
    return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
  }
  static Vec div(Vec a, Vec b) {
    return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
  }
  static Vec fma(Vec a, Vec b, Vec c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static Vec max(Vec a, Vec b) {
    return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
  }
  static Vec min(Vec a, Vec b) {
    return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
  }
  static Vec select_less(Vec a, Vec b, Vec x, Vec y) {
    return {_mm256_blendv_ps(y.low, x.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
            _mm256_blendv_ps(y.high, x.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
  }
  static Vec round(Vec a) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(a.low, kNearest), _mm256_round_ps(a.high, kNearest)};
  }
  static Vec scale_by_power(Vec a, Vec n) {
    return {_mm256_mul_ps(a.low, power(n.low)), _mm256_mul_ps(a.high, power(n.high))};
  }
  static float sqrt(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

  static float add_as_tree(Vec a) {
    const __m256 eight = _mm256_add_ps(a.low, a.high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static float max_of(Vec a) {
    const __m256 eight = _mm256_max_ps(a.low, a.high);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }

 private:
  struct Masks {
    __m256i low, high;
  };
  static Masks first(uint32_t n) {
    const __m256i count = _mm256_set1_epi32(static_cast<int>(n));
    return {_mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
            _mm256_cmpgt_epi32(count, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
  }
  static __m128i load_128(const uint16_t* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  static __m256 widen(__m128i bf16) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
  }
  static __m128i narrow(__m256 a) {
    return _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static __m256 power(__m256 n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
  }
  // Eight pairs. The shuffles stay inside halves of a register, so the middle quarters trade places
  // after.
  static void split(__m256 a, __m256 b, __m256& even, __m256& odd) {
    even = in_order(_mm256_shuffle_ps(a, b, 0x88));
    odd = in_order(_mm256_shuffle_ps(a, b, 0xdd));
  }
  static __m256 in_order(__m256 a) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(a), 0xd8));
  }
};

}  // namespace
}  // namespace wader::avx2
