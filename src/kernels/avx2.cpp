// The integer products with AVX2, which has no 8-bit product that adds to 32 bits. vpmaddubsw
// multiplies unsigned by signed bytes and adds pairs into 16 bits, saturating; here it never does:
// nibbles give 2 · 24 · 127 a pair, and codes of 8 bits are taken as c − 128, whose magnitude gives
// 2 · 128 · 127 = 32,512 at most, the sign being put on the activation. ops.h defines the
// arithmetic.
//
// Only what is defined here and intrinsics: an inline function of a header, not inlined, could
// become the program's only copy.

#if defined(__AVX2__) && defined(__F16C__) && defined(__FMA__)

#include <immintrin.h>

#include "kernels/integer.h"

namespace wader::avx2 {
namespace {

constexpr uint32_t kBlocks = 8;     // of a half run, one a lane of a vector
constexpr uint32_t kStep = 256;     // columns: eight times 32
constexpr uint32_t kFewTokens = 3;  // up to which weights are read row by row

const __m256i* vector_at(const void* from) {
  return static_cast<const __m256i*>(from);
}
__m256i* vector_at(void* to) {
  return static_cast<__m256i*>(to);
}

// All ones in the lowest n dwords.
__m256i first_dwords(uint32_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(least(n, 8))),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// Lane l + 8 to l, l + 4, l + 2, l + 1.
float add_as_tree(__m256 low, __m256 high) {
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Byte s → 2^(s − 127) / 2: 0 and 1 give denormals, 255 NaN. Those three are rare.
__m256 half_e8m0(__m256i bytes) {
  const auto replace = [&](__m256i bits, int byte, int with) {
    return _mm256_blendv_epi8(bits, _mm256_set1_epi32(with),
                              _mm256_cmpeq_epi32(bytes, _mm256_set1_epi32(byte)));
  };
  __m256i bits = _mm256_slli_epi32(_mm256_sub_epi32(bytes, _mm256_set1_epi32(1)), 23);
  // Of 2 … 254 alone byte − 2 is at most 252, as unsigned numbers.
  const __m256i less_2 = _mm256_sub_epi32(bytes, _mm256_set1_epi32(2)),
                most = _mm256_set1_epi32(252);
  if (_mm256_movemask_epi8(_mm256_cmpeq_epi32(_mm256_min_epu32(less_2, most), less_2)) != -1)
      [[unlikely]] {
    bits = replace(bits, 1, 0x00400000);
    bits = replace(bits, 0, 0x00200000);
    bits = replace(bits, 255, 0x7fc00000);
  }
  return _mm256_castsi256_ps(bits);
}

// What every row of a matrix shares.
struct Layout {
  DType format;
  bool f16;
  uint32_t width;                   // columns of a block
  uint32_t blocks, halves, groups;  // of a row
  uint32_t shift;                   // block >> shift is its group
  size_t code_bytes;                // of a row
  __m256i spread;                   // lane → group of the half run
  int offset;                       // true code − stored code
};

Layout layout_of(const MatrixView& w) {
  Layout l{};
  l.format = w.format.dtype;
  l.f16 = w.format.scales == DType::f16;
  l.width = activation_block(w.format);
  l.blocks = w.cols / l.width;
  l.halves = (l.blocks + kBlocks - 1) / kBlocks;
  l.code_bytes = code_bytes_of_row(w);
  l.shift = w.format.group == 128 ? 1 : 0;
  l.groups = l.blocks >> l.shift;
  l.spread = _mm256_srl_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                              _mm_cvtsi32_si128(static_cast<int>(l.shift)));
  l.offset = l.format == DType::mxfp4 ? -12 : l.format == DType::affine8 ? 128 : 0;
  return l;
}

// Scales (or biases) of the `count` blocks of one half run; 0 in the other lanes. kMasked: no byte
// beyond them is read.
template <bool kMasked>
[[gnu::always_inline]] inline __m256 load_scales(const Layout& l, const std::byte* plane,
                                                 uint32_t row, uint32_t half, uint32_t count) {
  const bool mxfp4 = l.format == DType::mxfp4;
  const uint32_t first = half * kBlocks >> l.shift;
  const std::byte* from = plane + (static_cast<size_t>(row) * l.groups + first) * (mxfp4 ? 1 : 2);
  _mm_prefetch(reinterpret_cast<const char*>(from) + kPrefetchScales, _MM_HINT_T0);
  __m128i raw;
  if (kMasked && count < kBlocks) {
    const uint32_t bytes = mxfp4 ? count : 2 * (count >> l.shift);
    alignas(16) std::byte padded[16] = {};
    for (uint32_t i = 0; i < bytes; ++i) padded[i] = from[i];
    raw = _mm_load_si128(reinterpret_cast<const __m128i*>(padded));
  } else {
    raw = mxfp4 || l.shift ? _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))
                           : _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  __m256 values;
  if (mxfp4)
    values = half_e8m0(_mm256_cvtepu8_epi32(raw));
  else if (l.f16)
    values = _mm256_cvtph_ps(raw);
  else
    values = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));
  if (l.shift) values = _mm256_permutevar8x32_ps(values, l.spread);
  // The mask also keeps a last half run's lanes without a block from holding denormals: slow.
  if (count < kBlocks) values = _mm256_and_ps(values, _mm256_castsi256_ps(first_dwords(count)));
  return values;
}

