// The integer products with AVX-512 VNNI. ops.h defines their arithmetic: blocks are lanes where
// rows come one at a time (decode), rows are lanes where weights are unpacked for many tokens
// (prefill). Affine formats have blocks of 64 columns here: groups of 32, which are rare, are
// avx2's.
//
// Only what is defined here and intrinsics: an inline function of a header, not inlined, could
// become the program's only copy.

#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && defined(__AVX512VL__)

#include "kernels/avx512_weights.h"

namespace wader::avx512 {
namespace {

// Lane l + 8 to l, l + 4, l + 2, l + 1.
float add_as_tree(__m512 lanes) {
  const __m256 eight =
      _mm256_add_ps(_mm512_castps512_ps256(lanes),
                    _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(lanes), 1)));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// The 128-bit lanes 0 and 1, 2 and 3 of a added, and those of b.
__m512i add_pairs(__m512i a, __m512i b) {
  return _mm512_add_epi32(_mm512_shuffle_i64x2(a, b, 0x88), _mm512_shuffle_i64x2(a, b, 0xdd));
}

// Decode. A run is the 16 blocks of a row that are lanes together; a last run may have fewer, and
// is then read in quarters of four. Vector v of a run's activations and of its codes are
// multiplied.
template <DType kFormat>
struct Run {
  static constexpr uint32_t kColumns = kSumLanes * width_of(kFormat);
  static constexpr uint32_t kVectors = kColumns / 64;
  static constexpr uint32_t kLoads = kFormat == DType::affine8 ? kVectors : kVectors / 2;
  static constexpr uint32_t kBytes = kLoads * 64;
  __m512i codes[kVectors];

  // kQuarters of a run; kMasked: no byte beyond its `blocks` blocks.
  template <uint32_t kQuarters, bool kMasked>
  [[gnu::always_inline]] void load(const std::byte* from, uint32_t blocks) {
#pragma GCC unroll 16
    for (uint32_t v = 0; v < kLoads / 4 * kQuarters; ++v, from += 64) {
      __m512i raw;
      if constexpr (kMasked) {
        constexpr uint32_t kPerLoad = kSumLanes / kLoads, kBlockBytes = 64 / kPerLoad;
        const uint32_t left = blocks > v * kPerLoad ? least(blocks - v * kPerLoad, kPerLoad) : 0;
        raw = _mm512_maskz_loadu_epi8(low_bits(left * kBlockBytes), from);
      } else {
        raw = _mm512_loadu_si512(from);
      }
      _mm_prefetch(reinterpret_cast<const char*>(from) + kPrefetch, _MM_HINT_T0);
      if constexpr (kFormat == DType::affine8) {
        codes[v] = raw;
      } else {
        const __m512i mask = _mm512_set1_epi8(15);
        __m512i even = _mm512_and_si512(raw, mask);
        __m512i odd = _mm512_and_si512(_mm512_srli_epi16(raw, 4), mask);
        if constexpr (kFormat == DType::mxfp4) {
          even = _mm512_shuffle_epi8(twice_e2m1_and_12(), even);
          odd = _mm512_shuffle_epi8(twice_e2m1_and_12(), odd);
        }
        codes[2 * v] = even;
        codes[2 * v + 1] = odd;
      }
    }
  }

  // Of one load, added to `sum`: a block's product is four dwords of mxfp4 (128 bits), 8 of
  // affine4, 16 of affine8.
  [[gnu::always_inline]] __m512i product(const int8_t* x, uint32_t load,
                                         __m512i sum = _mm512_setzero_si512()) const {
    constexpr uint32_t kEach = kVectors / kLoads;
#pragma GCC unroll 2
    for (uint32_t v = kEach * load; v < kEach * (load + 1); ++v)
      sum = _mm512_dpbusd_epi32(sum, codes[v], _mm512_loadu_si512(x + 64 * v));
    return sum;
  }

