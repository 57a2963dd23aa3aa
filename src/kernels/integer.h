// The integer products of each instruction set, as functions: select.cpp makes the tables. Nothing
// in a file compiled for a wider instruction set may run, or be linked into other code, before the
// CPU has been asked; a table built there would be initialised at start.
//
// ops.h defines their arithmetic and the contract of the arguments.
#pragma once

#include "kernels/ops.h"

namespace wader {

// Whether matmul multiplies integers; all else goes to kRefKernels.matmul. A copy for each file
// that includes this: an inline function's one copy could come from a file compiled for AVX-512.
[[maybe_unused]] static bool is_integer_product(const MatmulArgs& args) {
  const DType dtype = args.w.format.dtype;
  return args.xq != nullptr &&
         (dtype == DType::mxfp4 || dtype == DType::affine4 || dtype == DType::affine8);
}

namespace portable {
void matmul(const MatmulArgs& args);
void quantise_row(int8_t* codes, float* scales, float* sums, int32_t* code_sums, const float* x,
                  uint32_t n);
}  // namespace portable

namespace avx2 {  // AVX2, F16C
void matmul(const MatmulArgs& args);
void quantise_row(int8_t* codes, float* scales, float* sums, int32_t* code_sums, const float* x,
                  uint32_t n);
}  // namespace avx2

namespace avx512 {  // AVX-512 F, BW, VL, VNNI
void matmul(const MatmulArgs& args);
void quantise_row(int8_t* codes, float* scales, float* sums, int32_t* code_sums, const float* x,
                  uint32_t n);
}  // namespace avx512

}  // namespace wader
