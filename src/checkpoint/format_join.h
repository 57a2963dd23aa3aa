// The smallest format that holds matrices of two formats without loss.
#pragma once

#include "tensor/dtype.h"

namespace wader {

// Equal formats: that one. Affine formats of the same scale dtype: the more bits (a 4-bit code is
// an 8-bit code), the smaller group (a group of 128 is two of 64 with the same scale). MXFP4 and
// bf16: bf16, which has room for two significant bits at any power of two. All else, and affine
// with scales of different dtypes (neither 16-bit format holds the other): f32, in which every
// format's values are defined.
MatrixFormat join_formats(const MatrixFormat& a, const MatrixFormat& b);

}  // namespace wader