// mxfp4 codes are looked up 12 too high, so that they are unsigned: 2 · E2M1 + 12.
__m256i lookup_e2m1(__m256i nibbles) {
  const __m256i table = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  return _mm256_shuffle_epi8(table, nibbles);
}

// Pairs of Σ (code − 128) · x, of codes − 128.
__m256i signed_pairs(__m256i codes, __m256i x) {
  return _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes));
}

// Decode. Σ stored codes · x of eight times 32 columns, by their arranged activations. kMasked: of
// `count` times 32, and no byte beyond them is read.
template <DType kFormat, bool kMasked>
[[gnu::always_inline]] inline __m256i dot(const std::byte* from, uint32_t count, const int8_t* x) {
  const __m256i ones = _mm256_set1_epi16(1);
  const auto load = [&](uint32_t v, uint32_t dwords_a_block) {
    const std::byte* at = from + 32 * v;
    _mm_prefetch(reinterpret_cast<const char*>(at) + kPrefetch, _MM_HINT_T0);
    if (!kMasked) return _mm256_loadu_si256(vector_at(at));
    const uint32_t dwords = count * dwords_a_block;
    return _mm256_maskload_epi32(reinterpret_cast<const int*>(at),
                                 first_dwords(dwords > 8 * v ? dwords - 8 * v : 0));
  };
  const auto x_at = [&](uint32_t v) { return _mm256_loadu_si256(vector_at(x + 32 * v)); };
  __m256i sums[4];  // lane i of sums[j]: the parts of 2j + i
#pragma GCC unroll 4
  for (uint32_t j = 0; j < 4; ++j) {
    if constexpr (kFormat == DType::affine8) {
      const __m256i flip = _mm256_set1_epi8(-128);
      const __m256i a = _mm256_madd_epi16(
          signed_pairs(_mm256_xor_si256(load(2 * j, 8), flip), x_at(2 * j)), ones);
      const __m256i b = _mm256_madd_epi16(
          signed_pairs(_mm256_xor_si256(load(2 * j + 1, 8), flip), x_at(2 * j + 1)), ones);
      sums[j] = _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                                 _mm256_permute2x128_si256(a, b, 0x31));
    } else {
      const __m256i raw = load(j, 4), mask = _mm256_set1_epi8(15);
      __m256i even = _mm256_and_si256(raw, mask);
      __m256i odd = _mm256_and_si256(_mm256_srli_epi16(raw, 4), mask);
      if constexpr (kFormat == DType::mxfp4) {
        even = lookup_e2m1(even);
        odd = lookup_e2m1(odd);
      }
      const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(even, x_at(2 * j)),
                                             _mm256_maddubs_epi16(odd, x_at(2 * j + 1)));
      sums[j] = _mm256_madd_epi16(pairs, ones);
    }
  }
  const __m256i all =
      _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
  return _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Activations as decode reads them, in scratch: for each token and half run of weights its codes,
