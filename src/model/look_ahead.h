// Lookahead: which experts the next layer's router will choose, guessed from a residual stream that
// has not passed through this layer's experts yet.
#pragma once

#include <cstdint>

#include "model/forward.h"

namespace wader {

// When the pass looks ahead and the layer after `layer` has experts: runs that layer's router on
// work.x (rows, hidden) as it is now, and hands what it chooses to model.experts, to be read behind
// everything that is asked for: of one token likeliest first, of more in disk order. Uses
// work.projected and work.router_logits.
void look_ahead(const ModelContext& model, uint32_t layer, uint32_t rows);

}  // namespace wader
