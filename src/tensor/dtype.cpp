#include "tensor/dtype.h"

#include <array>
#include <utility>

#include "base/units.h"

namespace wader {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 10> kNames = {
    {{DType::f32, "f32"},
     {DType::f16, "f16"},
     {DType::bf16, "bf16"},
     {DType::u8, "u8"},
     {DType::u32, "u32"},
     {DType::i32, "i32"},
     {DType::i64, "i64"},
     {DType::mxfp4, "mxfp4"},
     {DType::affine4, "affine4"},
     {DType::affine8, "affine8"}}};

constexpr uint16_t kGroups[] = {32, 64, 128};
constexpr uint64_t kMaxCols = 1ull << 40;

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
    case DType::u32:
    case DType::i32:
      return 4;
    case DType::i64:
      return 8;
    case DType::mxfp4:
    case DType::affine4:
    case DType::affine8:
      return 0;
  }
  return 0;
}

std::string format_name(const MatrixFormat& format) {
  std::string name(dtype_name(format.dtype));
  if (!is_affine(format.dtype)) return name;
  const bool usual_scales = format.scales == DType::bf16;
  if (format.group != kAffineGroup || !usual_scales) {
    name += "-g";
    name += std::to_string(format.group);
  }
  if (!usual_scales) {
    name += '-';
    name += dtype_name(format.scales);
  }
  return name;
}

std::optional<MatrixFormat> format_from_name(std::string_view name) {
  if (const auto dtype = dtype_from_name(name)) return MatrixFormat(*dtype);
  for (const DType dtype : {DType::affine4, DType::affine8})
    for (const uint16_t group : kGroups)
      for (const DType scales : {DType::bf16, DType::f16}) {
        const MatrixFormat format(dtype, group, scales);
        if (format_name(format) == name) return format;
      }
  return std::nullopt;
}

std::optional<RowBytes> row_bytes(const MatrixFormat& format, uint64_t cols) {
  if (cols > kMaxCols) return std::nullopt;
  if (format.dtype == DType::mxfp4) {
    if (cols % kMxfp4Block != 0) return std::nullopt;
    return RowBytes{cols / 2, cols / kMxfp4Block, 0};
  }
  if (is_affine(format.dtype)) {
    if (format.group == 0 || cols % format.group != 0) return std::nullopt;
    const uint64_t plane = cols / format.group * dtype_bytes(format.scales);
    return RowBytes{format.dtype == DType::affine4 ? cols / 2 : cols, plane, plane};
  }
  return RowBytes{cols * dtype_bytes(format.dtype), 0, 0};
}

std::optional<uint64_t> matrix_bytes(const MatrixFormat& format, uint64_t rows, uint64_t cols) {
  const auto row = row_bytes(format, cols);
  if (!row) return std::nullopt;
  return checked_mul(rows, row->total());
}

}  // namespace wader