// and for its eight blocks the scales, the sums, and what true codes add to the products of stored
// ones. All are 0 in the places without a block.
struct Arranged {
  int8_t* codes;     // (tokens, halves, 8 blocks)
  float* scales;     // (tokens, halves, 8)
  float* sums;       // (tokens, halves, 8)
  int32_t* offsets;  // (tokens, halves, 8)
};

// A row's codes. For nibbles each 64 become 32 of even columns, then 32 of odd ones: a byte of
// weights holds one of each.
void arrange_codes(const int8_t* from, uint32_t cols, uint32_t padded, bool nibbles, int8_t* to) {
  const auto load = [&](uint32_t c) {
    return c < cols ? _mm256_loadu_si256(vector_at(from + c)) : _mm256_setzero_si256();
  };
  const auto pack = [](__m256i a, __m256i b) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xd8);
  };
  const __m256i mask = _mm256_set1_epi16(255);
  for (uint32_t c = 0; c < padded; c += 64) {
    __m256i a = load(c), b = load(c + 32);
    if (nibbles) {
      const __m256i even = pack(_mm256_and_si256(a, mask), _mm256_and_si256(b, mask));
      b = pack(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
      a = even;
    }
    _mm256_storeu_si256(vector_at(to + c), a);
    _mm256_storeu_si256(vector_at(to + c + 32), b);
  }
}

template <uint32_t kWidth>
Arranged arrange(const MatmulArgs& a, const Layout& l) {
  constexpr uint32_t kHalf = kBlocks * kWidth, kSteps = kWidth / kActivationBlock;
  const size_t halves = size_t{a.tokens} * l.halves;
  Arranged x{};
  x.codes = reinterpret_cast<int8_t*>(a.scratch);
  x.scales = a.scratch + halves * kHalf / sizeof(float);
  x.sums = x.scales + halves * kBlocks;
  x.offsets = reinterpret_cast<int32_t*>(x.sums + halves * kBlocks);
  for (size_t t = 0; t < a.tokens; ++t) {
    const size_t of_token = t * a.xq->blocks_stride, first = t * l.halves;
    arrange_codes(a.xq->codes + t * a.xq->codes_stride, a.w.cols, l.halves * kHalf,
                  l.format != DType::affine8, x.codes + first * kHalf);
    // Scales and sums of codes are kept for every 32 columns, sums for every block of 64.
    const float* scales = a.xq->scales + of_token;
    const int32_t* code_sums = a.xq->code_sums + of_token;
    for (uint32_t b = 0; b < l.halves * kBlocks; ++b) {
      const size_t to = first * kBlocks + b, from = size_t{b} * kSteps;
      const bool there = b < l.blocks;
      int32_t sum = there ? code_sums[from] : 0;
      x.scales[to] = there ? scales[from] : 0.0f;
      x.sums[to] = x.scales[to] * static_cast<float>(sum);
      if constexpr (kSteps == 2) {
        sum += there ? code_sums[from + 1] : 0;
        x.sums[to] = there ? a.xq->sums[of_token + b] : 0.0f;
      }
      x.offsets[to] = l.offset * sum;
    }
  }
  return x;
}

// Lanes 0 + 1, 2 + 3 … of a, then those of b.
__m256i add_neighbours(__m256i a, __m256i b) {
  return _mm256_permute4x64_epi64(_mm256_hadd_epi32(a, b), 0xd8);
}

