// The integer products with NEON and the 8-bit dot products of Armv8.2 (SDOT; the mixed ones of
// i8mm are not assumed). All operands are signed: mxfp4 codes are looked up as 2 · E2M1, and codes
// of 8 bits are taken as c − 128, which 128 · Σ x mends. ops.h defines the arithmetic: blocks are
// lanes where rows come one at a time (decode), rows are lanes where weights are unpacked for many
// tokens (prefill).
//
// Only what is defined here and intrinsics: an inline function of a header, not inlined, could
// become the program's only copy.

#if defined(__ARM_FEATURE_DOTPROD)

#include <arm_neon.h>

#include "kernels/integer.h"

namespace wader::neon {
namespace {

constexpr uint32_t kBlocks = 4;  // of a quarter run, one a lane of a vector
constexpr uint32_t kQuarters = kSumLanes / kBlocks;
// Up to which weights are read row by row. Of 32 registers four tokens take 16 for their sums, and
// the codes of a quarter run 8.
constexpr uint32_t kFewTokens = 4;

// Lane l + 8 to l, l + 4, l + 2, l + 1.
float add_as_tree(const float32x4_t (&lanes)[kQuarters]) {
  const float32x4_t four = vaddq_f32(vaddq_f32(lanes[0], lanes[2]), vaddq_f32(lanes[1], lanes[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

// What every row of a matrix shares.
struct Layout {
  DType format;
  bool f16;
  uint32_t width;           // columns of a block
  uint32_t blocks, groups;  // of a row
  uint32_t shift;           // block >> shift is its group
  size_t code_bytes;        // of a row
  uint32_t step_bytes;      // of 32 columns
};

Layout layout_of(const MatrixView& w) {
  Layout l{};
  l.format = w.format.dtype;
  l.f16 = w.format.scales == DType::f16;
  l.width = activation_block(w.format);
  l.blocks = w.cols / l.width;
  l.step_bytes = l.format == DType::affine8 ? kActivationBlock : kActivationBlock / 2;
  l.code_bytes = code_bytes_of_row(w);
  l.shift = w.format.group == 128 ? 1 : 0;
  l.groups = l.blocks >> l.shift;
  return l;
}

// Bytes s → 2^(s − 127) / 2: 0 and 1 give denormals, 255 NaN. Halving is exact.
float32x4_t half_e8m0(uint32x4_t bytes) {
  const uint32x4_t one = vdupq_n_u32(1);
  // 0 and 255 are the two that a shift into the exponent gets wrong; one bit mends both.
  const uint32x4_t edge = vcleq_u32(vandq_u32(vaddq_u32(bytes, one), vdupq_n_u32(255)), one);
  const uint32x4_t bits =
      vorrq_u32(vshlq_n_u32(bytes, 23), vandq_u32(edge, vdupq_n_u32(0x00400000)));
  return vmulq_n_f32(vreinterpretq_f32_u32(bits), 0.5f);
}

// Scales (or biases) of the `count` blocks of one quarter run (all four where kWhole); 0 in the
// other lanes.
template <DType kFormat, bool kWhole>
[[gnu::always_inline]] inline float32x4_t load_scales(const Layout& l, const std::byte* plane,
                                                      uint32_t row, uint32_t quarter,
                                                      uint32_t count) {
  constexpr uint32_t kUnit = kFormat == DType::mxfp4 ? 1 : 2;
  const uint32_t shift = kFormat == DType::mxfp4 ? 0 : l.shift;
  const std::byte* from =
      plane + (static_cast<size_t>(row) * l.groups + (quarter * kBlocks >> shift)) * kUnit;
  uint64_t raw = 0;
  if (!kWhole)
    for (uint32_t i = 0; i < (count >> shift) * kUnit; ++i)
      raw |= static_cast<uint64_t>(from[i]) << (8 * i);
  else if (shift == 0)
    __builtin_memcpy(&raw, from, 4 * kUnit);
  else
    __builtin_memcpy(&raw, from, 2 * kUnit);
  float32x4_t values;
  if constexpr (kFormat == DType::mxfp4) {
    values = half_e8m0(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(raw)))));
  } else {
    uint16x4_t spread = vcreate_u16(raw);
    if (shift > 0) spread = vzip1_u16(spread, spread);
    values = l.f16 ? vcvt_f32_f16(vreinterpret_f16_u16(spread))
                   : vreinterpretq_f32_u32(vshll_n_u16(spread, 16));
  }
  if constexpr (kWhole) return values;
  const uint32x4_t lane = {0, 1, 2, 3};
  return vreinterpretq_f32_u32(
      vandq_u32(vreinterpretq_u32_f32(values), vcltq_u32(lane, vdupq_n_u32(count))));
}

// The codes of 32 columns, signed: columns 0, 2, 4 … and 1, 3, 5 … of nibbles, the first half and
// the second of bytes.
struct Codes {
  int8x16_t a, b;
};

template <DType kFormat>
[[gnu::always_inline]] inline Codes load_codes(const std::byte* from) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(from);
  if constexpr (kFormat == DType::affine8) {
    const uint8x16_t flip = vdupq_n_u8(128);
    return {vreinterpretq_s8_u8(veorq_u8(vld1q_u8(bytes), flip)),
            vreinterpretq_s8_u8(veorq_u8(vld1q_u8(bytes + 16), flip))};
  } else {
    const uint8x16_t raw = vld1q_u8(bytes);
    const uint8x16_t even = vandq_u8(raw, vdupq_n_u8(15)), odd = vshrq_n_u8(raw, 4);
    if constexpr (kFormat == DType::affine4) {
      return {vreinterpretq_s8_u8(even), vreinterpretq_s8_u8(odd)};
    } else {
      const int8x16_t twice_e2m1 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
      return {vqtbl1q_s8(twice_e2m1, even), vqtbl1q_s8(twice_e2m1, odd)};
    }
  }
}

// Decode. Rows' codes so that they meet those of load_codes.
template <DType kFormat>
void arrange(const int8_t* from, uint32_t cols, int8_t* to) {
  for (uint32_t c = 0; c < cols; c += kActivationBlock) {
    int8x16x2_t block;
    if constexpr (kFormat == DType::affine8)
      block = {vld1q_s8(from + c), vld1q_s8(from + c + 16)};
    else
      block = vld2q_s8(from + c);
    vst1q_s8(to + c, block.val[0]);
    vst1q_s8(to + c + 16, block.val[1]);
  }
}

// A block's codes, and their Σ code · x in parts; x as arrange() leaves it.
template <DType kFormat, uint32_t kWidth>
struct Block {
  static constexpr uint32_t kSteps = kWidth / kActivationBlock;
  Codes codes[kSteps];

