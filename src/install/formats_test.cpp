#include "install/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wader {
namespace {

using ::testing::HasSubstr;
using Wanted = std::optional<DType>;

ArchitectureSpec spec_of(uint32_t hidden, uint32_t inner) {
  ArchitectureSpec spec{};
  spec.hidden = hidden;
  spec.expert_inner = inner;
  spec.experts = 4;
  spec.layers = {LayerKind::full_attention};
  return spec;
}

std::string experts(const MatrixFormat& source, Wanted wanted, uint32_t hidden = 128,
                    uint32_t inner = 64) {
  const auto format = choose_expert_format(spec_of(hidden, inner), {source, source}, wanted);
  if (!format.ok()) return format.error().message;
  return format_name(format->gate_up) + " " + format_name(format->down);
}

std::string trunk(const MatrixFormat& source, Wanted wanted, uint64_t cols = 128,
                  TrunkRole role = TrunkRole::matrix, float add = 0) {
  TensorSource from;
  from.rows = 2, from.cols = cols, from.format = source, from.add = add;
  const auto format = choose_trunk_format({"t", {2, cols}, role}, from, wanted);
  return format.ok() ? format_name(*format) : format.error().message;
}

const MatrixFormat kMlx4(DType::affine4, 64), kMlx8g32(DType::affine8, 32, DType::f16);

TEST(Formats, AutoKeepsWhatIsQuantised) {
  for (const MatrixFormat& source : {kMlx4, kMlx8g32, MatrixFormat(DType::mxfp4)}) {
    EXPECT_EQ(experts(source, {}), format_name(source) + " " + format_name(source));
    EXPECT_EQ(trunk(source, {}), format_name(source));
  }
  for (const DType plain : {DType::f32, DType::f16, DType::bf16}) {
    EXPECT_EQ(experts(plain, {}), "affine4 affine4");
    EXPECT_EQ(trunk(plain, {}), "affine8");
  }
}

TEST(Formats, RowsOfBrokenGroupsTakeSmallerOnesOrNone) {
  EXPECT_EQ(experts(DType::bf16, {}, 128, 32), "affine4 affine4-g32");
  EXPECT_EQ(experts(DType::bf16, {}, 128, 48), "affine4 bf16");
  EXPECT_EQ(trunk(DType::bf16, {}, 96), "affine8-g32");
  EXPECT_EQ(trunk(DType::bf16, DType::affine8, 96), "affine8-g32");
  EXPECT_EQ(trunk(DType::bf16, {}, 100), "bf16");
  EXPECT_EQ(trunk(DType::f32, DType::affine8, 100), "bf16");
}

TEST(Formats, WhatIsAskedForIsWhatIsStored) {
  EXPECT_EQ(experts(DType::mxfp4, DType::bf16), "bf16 bf16");
  EXPECT_EQ(experts(DType::mxfp4, DType::affine8), "affine8 affine8");
  EXPECT_EQ(experts(DType::bf16, DType::mxfp4), "mxfp4 mxfp4");
  EXPECT_EQ(experts(DType::mxfp4, DType::mxfp4), "mxfp4 mxfp4");
  EXPECT_EQ(experts(kMlx4, DType::affine4), "affine4 affine4");
  EXPECT_EQ(experts(kMlx8g32, DType::affine4), "affine4 affine4");
  // Wider codes for the same groups: nothing is lost.
  EXPECT_EQ(experts({DType::affine4, 32, DType::f16}, DType::affine8),
            "affine8-g32-f16 affine8-g32-f16");
  EXPECT_EQ(trunk({DType::affine4, 128}, DType::affine8), "affine8-g128");
  EXPECT_EQ(trunk(kMlx8g32, DType::affine8), "affine8-g32-f16");
  EXPECT_EQ(trunk(DType::mxfp4, DType::affine8), "affine8");
  EXPECT_EQ(trunk(kMlx4, DType::bf16), "bf16");
}

TEST(Formats, RefusesWhatCannotBe) {
  EXPECT_THAT(experts(DType::bf16, DType::f32), HasSubstr("experts can be mxfp4"));
  EXPECT_THAT(experts(DType::bf16, DType::affine4, 128, 48), HasSubstr("48 columns"));
  EXPECT_THAT(experts(DType::bf16, DType::mxfp4, 100, 64), HasSubstr("100 columns"));
  EXPECT_EQ(experts(DType::bf16, DType::bf16, 100, 50), "bf16 bf16");
  EXPECT_THAT(trunk(DType::bf16, DType::affine4), HasSubstr("affine8 or bf16, not affine4"));
}

TEST(Formats, ExactTensorsKeepTheirValues) {
  EXPECT_EQ(trunk(DType::bf16, {}, 128, TrunkRole::exact), "bf16");
  EXPECT_EQ(trunk(DType::bf16, DType::affine8, 128, TrunkRole::exact), "bf16");
  for (const MatrixFormat& source : {MatrixFormat(DType::f16), MatrixFormat(DType::f32), kMlx8g32})
    EXPECT_EQ(trunk(source, DType::bf16, 128, TrunkRole::exact), "f32");
  EXPECT_EQ(trunk(DType::bf16, {}, 128, TrunkRole::exact, 1), "f32");
  EXPECT_EQ(trunk(kMlx4, {}, 128, TrunkRole::matrix, 1), "affine8");
}

}  // namespace
}  // namespace wader
