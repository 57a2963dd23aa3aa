// Number formats of tensors, in files and in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace wader {

enum class DType : uint8_t {
  f32,
  f16,
  bf16,
  u8,
  i32,
  i64,
  // Quantised matrices. Their planes lie one after the other: codes, then scales (then biases).
  mxfp4,    // 32-blocks along the input axis: E2M1 codes, low nibble first; one E8M0 scale byte a
            // block
  affine8,  // 64-groups along the input axis: u8 codes; then BF16 scales; then BF16 biases. w =
            // code · scale + bias
};

std::string_view dtype_name(DType dtype);                     // "bf16", "affine8", …
std::optional<DType> dtype_from_name(std::string_view name);  // the inverse

// Bytes of one element; 0 for the quantised formats, whose size depends on the shape.
uint32_t dtype_bytes(DType dtype);

constexpr uint32_t kMxfp4Block = 32;
constexpr uint32_t kAffineGroup = 64;

// Bytes of a (rows, cols) matrix. Nothing when 64 bits do not hold it, or when cols is not a whole
// number of blocks or groups.
std::optional<uint64_t> matrix_bytes(DType dtype, uint64_t rows, uint64_t cols);

}  // namespace wader
