#include "checkpoint/families.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace wader {
namespace {

using Spec = ArchitectureSpec;

template <size_t... N>
constexpr auto join(const std::array<ReleasedTensor, N>&... lists) {
  std::array<ReleasedTensor, (N + ...)> all{};
  size_t at = 0;
  const auto append = [&](const auto& list) {
    for (const ReleasedTensor& tensor : list) all[at++] = tensor;
  };
  (append(lists), ...);
  return all;
}

template <size_t N>
constexpr auto zero_centred(std::array<ReleasedTensor, N> norms) {
  for (ReleasedTensor& norm : norms) norm.zero_centred = true;
  return norms;
}

// --- Names that families share. Outside the layers:

constexpr std::array<ReleasedTensor, 2> kEmbeddings = {{
    {"embed", "model.embed_tokens.weight"},
    {"head", "lm_head.weight"},
}};
constexpr std::array<ReleasedTensor, 1> kFinalNorm = {{{"final_norm", "model.norm.weight"}}};

// --- In a layer:

constexpr std::array<ReleasedTensor, 2> kNorms = {{
    {"mixer_norm", "input_layernorm.weight"},
    {"ffn_norm", "post_attention_layernorm.weight"},
}};
constexpr std::array<ReleasedTensor, 2> kHeadNorms = {{
    {"attn.q_norm", "self_attn.q_norm.weight"},
    {"attn.k_norm", "self_attn.k_norm.weight"},
}};
constexpr std::array<ReleasedTensor, 2> kQuery = {{
    {"attn.q.weight", "self_attn.q_proj.weight"},
    {"attn.q.bias", "self_attn.q_proj.bias"},
}};
constexpr std::array<ReleasedTensor, 2> kGatedQuery = {{
    {"attn.q.weight", "self_attn.q_proj.weight", RowOrder::head_query},
    {"attn.gate.weight", "self_attn.q_proj.weight", RowOrder::head_gate},
}};
constexpr std::array<ReleasedTensor, 6> kKeyValueOut = {{
    {"attn.k.weight", "self_attn.k_proj.weight"},
    {"attn.k.bias", "self_attn.k_proj.bias"},
    {"attn.v.weight", "self_attn.v_proj.weight"},
    {"attn.v.bias", "self_attn.v_proj.bias"},
    {"attn.o.weight", "self_attn.o_proj.weight"},
    {"attn.o.bias", "self_attn.o_proj.bias"},
}};
constexpr std::array<ReleasedTensor, 5> kDeltaNet = {{
    {"delta.conv", "linear_attn.conv1d.weight", RowOrder::same, false, true},
    {"delta.a_log", "linear_attn.A_log"},
    {"delta.dt_bias", "linear_attn.dt_bias"},
    {"delta.norm", "linear_attn.norm.weight"},  // the one plain norm among zero-centred ones
    {"delta.out.weight", "linear_attn.out_proj.weight"},
}};
constexpr std::array<ReleasedTensor, 4> kGroupedDelta = {{
    {"delta.qkv.weight", "linear_attn.in_proj_qkvz.weight", RowOrder::group_qkv},
    {"delta.z.weight", "linear_attn.in_proj_qkvz.weight", RowOrder::group_z},
    {"delta.b.weight", "linear_attn.in_proj_ba.weight", RowOrder::group_b},
    {"delta.a.weight", "linear_attn.in_proj_ba.weight", RowOrder::group_a},
}};
constexpr std::array<ReleasedTensor, 4> kFlatDelta = {{
    {"delta.qkv.weight", "linear_attn.in_proj_qkv.weight"},
    {"delta.z.weight", "linear_attn.in_proj_z.weight"},
    {"delta.b.weight", "linear_attn.in_proj_b.weight"},
    {"delta.a.weight", "linear_attn.in_proj_a.weight"},
}};
constexpr std::array<ReleasedTensor, 4> kQwenFfn = {{
    {"router.weight", "mlp.gate.weight"},
    {"dense.gate_up.weight", "mlp.gate_proj.weight", RowOrder::even},
    {"dense.gate_up.weight", "mlp.up_proj.weight", RowOrder::odd},
    {"dense.down.weight", "mlp.down_proj.weight"},
}};
constexpr std::array<ReleasedTensor, 4> kSharedExpert = {{
    {"shared.gate_up.weight", "mlp.shared_expert.gate_proj.weight", RowOrder::even},
    {"shared.gate_up.weight", "mlp.shared_expert.up_proj.weight", RowOrder::odd},
    {"shared.down.weight", "mlp.shared_expert.down_proj.weight"},
    {"shared.gate.weight", "mlp.shared_expert_gate.weight"},
}};

// --- GPT-OSS: https://huggingface.co/openai/gpt-oss-120b, config.json and
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
constexpr std::array<ReleasedTensor, 3> kGptOssOwn = {{
    {"attn.sinks", "self_attn.sinks"},
    {"router.weight", "mlp.router.weight"},
    {"router.bias", "mlp.router.bias"},
}};
constexpr auto kGptOssModel = join(kEmbeddings, kFinalNorm);
constexpr auto kGptOssLayer = join(kNorms, kQuery, kKeyValueOut, kGptOssOwn);

constexpr std::array<ExpertPart, 2> kGptOssStacks = {{
    {ExpertMatrix::gate_up, "mlp.experts.gate_up_proj_blocks"},
    {ExpertMatrix::down, "mlp.experts.down_proj_blocks"},
}};
constexpr std::array<ExpertPart, 2> kGptOssStackBiases = {{
    {ExpertMatrix::gate_up, "mlp.experts.gate_up_proj_bias"},
    {ExpertMatrix::down, "mlp.experts.down_proj_bias"},
}};
// What mlx-lm makes of them: https://github.com/ml-explore/mlx-lm, models/gpt_oss.py.
constexpr std::array<ExpertPart, 3> kGptOssMlx = {{
    {ExpertMatrix::gate_up, "mlp.experts.gate_proj.weight", RowOrder::even},
    {ExpertMatrix::gate_up, "mlp.experts.up_proj.weight", RowOrder::odd},
    {ExpertMatrix::down, "mlp.experts.down_proj.weight"},
}};
constexpr std::array<ExpertPart, 3> kGptOssMlxBiases = {{
    {ExpertMatrix::gate_up, "mlp.experts.gate_proj.bias", RowOrder::even},
    {ExpertMatrix::gate_up, "mlp.experts.up_proj.bias", RowOrder::odd},
    {ExpertMatrix::down, "mlp.experts.down_proj.bias"},
}};
constexpr std::array<ExpertNames, 2> kGptOssExperts = {{
    {kGptOssStacks, kGptOssStackBiases, false},
    {kGptOssMlx, kGptOssMlxBiases, true},
}};
constexpr std::array<uint32_t, 3> kGptOssEos = {200002, 199999, 200012};  // return, endoftext, call

// --- Qwen3 MoE: https://huggingface.co/Qwen/Qwen3-30B-A3B; Qwen3-Next:
// …/Qwen3-Next-80B-A3B-Instruct; Qwen3.5 and 3.6 MoE: …/Qwen3.5-35B-A3B.

constexpr std::array<DimensionKey, 9> kQwen3MoeDimensions = {{
    {"vocab_size", &Spec::vocab_rows},
    {"hidden_size", &Spec::hidden},
    {"num_attention_heads", &Spec::query_heads},
    {"num_key_value_heads", &Spec::kv_heads},
    {"head_dim", &Spec::head_dim, {}, true},
    {"num_experts", &Spec::experts, "num_local_experts"},
    {"num_experts_per_tok", &Spec::experts_per_token},
    {"moe_intermediate_size", &Spec::expert_inner},
    {"max_position_embeddings", &Spec::max_context},
}};
constexpr std::array<DimensionKey, 10> kQwenHybridDimensions = {{
    {"vocab_size", &Spec::vocab_rows},
    {"hidden_size", &Spec::hidden},
    {"num_attention_heads", &Spec::query_heads},
    {"num_key_value_heads", &Spec::kv_heads},
    {"head_dim", &Spec::head_dim},
    {"num_experts", &Spec::experts, "num_local_experts"},
    {"num_experts_per_tok", &Spec::experts_per_token},
    {"moe_intermediate_size", &Spec::expert_inner},
    {"shared_expert_intermediate_size", &Spec::shared_inner},
    {"max_position_embeddings", &Spec::max_context},
}};
constexpr std::array<DeltaKey, 5> kQwenDelta = {{
    {"linear_num_key_heads", &DeltaNetSpec::key_heads},
    {"linear_num_value_heads", &DeltaNetSpec::value_heads},
    {"linear_key_head_dim", &DeltaNetSpec::key_dim},
    {"linear_value_head_dim", &DeltaNetSpec::value_dim},
    {"linear_conv_kernel_dim", &DeltaNetSpec::conv_kernel},
}};

constexpr auto kQwen3MoeModel = join(kEmbeddings, kFinalNorm);
constexpr auto kQwen3MoeLayer = join(kNorms, kHeadNorms, kQuery, kKeyValueOut, kQwenFfn);
constexpr auto kQwenHybridModel = join(kEmbeddings, zero_centred(kFinalNorm));
constexpr auto kQwenHybridLayer = join(zero_centred(kNorms), zero_centred(kHeadNorms), kGatedQuery,
                                       kKeyValueOut, kDeltaNet, kQwenFfn, kSharedExpert);
constexpr auto kQwen3NextLayer = join(kQwenHybridLayer, kGroupedDelta);
constexpr auto kQwen35Layer = join(kQwenHybridLayer, kFlatDelta);

constexpr std::array<ExpertPart, 3> kQwenEach = {{
    {ExpertMatrix::gate_up, "mlp.experts.*.gate_proj.weight", RowOrder::even},
    {ExpertMatrix::gate_up, "mlp.experts.*.up_proj.weight", RowOrder::odd},
    {ExpertMatrix::down, "mlp.experts.*.down_proj.weight"},
}};
constexpr std::array<ExpertPart, 2> kQwenFused = {{
    {ExpertMatrix::gate_up, "mlp.experts.gate_up_proj", RowOrder::halves},
    {ExpertMatrix::down, "mlp.experts.down_proj"},
}};
constexpr std::array<ExpertPart, 3> kQwenMlx = {{
    {ExpertMatrix::gate_up, "mlp.switch_mlp.gate_proj.weight", RowOrder::even},
    {ExpertMatrix::gate_up, "mlp.switch_mlp.up_proj.weight", RowOrder::odd},
    {ExpertMatrix::down, "mlp.switch_mlp.down_proj.weight"},
}};
// transformers 5 fuses where 4 had a tensor an expert, so that every family can have either.
constexpr std::array<ExpertNames, 3> kQwenExperts = {
    {{kQwenEach}, {kQwenFused}, {kQwenMlx, {}, true}}};

constexpr std::array<uint32_t, 2> kQwen3Eos = {151645, 151643};   // im_end, endoftext
constexpr std::array<uint32_t, 2> kQwen35Eos = {248046, 248044};  // the same in the new vocabulary

constexpr std::array<Family, 4> kFamilies = {{
    {
        .model_type = "gpt_oss",
        .dimensions = kGptOssDimensions,
        .layers = {LayerKind::sliding_attention, LayerKind::full_attention, 2},
        .activation = Activation::swiglu_clamped,
        .swiglu_limit = 7.0,
        .router = RouterRule::topk_then_softmax,
        .attention_bias = true,
        .attention_sinks = true,
        .router_bias = true,
        .expert_bias = true,
        .rope = RopeRule::explicit_yarn,
        .quant_method = "mxfp4",
        .names = {"model.layers.", kGptOssModel, kGptOssLayer},
        .experts = kGptOssExperts,
        .eos = kGptOssEos,
    },
    {
        .model_type = "qwen3_moe",
        .dimensions = kQwen3MoeDimensions,
        .layers = {LayerKind::full_attention, LayerKind::full_attention, 1},
        .dense_layers = true,
        .activation = Activation::swiglu,
        .router = RouterRule::softmax_then_topk,
        .norm_topk = NormTopk::absent_false,
        .qk_norm = true,
        .rope = RopeRule::plain_or_yarn,
        .names = {"model.layers.", kQwen3MoeModel, kQwen3MoeLayer},
        .experts = kQwenExperts,
        .eos = kQwen3Eos,
    },
    {
        .model_type = "qwen3_next",
        .dimensions = kQwenHybridDimensions,
        .delta_dimensions = kQwenDelta,
        .layers = {LayerKind::delta_net, LayerKind::full_attention, 4, "full_attention_interval"},
        .dense_layers = true,
        .activation = Activation::swiglu,
        .router = RouterRule::softmax_then_topk,
        .norm_topk = NormTopk::absent_true,
        .attention_gate = true,
        .qk_norm = true,
        .rope = RopeRule::plain_or_yarn,
        .partial_rotary = 0.25,
        .names = {"model.layers.", kQwenHybridModel, kQwen3NextLayer},
        .experts = kQwenExperts,
        .eos = kQwen3Eos,
    },
    {
        .model_type = "qwen3_5_moe",
        .text_model_type = "qwen3_5_moe_text",
        .dimensions = kQwenHybridDimensions,
        .delta_dimensions = kQwenDelta,
        .layers = {LayerKind::delta_net, LayerKind::full_attention, 4, "full_attention_interval"},
        .activation = Activation::swiglu,
        .router = RouterRule::softmax_then_topk,
        .norm_topk = NormTopk::always,
        .attention_gate = true,
        .qk_norm = true,
        .rope = RopeRule::plain_or_yarn,
        .partial_rotary = 0.25,
        .names = {"model.layers.", kQwenHybridModel, kQwen35Layer},
        .experts = kQwenExperts,
        .eos = kQwen35Eos,
    },
}};

}  // namespace

