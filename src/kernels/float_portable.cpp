#include "kernels/float_backends.h"
#include "kernels/float_table.h"
#include "kernels/lanes_portable.h"

namespace wader::portable {

void set_float_ops(Kernels& kernels) {
  set_float_ops_of<Lanes>(kernels);
}

void plain_matmul(const MatmulArgs& args) {
  PlainMatmul<Lanes>::matmul(args);
}

}  // namespace wader::portable
