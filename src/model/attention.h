// Grouped-query attention with rotary positions; where the spec has them with biases, sinks, a
// sliding window, norms on q and k, and an output gate.
#pragma once

#include <span>

#include "model/forward.h"

namespace wader {

// work.normed (rows, hidden) → work.projected (rows, hidden); writes the rows' keys and values of
// `layer`.
void attention(const ModelContext& model, uint32_t layer, std::span<const Row> rows);

}  // namespace wader
