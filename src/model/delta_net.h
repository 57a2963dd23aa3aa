// Gated DeltaNet (Yang et al. 2024, arXiv:2412.06464) as Qwen3-Next uses it: a short causal
// convolution over q | k | v, then a linear-attention state with decay and the delta rule, per
// value head.
#pragma once

#include <span>

#include "model/forward.h"

namespace wader {

// work.normed (rows, hidden) → work.projected (rows, hidden); moves the rows' states of `layer` on.
void delta_net(const ModelContext& model, uint32_t layer, std::span<const Row> rows);

}  // namespace wader
