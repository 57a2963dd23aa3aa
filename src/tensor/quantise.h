// Quantising rows of f32 weights at install: what an encoder chooses is not part of the formats
// (tensor/matrix.h decodes them), only its error is measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace wader {

// values (cols) → the row's bytes in each plane, of row_bytes(format, cols). format is affine with
// bf16 scales, mxfp4 or bf16; cols in whole groups. Values are finite. False when a scale or bias
// would not be finite (values near f32's end).
//   affine8: extremes of the group mapped to codes 0 and 255.
//   affine4: the scale and bias of least squared error, by search over code ranges and alternating
//     least squares, with the rounding of scale and bias to bf16 in the loop. Never worse than the
//     extremes mapped to 0 and 15.
//   mxfp4: the E8M0 scale of least squared error among those near the group's largest value.
struct RowPlanes {
  std::span<std::byte> codes, scales, biases;
};
[[nodiscard]] bool quantise_row(const MatrixFormat& format, const float* values, uint32_t cols,
                                const RowPlanes& out);

}  // namespace wader
