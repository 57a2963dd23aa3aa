#include "checkpoint/format_join.h"

#include <algorithm>

namespace wader {

MatrixFormat join_formats(const MatrixFormat& a, const MatrixFormat& b) {
  if (a == b) return a;
  if (is_affine(a.dtype) && is_affine(b.dtype) && a.scales == b.scales)
    return {a.dtype == b.dtype ? a.dtype : DType::affine8, std::min(a.group, b.group), a.scales};
  const auto fits_bf16 = [](DType dtype) { return dtype == DType::bf16 || dtype == DType::mxfp4; };
  if (fits_bf16(a.dtype) && fits_bf16(b.dtype)) return DType::bf16;
  return DType::f32;
}

}  // namespace wader
