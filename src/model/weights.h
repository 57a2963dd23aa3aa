// The trunk in memory, and views of its tensors bound to the parts of the spec. Immutable after
// load.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "arch/spec.h"
#include "base/result.h"
#include "container/container.h"
#include "io/aligned_buffer.h"
#include "tensor/matrix.h"

namespace wader {

struct LayerWeights {
  LayerKind kind;
  const float* attn_norm;  // (hidden)
  MatrixView q, k, v, o;   // (query_width, hidden), (kv_width, hidden) twice, (hidden, query_width)
  const float *q_bias, *k_bias, *v_bias, *o_bias;  // null where the spec has none
  const float* sinks;                              // (query_heads) or null
  const float* ffn_norm;                           // (hidden)
  MatrixView router;                               // (experts, hidden)
  const float* router_bias;                        // (experts) or null
};

// One expert's matrices inside its record.
struct ExpertWeights {
  MatrixView gate_up;  // (2 · expert_inner, hidden), rows interleaved: even gate, odd up
  MatrixView down;     // (hidden, expert_inner)
  const std::byte* gate_up_bias;  // bf16 (2 · expert_inner), or null
  const std::byte* down_bias;     // bf16 (hidden), or null
};
ExpertWeights bind_expert(const ArchitectureSpec& spec, const ExpertLayout& layout,
                          std::span<const std::byte> record);

class TrunkWeights {
 public:
  // Reads trunk.bin once, front to back, and verifies every tensor's checksum.
  static Result<TrunkWeights> load(const Container& container);
  // Bytes that load() will hold: trunk.bin, and the exact vectors widened to f32.
  static uint64_t resident_bytes(const Manifest& manifest);

  MatrixView embed;         // (vocab_rows, hidden)
  MatrixView head;          // (vocab_rows, hidden)
  const float* final_norm;  // (hidden)
  std::vector<LayerWeights> layers;

 private:
  AlignedBuffer bytes_;
  std::vector<float> vectors_;  // norms, biases, sinks: small, used whole each token
};

}  // namespace wader
