// Which experts a layer's router will choose, guessed from a residual stream that has not passed
// through all before it: the input of lookahead.
#pragma once

#include <cstdint>

#include "model/forward.h"

namespace wader {

// Runs the router of `layer` on work.x (rows, hidden) as it is now and hands what it chooses to the
// expert cache, to be read behind everything that is asked for: of one token likeliest first, of
// more in disk order. Uses work.projected and
// work.router_logits.
void predict_experts(const ModelContext& model, uint32_t layer, uint32_t rows);

// The same for the layer after `layer`, when the pass looks ahead and that one has experts.
void predict_experts_after(const ModelContext& model, uint32_t layer, uint32_t rows);

}  // namespace wader
