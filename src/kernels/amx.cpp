// The integer products on the int8 tiles of AMX, for many tokens; few go to avx512. ops.h defines
// their arithmetic.
//
// A tile product takes a block: 16 tokens by its 32 columns, as they stand, times its 32 columns by
// 16 weight rows, unpacked, gives 16 × 16 exact sums. These pass through memory to become f32, and
// that is what takes the time: a vector of 16 sums costs three instructions of the two vector ports
// (convert, ws · xs, fma), so a tile product of 16 cycles (of which 32 columns use half) has 24 of
// them beside it, and a third of the tiles' peak is the most there is. So all else must run beside
// these: the products of one chunk of blocks are made while those of the chunk before are added.
//
// Only what is defined here and intrinsics: an inline function of a header, not inlined, could
// become the program's only copy.

#if defined(__AMX_TILE__) && defined(__AMX_INT8__) && defined(__AVX512F__)

#include <immintrin.h>

#include "kernels/integer.h"

namespace wader::amx {
namespace {

constexpr uint32_t kTileTokens = 16;  // at most: the rows of a tile
constexpr uint32_t kGroup = 8;        // tokens whose sums of 32 rows are in registers together
constexpr uint32_t kTileSums = 16 * 16;
constexpr uint32_t kBlockSums = 4 * kTileSums;  // two tiles of tokens by two of rows
constexpr uint32_t kChunk = 4;                  // blocks: twice 16 KiB of products in L1
constexpr uint32_t kBlockBytes = kUnpackedRows * kActivationBlock;

uint32_t least(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}

// Tiles 0 … 3 are sums (tokens, 16 rows), 4 and 5 activations (tokens, 32 columns), 6 and 7 weights
// (8 quads of columns, 16 rows).
void configure_tiles(uint32_t tokens) {
  struct alignas(64) {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } config{};
  static_assert(sizeof config == 64);
  config.palette = 1;
  for (uint32_t tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = tile == 4 || tile == 5 ? kActivationBlock : 64;
    config.rows[tile] = tile < 6 ? static_cast<uint8_t>(tokens) : 8;
  }
  // The intrinsic tells the compiler of the first eight bytes only.
  __asm__ volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

// Where a walk over the blocks, in the order of their places, has come to.
struct Cursor {
  uint32_t place, block;
  uint32_t lane;  // of kLaneOrder
};

Cursor after(Cursor at, uint32_t blocks) {
  ++at.place;
  at.block += kSumLanes;
  if (at.block < blocks) return at;
  do ++at.lane;
  while (at.lane < kSumLanes && kLaneOrder[at.lane] >= blocks);
  at.block = at.lane < kSumLanes ? kLaneOrder[at.lane] : 0;
  return at;
}

// A group's sums of 32 rows between two chunks.
struct Sums {
  __m512 lane[kGroup][2];
  __m512 waiting[5][kGroup][2];  // [d]: a sum of 2^d lanes that the tree adds to the next such sum
};

// One or two tiles of tokens against 32 rows. Tiles may share tokens, which are then computed twice
// with the same result: all tiles have as many, so that they are configured once a call.
struct Pass {
  const QuantisedRows& x;
  const UnpackedRows& w;
  size_t first[2];  // token of a tile
};

// The products of one block: [tile of tokens][half of the rows][token][row].
template <bool kAffine, uint32_t kTiles>
[[gnu::always_inline]] inline void multiply_block(const Pass& p, Cursor& at, int32_t* to) {
  const uint8_t* w = p.w.codes + size_t{at.place} * kBlockBytes;
  const int8_t* x = p.x.codes + size_t{at.block} * kActivationBlock;
  const size_t stride = p.x.codes_stride;
  _tile_loadd(4, x + p.first[0] * stride, stride);
  _tile_loadd(6, w, 128);
  _tile_loadd(7, w + 64, 128);
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kAffine) {
    _tile_dpbsud(0, 4, 6);
    _tile_dpbsud(1, 4, 7);
  } else {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
  }
  if constexpr (kTiles == 2) {
    _tile_loadd(5, x + p.first[1] * stride, stride);
    _tile_zero(2);
    _tile_zero(3);
    if constexpr (kAffine) {
      _tile_dpbsud(2, 5, 6);
      _tile_dpbsud(3, 5, 7);
    } else {
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    }
  }
  _tile_stored(0, to, 64);
  _tile_stored(1, to + kTileSums, 64);
  if constexpr (kTiles == 2) {
    _tile_stored(2, to + 2 * kTileSums, 64);
    _tile_stored(3, to + 3 * kTileSums, 64);
  }
  at = after(at, p.w.blocks);
}

// A lane is whole: into the tree with it, and with those after it that have no block.
template <uint32_t kTokens>
[[gnu::always_inline]] inline void end_lane(__m512 (&lane)[kTokens][2], Sums& sums, uint32_t blocks,
                                            Cursor& at) {
  do {
    uint32_t depth = 0;
    for (; at.lane >> depth & 1; ++depth)
      for (uint32_t t = 0; t < kTokens; ++t)
        for (uint32_t half = 0; half < 2; ++half)
          lane[t][half] = _mm512_add_ps(sums.waiting[depth][t][half], lane[t][half]);
    for (uint32_t t = 0; t < kTokens; ++t)
      for (uint32_t half = 0; half < 2; ++half) {
        sums.waiting[depth][t][half] = lane[t][half];
        lane[t][half] = _mm512_setzero_ps();
      }
  } while (++at.lane < kSumLanes && kLaneOrder[at.lane] >= blocks);
  if (at.lane < kSumLanes) at.block = kLaneOrder[at.lane];
}

// Adds the products of `count` blocks to the sums of a group of tokens from `token` on; `products`
// are the group's of the first block.
template <bool kAffine, uint32_t kTokens>
[[gnu::noinline]] Cursor add_products(const Pass& p, size_t token, Cursor at, uint32_t count,
                                      const int32_t* products, Sums& sums) {
  const uint32_t blocks = p.w.blocks;
  const size_t stride = p.x.blocks_stride;
  __m512 lane[kTokens][2];
  for (uint32_t t = 0; t < kTokens; ++t)
    for (uint32_t half = 0; half < 2; ++half) lane[t][half] = sums.lane[t][half];
  for (uint32_t j = 0; j < count; ++j, ++at.place, products += kBlockSums) {
    const float* scales = p.w.scales + size_t{at.place} * kUnpackedRows;
    const float* biases = p.w.biases + size_t{at.place} * kUnpackedRows;
    const float* x_scales = p.x.scales + token * stride + at.block;
    const float* x_sums = p.x.sums + token * stride + at.block;
    const __m512 ws[2] = {_mm512_loadu_ps(scales), _mm512_loadu_ps(scales + 16)};
    for (uint32_t t = 0; t < kTokens; ++t) {
      const __m512 xs = _mm512_set1_ps(x_scales[t * stride]);
      for (uint32_t half = 0; half < 2; ++half)
        lane[t][half] = _mm512_fmadd_ps(
            _mm512_cvtepi32_ps(_mm512_load_si512(products + half * kTileSums + t * 16)),
            _mm512_mul_ps(ws[half], xs), lane[t][half]);
      if constexpr (kAffine) {
        const __m512 sum = _mm512_set1_ps(x_sums[t * stride]);
        lane[t][0] = _mm512_fmadd_ps(_mm512_loadu_ps(biases), sum, lane[t][0]);
        lane[t][1] = _mm512_fmadd_ps(_mm512_loadu_ps(biases + 16), sum, lane[t][1]);
      }
    }
    at.block += kSumLanes;
    if (at.block >= blocks) end_lane<kTokens>(lane, sums, blocks, at);
  }
  for (uint32_t t = 0; t < kTokens; ++t)
    for (uint32_t half = 0; half < 2; ++half) sums.lane[t][half] = lane[t][half];
  return at;
}

template <bool kAffine>
Cursor add_group(const Pass& p, size_t token, uint32_t tokens, Cursor at, uint32_t count,
                 const int32_t* products, Sums& sums) {
  switch (tokens) {
    case 4:
      return add_products<kAffine, 4>(p, token, at, count, products, sums);
    case 5:
      return add_products<kAffine, 5>(p, token, at, count, products, sums);
    case 6:
      return add_products<kAffine, 6>(p, token, at, count, products, sums);
    case 7:
      return add_products<kAffine, 7>(p, token, at, count, products, sums);
    default:
      return add_products<kAffine, kGroup>(p, token, at, count, products, sums);
  }
}

// The tokens of a tile in groups as equal as can be: one of 7 or 8, or two of 4 … 8.
static_assert(avx512::kFewTokens == 6 && kTileTokens == 2 * kGroup);
struct Groups {
  uint32_t count;     // of a tile
  uint32_t first[2];  // token of the tile
  uint32_t tokens[2];
};
Groups groups_of(uint32_t tokens) {
  if (tokens <= kGroup) return {1, {0, 0}, {tokens, 0}};
  const uint32_t half = (tokens + 1) / 2;
  return {2, {0, half}, {half, tokens - half}};
}

void store(const MatmulArgs& a, size_t token, uint32_t tokens, uint32_t row, const Sums& sums) {
  for (uint32_t half = 0; half < 2 && row + half * 16 < a.row_end; ++half) {
    const uint32_t first = row + half * 16;
    const auto mask = static_cast<__mmask16>((1u << least(16, a.row_end - first)) - 1);
    const __m512 bias = a.bias ? _mm512_maskz_loadu_ps(mask, a.bias + first) : _mm512_setzero_ps();
    for (uint32_t t = 0; t < tokens; ++t)
      _mm512_mask_storeu_ps(a.y + (token + t) * a.y_stride + first, mask,
                            _mm512_add_ps(sums.waiting[4][t][half], bias));
  }
}

template <bool kAffine, uint32_t kTiles>
void multiply_pass(const MatmulArgs& a, const Pass& p, const Groups& groups, uint32_t row) {
  alignas(64) int32_t products[2][kChunk][kBlockSums];
  Sums sums[4];
  const uint32_t blocks = p.w.blocks, all_groups = kTiles * groups.count;
  for (uint32_t g = 0; g < all_groups; ++g)
    for (auto& lane : sums[g].lane) lane[0] = lane[1] = _mm512_setzero_ps();
  Cursor made{0, 0, 0}, added{0, 0, 0};
  for (uint32_t j = 0; j < least(kChunk, blocks); ++j)
    multiply_block<kAffine, kTiles>(p, made, products[0][j]);
  for (uint32_t chunk = 0; added.place < blocks; ++chunk) {
    const uint32_t count = least(kChunk, blocks - added.place);
    const uint32_t next = least(kChunk, blocks - made.place);
    Cursor end{};
    for (uint32_t g = 0, j = 0; g < all_groups; ++g) {
      for (; j * all_groups < next * (g + 1); ++j)
        multiply_block<kAffine, kTiles>(p, made, products[(chunk + 1) % 2][j]);
      const uint32_t tile = g / groups.count, of_tile = g % groups.count;
      const uint32_t first = groups.first[of_tile];
      end = add_group<kAffine>(p, p.first[tile] + first, groups.tokens[of_tile], added, count,
                               products[chunk % 2][0] + tile * 2 * kTileSums + first * 16, sums[g]);
    }
    added = end;
  }
  for (uint32_t g = 0; g < all_groups; ++g) {
    const uint32_t of_tile = g % groups.count;
    store(a, p.first[g / groups.count] + groups.first[of_tile], groups.tokens[of_tile], row,
          sums[g]);
  }
}

template <bool kAffine>
void multiply(const MatmulArgs& a) {
  const uint32_t tiles = (a.tokens + kTileTokens - 1) / kTileTokens;
  const uint32_t tokens = (a.tokens + tiles - 1) / tiles;
  const Groups groups = groups_of(tokens);
  const auto first = [&](uint32_t tile) { return size_t{least(tile * tokens, a.tokens - tokens)}; };
  configure_tiles(tokens);
  for (uint32_t row = a.row_begin; row < a.row_end; row += kUnpackedRows) {
    const UnpackedRows w = avx512::unpack_rows(a, row, true);
    uint32_t tile = 0;
    for (; tile + 2 <= tiles; tile += 2)
      multiply_pass<kAffine, 2>(a, {*a.xq, w, {first(tile), first(tile + 1)}}, groups, row);
    if (tile < tiles) multiply_pass<kAffine, 1>(a, {*a.xq, w, {first(tile), 0}}, groups, row);
  }
  _tile_release();
}

}  // namespace

void matmul(const MatmulArgs& args) {
  if (!is_integer_product(args) || args.tokens <= avx512::kFewTokens) return avx512::matmul(args);
  if (args.w.format.dtype == DType::mxfp4)
    multiply<false>(args);
  else
    multiply<true>(args);
}

}  // namespace wader::amx

#endif