template <DType kFormat, uint32_t kWidth, uint32_t kTokens, bool kMasked>
[[gnu::always_inline]] inline void add_half(const MatmulArgs& a, const Layout& l, const Arranged& x,
                                            uint32_t row, uint32_t half, uint32_t count,
                                            __m256 (&lane)[kTokens]) {
  constexpr uint32_t kHalf = kBlocks * kWidth;
  constexpr uint32_t kBytes = kFormat == DType::affine8 ? kHalf : kHalf / 2;
  const __m256 scales = load_scales<kMasked>(l, a.w.scales, row, half, count);
  __m256 biases = _mm256_setzero_ps();
  if constexpr (kFormat != DType::mxfp4)
    biases = load_scales<kMasked>(l, a.w.biases, row, half, count);
  const std::byte* from = a.w.codes + row * l.code_bytes + size_t{half} * kBytes;
  for (uint32_t t = 0; t < kTokens; ++t) {
    const size_t at = t * size_t{l.halves} + half;
    const int8_t* codes = x.codes + at * kHalf;
    __m256i products;
    if constexpr (kWidth == kActivationBlock) {
      products = dot<kFormat, kMasked>(from, count, codes);
    } else {
      const uint32_t steps = 2 * count;
      products = add_neighbours(
          dot<kFormat, kMasked>(from, least(steps, 8), codes),
          dot<kFormat, kMasked>(from + kBytes / 2, steps > 8 ? steps - 8 : 0, codes + kStep));
    }
    if constexpr (kFormat != DType::affine4)
      products =
          _mm256_add_epi32(products, _mm256_loadu_si256(vector_at(x.offsets + at * kBlocks)));
    // Lanes without a block add 0 · 0 and never 0 · NaN: scales are 0 on both sides, and codes that
    // stand behind the row's are multiplied by 0.
    lane[t] =
        _mm256_fmadd_ps(_mm256_cvtepi32_ps(products),
                        _mm256_mul_ps(scales, _mm256_loadu_ps(x.scales + at * kBlocks)), lane[t]);
    if constexpr (kFormat != DType::mxfp4)
      lane[t] = _mm256_fmadd_ps(biases, _mm256_loadu_ps(x.sums + at * kBlocks), lane[t]);
  }
}

template <DType kFormat, uint32_t kWidth, uint32_t kTokens, bool kMasked>
void multiply_rows(const MatmulArgs& a, const Layout& l, const Arranged& x, uint32_t begin,
                   uint32_t end) {
  const uint32_t whole = l.blocks / kBlocks, rest = l.blocks % kBlocks;
  for (uint32_t r = begin; r < end; ++r) {
    __m256 low[kTokens], high[kTokens];  // of the sixteen lanes
    for (uint32_t t = 0; t < kTokens; ++t) low[t] = high[t] = _mm256_setzero_ps();
    uint32_t half = 0;
    for (; half + 2 <= whole; half += 2) {
      add_half<kFormat, kWidth, kTokens, kMasked>(a, l, x, r, half, kBlocks, low);
      add_half<kFormat, kWidth, kTokens, kMasked>(a, l, x, r, half + 1, kBlocks, high);
    }
    if (half < l.halves)
      add_half<kFormat, kWidth, kTokens, kMasked>(a, l, x, r, half, half < whole ? kBlocks : rest,
                                                  low);
    if (half + 1 < l.halves)
      add_half<kFormat, kWidth, kTokens, kMasked>(a, l, x, r, half + 1, rest, high);
    const float bias = a.bias ? a.bias[r] : 0.0f;
    for (uint32_t t = 0; t < kTokens; ++t)
      a.y[t * a.y_stride + r] = add_as_tree(low[t], high[t]) + bias;
  }
}

