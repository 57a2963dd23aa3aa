// SwiGLU feed-forward network: one expert, the shared expert, a dense layer.
#pragma once

#include "model/forward.h"

namespace wader {

// y (tokens, hidden) = W_down act(W_gate_up x + b) + b of x (tokens, hidden), both dense. Uses
// work.ffn_gate_up and ffn_act.
void feed_forward(const ModelContext& model, const FfnWeights& w, float* y, const float* x,
                  uint32_t tokens);

}  // namespace wader
