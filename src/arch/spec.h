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

// How a layer mixes positions.
enum class LayerKind : uint8_t {
  full_attention,     // a query sees every key up to its own
  sliding_attention,  // a query sees itself and the window − 1 keys before it
  delta_net,          // gated DeltaNet: a recurrent state instead of keys and values
};

// What follows the mixer.
enum class FfnKind : uint8_t {
  moe,    // routed experts, and the shared one where the spec has it
  dense,  // one feed-forward network for every token
};

struct LayerSpec {
  LayerKind mixer;
  FfnKind ffn = FfnKind::moe;

  // NOLINTNEXTLINE(google-explicit-constructor): a mixer alone names the usual layer.
  LayerSpec(LayerKind kind, FfnKind feed_forward = FfnKind::moe) : mixer(kind), ffn(feed_forward) {}
  bool operator==(const LayerSpec&) const = default;
};

// All take gate and up interleaved.
enum class Activation : uint8_t {
  swiglu,          // silu(gate) · up
  swiglu_clamped,  // GPT-OSS: (clamp(up, ±limit) + 1) · min(gate, limit) · σ(1.702 · gate)
};

enum class RouterRule : uint8_t {
  topk_then_softmax,              // top-k by logit, softmax over those k
  softmax_then_topk,              // softmax over all experts, the k largest as they are
  softmax_then_topk_renormalised  // … divided by their sum
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

constexpr uint32_t kMaxConvKernel = 64;  // taps; released models have 4

// Gated DeltaNet (Yang et al. 2024, arXiv:2412.06464). Value head h uses key head h / (value_heads
// / key_heads).
struct DeltaNetSpec {
  uint32_t key_heads = 0, value_heads = 0;
  uint32_t key_dim = 0, value_dim = 0;  // of one head
  uint32_t conv_kernel = 0;             // taps of the causal depthwise convolution over q | k | v

  uint32_t key_width() const { return key_heads * key_dim; }
  uint32_t value_width() const { return value_heads * value_dim; }
  uint32_t conv_width() const { return 2 * key_width() + value_width(); }  // q | k | v
  bool operator==(const DeltaNetSpec&) const = default;
};

struct ArchitectureSpec {
  std::string family;  // config.json's model_type, e.g. "gpt_oss"; shown to people, decides chat
                       // format only

  uint32_t vocab_rows;  // rows of embedding and head; may exceed the tokenizer's vocabulary
  uint32_t hidden;
  uint32_t query_heads, kv_heads, head_dim;
  uint32_t rotary_dim;  // the first dims of a head that rotate; head_dim where all do
  uint32_t experts, experts_per_token, expert_inner;
  uint32_t shared_inner = 0;    // inner width of the shared expert; 0: there is none
  uint32_t dense_inner = 0;     // of dense layers; 0 when every layer is moe
  uint32_t sliding_window = 0;  // 0 when no layer slides
  uint32_t max_context;         // tokens, max_position_embeddings
  double norm_eps;
  Rope rope;
  DeltaNetSpec delta;  // all zero when no layer is delta_net

  std::vector<LayerSpec> layers;
  Activation activation;
  double swiglu_limit;  // swiglu_clamped only, else 0
  RouterRule router;
  bool attention_bias;   // biases on q, k, v, o
  bool attention_sinks;  // a learned logit per head in the softmax's denominator
  bool attention_gate;   // attention's output is multiplied by σ(W_gate x)
  bool qk_norm;          // RMS norm per head on q and k, before they rotate
  bool router_bias;
  bool expert_bias;
  bool tied_head;  // the head is the embedding

  uint32_t layer_count() const { return static_cast<uint32_t>(layers.size()); }
  uint32_t query_width() const { return query_heads * head_dim; }
  uint32_t kv_width() const { return kv_heads * head_dim; }
  bool has_mixer(LayerKind kind) const;
  // Layers with routed experts; of layer `n`, how many of them come before it.
  uint32_t moe_layer_count() const { return moe_layers_before(layer_count()); }
  uint32_t moe_layers_before(uint32_t n) const;
};

// Refuses what would overflow or divide by zero later: zero or absurd dims, kv_heads that do not
// divide query_heads, experts_per_token > experts, odd rotary_dim, parts of a layer kind without
// its dims, …
Status validate_spec(const ArchitectureSpec& spec);

// The spec as the manifest stores it, and back (validated; unknown keys are refused by name).
Json spec_to_json(const ArchitectureSpec& spec);
Result<ArchitectureSpec> spec_from_json(const Json& json);

}  // namespace wader