template <DType kFormat, uint32_t kWidth, uint32_t kTokens>
void row_by_row(const MatmulArgs& a, const Layout& l, const Arranged& x) {
  // Whole half runs are read of rows behind which the matrix has as many bytes more.
  const auto rows_before_end = [&](size_t read_bytes, size_t row_bytes) {
    return static_cast<uint32_t>((read_bytes - 1) / row_bytes);
  };
  constexpr uint32_t kHalf = kBlocks * kWidth;
  const uint32_t by_codes = rows_before_end(
      size_t{l.halves} * (kFormat == DType::affine8 ? kHalf : kHalf / 2), l.code_bytes);
  const uint32_t by_scales = rows_before_end(size_t{l.halves} * (kBlocks >> l.shift), l.groups);
  const uint32_t last = by_codes > by_scales ? by_codes : by_scales;
  const uint32_t free_end = a.w.rows > last ? least(a.w.rows - last, a.row_end) : 0;
  multiply_rows<kFormat, kWidth, kTokens, false>(a, l, x, a.row_begin, free_end);
  multiply_rows<kFormat, kWidth, kTokens, true>(
      a, l, x, a.row_begin > free_end ? a.row_begin : free_end, a.row_end);
}

template <DType kFormat, uint32_t kWidth>
void few_tokens(const MatmulArgs& a, const Layout& l) {
  prefetch_first_rows(a);
  const Arranged x = arrange<kWidth>(a, l);
  switch (a.tokens) {
    case 1:
      return row_by_row<kFormat, kWidth, 1>(a, l, x);
    case 2:
      return row_by_row<kFormat, kWidth, 2>(a, l, x);
    default:
      return row_by_row<kFormat, kWidth, kFewTokens>(a, l, x);
  }
}

// Prefill. 16 rows are unpacked, four columns of eight rows a vector, and multiplied with all
// tokens.
constexpr uint32_t kTileRows = 16, kTileTokens = 3;
constexpr uint32_t kUnpackedBytes = kTileRows * kActivationBlock;  // of 32 columns

struct Tile {
  BlockOrder order;
  uint8_t* codes;          // (blocks, 8 or 16 quads of columns, 2, 8 rows, 4 columns)
  float *scales, *biases;  // (blocks, 16 rows)
  size_t place(uint32_t block) const { return place_of(order, block); }
};

Tile tile_of(const MatmulArgs& a, const Layout& l) {
  Tile tile{};
  tile.order = order_blocks(l.blocks);
  tile.codes = reinterpret_cast<uint8_t*>(a.scratch);
  tile.scales = a.scratch + size_t{l.blocks} * l.width * (kTileRows / sizeof(float));
  tile.biases = tile.scales + size_t{l.blocks} * kTileRows;
  return tile;
}

// Dword c of rows[r] becomes dword r of rows[c].
void transpose(__m256i (&rows)[8]) {
  __m256i t[8];
  for (uint32_t i = 0; i < 8; i += 4) {
    const __m256i ab = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
    const __m256i ab_high = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
    const __m256i cd = _mm256_unpacklo_epi32(rows[i + 2], rows[i + 3]);
    const __m256i cd_high = _mm256_unpackhi_epi32(rows[i + 2], rows[i + 3]);
    t[i] = _mm256_unpacklo_epi64(ab, cd);  // lane j: dword 4j of four rows
    t[i + 1] = _mm256_unpackhi_epi64(ab, cd);
    t[i + 2] = _mm256_unpacklo_epi64(ab_high, cd_high);
    t[i + 3] = _mm256_unpackhi_epi64(ab_high, cd_high);
  }
  for (uint32_t i = 0; i < 4; ++i) {
    rows[i] = _mm256_permute2x128_si256(t[i], t[i + 4], 0x20);
    rows[i + 4] = _mm256_permute2x128_si256(t[i], t[i + 4], 0x31);
  }
}

// 32 columns of one row, a byte a code, in order.
__m256i unpack_codes(DType format, const std::byte* from) {
  if (format == DType::affine8)
    return _mm256_xor_si256(_mm256_loadu_si256(vector_at(from)), _mm256_set1_epi8(-128));
  const __m256i wide =
      _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  const __m256i codes =
      _mm256_and_si256(_mm256_or_si256(wide, _mm256_slli_epi16(wide, 4)), _mm256_set1_epi8(15));
  return format == DType::mxfp4 ? lookup_e2m1(codes) : codes;
}

