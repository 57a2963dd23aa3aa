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

void dequantise_affine8_row(const MatrixView& m, uint32_t row, float* out) {
  const uint32_t groups = m.cols / kAffineGroup;
  const std::byte* codes = m.codes + static_cast<size_t>(row) * m.cols;
  const size_t first = static_cast<size_t>(row) * groups;
  for (uint32_t g = 0; g < groups; ++g, codes += kAffineGroup, out += kAffineGroup) {
    const float scale = bf16_to_f32(load_u16(m.scales + 2 * (first + g)));
    const float bias = bf16_to_f32(load_u16(m.biases + 2 * (first + g)));
    for (uint32_t i = 0; i < kAffineGroup; ++i)
      out[i] = static_cast<float>(static_cast<uint8_t>(codes[i])) * scale + bias;
  }
}

}  // namespace

MatrixView matrix_view(DType dtype, uint32_t rows, uint32_t cols,
                       std::span<const std::byte> bytes) {
  const auto expected = matrix_bytes(dtype, rows, cols);
  CHECK(expected && *expected == bytes.size());
  MatrixView view{dtype, rows, cols, bytes.data(), nullptr, nullptr};
  const size_t count = static_cast<size_t>(rows) * cols;
  if (dtype == DType::mxfp4) view.scales = view.codes + count / 2;
  if (dtype == DType::affine8) {
    view.scales = view.codes + count;
    view.biases = view.scales + count / kAffineGroup * 2;
  }
  return view;
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
  if (m.dtype == DType::mxfp4) return dequantise_mxfp4_row(m, row, out);
  if (m.dtype == DType::affine8) return dequantise_affine8_row(m, row, out);
  plain_to_f32(m.dtype, m.codes + static_cast<size_t>(row) * m.cols * dtype_bytes(m.dtype), m.cols,
               out);
}

void quantise_affine8_row(const float* values, uint32_t cols, uint8_t* codes, uint16_t* scales,
                          uint16_t* biases) {
  CHECK(cols % kAffineGroup == 0);
  for (uint32_t g = 0; g < cols / kAffineGroup;
       ++g, values += kAffineGroup, codes += kAffineGroup) {
    const auto [low, high] = std::minmax_element(values, values + kAffineGroup);
    // The bias is rounded first and the scale made to reach the far end from there, so that
    // rounding the bias costs at most its own half unit, not a shift of every code.
    biases[g] = f32_to_bf16(*low);
    const float bias = bf16_to_f32(biases[g]);
    scales[g] = f32_to_bf16((*high - bias) / 255.0f);
    const float scale = bf16_to_f32(scales[g]);
    for (uint32_t i = 0; i < kAffineGroup; ++i) {
      const float code = scale != 0 ? std::nearbyint((values[i] - bias) / scale) : 0.0f;
      codes[i] = static_cast<uint8_t>(std::clamp(code, 0.0f, 255.0f));
    }
  }
}

}  // namespace wader
