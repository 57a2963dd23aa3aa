// The integer products of each instruction set, as functions: select.cpp makes the tables. Nothing
// in a file compiled for a wider instruction set may run, or be linked into other code, before the
// CPU has been asked; a table built there would be initialised at start.
//
// ops.h defines their arithmetic and the contract of the arguments.
#pragma once

#include "kernels/ops.h"

namespace wader {

[[maybe_unused]] static uint32_t least(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}

constexpr uint32_t kSumLanes = 16;  // of the sum over blocks: block b is in lane b % 16

// Prefill's unpacked tiles hold blocks in the order of the sum: lane by lane, and the lanes so that
// each addition of the tree takes the two sums made last. That order is l with its four bits
// reversed.
constexpr uint32_t kLaneOrder[kSumLanes] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};

[[maybe_unused]] static uint32_t blocks_of_lane(uint32_t blocks, uint32_t lane) {
  return (blocks + kSumLanes - 1 - lane) / kSumLanes;
}

struct BlockOrder {
  uint32_t start[kSumLanes];  // lane → place of its first block
};
[[maybe_unused]] static BlockOrder order_blocks(uint32_t blocks) {
  BlockOrder order{};
  uint32_t next = 0;
  for (const uint32_t lane : kLaneOrder) {
    order.start[lane] = next;
    next += blocks_of_lane(blocks, lane);
  }
  return order;
}
[[maybe_unused]] static uint32_t place_of(const BlockOrder& order, uint32_t block) {
  return order.start[block % kSumLanes] + block / kSumLanes;
}

[[maybe_unused]] static size_t code_bytes_of_row(const MatrixView& w) {
  return w.format.dtype == DType::affine8 ? w.cols : w.cols / 2;
}

// Decode asks for codes, scales and biases so many bytes before it takes them: with less of codes
// two thirds of the memory's speed, without the others, which stand still sixteen times as long,
// half of it.
constexpr size_t kPrefetch = 4096, kPrefetchScales = 512;

// The same for the rows that a call begins with, which nobody has asked for before.
[[maybe_unused]] static void prefetch_first_rows(const MatmulArgs& args) {
  const MatrixView& w = args.w;
  const auto prefetch = [&](const std::byte* plane, size_t row_bytes, size_t most) {
    const size_t bytes = row_bytes * (args.row_end - args.row_begin);
    const std::byte* from = plane + args.row_begin * row_bytes;
    for (size_t at = 0; at < bytes && at < most; at += 64) __builtin_prefetch(from + at);
  };
  const bool affine = w.format.dtype != DType::mxfp4;
  const size_t scale_bytes = affine ? size_t{w.cols} / w.format.group * 2 : w.cols / 32;
  prefetch(w.scales, scale_bytes, kPrefetchScales);
  if (affine) prefetch(w.biases, scale_bytes, kPrefetchScales);
  prefetch(w.codes, code_bytes_of_row(w), kPrefetch);
}

namespace portable {
void matmul(const MatmulArgs& args);
void quantise_row(int8_t* codes, float* scales, float* sums, int32_t* code_sums, const float* x,
                  uint32_t n, uint32_t block);
}  // namespace portable

namespace avx2 {  // AVX2, FMA, F16C
void matmul(const MatmulArgs& args);
void quantise_row(int8_t* codes, float* scales, float* sums, int32_t* code_sums, const float* x,
                  uint32_t n, uint32_t block);
}  // namespace avx2

// 32 rows of weights a byte a code, in MatmulArgs::scratch, for products with many tokens. Rows
// from row_end on repeat the last one.
constexpr uint32_t kUnpackedRows = 32;
struct UnpackedRows {
  uint32_t blocks;
  BlockOrder order;  // of the blocks' places
  bool affine;
  uint8_t* codes;          // (places, 8 or 16 quads of columns, 32 rows, 4 columns)
  float *scales, *biases;  // (places, 32 rows)
};

// The codes of the next rows, which follow one another in memory, on their way to the second-level
// cache a few lines at a time while these are multiplied. Asked for all at once, where they are
// unpacked, they made unpacking wait for memory: 40 % of the time at 32 tokens.
struct NextRows {
  const char *at, *end;
  uint32_t lines;  // a step
};
[[maybe_unused]] static NextRows rows_ahead(const MatmulArgs& args, uint32_t row, size_t steps) {
  const uint32_t left = args.row_end > row ? args.row_end - row : 0;
  const size_t row_bytes = code_bytes_of_row(args.w);
  const size_t bytes = row_bytes * least(left, kUnpackedRows);
  const char* from = reinterpret_cast<const char*>(args.w.codes) + row * row_bytes;
  return {from, from + bytes, static_cast<uint32_t>(bytes / 64 / steps + 1)};
}
[[maybe_unused, gnu::always_inline]] static inline void prefetch(NextRows& next) {
  for (uint32_t i = 0; i < next.lines && next.at < next.end; ++i, next.at += 64)
    __builtin_prefetch(next.at, 0, 2);
}

// Affine groups of 32 go to avx2.
namespace avx512 {  // AVX-512 F, BW, VL, VNNI
constexpr uint32_t kFewTokens =
    6;  // up to which it reads weights row by row: faster than unpacking

// 32 rows from `row` on, of mxfp4 or of affine groups of 64 or more.
UnpackedRows unpack_scales(const MatmulArgs& args, uint32_t row);
// Their codes in the blocks first, first + step …, which stand in the order of their places, the
// first of them at the beginning: step is 1, 2, 4, 8 or 16, and first < step. Codes are unsigned,
// those of mxfp4 12 higher than they are; `signed_codes` leaves the 12 out.
struct BlockRange {
  uint32_t first, step;
};
void unpack_codes(const MatmulArgs& args, const UnpackedRows& rows, uint32_t row, BlockRange range,
                  bool signed_codes);
void matmul(const MatmulArgs& args);
void quantise_row(int8_t* codes, float* scales, float* sums, int32_t* code_sums, const float* x,
                  uint32_t n, uint32_t block);
}  // namespace avx512

namespace neon {  // NEON with the 8-bit dot products of Armv8.2
void matmul(const MatmulArgs& args);
void quantise_row(int8_t* codes, float* scales, float* sums, int32_t* code_sums, const float* x,
                  uint32_t n, uint32_t block);
}  // namespace neon

namespace amx {  // AMX tiles of int8, and all that avx512 needs
// Few tokens and affine groups of 32 are avx512's, as is quantise_row.
void matmul(const MatmulArgs& args);
}  // namespace amx

}  // namespace wader