  // Σ codes · x of each of the 16 blocks; of mxfp4 with what `start` has for them.
  template <uint32_t kQuarters>
  [[gnu::always_inline]] __m512i dot(const int8_t* x, const int32_t* start) const {
    __m512i sums[4] = {};  // lane i of sums[j]: four parts of block 4j + i
#pragma GCC unroll 4
    for (uint32_t j = 0; j < kQuarters; ++j) {
      if constexpr (kFormat == DType::mxfp4)
        sums[j] = product(x, j, _mm512_loadu_si512(start + 16 * j));
      else if constexpr (kFormat == DType::affine4)
        sums[j] = add_pairs(product(x, 2 * j), product(x, 2 * j + 1));
      else
        sums[j] = add_pairs(add_pairs(product(x, 4 * j), product(x, 4 * j + 1)),
                            add_pairs(product(x, 4 * j + 2), product(x, 4 * j + 3)));
    }
    const __m512i low = _mm512_add_epi32(_mm512_unpacklo_epi32(sums[0], sums[1]),
                                         _mm512_unpackhi_epi32(sums[0], sums[1]));
    const __m512i high = _mm512_add_epi32(_mm512_unpacklo_epi32(sums[2], sums[3]),
                                          _mm512_unpackhi_epi32(sums[2], sums[3]));
    const __m512i all =
        _mm512_add_epi32(_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, all);
  }
};

// Activations as decode reads them, in scratch: for each token and run of weights a run's codes,
// and for its 16 blocks the scales, and where products of mxfp4 start or, of affine formats, the
// sums. All are 0 in the places without a block.
struct Arranged {
  int8_t* codes;    // (tokens, runs, columns of a run)
  float* scales;    // (tokens, runs, 16)
  float* sums;      // (tokens, runs, 16)
  int32_t* starts;  // (tokens, runs, 64), in the place of sums
};

// A row's codes. For nibbles each 128 become 64 of even columns, then 64 of odd ones: a byte of
// weights holds one of each.
void arrange_codes(const int8_t* from, uint32_t cols, uint32_t padded, bool nibbles, int8_t* to) {
  for (uint32_t c = 0; c < padded; c += 128) {
    const uint32_t left = cols > c ? cols - c : 0;
    const __m512i a = _mm512_maskz_loadu_epi8(low_bits(left), from + c);
    const __m512i b = _mm512_maskz_loadu_epi8(left > 64 ? low_bits(left - 64) : 0, from + c + 64);
    if (!nibbles) {
      _mm512_storeu_si512(to + c, a);
      _mm512_storeu_si512(to + c + 64, b);
      continue;
    }
    const __m512i even = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(a)),
                                            _mm512_cvtepi16_epi8(b), 1);
    const __m512i odd =
        _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(_mm512_srli_epi16(a, 8))),
                           _mm512_cvtepi16_epi8(_mm512_srli_epi16(b, 8)), 1);
    _mm512_storeu_si512(to + c, even);
    _mm512_storeu_si512(to + c + 64, odd);
  }
}

// −12 · Σ code_x, for codes that are 12 too high: a block's in the first of its four dwords.
void arrange_starts(const int32_t* code_sums, __mmask16 mask, int32_t* to) {
  const __m512i of_lane = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  const __m512i starts =
      _mm512_mullo_epi32(_mm512_maskz_loadu_epi32(mask, code_sums), _mm512_set1_epi32(-12));
  for (int j = 0; j < 4; ++j) {
    const __m512i from = _mm512_add_epi32(of_lane, _mm512_set1_epi32(4 * j));
    _mm512_storeu_si512(to + 16 * j, _mm512_maskz_permutexvar_epi32(0x1111, from, starts));
  }
}

