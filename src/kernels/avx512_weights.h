// Weights as the files of AVX-512 read them: blocks, and the scales of sixteen of them.
#pragma once

#include <immintrin.h>

#include "kernels/integer.h"

namespace wader::avx512 {
namespace {

constexpr uint32_t width_of(DType format) {  // columns of a block
  return format == DType::mxfp4 ? kActivationBlock : kWideBlock;
}

// The lowest n of 64 bits.
inline uint64_t low_bits(uint32_t n) {
  return n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1;
}

// Byte s → 2^(s − 127) / 2: 0 and 1 give denormals, 255 NaN. Those three are rare, and six
// instructions of some fifty for each 16 blocks.
inline __m512 half_e8m0(__m128i bytes) {
  const __m512i wide = _mm512_cvtepu8_epi32(bytes);
  __m512i bits = _mm512_slli_epi32(_mm512_sub_epi32(wide, _mm512_set1_epi32(1)), 23);
  if (_mm_cmpgt_epu8_mask(_mm_sub_epi8(bytes, _mm_set1_epi8(2)), _mm_set1_epi8(-4))) [[unlikely]] {
    bits = _mm512_mask_mov_epi32(bits, _mm512_cmpeq_epi32_mask(wide, _mm512_set1_epi32(1)),
                                 _mm512_set1_epi32(0x00400000));
    bits = _mm512_mask_mov_epi32(bits, _mm512_testn_epi32_mask(wide, wide),
                                 _mm512_set1_epi32(0x00200000));
    bits = _mm512_mask_mov_epi32(bits, _mm512_cmpeq_epi32_mask(wide, _mm512_set1_epi32(255)),
                                 _mm512_set1_epi32(0x7fc00000));
  }
  return _mm512_castsi512_ps(bits);
}

// What every row of a matrix shares.
struct Layout {
  uint32_t width;                 // columns of a block
  uint32_t blocks, runs, groups;  // of a row
  uint32_t shift;                 // block >> shift is its group
  size_t code_bytes;              // of a row
  __m512i spread;                 // lane → group of the run
  bool f16;
};

inline Layout layout_of(const MatrixView& w) {
  Layout l{};
  l.width = width_of(w.format.dtype);
  l.blocks = w.cols / l.width;
  l.runs = (l.blocks + kSumLanes - 1) / kSumLanes;
  l.code_bytes = code_bytes_of_row(w);
  l.shift = w.format.group == 128 ? 1 : 0;
  l.groups = l.blocks >> l.shift;
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  l.spread = _mm512_srl_epi32(lanes, _mm_cvtsi32_si128(static_cast<int>(l.shift)));
  l.f16 = w.format.scales == DType::f16;
  return l;
}

// Scales (or biases) of the `count` blocks of one run; 0 in the other lanes.
[[gnu::always_inline]] inline __m512 load_scales(const Layout& l, const std::byte* plane,
                                                 uint32_t row, uint32_t run, uint32_t count) {
  const uint32_t first = run * kSumLanes >> l.shift, kept = count >> l.shift;
  const std::byte* from = plane + 2 * (static_cast<size_t>(row) * l.groups + first);
  _mm_prefetch(reinterpret_cast<const char*>(from) + kPrefetchScales, _MM_HINT_T0);
  const __m256i raw = _mm256_maskz_loadu_epi16(static_cast<__mmask16>(low_bits(kept)), from);
  const __m512 values =
      l.f16 ? _mm512_cvtph_ps(raw)
            : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(raw), 16));
  return _mm512_maskz_permutexvar_ps(static_cast<__mmask16>(low_bits(count)), l.spread, values);
}

[[gnu::always_inline]] inline __m512 load_e8m0(const Layout& l, const std::byte* plane,
                                               uint32_t row, uint32_t run, uint32_t count) {
  const auto mask = static_cast<__mmask16>(low_bits(count));
  const std::byte* from = plane + static_cast<size_t>(row) * l.blocks + run * kSumLanes;
  _mm_prefetch(reinterpret_cast<const char*>(from) + kPrefetchScales, _MM_HINT_T0);
  return _mm512_maskz_mov_ps(mask, half_e8m0(_mm_mask_loadu_epi8(_mm_set1_epi8(127), mask, from)));
}

// mxfp4 codes are looked up 12 too high, so that they are unsigned.
inline __m512i twice_e2m1_and_12() {
  return _mm512_broadcast_i32x4(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
}

}  // namespace
}  // namespace wader::avx512
