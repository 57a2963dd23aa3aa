// One row of a matrix on its way from a source's format to the container's: copied where the
// formats are equal, widened where nothing is lost, else dequantised, added to, and quantised. What
// a format forbids is found here, whichever way a row goes. Pure: bytes in, bytes out; threads may
// each store rows with a scratch of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "tensor/quantise.h"

namespace wader {

// A source row in memory, in each plane of its piece.
struct SourceRow {
  const SourceRows* piece = nullptr;
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;
  const std::byte* biases = nullptr;
};

// Memory for rows of up to `cols` values.
struct RowScratch {
  explicit RowScratch(size_t cols) : values(cols), stored(cols), scales(cols), biases(cols) {}
  std::vector<float> values, stored;
  std::vector<uint16_t> scales, biases;  // pairs taken apart, at most one for each value
};

// Squared sums over rows that were quantised: what they were, and what that did to them.
struct RowLoss {
  double signal = 0, noise = 0;
};

// Why a row cannot be stored, and at which element of its plane.
struct RowFault {
  enum class Kind : uint8_t {
    none,
    value,         // a NaN or infinity among the values
    scale,         // … among the scales, or one that makes decoded values infinite
    bias,          // … among the groups' biases
    e8m0_nan,      // scale byte 255
    out_of_range,  // finite values that the target format cannot hold
  };
  Kind kind = Kind::none;
  uint64_t at = 0;
};

// `row` (cols) of its piece's format, plus `add`, as a row of `target` into the planes `out`.
// `loss` gets the row's sums where it was not copied or widened. target has bf16 scales, unless the
// row is copied or widened.
RowFault store_row(const SourceRow& row, uint32_t cols, float add, const MatrixFormat& target,
                   const RowPlanes& out, RowScratch& scratch, RowLoss& loss);

}  // namespace wader