const Family* find_family(std::string_view model_type) {
  for (const Family& family : kFamilies)
    if (family.model_type == model_type ||
        (!family.text_model_type.empty() && family.text_model_type == model_type))
      return &family;
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

std::vector<TensorPart> tensor_parts(const TensorNames& names, std::string_view canonical) {
  constexpr std::string_view kLayers = "layers.";
  std::vector<TensorPart> parts;
  if (!canonical.starts_with(kLayers)) {
    for (const ReleasedTensor& tensor : names.model)
      if (tensor.canonical == canonical) parts.push_back({std::string(tensor.released), &tensor});
    return parts;
  }
  const size_t dot = std::min(canonical.find('.', kLayers.size()), canonical.size() - 1);
  const std::string_view number = canonical.substr(kLayers.size(), dot - kLayers.size());
  for (const ReleasedTensor& tensor : names.layer)
    if (tensor.canonical == canonical.substr(dot + 1))
      parts.push_back(
          {fmt::format("{}{}.{}", names.layer_prefix, number, tensor.released), &tensor});
  return parts;
}

std::string expert_name(const TensorNames& names, uint32_t layer, std::string_view part,
                        uint32_t expert) {
  const size_t star = part.find('*');
  if (star == std::string_view::npos)
    return fmt::format("{}{}.{}", names.layer_prefix, layer, part);
  return fmt::format("{}{}.{}{}{}", names.layer_prefix, layer, part.substr(0, star), expert,
                     part.substr(star + 1));
}

}  // namespace wader
