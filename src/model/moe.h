// Mixture of experts: route each row, fetch each distinct expert once, run it over the rows that
// chose it, combine.
#pragma once

#include <cstdint>

#include "model/forward.h"

namespace wader {

// work.normed (rows, hidden) → work.router_ids and router_weights (rows, k).
void route(const ModelContext& model, uint32_t layer, uint32_t rows);

// work.router_logits (rows, experts) → ids and weights (rows, k), likeliest first.
void choose_experts(const ModelContext& model, uint32_t* ids, float* weights, uint32_t rows);

// Opens the pass of the layer's experts: reads of those that are missing are on their way. moe()
// closes it.
void fetch_experts(const ModelContext& model, uint32_t layer, uint32_t rows);

// work.x (rows, hidden) += Σ_k weight · expert(work.normed), added in router order, whatever order
// the experts came in; then + σ(w_gate · x) · shared expert, where the spec has one.
Status moe(const ModelContext& model, uint32_t layer, uint32_t rows);

}  // namespace wader
