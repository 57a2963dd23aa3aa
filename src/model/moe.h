// Mixture of experts: route each row, run each distinct expert once over the rows that chose it,
// combine.
#pragma once

#include <span>

#include "model/forward.h"

namespace wader {

// work.normed (rows, hidden) → work.router_ids and router_weights (rows, k).
void route(const ModelContext& model, uint32_t layer, uint32_t rows);

// work.x (rows, hidden) += Σ_k weight · expert(work.normed), added in router order, whatever order
// the experts came in; then + σ(w_gate · x) · shared expert, where the spec has one.
Status moe(const ModelContext& model, uint32_t layer, uint32_t rows);

}  // namespace wader
