#include "checkpoint/format_join.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "tensor/float_formats.h"

namespace wader {
namespace {

TEST(FormatJoin, IsTheSmallestThatHoldsBoth) {
  const MatrixFormat a4(DType::affine4, 64), a8(DType::affine8, 64), a4g32(DType::affine4, 32),
      a8g128(DType::affine8, 128), a4f16(DType::affine4, 64, DType::f16),
      a8f16g32(DType::affine8, 32, DType::f16);
  const std::tuple<MatrixFormat, MatrixFormat, MatrixFormat> cases[] = {
      {a4, a4, a4},
      {a4, a8, a8},
      {a4, a4g32, a4g32},
      {a4g32, a8g128, {DType::affine8, 32}},
      {a4f16, a8f16g32, {DType::affine8, 32, DType::f16}},
      {a4, a4f16, DType::f32},  // neither bf16 nor f16 holds the other's scales
      {DType::mxfp4, DType::mxfp4, DType::mxfp4},
      {DType::mxfp4, DType::bf16, DType::bf16},
      {DType::mxfp4, DType::f16, DType::f32},
      {DType::mxfp4, a4, DType::f32},
      {a8, DType::bf16, DType::f32},
      {DType::bf16, DType::bf16, DType::bf16},
      {DType::bf16, DType::f16, DType::f32},
      {DType::f32, DType::bf16, DType::f32},
  };
  for (const auto& [a, b, joined] : cases) {
    EXPECT_EQ(join_formats(a, b), joined) << format_name(a) << " " << format_name(b);
    EXPECT_EQ(join_formats(b, a), joined);
  }
}

// What makes bf16 the join of MXFP4 and bf16: every finite value of MXFP4 is one of bf16.
TEST(FormatJoin, Bf16HoldsEveryValueOfMxfp4) {
  for (unsigned scale = 0; scale < 255; ++scale)
    for (unsigned code = 0; code < 16; ++code) {
      const float value = kE2M1[code] * e8m0_to_f32(static_cast<uint8_t>(scale));
      if (std::isfinite(value)) EXPECT_EQ(bf16_to_f32(f32_to_bf16(value)), value) << scale;
    }
}

}  // namespace
}  // namespace wader