template <DType kFormat>
Arranged arrange(const MatmulArgs& a, const Layout& l) {
  constexpr uint32_t kColumns = Run<kFormat>::kColumns,
                     kParts = width_of(kFormat) / kActivationBlock;
  const size_t runs = size_t{a.tokens} * l.runs;
  Arranged x{};
  x.codes = reinterpret_cast<int8_t*>(a.scratch);
  x.scales = a.scratch + runs * kColumns / sizeof(float);
  x.sums = x.scales + runs * kSumLanes;
  x.starts = reinterpret_cast<int32_t*>(x.sums);
  for (size_t t = 0; t < a.tokens; ++t) {
    const size_t of_token = t * a.xq->blocks_stride, first = t * l.runs;
    arrange_codes(a.xq->codes + t * a.xq->codes_stride, a.w.cols, l.runs * kColumns,
                  kFormat != DType::affine8, x.codes + first * kColumns);
    for (uint32_t run = 0; run < l.runs; ++run) {
      const uint32_t block = run * kSumLanes, count = least(l.blocks - block, kSumLanes);
      const auto mask = static_cast<__mmask16>(low_bits(count));
      // Scales are kept for every 32 columns.
      const float* from = a.xq->scales + of_token + size_t{block} * kParts;
      float* scales = x.scales + (first + run) * kSumLanes;
      for (uint32_t i = 0; i < kSumLanes; ++i) scales[i] = i < count ? from[i * kParts] : 0.0f;
      if constexpr (kFormat == DType::mxfp4)
        arrange_starts(a.xq->code_sums + of_token + block, mask, x.starts + (first + run) * 64);
      else
        _mm512_storeu_ps(x.sums + (first + run) * kSumLanes,
                         _mm512_maskz_loadu_ps(mask, a.xq->sums + of_token + block));
    }
  }
  return x;
}

template <DType kFormat, uint32_t kTokens, uint32_t kQuarters, bool kMasked>
[[gnu::always_inline]] inline void add_run(const MatmulArgs& a, const Layout& l, const Arranged& x,
                                           uint32_t row, uint32_t run, uint32_t count,
                                           __m512 (&lanes)[kTokens]) {
  Run<kFormat> w;
  w.template load<kQuarters, kMasked>(a.w.codes + row * l.code_bytes + run * Run<kFormat>::kBytes,
                                      count);
  __m512 scales, biases;
  if constexpr (kFormat == DType::mxfp4) {
    scales = load_e8m0(l, a.w.scales, row, run, count);
  } else {
    scales = load_scales(l, a.w.scales, row, run, count);
    biases = load_scales(l, a.w.biases, row, run, count);
  }
  for (uint32_t t = 0; t < kTokens; ++t) {
    const size_t at = t * size_t{l.runs} + run;
    const __m512i sum =
        w.template dot<kQuarters>(x.codes + at * Run<kFormat>::kColumns, x.starts + at * 64);
    // Lanes without a block add 0 · 0 and never 0 · NaN: scales are 0 on both sides, and codes that
    // stand behind the row's are multiplied by 0.
    lanes[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum),
                               _mm512_mul_ps(scales, _mm512_loadu_ps(x.scales + at * kSumLanes)),
                               lanes[t]);
    if constexpr (kFormat != DType::mxfp4)
      lanes[t] = _mm512_fmadd_ps(biases, _mm512_loadu_ps(x.sums + at * kSumLanes), lanes[t]);
  }
}

// Rows [begin, end), whose last run has so many quarters: none where all are whole.
template <DType kFormat, uint32_t kTokens, uint32_t kQuarters, bool kMasked>
void multiply_rows(const MatmulArgs& a, const Layout& l, const Arranged& x, uint32_t begin,
                   uint32_t end) {
  const uint32_t whole_runs = l.blocks / kSumLanes, rest = l.blocks % kSumLanes;
  for (uint32_t r = begin; r < end; ++r) {
    __m512 lanes[kTokens];
    for (__m512& lane : lanes) lane = _mm512_setzero_ps();
    for (uint32_t run = 0; run < whole_runs; ++run)
      add_run<kFormat, kTokens, 4, false>(a, l, x, r, run, kSumLanes, lanes);
    if constexpr (kQuarters > 0)
      add_run<kFormat, kTokens, kQuarters, kMasked>(a, l, x, r, whole_runs, rest, lanes);
    const float bias = a.bias ? a.bias[r] : 0.0f;
    for (uint32_t t = 0; t < kTokens; ++t) a.y[t * a.y_stride + r] = add_as_tree(lanes[t]) + bias;
  }
}

