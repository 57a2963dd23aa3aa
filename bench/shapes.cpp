#include "shapes.h"

#include <array>
#include <utility>

namespace wader::bench {
namespace {

ArchitectureSpec gpt_oss(uint32_t layers, uint32_t experts) {
  ArchitectureSpec spec{};
  spec.family = "gpt_oss";
  spec.vocab_rows = 201088;
  spec.hidden = spec.expert_inner = 2880;
  spec.query_heads = 64;
  spec.kv_heads = 8;
  spec.head_dim = spec.rotary_dim = 64;
  spec.experts = experts;
  spec.experts_per_token = 4;
  spec.sliding_window = 128;
  spec.max_context = 131072;
  spec.norm_eps = 1e-5;
  spec.rope = {150000, Yarn{32, 4096, 32, 1, false, 1.3465735902799727}};
  for (uint32_t n = 0; n < layers; ++n)
    spec.layers.emplace_back(n % 2 == 0 ? LayerKind::sliding_attention : LayerKind::full_attention);
  spec.activation = Activation::swiglu_clamped;
  spec.swiglu_limit = 7;
  spec.router = RouterRule::topk_then_softmax;
  spec.attention_bias = spec.attention_sinks = spec.router_bias = spec.expert_bias = true;
  return spec;
}

ArchitectureSpec qwen3_moe() {
  ArchitectureSpec spec{};
  spec.family = "qwen3_moe";
  spec.vocab_rows = 151936;
  spec.hidden = 2048;
  spec.expert_inner = 768;
  spec.query_heads = 32;
  spec.kv_heads = 4;
  spec.head_dim = spec.rotary_dim = 128;
  spec.experts = 128;
  spec.experts_per_token = 8;
  spec.max_context = 40960;
  spec.norm_eps = 1e-6;
  spec.rope = {1e6, {}};
  spec.layers.assign(48, LayerKind::full_attention);
  spec.activation = Activation::swiglu;
  spec.router = RouterRule::softmax_then_topk_renormalised;
  spec.qk_norm = true;
  return spec;
}

// Three DeltaNet layers, then one of gated attention, and so on.
ArchitectureSpec hybrid(const char* family, uint32_t layers, uint32_t experts,
                        uint32_t experts_per_token, uint32_t vocab_rows) {
  ArchitectureSpec spec{};
  spec.family = family;
  spec.vocab_rows = vocab_rows;
  spec.hidden = 2048;
  spec.expert_inner = spec.shared_inner = 512;
  spec.query_heads = 16;
  spec.kv_heads = 2;
  spec.head_dim = 256;
  spec.rotary_dim = 64;
  spec.experts = experts;
  spec.experts_per_token = experts_per_token;
  spec.max_context = 262144;
  spec.norm_eps = 1e-6;
  spec.rope = {1e7, {}};
  spec.delta = {
      .key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .conv_kernel = 4};
  for (uint32_t n = 0; n < layers; ++n)
    spec.layers.emplace_back((n + 1) % 4 == 0 ? LayerKind::full_attention : LayerKind::delta_net);
  spec.activation = Activation::swiglu;
  spec.router = RouterRule::softmax_then_topk_renormalised;
  spec.qk_norm = spec.attention_gate = true;
  return spec;
}

const std::array<std::pair<std::string_view, ArchitectureSpec>, 5>& shapes() {
  static const std::array<std::pair<std::string_view, ArchitectureSpec>, 5> kShapes = {
      {{"gpt-oss-20b", gpt_oss(24, 32)},
       {"gpt-oss-120b", gpt_oss(36, 128)},
       {"qwen3-30b-a3b", qwen3_moe()},
       {"qwen3-next-80b-a3b", hybrid("qwen3_next", 48, 512, 10, 151936)},
       {"qwen3.6-35b-a3b", hybrid("qwen3_5_moe", 40, 256, 8, 248320)}}};
  return kShapes;
}

}  // namespace

std::optional<ArchitectureSpec> released_shape(std::string_view name) {
  for (const auto& [known, spec] : shapes())
    if (known == name) return spec;
  return std::nullopt;
}

std::string released_shape_names() {
  std::string names;
  for (const auto& [name, spec] : shapes()) {
    if (!names.empty()) names += ", ";
    names += name;
  }
  return names;
}

}  // namespace wader::bench
