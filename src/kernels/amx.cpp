// The integer products on the int8 tiles of AMX, for many tokens; few go to avx512. ops.h defines
// their arithmetic.
//
// A tile product takes a block: 16 tokens by its columns times its columns by 16 weight rows,
// unpacked, gives 16 × 16 exact sums, which pass through memory to become f32. To 16 cycles of the
// product (a block of 32 columns uses half a tile) come 16 of the tile's store, and three or four
// vector instructions for 16 sums (convert, ws · xs, fma, and the bias's); product and store keep
// one of the two vector ports busy, so that little of this overlaps. What can be had is that
// nothing waits: the f32 sums stay in registers, tiles are begun three products before their
// use and stored one before, and all that a product reads is in L1. For that the activations of
// some tokens are laid out tile by tile, and the sum runs in four parts of four lanes: a part of 32
// weight rows (24 KiB of 2880 columns) meets all tokens before the next part is read.
//
// Only what is defined here and intrinsics: an inline function of a header, not inlined, could
// become the program's only copy.

#if defined(__AMX_TILE__) && defined(__AMX_INT8__) && defined(__AVX512F__)

#include <immintrin.h>

#include "kernels/integer.h"

namespace wader::amx {
namespace {

constexpr uint32_t kTileTokens = 16;  // at most: the rows of a tile
constexpr uint32_t kTileSums = 16 * 16;
constexpr uint32_t kStoreBehind = 2;  // products from a tile's begin to its store
constexpr uint32_t kUseBehind = 3;    // and to its use
constexpr uint32_t kSlots = 4;        // for stored products: 4 KiB
constexpr uint32_t kParts = 4, kPartLanes = kSumLanes / kParts;

// Tiles 0 … 3 are sums (tokens, 16 rows) of blocks in turn, 4 and 5 activations (tokens, a block's
// columns), 6 and 7 weights (quads of columns, 16 rows), both for the even and the odd blocks.
void configure_tiles(uint32_t tokens, uint32_t width) {
  struct alignas(64) {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } config{};
  static_assert(sizeof config == 64);
  config.palette = 1;
  for (uint32_t tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = static_cast<uint16_t>(tile == 4 || tile == 5 ? width : 64);
    config.rows[tile] = static_cast<uint8_t>(tile < 6 ? tokens : width / 4);
  }
  // The intrinsic tells the compiler of the first eight bytes only.
  __asm__ volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

// The lanes of one part of the sum, whose blocks' places follow one another.
struct Part {
  uint32_t first, count;  // places
  uint32_t lane_counts[kPartLanes];
};

Part part_of(const UnpackedRows& w, uint32_t index) {
  Part part{w.order.start[kLaneOrder[index * kPartLanes]], 0, {}};
  for (uint32_t k = 0; k < kPartLanes; ++k) {
    const uint32_t lane = kLaneOrder[index * kPartLanes + k];
    part.lane_counts[k] = blocks_of_lane(w.blocks, lane);
    part.count += part.lane_counts[k];
  }
  return part;
}

// A group's activations, laid out for tiles. All tiles have as many tokens, so that they are
// configured once: the last one has some of the one before again, to the same result.
template <bool kAffine>
struct Group {
  static constexpr uint32_t kWidth = kAffine ? kWideBlock : kActivationBlock;
  uint32_t blocks, tiles, tokens;  // of each tile
  size_t first, count;             // of the group's tokens
  int8_t* codes;                   // (tiles, places, 16 tokens, kWidth columns)
  float *scales, *sums;            // (tiles, places, 16 tokens)
  float* parts;  // (tiles, 2 halves of 32 rows, 2, 16 tokens, 16 rows): sums of one and two parts

  size_t first_of(uint32_t tile) const {
    const size_t begin = size_t{tile} * tokens;
    return first + (begin + tokens <= count ? begin : count - tokens);
  }
  size_t at(uint32_t tile, uint32_t place) const {
    return (size_t{tile} * blocks + place) * kTileTokens;
  }
  void pack(const QuantisedRows& x) const;
};

template <bool kAffine>
void Group<kAffine>::pack(const QuantisedRows& x) const {
  for (uint32_t tile = 0; tile < tiles; ++tile) {
    uint32_t place = 0;
    for (const uint32_t lane : kLaneOrder)
      for (uint32_t block = lane; block < blocks; block += kSumLanes, ++place)
        for (uint32_t i = 0; i < tokens; ++i) {
          const size_t token = first_of(tile) + i, to = at(tile, place) + i;
          const int8_t* from = x.codes + token * x.codes_stride + block * kWidth;
          const size_t of_token = token * x.blocks_stride;
          __builtin_memcpy(codes + to * kWidth, from, kWidth);
          scales[to] = x.scales[of_token + block * (kWidth / kActivationBlock)];
          if (kAffine) sums[to] = x.sums[of_token + block];
        }
  }
}

// The intrinsics take numbers of tiles, not variables.
#define WADER_TILE_PRODUCT(sums, activations, weights) \
  do {                                                 \
    _tile_loadd(activations, x_, kWidth);              \
    _tile_loadd(weights, w_, kUnpackedRows * 4);       \
    _tile_zero(sums);                                  \
    if constexpr (kAffine)                             \
      _tile_dpbsud(sums, activations, weights);        \
    else                                               \
      _tile_dpbssd(sums, activations, weights);        \
  } while (false)

// The products of a part, tile of tokens after tile, half of the 32 rows after half, place after
// place: one sequence, so that none waits at a seam.
template <bool kAffine>
class Products {
 public:
  static constexpr uint32_t kWidth = Group<kAffine>::kWidth;

  Products(const Group<kAffine>& x, const UnpackedRows& w, const Part& part, uint32_t halves)
      : group_(x), rows_(w), part_(part), halves_(halves), total_(x.tiles * halves * part.count) {
    begin_unit();
    for (uint32_t i = 0; i < kUseBehind; ++i) step();
  }

  // The next product: (tokens, 16 rows).
  [[gnu::always_inline]] const int32_t* next() {
    step();
    return sums_[(begun_ - 1 - kUseBehind) % kSlots];
  }

 private:
  void begin_unit() {
    if (unit_ == group_.tiles * halves_) return;
    const uint32_t tile = unit_ / halves_, half = unit_ % halves_;
    x_ = group_.codes + group_.at(tile, part_.first) * kWidth;
    w_ = rows_.codes + half * 64;
    left_ = part_.count;
    ++unit_;
  }

  // Begins a product and stores one begun before; both stop at the sequence's end.
  [[gnu::always_inline]] void step() {
    if (begun_ < total_) {
      switch (begun_ % 4) {
        case 0:
          WADER_TILE_PRODUCT(0, 4, 6);
          break;
        case 1:
          WADER_TILE_PRODUCT(1, 5, 7);
          break;
        case 2:
          WADER_TILE_PRODUCT(2, 4, 6);
          break;
        default:
          WADER_TILE_PRODUCT(3, 5, 7);
          break;
      }
      x_ += kTileTokens * kWidth;
      w_ += size_t{kWidth} * kUnpackedRows;
      if (--left_ == 0) begin_unit();
    }
    if (begun_ >= kStoreBehind && begun_ - kStoreBehind < total_) store(begun_ - kStoreBehind);
    ++begun_;
  }

  [[gnu::always_inline]] void store(uint32_t product) {
    int32_t* to = sums_[product % kSlots];
    switch (product % 4) {
      case 0:
        _tile_stored(0, to, 64);
        break;
      case 1:
        _tile_stored(1, to, 64);
        break;
      case 2:
        _tile_stored(2, to, 64);
        break;
      default:
        _tile_stored(3, to, 64);
        break;
    }
  }

  const Group<kAffine>& group_;
  const UnpackedRows& rows_;
  const Part& part_;
  const uint32_t halves_, total_;
  uint32_t begun_ = 0, unit_ = 0, left_ = 0;
  const int8_t* x_;
  const uint8_t* w_;
  alignas(64) int32_t sums_[kSlots][kTileSums];
};
#undef WADER_TILE_PRODUCT

// A tile of tokens against half of 32 rows.
struct Unit {
  uint32_t tile, half;
};

// The terms of one block, added to its lane. product: (tokens, 16 rows).
template <bool kAffine, uint32_t kTokens>
[[gnu::always_inline]] inline void add_terms(const Group<kAffine>& x, const UnpackedRows& w,
                                             Unit unit, uint32_t place, const int32_t* product,
                                             __m512 (&lane)[kTokens]) {
  // Or the compiler holds an address for each token where one and offsets do.
  const float* x_scales = x.scales + x.at(unit.tile, place);
  const float* x_sums = x.sums + x.at(unit.tile, place);
  __asm__("" : "+r"(product), "+r"(x_scales), "+r"(x_sums));
  const size_t from = size_t{place} * kUnpackedRows + unit.half * 16;
  const __m512 scales = _mm512_loadu_ps(w.scales + from);
  for (uint32_t t = 0; t < kTokens; ++t)
    lane[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(product + t * 16)),
                              _mm512_mul_ps(scales, _mm512_set1_ps(x_scales[t])), lane[t]);
  if constexpr (kAffine) {
    const __m512 biases = _mm512_loadu_ps(w.biases + from);
    for (uint32_t t = 0; t < kTokens; ++t)
      lane[t] = _mm512_fmadd_ps(biases, _mm512_set1_ps(x_sums[t]), lane[t]);
  }
}

// Of one part: the tree over its four lanes.
template <bool kAffine, uint32_t kTokens>
[[gnu::always_inline]] inline void sum_part(const Group<kAffine>& x, const UnpackedRows& w,
                                            const Part& part, Products<kAffine>& products,
                                            NextRows& next, Unit unit, __m512 (&lane)[kTokens]) {
  __m512 one[kTokens], two[kTokens];
  uint32_t place = part.first;
  for (uint32_t k = 0; k < kPartLanes; ++k) {
    __m512 sum[kTokens];  // declared here, or g++ leaves it in memory
    for (uint32_t t = 0; t < kTokens; ++t) sum[t] = _mm512_setzero_ps();
    for (uint32_t i = 0; i < part.lane_counts[k]; ++i, ++place) {
      add_terms<kAffine, kTokens>(x, w, unit, place, products.next(), sum);
      prefetch(next);
    }
    for (uint32_t t = 0; t < kTokens; ++t) {
      if (k % 2 == 0)
        one[t] = sum[t];
      else if (k == 1)
        two[t] = _mm512_add_ps(one[t], sum[t]);
      else
        lane[t] = _mm512_add_ps(two[t], _mm512_add_ps(one[t], sum[t]));
    }
  }
}

// 32 rows against all tokens of a group.
template <bool kAffine, uint32_t kTokens>
void multiply_rows(const MatmulArgs& a, const Group<kAffine>& x, const UnpackedRows& w,
                   uint32_t row) {
  const uint32_t halves = row + 16 < a.row_end ? 2 : 1;
  NextRows next = rows_ahead(a, row + kUnpackedRows, size_t{x.tiles} * 2 * w.blocks);
  for (uint32_t p = 0; p < kParts; ++p) {
    const Part part = part_of(w, p);
    // Now, and not all parts together: a store to what is only in the second level takes ten
    // cycles. Lanes of a part are those of one remainder, and so are their blocks.
    avx512::unpack_codes(a, w, row, {kLaneOrder[p * kPartLanes], kParts}, true);
    Products<kAffine> products(x, w, part, halves);
    for (Unit unit{0, 0}; unit.tile < x.tiles; ++unit.tile)
      for (unit.half = 0; unit.half < halves; ++unit.half) {
        __m512 lane[kTokens];
        sum_part<kAffine, kTokens>(x, w, part, products, next, unit, lane);
        float* one = x.parts + (unit.tile * 2 + unit.half) * 2 * size_t{kTileSums};
        float* two = one + kTileSums;
        if (p < kParts - 1) {
          for (uint32_t t = 0; t < kTokens; ++t)
            if (p == 1)
              _mm512_storeu_ps(two + t * 16, _mm512_add_ps(_mm512_loadu_ps(one + t * 16), lane[t]));
            else
              _mm512_storeu_ps(one + t * 16, lane[t]);
          continue;
        }
        const uint32_t first_row = row + unit.half * 16;
        const auto mask = static_cast<__mmask16>((1u << least(16, a.row_end - first_row)) - 1);
        const __m512 bias =
            a.bias ? _mm512_maskz_loadu_ps(mask, a.bias + first_row) : _mm512_setzero_ps();
        float* y = a.y + x.first_of(unit.tile) * a.y_stride + first_row;
        for (uint32_t t = 0; t < kTokens; ++t) {
          const __m512 half_sum = _mm512_add_ps(_mm512_loadu_ps(one + t * 16), lane[t]);
          const __m512 sum = _mm512_add_ps(_mm512_loadu_ps(two + t * 16), half_sum);
          _mm512_mask_storeu_ps(y + t * a.y_stride, mask, _mm512_add_ps(sum, bias));
        }
      }
  }
}

template <bool kAffine>
auto multiply_of(uint32_t tokens) {
  constexpr decltype(&multiply_rows<kAffine, 16>) kOf[] = {
      multiply_rows<kAffine, 7>,  multiply_rows<kAffine, 8>,  multiply_rows<kAffine, 9>,
      multiply_rows<kAffine, 10>, multiply_rows<kAffine, 11>, multiply_rows<kAffine, 12>,
      multiply_rows<kAffine, 13>, multiply_rows<kAffine, 14>, multiply_rows<kAffine, 15>,
      multiply_rows<kAffine, 16>};
  static_assert(avx512::kFewTokens == 6);
  return kOf[tokens - 7];
}

// `count` tokens from `first` on, in the scratch behind the unpacked rows.
template <bool kAffine>
Group<kAffine> group_of(const MatmulArgs& a, size_t first, uint32_t count) {
  Group<kAffine> group{};
  group.blocks = a.w.cols / Group<kAffine>::kWidth;
  group.tiles = (count + kTileTokens - 1) / kTileTokens;
  group.tokens = (count + group.tiles - 1) / group.tiles;
  group.first = first;
  group.count = count;
  const size_t rows = size_t{group.tiles} * kTileTokens * group.blocks;
  group.parts = a.scratch + unpacked_floats(a.w.cols);
  group.codes = reinterpret_cast<int8_t*>(group.parts + size_t{group.tiles} * 4 * kTileSums);
  group.scales = reinterpret_cast<float*>(group.codes + rows * Group<kAffine>::kWidth);
  group.sums = group.scales + rows;
  return group;
}

template <bool kAffine>
void multiply(const MatmulArgs& a) {
  // Shared out evenly: a last group with what equal ones leave could have too few tokens for a
  // tile.
  uint32_t groups = (a.tokens + kPackedTokens - 1) / kPackedTokens;
  for (uint32_t first = 0, count; first < a.tokens; first += count, --groups) {
    count = (a.tokens - first + groups - 1) / groups;
    const auto group = group_of<kAffine>(a, first, count);
    group.pack(*a.xq);
    configure_tiles(group.tokens, Group<kAffine>::kWidth);
    const auto multiply_rows_of = multiply_of<kAffine>(group.tokens);
    for (uint32_t row = a.row_begin; row < a.row_end; row += kUnpackedRows)
      multiply_rows_of(a, group, avx512::unpack_scales(a, row), row);
  }
  _tile_release();
}

}  // namespace

void matmul(const MatmulArgs& args) {
  if (args.tokens <= avx512::kFewTokens || args.w.format.group == 32) return avx512::matmul(args);
  if (args.w.format.dtype == DType::mxfp4)
    multiply<false>(args);
  else
    multiply<true>(args);
}

}  // namespace wader::amx

#endif
