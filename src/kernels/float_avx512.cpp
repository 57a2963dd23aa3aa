#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)

#include "kernels/float_backends.h"
#include "kernels/float_table.h"
#include "kernels/lanes_avx512.h"

namespace wader::avx512 {

void set_float_ops(Kernels& kernels) {
  set_float_ops_of<Lanes>(kernels);
}

void plain_matmul(const MatmulArgs& args) {
  PlainMatmul<Lanes>::matmul(args);
}

}  // namespace wader::avx512
#endif