// Eight rows from `row` on, those at `end` and beyond as zeros, into half `part` of the tile.
void unpack(const MatmulArgs& a, const Layout& l, const Tile& tile, uint32_t row, uint32_t end,
            uint32_t part) {
  const uint32_t steps = l.width / kActivationBlock;
  const size_t step_bytes = l.code_bytes / l.blocks / steps;
  __m256i rows[8];
  for (uint32_t b = 0; b < l.blocks * steps; ++b) {
    for (uint32_t i = 0; i < 8; ++i)
      rows[i] = row + i < end
                    ? unpack_codes(l.format, a.w.codes + (row + i) * l.code_bytes + b * step_bytes)
                    : _mm256_setzero_si256();
    transpose(rows);
    uint8_t* to =
        tile.codes + (tile.place(b / steps) * steps + b % steps) * kUnpackedBytes + part * 32;
    for (uint32_t quad = 0; quad < 8; ++quad)
      _mm256_storeu_si256(vector_at(to + quad * 64), rows[quad]);
  }
  for (uint32_t half = 0; half < l.halves; ++half) {
    const uint32_t count = least(kBlocks, l.blocks - half * kBlocks);
    for (uint32_t plane = 0; plane < (l.format == DType::mxfp4 ? 1u : 2u); ++plane) {
      float* to = (plane == 0 ? tile.scales : tile.biases) + part * 8;
      for (uint32_t i = 0; i < 8; ++i)
        rows[i] = row + i < end
                      ? _mm256_castps_si256(load_scales<true>(
                            l, plane == 0 ? a.w.scales : a.w.biases, row + i, half, count))
                      : _mm256_setzero_si256();
      transpose(rows);
      for (uint32_t k = 0; k < count; ++k)
        _mm256_storeu_si256(vector_at(to + tile.place(half * kBlocks + k) * kTileRows), rows[k]);
    }
  }
}

// Adds Σ stored codes · x + offset · Σ x of 32 columns: [token][half of the rows].
template <DType kFormat, uint32_t kTokens>
[[gnu::always_inline]] inline void add_products(const Layout& l, const uint8_t* w, const int8_t* x,
                                                size_t stride, const int32_t* code_sums,
                                                size_t blocks_stride, __m256i (&sums)[kTokens][2]) {
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (kFormat != DType::affine4)
    for (uint32_t t = 0; t < kTokens; ++t)
      for (__m256i& sum : sums[t])
        sum = _mm256_add_epi32(sum, _mm256_set1_epi32(l.offset * code_sums[t * blocks_stride]));
  // Four pairs of nibbles add up to 4 · 2 · 24 · 127 = 24,384 at most, within 16 bits.
  for (uint32_t four = 0; four < 8; four += 4) {
    __m256i pairs[kTokens][2];
    for (uint32_t quad = four; quad < four + 4; ++quad) {
      const __m256i w0 = _mm256_loadu_si256(vector_at(w + quad * 64));
      const __m256i w1 = _mm256_loadu_si256(vector_at(w + quad * 64 + 32));
      for (uint32_t t = 0; t < kTokens; ++t) {
        int32_t bytes;
        __builtin_memcpy(&bytes, x + t * stride + quad * 4, sizeof bytes);
        const __m256i x4 = _mm256_set1_epi32(bytes);
        if constexpr (kFormat == DType::affine8) {
          sums[t][0] = _mm256_add_epi32(sums[t][0], _mm256_madd_epi16(signed_pairs(w0, x4), ones));
          sums[t][1] = _mm256_add_epi32(sums[t][1], _mm256_madd_epi16(signed_pairs(w1, x4), ones));
        } else {
          const __m256i p0 = _mm256_maddubs_epi16(w0, x4), p1 = _mm256_maddubs_epi16(w1, x4);
          pairs[t][0] = quad == four ? p0 : _mm256_add_epi16(pairs[t][0], p0);
          pairs[t][1] = quad == four ? p1 : _mm256_add_epi16(pairs[t][1], p1);
        }
      }
    }
    if constexpr (kFormat != DType::affine8)
      for (uint32_t t = 0; t < kTokens; ++t)
        for (uint32_t half = 0; half < 2; ++half)
          sums[t][half] = _mm256_add_epi32(sums[t][half], _mm256_madd_epi16(pairs[t][half], ones));
  }
}