  [[gnu::always_inline]] void load(const std::byte* from, uint32_t step_bytes) {
    for (uint32_t i = 0; i < kSteps; ++i) codes[i] = load_codes<kFormat>(from + i * step_bytes);
  }
  [[gnu::always_inline]] int32x4_t dot(const int8_t* x) const {
    int32x4_t parts = vdupq_n_s32(0);
    for (uint32_t i = 0; i < kSteps; ++i, x += kActivationBlock) {
      parts = vdotq_s32(parts, codes[i].a, vld1q_s8(x));
      parts = vdotq_s32(parts, codes[i].b, vld1q_s8(x + 16));
    }
    return parts;
  }
};

// What one quarter run brings to its four lanes.
struct Terms {
  int32x4_t dots, code_sums;
  float32x4_t scales, biases;  // of the weights
  float32x4_t x_scales, x_sums;
};

template <DType kFormat>
[[gnu::always_inline]] inline float32x4_t add_terms(const Terms& terms, float32x4_t lanes) {
  int32x4_t dots = terms.dots;
  if constexpr (kFormat == DType::affine8) dots = vmlaq_n_s32(dots, terms.code_sums, 128);
  lanes = vfmaq_f32(lanes, vcvtq_f32_s32(dots), vmulq_f32(terms.scales, terms.x_scales));
  if constexpr (kFormat != DType::mxfp4) lanes = vfmaq_f32(lanes, terms.biases, terms.x_sums);
  return lanes;
}

// The activations' part of the terms of four blocks.
template <DType kFormat, uint32_t kWidth>
[[gnu::always_inline]] inline void load_x_terms(const QuantisedRows& x, uint32_t token,
                                                uint32_t first, Terms& terms) {
  constexpr uint32_t kSteps = kWidth / kActivationBlock;
  const size_t of_token = size_t{token} * x.blocks_stride, at = of_token + first * kSteps;
  if constexpr (kSteps == 1) {
    terms.x_scales = vld1q_f32(x.scales + at);
    terms.code_sums = vld1q_s32(x.code_sums + at);
    terms.x_sums = vmulq_f32(terms.x_scales, vcvtq_f32_s32(terms.code_sums));
  } else {
    terms.x_scales = vld2q_f32(x.scales + at).val[0];
    const int32x4x2_t code_sums = vld2q_s32(x.code_sums + at);
    terms.code_sums = vaddq_s32(code_sums.val[0], code_sums.val[1]);
    terms.x_sums = vld1q_f32(x.sums + of_token + first);
  }
}

// The last quarter run of a row, of fewer than four blocks, for one token.
template <DType kFormat, uint32_t kWidth>
[[gnu::noinline, gnu::cold]] float32x4_t add_partial(const MatmulArgs& a, const Layout& l,
                                                     const int8_t* x, uint32_t row, uint32_t token,
                                                     float32x4_t lanes) {
  constexpr uint32_t kSteps = kWidth / kActivationBlock;
  const uint32_t quarter = l.blocks / kBlocks, first = quarter * kBlocks, count = l.blocks - first;
  const uint32_t block_bytes = l.step_bytes * kSteps;
  const std::byte* from = a.w.codes + row * l.code_bytes + size_t{first} * block_bytes;
  x += size_t{token} * a.w.cols + first * kWidth;
  int32_t dots[kBlocks] = {}, code_sums[kBlocks] = {};
  float x_scales[kBlocks] = {}, x_sums[kBlocks] = {};
  for (uint32_t b = 0; b < count; ++b) {
    Block<kFormat, kWidth> block;
    block.load(from + b * block_bytes, l.step_bytes);
    dots[b] = vaddvq_s32(block.dot(x + b * kWidth));
    const size_t at = token * a.xq->blocks_stride + (first + b) * kSteps;
    x_scales[b] = a.xq->scales[at];
    for (uint32_t i = 0; i < kSteps; ++i) code_sums[b] += a.xq->code_sums[at + i];
    x_sums[b] = x_scales[b] * static_cast<float>(code_sums[b]);
  }
  Terms terms{};
  terms.dots = vld1q_s32(dots);
  terms.code_sums = vld1q_s32(code_sums);
  terms.scales = load_scales<kFormat, false>(l, a.w.scales, row, quarter, count);
  if constexpr (kFormat != DType::mxfp4)
    terms.biases = load_scales<kFormat, false>(l, a.w.biases, row, quarter, count);
  terms.x_scales = vld1q_f32(x_scales);
  terms.x_sums = vld1q_f32(x_sums);
  return add_terms<kFormat>(terms, lanes);
}

// Quarter run `quarter` of one row, whose lanes are lanes[…][kQuarter]: a constant, so that they
// are registers. Nothing beyond the row's end.
template <DType kFormat, uint32_t kWidth, uint32_t kTokens, uint32_t kQuarter>
[[gnu::always_inline]] inline void add_quarter(const MatmulArgs& a, const Layout& l,
                                               const int8_t* x, uint32_t row, uint32_t quarter,
                                               float32x4_t (&lanes)[kTokens][kQuarters]) {
  const uint32_t first = quarter * kBlocks;
  if (first + kBlocks > l.blocks) [[unlikely]] {
    for (uint32_t t = 0; t < kTokens && first < l.blocks; ++t)
      lanes[t][kQuarter] = add_partial<kFormat, kWidth>(a, l, x, row, t, lanes[t][kQuarter]);
    return;
  }
  const uint32_t block_bytes = l.step_bytes * (kWidth / kActivationBlock);
  const std::byte* from = a.w.codes + row * l.code_bytes + size_t{first} * block_bytes;
  Block<kFormat, kWidth> blocks[kBlocks];
  for (uint32_t b = 0; b < kBlocks; ++b) blocks[b].load(from + b * block_bytes, l.step_bytes);
  Terms terms{};
  terms.scales = load_scales<kFormat, true>(l, a.w.scales, row, quarter, kBlocks);
  if constexpr (kFormat != DType::mxfp4)
    terms.biases = load_scales<kFormat, true>(l, a.w.biases, row, quarter, kBlocks);
  for (uint32_t t = 0; t < kTokens; ++t) {
    const int8_t* of_token = x + size_t{t} * a.w.cols + first * kWidth;
    int32x4_t dots[kBlocks];
    for (uint32_t b = 0; b < kBlocks; ++b) dots[b] = blocks[b].dot(of_token + b * kWidth);
    terms.dots = vpaddq_s32(vpaddq_s32(dots[0], dots[1]), vpaddq_s32(dots[2], dots[3]));
    load_x_terms<kFormat, kWidth>(*a.xq, t, first, terms);
    lanes[t][kQuarter] = add_terms<kFormat>(terms, lanes[t][kQuarter]);
  }
}

template <DType kFormat, uint32_t kWidth, uint32_t kTokens>
void row_by_row(const MatmulArgs& a, const Layout& l, const int8_t* x) {
  const uint32_t quarters = (l.blocks + kBlocks - 1) / kBlocks;
  for (uint32_t r = a.row_begin; r < a.row_end; ++r) {
    float32x4_t lanes[kTokens][kQuarters];
    for (auto& of_token : lanes)
      for (float32x4_t& lane : of_token) lane = vdupq_n_f32(0);
    for (uint32_t quarter = 0; quarter < quarters; quarter += kQuarters) {
      add_quarter<kFormat, kWidth, kTokens, 0>(a, l, x, r, quarter, lanes);
      add_quarter<kFormat, kWidth, kTokens, 1>(a, l, x, r, quarter + 1, lanes);
      add_quarter<kFormat, kWidth, kTokens, 2>(a, l, x, r, quarter + 2, lanes);
      add_quarter<kFormat, kWidth, kTokens, 3>(a, l, x, r, quarter + 3, lanes);
    }
    const float bias = a.bias ? a.bias[r] : 0.0f;
    for (uint32_t t = 0; t < kTokens; ++t) a.y[t * a.y_stride + r] = add_as_tree(lanes[t]) + bias;
  }
}

template <DType kFormat, uint32_t kWidth>
void few_tokens(const MatmulArgs& a, const Layout& l) {
  auto* x = reinterpret_cast<int8_t*>(a.scratch);
  for (uint32_t t = 0; t < a.tokens; ++t)
    arrange<kFormat>(a.xq->codes + t * a.xq->codes_stride, a.w.cols, x + size_t{t} * a.w.cols);
  switch (a.tokens) {
    case 1:
      return row_by_row<kFormat, kWidth, 1>(a, l, x);
    case 2:
      return row_by_row<kFormat, kWidth, 2>(a, l, x);
    case 3:
      return row_by_row<kFormat, kWidth, 3>(a, l, x);
    case kFewTokens:
      return row_by_row<kFormat, kWidth, kFewTokens>(a, l, x);
    default:
      return;
  }
}

// Prefill. 16 rows are unpacked, four columns of four rows a vector, and multiplied with all
// tokens. The sums of four tokens take 16 registers, their codes 8, the weights 4.
constexpr uint32_t kTileRows = 16, kTileTokens = 4, kParts = kTileRows / 4;
constexpr uint32_t kUnpackedBytes = kTileRows * kActivationBlock;  // of 32 columns

struct Tile {
  BlockOrder order;
  int8_t* codes;           // (blocks, 8 or 16 quads of columns, 16 rows, 4 columns)
  float *scales, *biases;  // (blocks, 16 rows)
  size_t place(uint32_t block) const { return place_of(order, block); }
};

Tile tile_of(const MatmulArgs& a, const Layout& l) {
  Tile tile{};
  tile.order = order_blocks(l.blocks);
  tile.codes = reinterpret_cast<int8_t*>(a.scratch);
  tile.scales = a.scratch + size_t{l.blocks} * l.width * (kTileRows / sizeof(float));
  tile.biases = tile.scales + size_t{l.blocks} * kTileRows;
  return tile;
}

// Dword c of rows[r] becomes dword r of rows[c].
[[gnu::always_inline]] inline void transpose(int32x4_t (&rows)[4]) {
  const auto wide = [](int32x4_t v) { return vreinterpretq_s64_s32(v); };
  const int64x2_t ab_even = wide(vtrn1q_s32(rows[0], rows[1]));  // dwords 0 and 2 of both
  const int64x2_t ab_odd = wide(vtrn2q_s32(rows[0], rows[1]));
  const int64x2_t cd_even = wide(vtrn1q_s32(rows[2], rows[3]));
  const int64x2_t cd_odd = wide(vtrn2q_s32(rows[2], rows[3]));
  rows[0] = vreinterpretq_s32_s64(vtrn1q_s64(ab_even, cd_even));
  rows[1] = vreinterpretq_s32_s64(vtrn1q_s64(ab_odd, cd_odd));
  rows[2] = vreinterpretq_s32_s64(vtrn2q_s64(ab_even, cd_even));
  rows[3] = vreinterpretq_s32_s64(vtrn2q_s64(ab_odd, cd_odd));
}

// Four rows from `row` on, those at `end` and beyond as zeros, into part `part` of the tile.
template <DType kFormat>
void unpack_codes(const MatmulArgs& a, const Layout& l, const Tile& tile, uint32_t row,
                  uint32_t end, uint32_t part) {
  const uint32_t steps = l.width / kActivationBlock;
  for (uint32_t b = 0; b < l.blocks * steps; ++b) {
    int32x4_t first[4], second[4];  // 16 columns of each row
    for (uint32_t i = 0; i < 4; ++i) {
      first[i] = second[i] = vdupq_n_s32(0);
      if (row + i >= end) continue;
      const Codes codes =
          load_codes<kFormat>(a.w.codes + (row + i) * l.code_bytes + size_t{b} * l.step_bytes);
      const bool bytes = kFormat == DType::affine8;
      first[i] = vreinterpretq_s32_s8(bytes ? codes.a : vzip1q_s8(codes.a, codes.b));
      second[i] = vreinterpretq_s32_s8(bytes ? codes.b : vzip2q_s8(codes.a, codes.b));
    }
    transpose(first);
    transpose(second);
    int8_t* to =
        tile.codes + (tile.place(b / steps) * steps + b % steps) * kUnpackedBytes + part * 16;
    for (uint32_t quad = 0; quad < 4; ++quad) {
      vst1q_s8(to + quad * kTileRows * 4, vreinterpretq_s8_s32(first[quad]));
      vst1q_s8(to + (quad + 4) * kTileRows * 4, vreinterpretq_s8_s32(second[quad]));
    }
  }
}

template <DType kFormat, bool kWhole>
[[gnu::always_inline]] inline void unpack_quarter(const Layout& l, const Tile& tile,
                                                  const std::byte* plane, float* to, uint32_t row,
                                                  uint32_t end, uint32_t quarter) {
  const uint32_t first = quarter * kBlocks, count = kWhole ? kBlocks : l.blocks - first;
  int32x4_t rows[4];
  for (uint32_t i = 0; i < 4; ++i)
    rows[i] =
        row + i < end
            ? vreinterpretq_s32_f32(load_scales<kFormat, kWhole>(l, plane, row + i, quarter, count))
            : vdupq_n_s32(0);
  transpose(rows);
  for (uint32_t k = 0; k < count; ++k)
    vst1q_f32(to + tile.place(first + k) * kTileRows, vreinterpretq_f32_s32(rows[k]));
}

template <DType kFormat>
void unpack_scales(const Layout& l, const Tile& tile, const std::byte* plane, float* to,
                   uint32_t row, uint32_t end) {
  const uint32_t whole = l.blocks / kBlocks;
  for (uint32_t quarter = 0; quarter < whole; ++quarter)
    unpack_quarter<kFormat, true>(l, tile, plane, to, row, end, quarter);
  if (whole * kBlocks < l.blocks)
    unpack_quarter<kFormat, false>(l, tile, plane, to, row, end, whole);
}

template <DType kFormat>
void unpack(const MatmulArgs& a, const Layout& l, const Tile& tile, uint32_t row) {
  for (uint32_t part = 0; part < kParts; ++part) {
    const uint32_t first = row + part * 4;
    unpack_codes<kFormat>(a, l, tile, first, a.row_end, part);
    unpack_scales<kFormat>(l, tile, a.w.scales, tile.scales + part * 4, first, a.row_end);
    if constexpr (kFormat != DType::mxfp4)
      unpack_scales<kFormat>(l, tile, a.w.biases, tile.biases + part * 4, first, a.row_end);
  }
}

// Four columns of 16 rows, and the same columns of each token: lane kQuad % 4 of half kQuad / 4.
template <uint32_t kTokens, uint32_t kQuad>
[[gnu::always_inline]] inline void add_quad(const int8_t* w, const int8x16_t (&x)[kTokens][2],
                                            int32x4_t (&sums)[kTokens][kParts]) {
  for (uint32_t part = 0; part < kParts; ++part) {
    const int8x16_t codes = vld1q_s8(w + (kQuad * kParts + part) * 16);
    for (uint32_t t = 0; t < kTokens; ++t)
      sums[t][part] = vdotq_laneq_s32(sums[t][part], codes, x[t][kQuad / 4], kQuad % 4);
  }
}

// Adds Σ code · x of 32 columns.
template <uint32_t kTokens>
[[gnu::always_inline]] inline void add_products(const int8_t* w, const int8_t* x, size_t stride,
                                                int32x4_t (&sums)[kTokens][kParts]) {
  int8x16_t codes[kTokens][2];
  for (uint32_t t = 0; t < kTokens; ++t) {
    codes[t][0] = vld1q_s8(x + t * stride);
    codes[t][1] = vld1q_s8(x + t * stride + 16);
  }
  add_quad<kTokens, 0>(w, codes, sums);
  add_quad<kTokens, 1>(w, codes, sums);
  add_quad<kTokens, 2>(w, codes, sums);
  add_quad<kTokens, 3>(w, codes, sums);
  add_quad<kTokens, 4>(w, codes, sums);
  add_quad<kTokens, 5>(w, codes, sums);
  add_quad<kTokens, 6>(w, codes, sums);
  add_quad<kTokens, 7>(w, codes, sums);
}

// Adds the terms of the block at `place` of the tile to the lane that it belongs to.
template <DType kFormat, uint32_t kWidth, uint32_t kTokens>
[[gnu::always_inline]] inline void add_block(const QuantisedRows& x, size_t token, const Tile& tile,
                                             uint32_t block, size_t place,
                                             float32x4_t (&lane)[kTokens][kParts]) {
  constexpr uint32_t kSteps = kWidth / kActivationBlock;
  const size_t of_token = token * x.blocks_stride, at = of_token + size_t{block} * kSteps;
  int32x4_t sums[kTokens][kParts];
  for (auto& of : sums)
    for (int32x4_t& sum : of) sum = vdupq_n_s32(0);
  for (uint32_t i = 0; i < kSteps; ++i)
    add_products<kTokens>(
        tile.codes + (place * kSteps + i) * kUnpackedBytes,
        x.codes + token * x.codes_stride + (size_t{block} * kSteps + i) * kActivationBlock,
        x.codes_stride, sums);
  for (uint32_t part = 0; part < kParts; ++part) {
    const size_t from = place * kTileRows + part * 4;
    const float32x4_t scales = vld1q_f32(tile.scales + from);
    float32x4_t biases = vdupq_n_f32(0);
    if constexpr (kFormat != DType::mxfp4) biases = vld1q_f32(tile.biases + from);
    for (uint32_t t = 0; t < kTokens; ++t) {
      const size_t next = t * x.blocks_stride;
      const float x_scale = x.scales[at + next];
      int32_t code_sum = 0;
      for (uint32_t i = 0; i < kSteps; ++i) code_sum += x.code_sums[at + next + i];
      float32x4_t& sum = lane[t][part];
      int32x4_t whole = sums[t][part];
      if constexpr (kFormat == DType::affine8)
        whole = vaddq_s32(whole, vdupq_n_s32(128 * code_sum));
      sum = vfmaq_f32(sum, vcvtq_f32_s32(whole), vmulq_n_f32(scales, x_scale));
      if constexpr (kFormat != DType::mxfp4)
        sum = vfmaq_n_f32(
            sum, biases,
            kSteps == 2 ? x.sums[of_token + block + next] : x_scale * static_cast<float>(code_sum));
    }
  }
}

void store_rows(float* y, float32x4_t values, uint32_t rows) {
  if (rows >= 4) return vst1q_f32(y, values);
  float some[4];
  vst1q_f32(some, values);
  for (uint32_t i = 0; i < rows; ++i) y[i] = some[i];
}

float32x4_t load_rows(const float* from, uint32_t rows) {
  if (rows >= 4) return vld1q_f32(from);
  float some[4] = {};
  for (uint32_t i = 0; i < rows; ++i) some[i] = from[i];
  return vld1q_f32(some);
}

template <DType kFormat, uint32_t kWidth, uint32_t kTokens>
void multiply_tile(const MatmulArgs& a, const Layout& l, const Tile& tile, size_t token,
                   uint32_t row) {
  // waiting[d]: a sum of 2^d lanes that the tree adds to the next such sum.
  float32x4_t waiting[5][kTokens][kParts];
  for (uint32_t k = 0; k < kSumLanes; ++k) {
    float32x4_t lane[kTokens][kParts];
    for (auto& of_token : lane)
      for (float32x4_t& part : of_token) part = vdupq_n_f32(0);
    size_t place = tile.order.start[kLaneOrder[k]];
    for (uint32_t b = kLaneOrder[k]; b < l.blocks; b += kSumLanes, ++place)
      add_block<kFormat, kWidth, kTokens>(*a.xq, token, tile, b, place, lane);
    uint32_t depth = 0;
    for (; k >> depth & 1; ++depth)
      for (uint32_t i = 0; i < kTokens * kParts; ++i) {
        float32x4_t& sum = lane[i / kParts][i % kParts];
        sum = vaddq_f32(waiting[depth][i / kParts][i % kParts], sum);
      }
    for (uint32_t i = 0; i < kTokens * kParts; ++i)
      waiting[depth][i / kParts][i % kParts] = lane[i / kParts][i % kParts];
  }
  for (uint32_t part = 0; part < kParts && row + part * 4 < a.row_end; ++part) {
    const uint32_t first = row + part * 4, rows = a.row_end - first;
    const float32x4_t bias = a.bias ? load_rows(a.bias + first, rows) : vdupq_n_f32(0);
    for (uint32_t t = 0; t < kTokens; ++t)
      store_rows(a.y + (token + t) * a.y_stride + first, vaddq_f32(waiting[4][t][part], bias),
                 rows);
  }
}

template <DType kFormat, uint32_t kWidth>
void multiply_tokens(const MatmulArgs& a, const Layout& l, const Tile& tile, uint32_t row) {
  // Tiles as equal as can be; five tokens or more, so that none has fewer than two.
  static_assert(kFewTokens >= 4 && kTileTokens == 4);
  uint32_t left = (a.tokens + kTileTokens - 1) / kTileTokens;
  for (uint32_t t = 0, size; t < a.tokens; t += size, --left) {
    size = (a.tokens - t + left - 1) / left;
    switch (size) {
      case 4:
        multiply_tile<kFormat, kWidth, 4>(a, l, tile, t, row);
        break;
      case 3:
        multiply_tile<kFormat, kWidth, 3>(a, l, tile, t, row);
        break;
      default:
        multiply_tile<kFormat, kWidth, 2>(a, l, tile, t, row);
        break;
    }
  }
}

template <DType kFormat, uint32_t kWidth>
void multiply(const MatmulArgs& a, const Layout& l) {
  if (a.tokens <= kFewTokens) return few_tokens<kFormat, kWidth>(a, l);
  const Tile tile = tile_of(a, l);
  for (uint32_t r = a.row_begin; r < a.row_end; r += kTileRows) {
    unpack<kFormat>(a, l, tile, r);
    multiply_tokens<kFormat, kWidth>(a, l, tile, r);
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
  for (uint32_t begin = 0; begin < n; begin += block) {
    // Magnitudes order as their bits do, and a NaN's are the largest.
    uint32x4_t max = vdupq_n_u32(0);
    for (uint32_t c = begin; c < begin + block; c += 4)
      max = vmaxq_u32(max, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + c))));
    const uint32_t max_bits = vmaxvq_u32(max);
    const bool finite = max_bits < 0x7f800000u;
    float largest;
    __builtin_memcpy(&largest, &max_bits, sizeof largest);
    float scale = finite ? largest / 127.0f : __builtin_nanf("");
    if (scale < 0x1p-126f) scale = 0;
    int32_t whole = 0;
    for (uint32_t b = begin / kActivationBlock; b < (begin + block) / kActivationBlock; ++b) {
      int32x4_t sum = vdupq_n_s32(0);
      for (uint32_t c = b * kActivationBlock; c < (b + 1) * kActivationBlock; c += 8) {
        int32x4_t low = vdupq_n_s32(0), high = low;
        if (finite && scale > 0) {
          low = vcvtnq_s32_f32(vdivq_f32(vld1q_f32(x + c), vdupq_n_f32(scale)));
          high = vcvtnq_s32_f32(vdivq_f32(vld1q_f32(x + c + 4), vdupq_n_f32(scale)));
        }
        sum = vaddq_s32(sum, vaddq_s32(low, high));
        vst1_s8(codes + c, vmovn_s16(vcombine_s16(vmovn_s32(low), vmovn_s32(high))));
      }
      scales[b] = scale;
      code_sums[b] = vaddvq_s32(sum);
      whole += code_sums[b];
    }
    if (block == kWideBlock) sums[begin / kWideBlock] = scale * static_cast<float>(whole);
  }
}

}  // namespace wader::neon

#endif
