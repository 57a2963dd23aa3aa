#include "tensor/dtype.h"

#include <array>
#include <utility>

#include "base/units.h"

namespace wader {
namespace {
constexpr std::array<std::pair<DType, std::string_view>, 8> kNames = {
    {{DType::f32, "f32"},
     {DType::f16, "f16"},
     {DType::bf16, "bf16"},
     {DType::u8, "u8"},
     {DType::i32, "i32"},
     {DType::i64, "i64"},
     {DType::mxfp4, "mxfp4"},
     {DType::affine8, "affine8"}}};
}  // namespace

std::string_view dtype_name(DType dtype) {
  for (const auto& [value, name] : kNames)
    if (value == dtype) return name;
  return "?";
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const auto& [value, text] : kNames)
    if (text == name) return value;
  return std::nullopt;
}

uint32_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::u8:
      return 1;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::i64:
      return 8;
    case DType::mxfp4:
    case DType::affine8:
      return 0;
  }
  return 0;
}

std::optional<uint64_t> matrix_bytes(DType dtype, uint64_t rows, uint64_t cols) {
  uint64_t row_bytes;
  if (dtype == DType::mxfp4) {
    if (cols % kMxfp4Block != 0) return std::nullopt;
    row_bytes = cols / kMxfp4Block * 17;
  } else if (dtype == DType::affine8) {
    if (cols % kAffineGroup != 0) return std::nullopt;
    row_bytes = cols / kAffineGroup * (kAffineGroup + 4);
    if (cols > (1ull << 40)) return std::nullopt;
  } else {
    const auto bytes = checked_mul(cols, dtype_bytes(dtype));
    if (!bytes) return std::nullopt;
    row_bytes = *bytes;
  }
  return checked_mul(rows, row_bytes);
}

}  // namespace wader
