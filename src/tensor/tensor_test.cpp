#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/float_formats.h"
#include "tensor/matrix.h"

namespace wader {
namespace {

TEST(FloatFormats, Bf16RoundsToNearestEven) {
  EXPECT_EQ(f32_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // tie, even below
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // tie, even above
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(f32_to_bf16(-INFINITY), 0xff80);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = bf16_to_f32(static_cast<uint16_t>(bits));
    if (!std::isnan(value)) EXPECT_EQ(f32_to_bf16(value), bits);
  }
}

TEST(FloatFormats, F16SurvivesBothWays) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = f16_to_f32(static_cast<uint16_t>(bits));
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
    else
      EXPECT_EQ(f32_to_f16(value), bits) << bits;
  }
  EXPECT_EQ(f16_to_f32(0x3c00), 1.0f);
  EXPECT_EQ(f16_to_f32(0x0001), 0x1p-24f);
  EXPECT_EQ(f32_to_f16(65504.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65519.9f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0);    // tie between 0 and the smallest denormal: even
  EXPECT_EQ(f32_to_f16(0x1.8p-24f), 2);  // tie between 1 and 2 units
  EXPECT_EQ(f32_to_f16(std::nextafter(0x1p-14f, 0.0f)), 0x0400);
}

// Case C-04: E8M0 scales at the ends of their range; −0; value 0.5.
TEST(Mxfp4, ScalesAtTheEnds) {
  EXPECT_EQ(std::bit_cast<uint32_t>(e8m0_to_f32(0)), 0x00400000u);
  EXPECT_EQ(e8m0_to_f32(1), 0x1p-126f);
  EXPECT_EQ(e8m0_to_f32(127), 1.0f);
  EXPECT_EQ(e8m0_to_f32(134), 128.0f);
  EXPECT_EQ(e8m0_to_f32(254), 0x1p127f);
  EXPECT_TRUE(std::isnan(e8m0_to_f32(255)));
  EXPECT_EQ(f32_to_bf16(0.5f * e8m0_to_f32(0)), 0x0020);  // 2^-128
}

std::vector<float> decode_mxfp4_block(std::vector<uint8_t> bytes, uint8_t scale) {
  bytes.push_back(scale);
  const MatrixView view = matrix_view(DType::mxfp4, 1, 32, std::as_bytes(std::span(bytes)));
  std::vector<float> out(32);
  dequantise_row(view, 0, out.data());
  return out;
}

TEST(Mxfp4, LowNibbleFirst) {
  std::vector<uint8_t> bytes(16, 0);
  bytes[0] = 0x21;   // 0.5, 1
  bytes[1] = 0x7f;   // −6, 6
  bytes[15] = 0x80;  // 0, −0
  const auto out = decode_mxfp4_block(bytes, 128);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], 2.0f);
  EXPECT_EQ(out[2], -12.0f);
  EXPECT_EQ(out[3], 12.0f);
  EXPECT_EQ(out[31], 0.0f);
  EXPECT_TRUE(std::signbit(out[31]));
  for (uint8_t scale : {0, 1, 127, 254})
    for (float zero : decode_mxfp4_block(std::vector<uint8_t>(16, 0), scale)) EXPECT_EQ(zero, 0.0f);
}

TEST(Mxfp4, EveryRowFindsItsScales) {
  constexpr uint32_t kRows = 3, kCols = 96;
  std::vector<uint8_t> bytes(kRows * kCols / 2 + kRows * 3, 0x22);  // every code 1.0
  for (uint32_t i = 0; i < kRows * 3; ++i)
    bytes[kRows * kCols / 2 + i] = static_cast<uint8_t>(127 + i);
  const MatrixView view = matrix_view(DType::mxfp4, kRows, kCols, std::as_bytes(std::span(bytes)));
  std::vector<float> out(kCols);
  for (uint32_t r = 0; r < kRows; ++r) {
    dequantise_row(view, r, out.data());
    for (uint32_t c = 0; c < kCols; ++c)
      EXPECT_EQ(out[c], std::ldexp(1.0f, static_cast<int>(r * 3 + c / 32)));
  }
}