// The terms of the block at `place`, added to the lane that it belongs to.
template <DType kFormat, uint32_t kWidth, uint32_t kTokens>
[[gnu::always_inline]] inline void add_block(const QuantisedRows& x, const Layout& l,
                                             const Tile& tile, size_t token, uint32_t block,
                                             size_t place, __m256 (&lane)[kTokens][2]) {
  constexpr uint32_t kSteps = kWidth / kActivationBlock;
  const size_t of_token = token * x.blocks_stride, at = of_token + size_t{block} * kSteps;
  __m256i sums[kTokens][2];
  for (auto& of : sums) of[0] = of[1] = _mm256_setzero_si256();
  for (uint32_t i = 0; i < kSteps; ++i)
    add_products<kFormat, kTokens>(
        l, tile.codes + (place * kSteps + i) * kUnpackedBytes,
        x.codes + token * x.codes_stride + (size_t{block} * kSteps + i) * kActivationBlock,
        x.codes_stride, x.code_sums + at + i, x.blocks_stride, sums);
  for (uint32_t half = 0; half < 2; ++half)
    for (uint32_t t = 0; t < kTokens; ++t) {
      const size_t from = place * kTileRows + half * 8, next = t * x.blocks_stride;
      const __m256 x_scale = _mm256_set1_ps(x.scales[at + next]);
      __m256& sum = lane[t][half];
      sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[t][half]),
                            _mm256_mul_ps(_mm256_loadu_ps(tile.scales + from), x_scale), sum);
      if constexpr (kFormat == DType::mxfp4) continue;
      const __m256 x_sum =
          kSteps == 2 ? _mm256_set1_ps(x.sums[of_token + block + next])
                      : _mm256_mul_ps(
                            x_scale, _mm256_cvtepi32_ps(_mm256_set1_epi32(x.code_sums[at + next])));
      sum = _mm256_fmadd_ps(_mm256_loadu_ps(tile.biases + from), x_sum, sum);
    }
}

template <DType kFormat, uint32_t kWidth, uint32_t kTokens>
void multiply_tile(const MatmulArgs& a, const Layout& l, const Tile& tile, size_t token,
                   uint32_t row, uint32_t end) {
  __m256 waiting[5][kTokens][2];  // [d]: a sum of 2^d lanes that the tree adds to the next such sum
  for (uint32_t k = 0; k < kSumLanes; ++k) {
    __m256 lane[kTokens][2];
    for (auto& of_token : lane) of_token[0] = of_token[1] = _mm256_setzero_ps();
    size_t place = tile.order.start[kLaneOrder[k]];
    for (uint32_t b = kLaneOrder[k]; b < l.blocks; b += kSumLanes, ++place)
      add_block<kFormat, kWidth, kTokens>(*a.xq, l, tile, token, b, place, lane);
    uint32_t depth = 0;
    for (; k >> depth & 1; ++depth)
      for (uint32_t i = 0; i < 2 * kTokens; ++i)
        lane[i / 2][i % 2] = _mm256_add_ps(waiting[depth][i / 2][i % 2], lane[i / 2][i % 2]);
    for (uint32_t i = 0; i < 2 * kTokens; ++i) waiting[depth][i / 2][i % 2] = lane[i / 2][i % 2];
  }
  for (uint32_t half = 0; half < 2 && row + half * 8 < end; ++half) {
    const uint32_t first = row + half * 8;
    const __m256i mask = first_dwords(end - first);
    const __m256 bias = a.bias ? _mm256_maskload_ps(a.bias + first, mask) : _mm256_setzero_ps();
    for (uint32_t t = 0; t < kTokens; ++t)
      _mm256_maskstore_ps(a.y + (token + t) * a.y_stride + first, mask,
                          _mm256_add_ps(waiting[4][t][half], bias));
  }
}