template <DType kFormat, uint32_t kTokens>
void row_by_row(const MatmulArgs& a, const Layout& l, const Arranged& x) {
  constexpr auto kMore = kTokens > 1;  // then a last run's waste matters less than the code's size
  const uint32_t quarters = (l.blocks % kSumLanes + 3) / 4;
  if (quarters == 0)
    return multiply_rows<kFormat, kTokens, 0, false>(a, l, x, a.row_begin, a.row_end);
  // A whole run is read of rows behind which the matrix has as many bytes more.
  const size_t read_bytes = l.runs * size_t{Run<kFormat>::kBytes};
  const auto last_rows = static_cast<uint32_t>((read_bytes - 1) / l.code_bytes);
  const uint32_t free_end = a.w.rows > last_rows ? least(a.w.rows - last_rows, a.row_end) : 0;
  if (kMore || quarters == 4)
    multiply_rows<kFormat, kTokens, 4, false>(a, l, x, a.row_begin, free_end);
  else if (quarters == 3)
    multiply_rows<kFormat, kTokens, kMore ? 4 : 3, false>(a, l, x, a.row_begin, free_end);
  else if (quarters == 2)
    multiply_rows<kFormat, kTokens, kMore ? 4 : 2, false>(a, l, x, a.row_begin, free_end);
  else
    multiply_rows<kFormat, kTokens, kMore ? 4 : 1, false>(a, l, x, a.row_begin, free_end);
  multiply_rows<kFormat, kTokens, 4, true>(a, l, x, a.row_begin > free_end ? a.row_begin : free_end,
                                           a.row_end);
}

template <DType kFormat>
void few_tokens(const MatmulArgs& a, const Layout& l) {
  prefetch_first_rows(a);
  const Arranged x = arrange<kFormat>(a, l);
  switch (a.tokens) {
    case 1:
      return row_by_row<kFormat, 1>(a, l, x);
    case 2:
      return row_by_row<kFormat, 2>(a, l, x);
    case 3:
      return row_by_row<kFormat, 3>(a, l, x);
    case 4:
      return row_by_row<kFormat, 4>(a, l, x);
    case 5:
      return row_by_row<kFormat, 5>(a, l, x);
    default:
      return row_by_row<kFormat, kFewTokens>(a, l, x);
  }
}

// Prefill. 32 rows are unpacked (avx512_unpack.cpp) and multiplied with all tokens.
constexpr uint32_t kTileTokens = 6;
static_assert(kFewTokens >= 3 && kTileTokens == 6);  // so that no tile has fewer than three tokens

