// The float operations of each instruction set, as functions: select.cpp asks the CPU, then makes
// the tables. ops.h has the contract of the arguments; all give the same bits.
#pragma once

#include "kernels/ops.h"

namespace wader {

namespace portable {
// Sets everything but name, matmul and quantise_row.
void set_float_ops(Kernels& kernels);
// The products of f32 activations: of plain weights, or where nothing is quantised.
void plain_matmul(const MatmulArgs& args);
}  // namespace portable

namespace avx2 {  // AVX2, FMA, F16C
void set_float_ops(Kernels& kernels);
void plain_matmul(const MatmulArgs& args);
}  // namespace avx2

namespace avx512 {  // AVX-512 F, BW, VL
void set_float_ops(Kernels& kernels);
void plain_matmul(const MatmulArgs& args);
}  // namespace avx512

namespace neon {  // Armv8.0
void set_float_ops(Kernels& kernels);
void plain_matmul(const MatmulArgs& args);
}  // namespace neon

}  // namespace wader