template <DType kFormat, uint32_t kWidth>
void multiply(const MatmulArgs& a, const Layout& l) {
  if (a.tokens <= kFewTokens) return few_tokens<kFormat, kWidth>(a, l);
  const Tile tile = tile_of(a, l);
  for (uint32_t r = a.row_begin; r < a.row_end; r += kTileRows) {
    unpack(a, l, tile, r, a.row_end, 0);
    unpack(a, l, tile, r + 8, a.row_end, 1);
    uint32_t t = 0;
    for (; t + kTileTokens <= a.tokens; t += kTileTokens)
      multiply_tile<kFormat, kWidth, kTileTokens>(a, l, tile, t, r, a.row_end);
    if (t + 2 == a.tokens) multiply_tile<kFormat, kWidth, 2>(a, l, tile, t, r, a.row_end);
    if (t + 1 == a.tokens) multiply_tile<kFormat, kWidth, 1>(a, l, tile, t, r, a.row_end);
  }
}

}  // namespace

void matmul(const MatmulArgs& args) {
  const Layout layout = layout_of(args.w);
  const bool wide = layout.width == kWideBlock;
  switch (layout.format) {
    case DType::mxfp4:
      return multiply<DType::mxfp4, kActivationBlock>(args, layout);
    case DType::affine4:
      return wide ? multiply<DType::affine4, kWideBlock>(args, layout)
                  : multiply<DType::affine4, kActivationBlock>(args, layout);
    default:
      return wide ? multiply<DType::affine8, kWideBlock>(args, layout)
                  : multiply<DType::affine8, kActivationBlock>(args, layout);
  }
}

void quantise_row(int8_t* codes, float* scales, float* sums, int32_t* code_sums, const float* x,
                  uint32_t n, uint32_t block) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  for (uint32_t begin = 0; begin < n; begin += block) {
    // Magnitudes order as their bits do, and a NaN's are the largest.
    __m256i max = _mm256_setzero_si256();
    for (uint32_t c = begin; c < begin + block; c += 8)
      max =
          _mm256_max_epu32(max, _mm256_and_si256(_mm256_loadu_si256(vector_at(x + c)), magnitude));
    __m128i most = _mm_max_epu32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
    most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0x4e));
    most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0xb1));
    const bool finite = static_cast<uint32_t>(_mm_cvtsi128_si32(most)) < 0x7f800000u;
    float scale = _mm_cvtss_f32(_mm_div_ss(_mm_castsi128_ps(most), _mm_set_ss(127.0f)));
    if (scale < 0x1p-126f) scale = 0;
    if (!finite) scale = __builtin_nanf("");
    int32_t whole = 0;
    for (uint32_t at = begin; at < begin + block; at += kActivationBlock) {
      __m256i c[4] = {};
      if (finite && scale > 0)
        for (uint32_t i = 0; i < 4; ++i)
          c[i] = _mm256_cvtps_epi32(
              _mm256_div_ps(_mm256_loadu_ps(x + at + 8 * i), _mm256_set1_ps(scale)));
      const __m256i packed =
          _mm256_packs_epi16(_mm256_packs_epi32(c[0], c[1]), _mm256_packs_epi32(c[2], c[3]));
      _mm256_storeu_si256(
          vector_at(codes + at),
          _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
      const __m256i all =
          _mm256_add_epi32(_mm256_add_epi32(c[0], c[1]), _mm256_add_epi32(c[2], c[3]));
      __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
      sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
      sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
      scales[at / kActivationBlock] = scale;
      code_sums[at / kActivationBlock] = _mm_cvtsi128_si32(sum);
      whole += _mm_cvtsi128_si32(sum);
    }
    if (block == kWideBlock) sums[begin / kWideBlock] = scale * static_cast<float>(whole);
  }
}

}  // namespace wader::avx2

#endif
