#include "model/norm.h"

namespace wader {

void norm_rows(const ModelContext& model, float* out, const float* x, const float* weight,
               uint32_t rows) {
  const uint32_t hidden = model.spec.hidden;
  model.threads.parallel_for(rows, 1, [&](ThreadPool::Slice slice) {
    for (int64_t t = slice.begin; t < slice.end; ++t)
      model.kernels.rms_norm(out + t * hidden, x + t * hidden, weight, hidden,
                             static_cast<float>(model.spec.norm_eps));
  });
}

}  // namespace wader
