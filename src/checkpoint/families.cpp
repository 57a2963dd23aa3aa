#include "checkpoint/families.h"

#include <fmt/format.h>

#include <array>

namespace wader {
namespace {

using Spec = ArchitectureSpec;

// GPT-OSS: https://huggingface.co/openai/gpt-oss-120b, config.json and
// model.safetensors.index.json.
constexpr std::array<DimensionKey, 10> kGptOssDimensions = {{
    {"vocab_size", &Spec::vocab_rows},
    {"hidden_size", &Spec::hidden},
    {"num_attention_heads", &Spec::query_heads},
    {"num_key_value_heads", &Spec::kv_heads},
    {"head_dim", &Spec::head_dim},
    {"num_local_experts", &Spec::experts},
    {"num_experts_per_tok", &Spec::experts_per_token, "experts_per_token"},
    {"intermediate_size", &Spec::expert_inner},
    {"sliding_window", &Spec::sliding_window},
    {"max_position_embeddings", &Spec::max_context},
}};

constexpr std::array<ReleasedName, 3> kGptOssModelNames = {{
    {"embed", "model.embed_tokens.weight"},
    {"final_norm", "model.norm.weight"},
    {"head", "lm_head.weight"},
}};

constexpr std::array<ReleasedName, 13> kGptOssLayerNames = {{
    {"attn_norm", "input_layernorm.weight"},
    {"attn.q.weight", "self_attn.q_proj.weight"},
    {"attn.q.bias", "self_attn.q_proj.bias"},
    {"attn.k.weight", "self_attn.k_proj.weight"},
    {"attn.k.bias", "self_attn.k_proj.bias"},
    {"attn.v.weight", "self_attn.v_proj.weight"},
    {"attn.v.bias", "self_attn.v_proj.bias"},
    {"attn.sinks", "self_attn.sinks"},
    {"attn.o.weight", "self_attn.o_proj.weight"},
    {"attn.o.bias", "self_attn.o_proj.bias"},
    {"ffn_norm", "post_attention_layernorm.weight"},
    {"router.weight", "mlp.router.weight"},
    {"router.bias", "mlp.router.bias"},
}};

constexpr std::array<ReleasedName, 6> kGptOssExpertNames = {{
    {"gate_up.blocks", "mlp.experts.gate_up_proj_blocks"},
    {"gate_up.scales", "mlp.experts.gate_up_proj_scales"},
    {"gate_up.bias", "mlp.experts.gate_up_proj_bias"},
    {"down.blocks", "mlp.experts.down_proj_blocks"},
    {"down.scales", "mlp.experts.down_proj_scales"},
    {"down.bias", "mlp.experts.down_proj_bias"},
}};

constexpr std::array<Family, 1> kFamilies = {{
    {
        .model_type = "gpt_oss",
        .dimensions = kGptOssDimensions,
        .activation = Activation::swiglu_clamped,
        .router = RouterRule::topk_then_softmax,
        .swiglu_limit = 7.0,
        .attention_bias = true,
        .attention_sinks = true,
        .router_bias = true,
        .expert_bias = true,
        .even_layers = LayerKind::sliding_attention,
        .odd_layers = LayerKind::full_attention,
        .rope_type = "yarn",
        .quant_method = "mxfp4",
        .model_names = kGptOssModelNames,
        .layer_names = kGptOssLayerNames,
        .expert_names = kGptOssExpertNames,
    },
}};

std::string_view released(std::span<const ReleasedName> names, std::string_view canonical) {
  for (const ReleasedName& name : names)
    if (name.canonical == canonical) return name.released;
  return {};
}

}  // namespace

const Family* find_family(std::string_view model_type) {
  for (const Family& family : kFamilies)
    if (family.model_type == model_type) return &family;
  return nullptr;
}

std::string supported_families() {
  std::string names;
  for (const Family& family : kFamilies) {
    if (!names.empty()) names += ", ";
    names += family.model_type;
  }
  return names;
}

std::string released_trunk_name(const Family& family, std::string_view canonical) {
  constexpr std::string_view kLayers = "layers.";
  if (!canonical.starts_with(kLayers)) return std::string(released(family.model_names, canonical));
  const size_t dot = canonical.find('.', kLayers.size());
  if (dot == std::string_view::npos) return {};
  const std::string_view rest = released(family.layer_names, canonical.substr(dot + 1));
  if (rest.empty()) return {};
  return fmt::format("model.{}.{}", canonical.substr(0, dot), rest);
}

std::string released_expert_name(const Family& family, uint32_t layer, std::string_view section) {
  const std::string_view rest = released(family.expert_names, section);
  if (rest.empty()) return {};
  return fmt::format("model.layers.{}.{}", layer, rest);
}

}  // namespace wader
