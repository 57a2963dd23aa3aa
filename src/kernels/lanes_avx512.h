// The sixteen lanes of lanes_portable.h in one register of AVX-512 F, BW and VL.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace wader::avx512 {
namespace {

struct Lanes {
  static constexpr uint32_t kCount = 16;
  static constexpr uint32_t kAccumulators = 24;  // of 32 registers

  struct Vec {
    __m512 v;
  };

  static Vec set1(float x) { return {_mm512_set1_ps(x)}; }
  static Vec zero() { return {_mm512_setzero_ps()}; }

  static Vec load(const float* from) { return {_mm512_loadu_ps(from)}; }
  static Vec load_n(const float* from, uint32_t n) {
    return {_mm512_maskz_loadu_ps(first(n), from)};
  }
  static Vec load_f16(const uint16_t* from) { return {_mm512_cvtph_ps(load_256(from))}; }
  static Vec load_f16_n(const uint16_t* from, uint32_t n) {
    return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), from))};
  }
  static Vec load_bf16(const uint16_t* from) { return widen(load_256(from)); }
  static Vec load_bf16_n(const uint16_t* from, uint32_t n) {
    return widen(_mm256_maskz_loadu_epi16(first(n), from));
  }
  static void load_pairs(const float* from, Vec& even, Vec& odd) {
    const __m512 low = _mm512_loadu_ps(from), high = _mm512_loadu_ps(from + kCount);
    const __m512i places =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    even.v = _mm512_permutex2var_ps(low, places, high);
    odd.v = _mm512_permutex2var_ps(low, _mm512_or_si512(places, _mm512_set1_epi32(1)), high);
  }
  static void store(float* to, Vec a) { _mm512_storeu_ps(to, a.v); }
  static void store_n(float* to, Vec a, uint32_t n) { _mm512_mask_storeu_ps(to, first(n), a.v); }
  static void store_f16(uint16_t* to, Vec a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), narrow(a));
  }
  static void store_f16_n(uint16_t* to, Vec a, uint32_t n) {
    _mm256_mask_storeu_epi16(to, first(n), narrow(a));
  }

  static Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
  static Vec sub(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
  static Vec mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
  static Vec div(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
  static Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  static Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
  static Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
  static Vec select_less(Vec a, Vec b, Vec x, Vec y) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
  }
  static Vec round(Vec a) {
    return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  static Vec scale_by_power(Vec a, Vec n) { return {_mm512_scalef_ps(a.v, n.v)}; }
  static float sqrt(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

  static float add_as_tree(Vec a) {
    const __m256 eight = _mm256_add_ps(low_half(a), high_half(a));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static float max_of(Vec a) {
    const __m256 eight = _mm256_max_ps(low_half(a), high_half(a));
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }

 private:
  static __mmask16 first(uint32_t n) { return static_cast<__mmask16>((1u << n) - 1); }
  static __m256i load_256(const uint16_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static Vec widen(__m256i bf16) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16))};
  }
  static __m256i narrow(Vec a) {
    return _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static __m256 low_half(Vec a) { return _mm512_castps512_ps256(a.v); }
  static __m256 high_half(Vec a) {
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a.v), 1));
  }
};

}  // namespace
}  // namespace wader::avx512
