// The integer products on the int8 tiles of AMX, for many tokens; few go to avx512. ops.h defines
// their arithmetic.
//
// A tile product takes a block: 16 tokens by its columns, as they stand, times its columns by 16
// weight rows, unpacked, gives 16 × 16 exact sums. These pass through memory to become f32, and
// that is what takes the time: to 16 cycles of the product (a block of 32 columns uses half a tile)
// come 16 of the tile's store, and three or four vector instructions for 16 sums (convert, ws · xs,
// fma, and the bias's). So the f32 sums of 16 × 16 stay in registers over all blocks, the products
// of later blocks are made meanwhile, and what waits in memory stays small: where products of many
// blocks waited, or f32 sums were stored between blocks, L1 overflowed at half the speed.
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
constexpr uint32_t kAhead = 3;  // blocks whose products are begun before a block's are added
constexpr uint32_t kSlots = 4;  // for products of a block each: 4 KiB

uint32_t least(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}

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

// A tile of tokens from `first` on against half of 32 rows.
struct Pass {
  const QuantisedRows& x;
  const UnpackedRows& w;
  size_t first;
  uint32_t half;
};

// The intrinsics take numbers of tiles, not variables.
#define WADER_TILE_PRODUCT(sums, activations, weights) \
  do {                                                 \
    _tile_loadd(activations, x, stride_);              \
    _tile_loadd(weights, w, 128);                      \
    _tile_zero(sums);                                  \
    if constexpr (kAffine)                             \
      _tile_dpbsud(sums, activations, weights);        \
    else                                               \
      _tile_dpbssd(sums, activations, weights);        \
  } while (false)

// The products of a pass, block after block in the order of their places.
template <bool kAffine>
class Products {
 public:
  static constexpr uint32_t kWidth = kAffine ? kWideBlock : kActivationBlock;

  explicit Products(const Pass& p)
      : w_(p.w.codes + p.half * 64),
        x_(p.x.codes + p.first * p.x.codes_stride),
        stride_(p.x.codes_stride),
        blocks_(p.w.blocks) {}

  // Of a block: (tokens, 16 rows).
  const int32_t* of(uint32_t place) const { return sums_[place % kSlots]; }

  // Begins the next block's and stores those of the block before: the product takes 52 cycles, in
  // which others can begin. After the last block it stores that one's.
  [[gnu::always_inline]] void next() {
    if (at_.place > blocks_) return;
    if (at_.place < blocks_) {
      const int8_t* x = x_ + size_t{at_.block} * kWidth;
      const uint8_t* w = w_ + size_t{at_.place} * kWidth * kUnpackedRows;
      switch (at_.place % 4) {
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
    }
    if (at_.place > 0) store_before();
    if (at_.place < blocks_)
      at_ = after(at_, blocks_);
    else
      ++at_.place;
  }

 private:
  [[gnu::always_inline]] void store_before() {
    int32_t* to = sums_[(at_.place - 1) % kSlots];
    switch ((at_.place - 1) % 4) {
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

  const uint8_t* w_;
  const int8_t* x_;
  size_t stride_;
  uint32_t blocks_;
  Cursor at_{0, 0, 0};
  alignas(64) int32_t sums_[kSlots][kTileSums];
};

template <bool kAffine, uint32_t kTokens>
void multiply_tile(const MatmulArgs& a, const Pass& p, uint32_t row) {
  Products<kAffine> products(p);
  const uint32_t blocks = p.w.blocks;
  constexpr uint32_t kHalves = Products<kAffine>::kWidth / kActivationBlock;
  const size_t stride = p.x.blocks_stride;
  __m512 waiting[5][kTokens];  // [d]: a sum of 2^d lanes that the tree adds to the next such sum
  for (uint32_t i = 0; i < kAhead; ++i) products.next();
  uint32_t place = 0;
  for (uint32_t k = 0; k < kSumLanes; ++k) {
    __m512 lane[kTokens];
    for (__m512& sum : lane) sum = _mm512_setzero_ps();
    for (uint32_t block = kLaneOrder[k]; block < blocks; block += kSumLanes, ++place) {
      products.next();
      const int32_t* sums = products.of(place);
      const float* x_scales = p.x.scales + p.first * stride + block * kHalves;
      // Or the compiler holds an address for each token where one and offsets do.
      __asm__("" : "+r"(sums));
      const size_t from = size_t{place} * kUnpackedRows + p.half * 16;
      const __m512 scales = _mm512_loadu_ps(p.w.scales + from);
      for (uint32_t t = 0; t < kTokens; ++t)
        lane[t] =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums + t * 16)),
                            _mm512_mul_ps(scales, _mm512_set1_ps(x_scales[t * stride])), lane[t]);
      if constexpr (kAffine) {
        const float* x_sums = p.x.sums + p.first * stride + block;
        const __m512 biases = _mm512_loadu_ps(p.w.biases + from);
        for (uint32_t t = 0; t < kTokens; ++t)
          lane[t] = _mm512_fmadd_ps(biases, _mm512_set1_ps(x_sums[t * stride]), lane[t]);
      }
    }
    uint32_t depth = 0;
    for (; k >> depth & 1; ++depth)
      for (uint32_t t = 0; t < kTokens; ++t) lane[t] = _mm512_add_ps(waiting[depth][t], lane[t]);
    for (uint32_t t = 0; t < kTokens; ++t) waiting[depth][t] = lane[t];
  }
  const auto mask = static_cast<__mmask16>((1u << least(16, a.row_end - row)) - 1);
  const __m512 bias = a.bias ? _mm512_maskz_loadu_ps(mask, a.bias + row) : _mm512_setzero_ps();
  for (uint32_t t = 0; t < kTokens; ++t)
    _mm512_mask_storeu_ps(a.y + (p.first + t) * a.y_stride + row, mask,
                          _mm512_add_ps(waiting[4][t], bias));
}

template <bool kAffine>
auto multiply_of(uint32_t tokens) {
  constexpr decltype(&multiply_tile<kAffine, 16>) kOf[] = {
      multiply_tile<kAffine, 7>,  multiply_tile<kAffine, 8>,  multiply_tile<kAffine, 9>,
      multiply_tile<kAffine, 10>, multiply_tile<kAffine, 11>, multiply_tile<kAffine, 12>,
      multiply_tile<kAffine, 13>, multiply_tile<kAffine, 14>, multiply_tile<kAffine, 15>,
      multiply_tile<kAffine, 16>};
  static_assert(avx512::kFewTokens == 6);
  return kOf[tokens - 7];
}

template <bool kAffine>
void multiply(const MatmulArgs& a) {
  const uint32_t tiles = (a.tokens + kTileTokens - 1) / kTileTokens;
  const uint32_t tokens = (a.tokens + tiles - 1) / tiles;
  const auto multiply_tile_of = multiply_of<kAffine>(tokens);
  configure_tiles(tokens, Products<kAffine>::kWidth);
  for (uint32_t row = a.row_begin; row < a.row_end; row += kUnpackedRows) {
    const UnpackedRows w = avx512::unpack_rows(a, row, true);
    // All tiles have as many tokens, so that they are configured once: the last one computes some
    // of the one before again, to the same result.
    for (uint32_t t = 0; t < a.tokens; t += tokens)
      for (uint32_t half = 0; half < 2 && row + half * 16 < a.row_end; ++half)
        multiply_tile_of(a, {*a.xq, w, least(t, a.tokens - tokens), half}, row + half * 16);
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
