// The trunk in memory, and views of its tensors bound to the parts of the spec. Immutable after
// load.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "arch/spec.h"
#include "arch/tensors.h"
#include "base/result.h"
#include "container/container.h"
#include "io/aligned_buffer.h"
#include "tensor/matrix.h"

namespace wader {

// Vectors and biases are null where the spec has none, matrices have no rows.
struct AttentionWeights {
  MatrixView q, gate, k, v, o;  // (query_width, hidden) twice, (kv_width, hidden) twice,
                                // (hidden, query_width)
  const float *q_bias, *k_bias, *v_bias, *o_bias;
  const float *q_norm, *k_norm;  // (head_dim)
  const float* sinks;            // (query_heads)
};

struct DeltaNetWeights {
  MatrixView qkv, z, b, a, out;  // (conv_width, hidden), (value_width, hidden), (value_heads,
                                 // hidden) twice, (hidden, value_width)
  const float* conv;             // (conv_width, conv_kernel)
  const float *a_log, *dt_bias;  // (value_heads)
  const float* norm;             // (value_dim)
};

// A SwiGLU network: one expert, the shared expert, or a dense layer's.
struct FfnWeights {
  MatrixView gate_up;             // (2 · inner, hidden), rows interleaved: even gate, odd up
  MatrixView down;                // (hidden, inner)
  const std::byte* gate_up_bias;  // (2 · inner) bf16
  const std::byte* down_bias;     // (hidden) bf16
};

struct LayerWeights {
  LayerSpec kind;
  const float* mixer_norm = nullptr;   // (hidden)
  AttentionWeights attention = {};     // unless delta_net
  DeltaNetWeights delta = {};          // of delta_net
  const float* ffn_norm = nullptr;     // (hidden)
  MatrixView router = {};              // (experts, hidden); of moe, as all below but dense
  const float* router_bias = nullptr;  // (experts)
  FfnWeights shared = {};
  MatrixView shared_gate = {};  // (1, hidden)
  FfnWeights dense = {};        // of dense
};

// One expert's matrices and biases inside its record.
FfnWeights bind_expert(const ArchitectureSpec& spec, const ExpertLayout& layout,
                       std::span<const std::byte> record);

class TrunkWeights {
 public:
  // Reads trunk.bin once, front to back, and verifies every tensor's checksum.
  static Result<TrunkWeights> load(const Container& container);
  // Bytes that load() will hold: trunk.bin, and the exact vectors widened to f32.
  static uint64_t resident_bytes(const Manifest& manifest);

  MatrixView embed;         // (vocab_rows, hidden)
  MatrixView head;          // (vocab_rows, hidden); the embedding where the spec ties them
  const float* final_norm;  // (hidden)
  std::vector<LayerWeights> layers;

  std::span<const std::byte> bytes() const { return bytes_.span(); }  // trunk.bin as it was read

 private:
  AlignedBuffer bytes_;
  std::vector<float> vectors_;  // norms, biases, sinks: small, used whole each token
};

}  // namespace wader
