// For tests: the values behind a TensorSource, computed slowly and plainly from the files.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "tensor/float_formats.h"

namespace wader::testing {

// The rows of a plane one after the other, `row_bytes` of each.
inline std::vector<std::byte> read_plane(const Checkpoint& checkpoint, const SourcePlane& plane,
                                         uint64_t rows, uint64_t row_bytes) {
  std::vector<std::byte> out(rows * row_bytes);
  if (out.empty()) return out;
  const ByteSource& file = *checkpoint.files().at(plane.file);
  const bool whole = plane.stride_bytes == row_bytes;
  for (uint64_t row = 0; row < (whole ? 1 : rows); ++row) {
    const auto into = whole ? std::span(out) : std::span(out).subspan(row * row_bytes, row_bytes);
    const Status read = file.read_at(plane.offset_bytes + row * plane.stride_bytes, into);
    EXPECT_TRUE(read.ok()) << read.error().message;
  }
  return out;
}

// `cols` values of one row out of its bytes in each plane, in f32; affine: code · scale + bias.
inline void materialise_row(const SourceRows& piece, const std::byte* codes,
                            const std::byte* scales, const std::byte* biases, uint64_t cols,
                            float* out) {
  const MatrixFormat& format = piece.format;
  const auto half = [](const std::byte* from, uint64_t i, DType dtype) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * i, 2);
    return dtype == DType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  };
  const bool four_bits = format.dtype != DType::affine8;
  const uint64_t pair = piece.paired_scales ? 2 : 1;
  for (uint64_t c = 0; c < cols; ++c) {
    if (format.dtype == DType::f32) {
      std::memcpy(out + c, codes + 4 * c, 4);
    } else if (is_plain_float(format.dtype)) {
      out[c] = half(codes, c, format.dtype);
    } else {
      const auto byte = static_cast<unsigned>(codes[four_bits ? c / 2 : c]);
      const unsigned code = four_bits ? byte >> (4 * (c % 2)) & 15 : byte;
      if (format.dtype == DType::mxfp4) {
        out[c] = kE2M1[code] * e8m0_to_f32(static_cast<uint8_t>(scales[c / 32]));
      } else {
        const uint64_t group = c / format.group;
        const float scale = half(scales, pair * group, format.scales);
        const float bias = piece.paired_scales ? half(scales, 2 * group + 1, format.scales)
                                               : half(biases, group, format.scales);
        out[c] = static_cast<float>(code) * scale + bias;
      }
    }
  }
}

// Every value in canonical order, `add` included. Every canonical row must come exactly once.
inline std::vector<float> materialise(const Checkpoint& checkpoint, const TensorSource& source) {
  std::vector<float> out(source.rows * source.cols);
  std::vector<int> seen(source.rows);
  for (const SourceRows& piece : source.pieces) {
    const RowBytes bytes = row_bytes(piece.format, source.cols).value();
    const auto codes = read_plane(checkpoint, piece.codes, piece.rows, bytes.codes);
    const auto scales = read_plane(checkpoint, piece.scales, piece.rows,
                                   bytes.scales * (piece.paired_scales ? 2 : 1));
    const auto biases =
        read_plane(checkpoint, piece.biases, piece.rows, piece.paired_scales ? 0 : bytes.biases);
    for (uint64_t i = 0; i < piece.rows; ++i) {
      const uint64_t to = piece.to_row + i * piece.to_step;
      if (to >= source.rows) {
        ADD_FAILURE() << "row " << to << " of " << source.rows;
        continue;
      }
      ++seen[to];
      materialise_row(piece, codes.data() + i * bytes.codes,
                      scales.data() + i * bytes.scales * (piece.paired_scales ? 2 : 1),
                      biases.data() + i * bytes.biases, source.cols, out.data() + to * source.cols);
    }
  }
  EXPECT_EQ(seen, std::vector<int>(source.rows, 1));
  for (size_t i = 0; source.add != 0 && i < out.size(); ++i) out[i] += source.add;
  return out;
}

}  // namespace wader::testing
