#include "tensor/matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/float_formats.h"

namespace wader {
namespace {

uint16_t load_u16(const std::byte* from) {
  uint16_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

void dequantise_mxfp4_row(const MatrixView& m, uint32_t row, float* out) {
  const uint32_t blocks = m.cols / kMxfp4Block;
  const std::byte* codes = m.codes + static_cast<size_t>(row) * (m.cols / 2);
  const std::byte* scales = m.scales + static_cast<size_t>(row) * blocks;
  for (uint32_t b = 0; b < blocks; ++b, codes += kMxfp4Block / 2, out += kMxfp4Block) {
    const float scale = e8m0_to_f32(static_cast<uint8_t>(scales[b]));
    for (uint32_t i = 0; i < kMxfp4Block / 2; ++i) {
      const auto byte = static_cast<uint8_t>(codes[i]);
      out[2 * i] = kE2M1[byte & 15] * scale;
      out[2 * i + 1] = kE2M1[byte >> 4] * scale;
    }
  }
}

template <int kBits>
void dequantise_affine_row(const MatrixView& m, uint32_t row, float* out) {
  const uint32_t group = m.format.group, groups = m.cols / group;
  const std::byte* codes = m.codes + static_cast<size_t>(row) * m.cols * kBits / 8;
  const size_t first = static_cast<size_t>(row) * groups;
  const auto load = [&](const std::byte* plane, size_t at) {
    const uint16_t bits = load_u16(plane + 2 * at);
    return m.format.scales == DType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  };
  for (uint32_t g = 0; g < groups; ++g, codes += group * kBits / 8, out += group) {
    const float scale = load(m.scales, first + g), bias = load(m.biases, first + g);
    for (uint32_t i = 0; i < group; ++i) {
      const auto byte = static_cast<uint8_t>(codes[i * kBits / 8]);
      const int code = kBits == 8 ? byte : i % 2 == 0 ? byte & 15 : byte >> 4;
      out[i] = static_cast<float>(code) * scale + bias;
    }
  }
}

}  // namespace

MatrixView matrix_view(const MatrixFormat& format, uint32_t rows, uint32_t cols,
                       std::span<const std::byte> bytes) {
  const auto row = row_bytes(format, cols);
  CHECK(row && row->total() * rows == bytes.size());
  const std::byte* scales = bytes.data() + row->codes * rows;
  return {format,
          rows,
          cols,
          bytes.data(),
          row->scales ? scales : nullptr,
          row->biases ? scales + row->scales * rows : nullptr};
}

void plain_to_f32(DType dtype, const std::byte* from, size_t count, float* to) {
  switch (dtype) {
    case DType::f32:
      std::memcpy(to, from, count * sizeof(float));
      return;
    case DType::bf16:
      for (size_t i = 0; i < count; ++i) to[i] = bf16_to_f32(load_u16(from + 2 * i));
      return;
    case DType::f16:
      for (size_t i = 0; i < count; ++i) to[i] = f16_to_f32(load_u16(from + 2 * i));
      return;
    default:
      UNREACHABLE("plain_to_f32: not a plain float format");
  }
}

void dequantise_row(const MatrixView& m, uint32_t row, float* out) {
  CHECK(row < m.rows);
  switch (m.format.dtype) {
    case DType::mxfp4:
      return dequantise_mxfp4_row(m, row, out);
    case DType::affine4:
      return dequantise_affine_row<4>(m, row, out);
    case DType::affine8:
      return dequantise_affine_row<8>(m, row, out);
    default:
      return plain_to_f32(m.format.dtype,
                          m.codes + static_cast<size_t>(row) * m.cols * dtype_bytes(m.format.dtype),
                          m.cols, out);
  }
}

}  // namespace wader
