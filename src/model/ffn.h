// SwiGLU feed-forward networks: experts, the shared expert, a dense layer.
#pragma once

#include <span>

#include "model/forward.h"

namespace wader {

// y (rows, hidden) = W_down act(W_gate_up x + b) + b of some rows x of work.normed: row
// picks[i] / picks_per_row gives y's row i, or row i itself where picks is null.
struct FfnJob {
  FfnWeights w;
  uint32_t rows;
  const uint32_t* picks;
  uint32_t picks_per_row;
  float* y;
};

// Rows as a product takes them; feed_forward's are work.normed.
struct FfnInput {
  const float* x;
  QuantisedRows xq{};  // where asked for
};
// block: activation_block_of() the gate_up weights of all jobs. Stays until the next linear().
FfnInput ffn_input(const ModelContext& model, uint32_t rows, uint32_t block);

// All jobs together, whose matrices have one format and whose rows together are at most
// work.ffn_rows: the threads meet three times (gathering rows, gate/up, down), in decode twice,
// however many jobs there are. Uses the workspace's ffn_ buffers.
void feed_forward(const ModelContext& model, const FfnInput& input, std::span<const FfnJob> jobs);

}  // namespace wader