// The terms of block `block`, added to the lane that all of these blocks belong to.
template <bool kAffine, uint32_t kTokens>
[[gnu::always_inline]] inline void add_block(const QuantisedRows& x, size_t token,
                                             const UnpackedRows& tile, uint32_t block,
                                             uint32_t place, __m512 (&lane)[kTokens][2]) {
  constexpr uint32_t kWidth = kAffine ? kWideBlock : kActivationBlock;
  const int8_t* codes = x.codes + token * x.codes_stride + block * kWidth;
  const size_t of_token = token * x.blocks_stride;
  const size_t at = of_token + block * (kWidth / kActivationBlock);
  __m512i sums[kTokens][2];
  for (uint32_t t = 0; t < kTokens; ++t) {
    sums[t][0] = kAffine ? _mm512_setzero_si512()
                         : _mm512_set1_epi32(-12 * x.code_sums[at + t * x.blocks_stride]);
    sums[t][1] = sums[t][0];
  }
  const uint8_t* w = tile.codes + size_t{place} * kWidth * kUnpackedRows;
  // Eight quads are unrolled. In a loop over sixteen g++ 12 copies all sums twice for each, a fifth
  // of the time; without the barrier it unrolls sixteen and keeps each address on the stack.
  const auto add_eight_quads = [&]() __attribute__((always_inline)) {
    for (uint32_t quad = 0; quad < 8; ++quad, w += 128) {
      const __m512i w0 = _mm512_loadu_si512(w), w1 = _mm512_loadu_si512(w + 64);
      for (uint32_t t = 0; t < kTokens; ++t) {
        int32_t four;
        __builtin_memcpy(&four, codes + t * x.codes_stride + quad * 4, sizeof four);
        const __m512i x4 = _mm512_set1_epi32(four);
        sums[t][0] = _mm512_dpbusd_epi32(sums[t][0], w0, x4);
        sums[t][1] = _mm512_dpbusd_epi32(sums[t][1], w1, x4);
      }
    }
  };
  if constexpr (kAffine) {
    for (uint32_t eight = 0; eight < 2; ++eight, codes += 32) {
      add_eight_quads();
      __asm__("" : "+r"(codes));
    }
  } else {
    add_eight_quads();
  }
  for (uint32_t half = 0; half < 2; ++half) {
    const size_t from = size_t{place} * kUnpackedRows + half * 16;
    const __m512 scales = _mm512_loadu_ps(tile.scales + from);
    for (uint32_t t = 0; t < kTokens; ++t) {
      const size_t next = t * x.blocks_stride;
      lane[t][half] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[t][half]),
                                      _mm512_mul_ps(scales, _mm512_set1_ps(x.scales[at + next])),
                                      lane[t][half]);
      if constexpr (kAffine)
        lane[t][half] =
            _mm512_fmadd_ps(_mm512_loadu_ps(tile.biases + from),
                            _mm512_set1_ps(x.sums[of_token + block + next]), lane[t][half]);
    }
  }
}

template <bool kAffine, uint32_t kTokens>
void multiply_tile(const MatmulArgs& a, const UnpackedRows& tile, NextRows& next, size_t token,
                   uint32_t row) {
  // waiting[d]: a sum of 2^d lanes that the tree adds to the next such sum.
  __m512 waiting[5][kTokens][2];
  for (uint32_t k = 0; k < kSumLanes; ++k) {
    __m512 lane[kTokens][2];
    for (uint32_t t = 0; t < kTokens; ++t) lane[t][0] = lane[t][1] = _mm512_setzero_ps();
    uint32_t place = tile.order.start[kLaneOrder[k]];
    for (uint32_t b = kLaneOrder[k]; b < tile.blocks; b += kSumLanes, ++place) {
      add_block<kAffine, kTokens>(*a.xq, token, tile, b, place, lane);
      prefetch(next);
    }
    uint32_t depth = 0;
    for (; k >> depth & 1; ++depth)
      for (uint32_t t = 0; t < kTokens; ++t)
        for (uint32_t half = 0; half < 2; ++half)
          lane[t][half] = _mm512_add_ps(waiting[depth][t][half], lane[t][half]);
    for (uint32_t t = 0; t < kTokens; ++t)
      for (uint32_t half = 0; half < 2; ++half) waiting[depth][t][half] = lane[t][half];
  }
  for (uint32_t half = 0; half < 2 && row + half * 16 < a.row_end; ++half) {
    const uint32_t first = row + half * 16;
    const auto mask = static_cast<__mmask16>(low_bits(least(16, a.row_end - first)));
    const __m512 bias = a.bias ? _mm512_maskz_loadu_ps(mask, a.bias + first) : _mm512_setzero_ps();
    for (uint32_t t = 0; t < kTokens; ++t)
      _mm512_mask_storeu_ps(a.y + (token + t) * a.y_stride + first, mask,
                            _mm512_add_ps(waiting[4][t][half], bias));
  }
}

