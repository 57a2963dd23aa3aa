// MatrixView: a non-owning (rows, cols) weight matrix in any format, and its exact scalar codec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace wader {

struct MatrixView {
  DType dtype = DType::f32;
  uint32_t rows = 0, cols = 0;        // (out, in)
  const std::byte* codes = nullptr;   // plain values, or the codes plane
  const std::byte* scales = nullptr;  // mxfp4: (rows, cols/32) u8 · affine8: (rows, cols/64) bf16
  const std::byte* biases = nullptr;  // affine8: (rows, cols/64) bf16
};

// View of matrix_bytes(dtype, rows, cols) contiguous bytes, planes one after the other. CHECKs the
// size.
MatrixView matrix_view(DType dtype, uint32_t rows, uint32_t cols, std::span<const std::byte> bytes);

// out (cols) = row `row` of the matrix, dequantised exactly: each value is the f32 nearest to the
// stored one (for affine8: code · scale + bias in f32, two roundings).
void dequantise_row(const MatrixView& matrix, uint32_t row, float* out);

// values (count) → f32, for plain dtypes f32, f16, bf16.
void plain_to_f32(DType dtype, const std::byte* from, size_t count, float* to);

// One row of `cols` values (cols % 64 == 0) → codes (cols), scales and biases (cols/64, bf16).
// The group's extremes are mapped to codes 0 and 255 with the rounded bf16 scale and bias in the
// loop.
void quantise_affine8_row(const float* values, uint32_t cols, uint8_t* codes, uint16_t* scales,
                          uint16_t* biases);

}  // namespace wader
