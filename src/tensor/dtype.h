// Number formats of tensors, in files and in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace wader {

enum class DType : uint8_t {
  f32,
  f16,
  bf16,
  u8,
  u32,
  i32,
  i64,
  // Quantised matrices. Their planes lie one after the other: codes, then scales (then biases).
  mxfp4,    // 32-blocks along the input axis: E2M1 codes, low nibble first; one E8M0 scale byte a
            // block
  affine4,  // groups along the input axis: u4 codes, low nibble first; then 16-bit scales; then
            // 16-bit biases. w = code · scale + bias
  affine8,  // the same with u8 codes
};

std::string_view dtype_name(DType dtype);                     // "bf16", "affine8", …
std::optional<DType> dtype_from_name(std::string_view name);  // the inverse

// Bytes of one element; 0 for the quantised formats, whose size depends on the shape.
uint32_t dtype_bytes(DType dtype);

constexpr bool is_affine(DType dtype) {
  return dtype == DType::affine4 || dtype == DType::affine8;
}
constexpr bool is_plain_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

constexpr uint32_t kMxfp4Block = 32;
constexpr uint16_t kAffineGroup = 64;  // of what we quantise ourselves

// How a matrix is stored: a dtype, and for the affine ones what its groups are like.
struct MatrixFormat {
  DType dtype = DType::f32;
  uint16_t group = 0;  // affine: columns that share a scale and a bias; 32, 64 or 128. Else 0
  DType scales = DType::bf16;  // affine: of scales and biases; f16 in some MLX checkpoints

  constexpr MatrixFormat() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a dtype alone names the usual format.
  constexpr MatrixFormat(DType type) : dtype(type), group(is_affine(type) ? kAffineGroup : 0) {}
  constexpr MatrixFormat(DType type, uint16_t group_columns, DType scale_type = DType::bf16)
      : dtype(type), group(group_columns), scales(scale_type) {}
  bool operator==(const MatrixFormat&) const = default;
};

// "bf16", "affine4", "affine8-g32", "affine4-g64-f16": what is usual (64, bf16) is left out.
std::string format_name(const MatrixFormat& format);
// The inverse; nothing for any other spelling.
std::optional<MatrixFormat> format_from_name(std::string_view name);

// Bytes of one row in each plane; scales and biases 0 where there are none.
struct RowBytes {
  uint64_t codes = 0, scales = 0, biases = 0;
  uint64_t total() const { return codes + scales + biases; }
};
// Nothing when cols is not a whole number of blocks or groups, or is over 2^40.
std::optional<RowBytes> row_bytes(const MatrixFormat& format, uint64_t cols);

// Bytes of a (rows, cols) matrix. Nothing when 64 bits do not hold it, or when row_bytes has none.
std::optional<uint64_t> matrix_bytes(const MatrixFormat& format, uint64_t rows, uint64_t cols);

}  // namespace wader
