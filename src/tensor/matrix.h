// MatrixView: a non-owning (rows, cols) weight matrix in any format, and its exact scalar codec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace wader {

struct MatrixView {
  MatrixFormat format;
  uint32_t rows = 0, cols = 0;        // (out, in)
  const std::byte* codes = nullptr;   // plain values, or the codes plane
  const std::byte* scales = nullptr;  // mxfp4: (rows, cols/32) u8 · affine: (rows, cols/group)
  const std::byte* biases = nullptr;  // affine: (rows, cols/group)
};

// View of matrix_bytes(format, rows, cols) contiguous bytes, planes one after the other. CHECKs the
// size.
MatrixView matrix_view(const MatrixFormat& format, uint32_t rows, uint32_t cols,
                       std::span<const std::byte> bytes);

// out (cols) = row `row` of the matrix, dequantised exactly: each value is the f32 nearest to the
// stored one (affine: code · scale is exact in f32, the sum with the bias is rounded once).
void dequantise_row(const MatrixView& matrix, uint32_t row, float* out);

// values (count) → f32, for plain dtypes f32, f16, bf16.
void plain_to_f32(DType dtype, const std::byte* from, size_t count, float* to);

}  // namespace wader