template <bool kAffine>
void multiply_tokens(const MatmulArgs& a, const UnpackedRows& tile, NextRows& next, uint32_t row) {
  // Tiles as equal as can be: 128 tokens are 18 tiles of six and 4 of five, not 21 and one of two.
  uint32_t left = (a.tokens + kTileTokens - 1) / kTileTokens;
  for (uint32_t t = 0, size; t < a.tokens; t += size, --left) {
    size = (a.tokens - t + left - 1) / left;
    switch (size) {
      case 6:
        multiply_tile<kAffine, 6>(a, tile, next, t, row);
        break;
      case 5:
        multiply_tile<kAffine, 5>(a, tile, next, t, row);
        break;
      case 4:
        multiply_tile<kAffine, 4>(a, tile, next, t, row);
        break;
      default:
        multiply_tile<kAffine, 3>(a, tile, next, t, row);
        break;
    }
  }
}

void many_tokens(const MatmulArgs& a) {
  for (uint32_t r = a.row_begin; r < a.row_end; r += kUnpackedRows) {
    const UnpackedRows tile = unpack_scales(a, r);
    unpack_codes(a, tile, r, {0, 1}, false);
    const size_t steps = size_t{(a.tokens + kTileTokens - 1) / kTileTokens} * tile.blocks;
    NextRows next = rows_ahead(a, r + kUnpackedRows, steps);
    if (tile.affine)
      multiply_tokens<true>(a, tile, next, r);
    else
      multiply_tokens<false>(a, tile, next, r);
  }
}

}  // namespace

void matmul(const MatmulArgs& args) {
  if (args.w.format.group == 32) return avx2::matmul(args);
  if (args.tokens > kFewTokens) return many_tokens(args);
  const Layout layout = layout_of(args.w);
  switch (args.w.format.dtype) {
    case DType::mxfp4:
      return few_tokens<DType::mxfp4>(args, layout);
    case DType::affine4:
      return few_tokens<DType::affine4>(args, layout);
    default:
      return few_tokens<DType::affine8>(args, layout);
  }
}

void quantise_row(int8_t* codes, float* scales, float* sums, int32_t* code_sums, const float* x,
                  uint32_t n, uint32_t block) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  for (uint32_t begin = 0; begin < n; begin += block) {
    // Magnitudes order as their bits do, and a NaN's are the largest.
    __m512i max = _mm512_setzero_si512();
    for (uint32_t c = begin; c < begin + block; c += 16)
      max = _mm512_max_epu32(max, _mm512_and_si512(_mm512_loadu_si512(x + c), magnitude));
    const uint32_t max_bits = _mm512_reduce_max_epu32(max);
    const bool finite = max_bits < 0x7f800000u;
    float scale = _mm_cvtss_f32(_mm_div_ss(
        _mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(max_bits))), _mm_set_ss(127.0f)));
    if (scale < 0x1p-126f) scale = 0;
    if (!finite) scale = __builtin_nanf("");
    int32_t whole = 0;
    for (uint32_t c = begin; c < begin + block; c += kActivationBlock) {
      __m512i c0 = _mm512_setzero_si512(), c1 = c0;
      if (finite && scale > 0) {
        c0 = _mm512_cvtps_epi32(_mm512_div_ps(_mm512_loadu_ps(x + c), _mm512_set1_ps(scale)));
        c1 = _mm512_cvtps_epi32(_mm512_div_ps(_mm512_loadu_ps(x + c + 16), _mm512_set1_ps(scale)));
      }
      auto* to = reinterpret_cast<__m128i*>(codes + c);
      _mm_storeu_si128(to, _mm512_cvtepi32_epi8(c0));
      _mm_storeu_si128(to + 1, _mm512_cvtepi32_epi8(c1));
      const int32_t sum = _mm512_reduce_add_epi32(_mm512_add_epi32(c0, c1));
      scales[c / kActivationBlock] = scale;
      code_sums[c / kActivationBlock] = sum;
      whole += sum;
    }
    if (block == kWideBlock) sums[begin / kWideBlock] = scale * static_cast<float>(whole);
  }
}

}  // namespace wader::avx512

#endif
