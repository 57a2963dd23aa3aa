// 32 rows of weights, a byte a code, for products with many tokens: four columns of sixteen rows a
// vector.
//
// Only what is defined here and intrinsics: an inline function of a header, not inlined, could
// become the program's only copy.

#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && defined(__AVX512VL__)

#include "kernels/avx512_weights.h"

namespace wader::avx512 {
namespace {

constexpr uint32_t block_bytes(DType format) {  // unpacked
  return kUnpackedRows * width_of(format);
}

UnpackedRows place_in_scratch(const MatmulArgs& a, const Layout& l) {
  UnpackedRows rows{};
  rows.blocks = l.blocks;
  rows.affine = a.w.format.dtype != DType::mxfp4;
  rows.order = order_blocks(l.blocks);
  rows.codes = reinterpret_cast<uint8_t*>(a.scratch);
  rows.scales = a.scratch + size_t{l.blocks} * l.width * (kUnpackedRows / sizeof(float));
  rows.biases = rows.scales + size_t{l.blocks} * kUnpackedRows;
  return rows;
}

// Dword c of rows[r] becomes dword r of rows[c].
void transpose(__m512i (&rows)[16]) {
  __m512i t[16];
  for (uint32_t i = 0; i < 16; i += 4) {
    const __m512i ab = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    const __m512i ab_high = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    const __m512i cd = _mm512_unpacklo_epi32(rows[i + 2], rows[i + 3]);
    const __m512i cd_high = _mm512_unpackhi_epi32(rows[i + 2], rows[i + 3]);
    t[i] = _mm512_unpacklo_epi64(ab, cd);  // lane j: dword 4j of four rows
    t[i + 1] = _mm512_unpackhi_epi64(ab, cd);
    t[i + 2] = _mm512_unpacklo_epi64(ab_high, cd_high);
    t[i + 3] = _mm512_unpackhi_epi64(ab_high, cd_high);
  }
  for (uint32_t i = 0; i < 4; ++i) {
    const __m512i a = _mm512_shuffle_i32x4(t[i], t[i + 4], 0x88);  // lanes 0 and 2 of both
    const __m512i b = _mm512_shuffle_i32x4(t[i], t[i + 4], 0xdd);  // lanes 1 and 3
    const __m512i c = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0xdd);
    rows[i] = _mm512_shuffle_i32x4(a, c, 0x88);
    rows[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
    rows[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
    rows[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}

// 16 bytes of each of 16 rows: dword r of out[d] is row r's dword d. As a call it would pass the
// four through memory.
[[gnu::always_inline]] inline void load_transposed(const std::byte* const (&rows)[16], size_t at,
                                                   __m512i (&out)[4]) {
  __m512i four[4];  // lane j of four[i]: row 4j + i
  for (uint32_t i = 0; i < 4; ++i) {
    const auto load = [&](uint32_t row) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[row] + at));
    };
    // Inserted from memory: a blend, which has two ports where a shuffle has one.
    four[i] = _mm512_castsi128_si512(load(i));
    four[i] = _mm512_inserti32x4(four[i], load(4 + i), 1);
    four[i] = _mm512_inserti32x4(four[i], load(8 + i), 2);
    four[i] = _mm512_inserti32x4(four[i], load(12 + i), 3);
  }
  const __m512i ab = _mm512_unpacklo_epi32(four[0], four[1]);
  const __m512i ab_high = _mm512_unpackhi_epi32(four[0], four[1]);
  const __m512i cd = _mm512_unpacklo_epi32(four[2], four[3]);
  const __m512i cd_high = _mm512_unpackhi_epi32(four[2], four[3]);
  out[0] = _mm512_unpacklo_epi64(ab, cd);
  out[1] = _mm512_unpackhi_epi64(ab, cd);
  out[2] = _mm512_unpacklo_epi64(ab_high, cd_high);
  out[3] = _mm512_unpackhi_epi64(ab_high, cd_high);
}

// The range's codes of sixteen rows to `to`, half of the tile.
template <DType kFormat>
void unpack_half(const std::byte* const (&rows)[16], const UnpackedRows& tile, BlockRange range,
                 __m512i table, uint8_t* to) {
  constexpr uint32_t kBytes = width_of(kFormat) / (kFormat == DType::affine8 ? 1 : 2);  // a block's
  // Of each dword bytes 0 and 1, or 2 and 3, as words.
  const __m512i low = _mm512_broadcast_i32x4(
      _mm_setr_epi8(0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1));
  const __m512i high = _mm512_broadcast_i32x4(
      _mm_setr_epi8(2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15, -1));
  const uint32_t first = place_of(tile.order, range.first);
  for (uint32_t b = range.first; b < tile.blocks; b += range.step) {
    const size_t at = size_t{b} * kBytes;
    uint8_t* quad = to + size_t{place_of(tile.order, b) - first} * block_bytes(kFormat);
    __m512i dwords[4];
    for (uint32_t half = 0; half < kBytes / 16; ++half) {
      load_transposed(rows, at + 16 * half, dwords);
      for (const __m512i& dword : dwords) {
        if constexpr (kFormat == DType::affine8) {
          _mm512_storeu_si512(quad, dword);
          quad += 128;
          continue;
        }
        for (const __m512i& bytes : {low, high}) {
          const __m512i wide = _mm512_shuffle_epi8(dword, bytes);
          __m512i codes = _mm512_ternarylogic_epi32(wide, _mm512_slli_epi16(wide, 4),
                                                    _mm512_set1_epi8(15), 0xa8);  // (a | b) & c
          if (kFormat == DType::mxfp4) codes = _mm512_shuffle_epi8(table, codes);
          _mm512_storeu_si512(quad, codes);
          quad += 128;
        }
      }
    }
  }
}

void unpack_plane(const MatmulArgs& a, const Layout& l, const UnpackedRows& tile,
                  const uint32_t (&rows)[16], const std::byte* from, float* to) {
  __m512i values[16];
  for (uint32_t run = 0; run < l.runs; ++run) {
    const uint32_t count = least(kSumLanes, l.blocks - run * kSumLanes);
    for (uint32_t i = 0; i < 16; ++i)
      values[i] = _mm512_castps_si512(a.w.format.dtype == DType::mxfp4
                                          ? load_e8m0(l, from, rows[i], run, count)
                                          : load_scales(l, from, rows[i], run, count));
    transpose(values);
    for (uint32_t k = 0; k < count; ++k)
      _mm512_storeu_si512(to + size_t{place_of(tile.order, run * kSumLanes + k)} * kUnpackedRows,
                          values[k]);
  }
}

}  // namespace

UnpackedRows unpack_scales(const MatmulArgs& a, uint32_t row) {
  const Layout l = layout_of(a.w);
  const UnpackedRows tile = place_in_scratch(a, l);
  for (uint32_t half = 0; half < 2; ++half) {
    uint32_t rows[16];
    for (uint32_t i = 0; i < 16; ++i) rows[i] = least(row + half * 16 + i, a.row_end - 1);
    unpack_plane(a, l, tile, rows, a.w.scales, tile.scales + half * 16);
    if (tile.affine) unpack_plane(a, l, tile, rows, a.w.biases, tile.biases + half * 16);
  }
  return tile;
}

void unpack_codes(const MatmulArgs& a, const UnpackedRows& tile, uint32_t row, BlockRange range,
                  bool signed_codes) {
  const size_t row_bytes = code_bytes_of_row(a.w);
  const __m512i table =
      _mm512_sub_epi8(twice_e2m1_and_12(), _mm512_set1_epi8(signed_codes ? 12 : 0));
  for (uint32_t half = 0; half < 2; ++half) {
    const std::byte* rows[16];
    for (uint32_t i = 0; i < 16; ++i)
      rows[i] = a.w.codes + least(row + half * 16 + i, a.row_end - 1) * row_bytes;
    uint8_t* to = tile.codes + half * 64;
    switch (a.w.format.dtype) {
      case DType::mxfp4:
        unpack_half<DType::mxfp4>(rows, tile, range, table, to);
        break;
      case DType::affine4:
        unpack_half<DType::affine4>(rows, tile, range, table, to);
        break;
      default:
        unpack_half<DType::affine8>(rows, tile, range, table, to);
        break;
    }
  }
}

}  // namespace wader::avx512

#endif
