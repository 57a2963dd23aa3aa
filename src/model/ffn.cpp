#include "model/ffn.h"

#include "model/linear.h"

namespace wader {

void feed_forward(const ModelContext& model, const FfnWeights& w, float* y, const float* x,
                  uint32_t tokens) {
  const Workspace& s = model.work;
  const uint32_t inner = w.down.cols;
  const auto limit = static_cast<float>(model.spec.swiglu_limit);
  linear(model, s.ffn_gate_up, x, tokens, w.gate_up, w.gate_up_bias);  // (tokens, 2 · inner)
  model.threads.parallel_for(tokens, 1, [&](ThreadPool::Slice slice) {
    for (int64_t t = slice.begin; t < slice.end; ++t) {
      float* act = s.ffn_act + t * inner;
      const float* gate_up = s.ffn_gate_up + t * 2 * inner;
      if (model.spec.activation == Activation::swiglu)
        model.kernels.swiglu(act, gate_up, inner);
      else
        model.kernels.swiglu_clamped(act, gate_up, inner, limit);
    }
  });
  linear(model, y, s.ffn_act, tokens, w.down, w.down_bias);  // (tokens, hidden)
}

}  // namespace wader