// Values by hand: codes in column order, low nibble first; a scale and a bias for each group.
TEST(Affine, DecodesEveryWidthGroupAndScale) {
  constexpr uint32_t kRows = 2, kCols = 128;
  std::mt19937 rng(3);
  for (const DType dtype : {DType::affine4, DType::affine8})
    for (const uint16_t group : {32, 64, 128})
      for (const DType scales : {DType::bf16, DType::f16}) {
        const MatrixFormat format(dtype, group, scales);
        std::vector<std::byte> bytes(*matrix_bytes(format, kRows, kCols));
        const auto widen = [&](uint16_t bits) {
          return scales == DType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
        };
        const auto narrow = [&](float value) {
          return scales == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
        };
        const RowBytes row = *row_bytes(format, kCols);
        std::vector<float> want;
        for (uint32_t r = 0; r < kRows; ++r)
          for (uint32_t c = 0; c < kCols; ++c) {
            const uint32_t code = rng() % (dtype == DType::affine4 ? 16 : 256);
            const size_t g = r * (kCols / group) + c / group;
            const uint16_t scale = narrow(0.01f * static_cast<float>(g + 1));
            const uint16_t bias = narrow(-0.3f - static_cast<float>(g));
            std::memcpy(&bytes[row.codes * kRows + 2 * g], &scale, 2);
            std::memcpy(&bytes[(row.codes + row.scales) * kRows + 2 * g], &bias, 2);
            if (dtype == DType::affine8)
              bytes[r * kCols + c] = static_cast<std::byte>(code);
            else
              bytes[(r * kCols + c) / 2] |= static_cast<std::byte>(code << (c % 2 * 4));
            want.push_back(static_cast<float>(code) * widen(scale) + widen(bias));
          }
        std::vector<float> got(kCols);
        for (uint32_t r = 0; r < kRows; ++r) {
          dequantise_row(matrix_view(format, kRows, kCols, bytes), r, got.data());
          for (uint32_t c = 0; c < kCols; ++c)
            ASSERT_EQ(got[c], want[r * kCols + c]) << format_name(format) << ' ' << r << ' ' << c;
        }
      }
}

TEST(MatrixFormat, NamesAreSpeltInOneWay) {
  EXPECT_EQ(format_name(DType::affine4), "affine4");
  EXPECT_EQ(format_name(MatrixFormat(DType::affine8, 32)), "affine8-g32");
  EXPECT_EQ(format_name(MatrixFormat(DType::affine4, 64, DType::f16)), "affine4-g64-f16");
  for (const char* name : {"bf16", "mxfp4", "affine4", "affine4-g32", "affine8-g128-f16"}) {
    const auto format = format_from_name(name);
    ASSERT_TRUE(format.has_value()) << name;
    EXPECT_EQ(format_name(*format), name);
  }
  for (const char* name : {"affine4-g64", "affine4-g48", "affine4-bf16", "bf16-g32", "affine2", ""})
    EXPECT_FALSE(format_from_name(name).has_value()) << name;
}

TEST(DType, MatrixBytesRefusesOverflowAndRaggedRows) {
  EXPECT_EQ(matrix_bytes(DType::mxfp4, 2, 64), 2 * 34u);
  EXPECT_EQ(matrix_bytes(DType::affine8, 3, 128), 3 * 136u);
  EXPECT_EQ(matrix_bytes(DType::affine4, 3, 128), 3 * 72u);
  EXPECT_EQ(matrix_bytes(MatrixFormat(DType::affine4, 32), 3, 32), 3 * 20u);
  EXPECT_EQ(matrix_bytes(DType::bf16, 3, 5), 30u);
  EXPECT_FALSE(matrix_bytes(DType::mxfp4, 1, 33).has_value());
  EXPECT_FALSE(matrix_bytes(DType::affine8, 1, 65).has_value());
  EXPECT_FALSE(matrix_bytes(DType::f32, 1ull << 33, 1ull << 33).has_value());
  EXPECT_FALSE(matrix_bytes(DType::affine8, 1ull << 30, 1ull << 40).has_value());
  for (DType d : {DType::f32, DType::f16, DType::bf16, DType::u8, DType::i32, DType::i64,
                  DType::u32, DType::mxfp4, DType::affine4, DType::affine8})
    EXPECT_EQ(dtype_from_name(dtype_name(d)), d);
  EXPECT_FALSE(dtype_from_name("f8").has_value());
}

}  // namespace
}  // namespace wader
