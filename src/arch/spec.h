// ArchitectureSpec: what a model *is*, as data. checkpoint/ makes it from a released config.json, a
// container's manifest stores it, model/ computes by it. No other code asks for a family's name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace wader {

enum class LayerKind : uint8_t {
  full_attention,     // a query sees every key up to its own
  sliding_attention,  // a query sees itself and the window − 1 keys before it
};

enum class Activation : uint8_t {
  swiglu_clamped,  // GPT-OSS: (clamp(up, ±limit) + 1) · min(gate, limit) · σ(1.702 · gate)
};

enum class RouterRule : uint8_t {
  topk_then_softmax,  // top-k by logit, softmax over those k
};

// YaRN (Peng et al. 2023, arXiv:2309.00071): inverse frequencies blended between θ^(−2i/d) and that
// / factor.
struct Yarn {
  double factor;
  double original_context;
  double beta_fast, beta_slow;
  bool truncate;            // true: the correction range is rounded outwards to whole dimensions
  double attention_factor;  // multiplies cos and sin; 0.1 · ln(factor) + 1 unless the config says
                            // otherwise
};

struct Rope {
  double theta;
  std::optional<Yarn> yarn;
};

struct ArchitectureSpec {
  std::string family;  // config.json's model_type, e.g. "gpt_oss"; shown to people, decides chat
                       // format only

  uint32_t vocab_rows;  // rows of embedding and head; may exceed the tokenizer's vocabulary
  uint32_t hidden;
  uint32_t query_heads, kv_heads, head_dim;
  uint32_t experts, experts_per_token, expert_inner;
  uint32_t sliding_window;  // 0 when no layer slides
  uint32_t max_context;     // tokens, max_position_embeddings
  double norm_eps;
  Rope rope;

  std::vector<LayerKind> layers;
  Activation activation;
  double swiglu_limit;
  RouterRule router;
  bool attention_bias;   // biases on q, k, v, o
  bool attention_sinks;  // a learned logit per head in the softmax's denominator
  bool router_bias;
  bool expert_bias;

  uint32_t layer_count() const { return static_cast<uint32_t>(layers.size()); }
  uint32_t query_width() const { return query_heads * head_dim; }
  uint32_t kv_width() const { return kv_heads * head_dim; }
};

// Refuses what would overflow or divide by zero later: zero or absurd dims, kv_heads that do not
// divide query_heads, experts_per_token > experts, hidden or expert_inner not a multiple of 32, odd
// head_dim, …
Status validate_spec(const ArchitectureSpec& spec);

// The spec as the manifest stores it, and back (validated; unknown keys are refused by name).
Json spec_to_json(const ArchitectureSpec& spec);
Result<ArchitectureSpec> spec_from_json(const Json& json);

}  // namespace wader
