// Which format each matrix gets in the container: what the options mean for a source. Pure.
//
//             | source mxfp4 or affine                | source f32, f16 or bf16
//   auto      | as it is                              | experts affine4, trunk affine8
//   affineN   | affine of at most N bits: its groups  | affineN
//             | and scales with N-bit codes, nothing  |
//             | lost; else quantised again            |
//   mxfp4     | mxfp4 as it is, else quantised        | mxfp4
//   bf16      | rounded to nearest                    | rounded to nearest
//
// Quantising takes groups of 64; rows that are not whole ones take groups of 32, and rows that are
// not whole ones of those stay bf16 under auto and in the trunk. Experts that were asked for in a
// format are never stored in another.
#pragma once

#include <optional>

#include "arch/tensors.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "tensor/dtype.h"

namespace wader {

// `wanted`: mxfp4, affine4, affine8 or bf16; nothing for auto. invalid_argument for any other, and
// for one that the matrices' shapes do not allow.
Result<ExpertFormat> choose_expert_format(const ArchitectureSpec& spec, const ExpertFormat& source,
                                          std::optional<DType> wanted);

// `wanted`: affine8 or bf16; nothing for auto. Exact tensors: bf16 stays bf16, all else is f32,
// which holds the value of every format.
Result<MatrixFormat> choose_trunk_format(const TrunkTensorSpec& tensor, const TensorSource& source,
                                         std::optional<DType> wanted);

}  // namespace wader
