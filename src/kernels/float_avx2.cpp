#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "kernels/float_backends.h"
#include "kernels/float_table.h"
#include "kernels/lanes_avx2.h"

namespace wader::avx2 {

void set_float_ops(Kernels& kernels) {
  set_float_ops_of<Lanes>(kernels);
}

void plain_matmul(const MatmulArgs& args) {
  PlainMatmul<Lanes>::matmul(args);
}

}  // namespace wader::avx2
#endif
