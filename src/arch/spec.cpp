#include "arch/spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.h"

namespace wader {
namespace {

using Spec = ArchitectureSpec;

// Bounds that no released model comes near; they keep every product of dims far below 2^63.
constexpr uint64_t kMaxDim = 1u << 20, kMaxVocab = 1u << 22, kMaxLayers = 1024,
                   kMaxExperts = 1u << 14, kMaxContext = 1u << 24, kMaxHeads = 4096;

template <typename Enum, size_t N>
using Names = std::array<std::pair<Enum, const char*>, N>;

constexpr Names<LayerKind, 3> kLayerKinds = {{{LayerKind::full_attention, "full_attention"},
                                              {LayerKind::sliding_attention, "sliding_attention"},
                                              {LayerKind::delta_net, "delta_net"}}};
constexpr Names<FfnKind, 2> kFfnKinds = {{{FfnKind::moe, "moe"}, {FfnKind::dense, "dense"}}};
constexpr Names<Activation, 2> kActivations = {
    {{Activation::swiglu, "swiglu"}, {Activation::swiglu_clamped, "swiglu_clamped"}}};
constexpr Names<RouterRule, 3> kRouterRules = {
    {{RouterRule::topk_then_softmax, "topk_then_softmax"},
     {RouterRule::softmax_then_topk, "softmax_then_topk"},
     {RouterRule::softmax_then_topk_renormalised, "softmax_then_topk_renormalised"}}};

template <typename Enum, size_t N>
const char* name_of(const Names<Enum, N>& names, Enum value) {
  for (const auto& [candidate, name] : names)
    if (candidate == value) return name;
  UNREACHABLE("enum value without a name");
}

template <typename Enum, size_t N>
Result<Enum> value_of(const Names<Enum, N>& names, const Json& json, std::string_view key) {
  ASSIGN_OR_RETURN(const std::string text, json_string(json, key));
  for (const auto& [value, name] : names)
    if (text == name) return value;
  return unsupported_error("{} '{}' is not known to this version", key, text);
}

// The plain fields, as the JSON has them.
constexpr Names<uint32_t Spec::*, 13> kDims = {{{&Spec::vocab_rows, "vocab_rows"},
                                                {&Spec::hidden, "hidden"},
                                                {&Spec::query_heads, "query_heads"},
                                                {&Spec::kv_heads, "kv_heads"},
                                                {&Spec::head_dim, "head_dim"},
                                                {&Spec::rotary_dim, "rotary_dim"},
                                                {&Spec::experts, "experts"},
                                                {&Spec::experts_per_token, "experts_per_token"},
                                                {&Spec::expert_inner, "expert_inner"},
                                                {&Spec::shared_inner, "shared_inner"},
                                                {&Spec::dense_inner, "dense_inner"},
                                                {&Spec::sliding_window, "sliding_window"},
                                                {&Spec::max_context, "max_context"}}};
constexpr Names<double Spec::*, 2> kNumbers = {
    {{&Spec::norm_eps, "norm_eps"}, {&Spec::swiglu_limit, "swiglu_limit"}}};
constexpr Names<bool Spec::*, 7> kFlags = {{{&Spec::attention_bias, "attention_bias"},
                                            {&Spec::attention_sinks, "attention_sinks"},
                                            {&Spec::attention_gate, "attention_gate"},
                                            {&Spec::qk_norm, "qk_norm"},
                                            {&Spec::router_bias, "router_bias"},
                                            {&Spec::expert_bias, "expert_bias"},
                                            {&Spec::tied_head, "tied_head"}}};
constexpr Names<uint32_t DeltaNetSpec::*, 5> kDeltaDims = {
    {{&DeltaNetSpec::key_heads, "key_heads"},
     {&DeltaNetSpec::value_heads, "value_heads"},
     {&DeltaNetSpec::key_dim, "key_dim"},
     {&DeltaNetSpec::value_dim, "value_dim"},
     {&DeltaNetSpec::conv_kernel, "conv_kernel"}}};

Status check_range(std::string_view name, uint64_t value, uint64_t min, uint64_t max) {
  if (value >= min && value <= max) return {};
  return invalid_argument_error("{} is {}; it must be from {} to {}", name, value, min, max);
}

Status check_positive(std::string_view name, double value) {
  if (std::isfinite(value) && value > 0) return {};
  return invalid_argument_error("{} is {}; it must be a positive number", name, value);
}

Status validate_rope(const Rope& rope) {
  RETURN_IF_ERROR(check_positive("rope theta", rope.theta));
  if (rope.theta <= 1)
    return invalid_argument_error("rope theta is {}; it must be over 1", rope.theta);
  if (!rope.yarn) return {};
  RETURN_IF_ERROR(check_positive("yarn factor", rope.yarn->factor));
  RETURN_IF_ERROR(check_positive("yarn original context", rope.yarn->original_context));
  RETURN_IF_ERROR(check_positive("yarn beta_fast", rope.yarn->beta_fast));
  RETURN_IF_ERROR(check_positive("yarn beta_slow", rope.yarn->beta_slow));
  return check_positive("yarn attention factor", rope.yarn->attention_factor);
}

Status validate_attention(const Spec& spec) {
  RETURN_IF_ERROR(check_range("query_heads", spec.query_heads, 1, kMaxHeads));
  RETURN_IF_ERROR(check_range("kv_heads", spec.kv_heads, 1, spec.query_heads));
  RETURN_IF_ERROR(check_range("head_dim", spec.head_dim, 2, 4096));
  RETURN_IF_ERROR(check_range("rotary_dim", spec.rotary_dim, 2, spec.head_dim));
  if (spec.query_heads % spec.kv_heads != 0)
    return invalid_argument_error("query_heads {} is not a multiple of kv_heads {}",
                                  spec.query_heads, spec.kv_heads);
  if (spec.rotary_dim % 2 != 0)
    return invalid_argument_error("rotary_dim {} is odd; rotary embedding needs pairs",
                                  spec.rotary_dim);
  return validate_rope(spec.rope);
}

Status validate_delta_net(const DeltaNetSpec& delta) {
  RETURN_IF_ERROR(check_range("delta key_heads", delta.key_heads, 1, kMaxHeads));
  RETURN_IF_ERROR(check_range("delta value_heads", delta.value_heads, 1, kMaxHeads));
  RETURN_IF_ERROR(check_range("delta key_dim", delta.key_dim, 1, 4096));
  RETURN_IF_ERROR(check_range("delta value_dim", delta.value_dim, 1, 4096));
  RETURN_IF_ERROR(check_range("delta conv_kernel", delta.conv_kernel, 2, kMaxConvKernel));
  if (delta.value_heads % delta.key_heads != 0)
    return invalid_argument_error("delta value_heads {} is not a multiple of key_heads {}",
                                  delta.value_heads, delta.key_heads);
  return {};
}

Status validate_ffn(const Spec& spec) {
  RETURN_IF_ERROR(check_range("experts", spec.experts, 1, kMaxExperts));
  RETURN_IF_ERROR(check_range("experts_per_token", spec.experts_per_token, 1,
                              std::min<uint64_t>(spec.experts, 64)));
  RETURN_IF_ERROR(check_range("expert_inner", spec.expert_inner, 1, kMaxDim));
  RETURN_IF_ERROR(check_range("shared_inner", spec.shared_inner, 0, kMaxDim));
  const bool has_dense = spec.moe_layer_count() < spec.layer_count();
  RETURN_IF_ERROR(check_range("dense_inner", spec.dense_inner, has_dense ? 1 : 0, kMaxDim));
  if (spec.moe_layer_count() == 0)
    return unsupported_error(
        "no layer has routed experts; this program streams experts, a dense model has none");
  if (spec.activation == Activation::swiglu_clamped)
    return check_positive("swiglu_limit", spec.swiglu_limit);
  return {};
}

}  // namespace

bool ArchitectureSpec::has_mixer(LayerKind kind) const {
  return std::any_of(layers.begin(), layers.end(),
                     [kind](const LayerSpec& layer) { return layer.mixer == kind; });
}

uint32_t ArchitectureSpec::moe_layers_before(uint32_t n) const {
  return static_cast<uint32_t>(
      std::count_if(layers.begin(), layers.begin() + n,
                    [](const LayerSpec& layer) { return layer.ffn == FfnKind::moe; }));
}

Status validate_spec(const ArchitectureSpec& spec) {
  RETURN_IF_ERROR(check_range("vocab_rows", spec.vocab_rows, 1, kMaxVocab));
  RETURN_IF_ERROR(check_range("hidden", spec.hidden, 2, kMaxDim));
  RETURN_IF_ERROR(check_range("max_context", spec.max_context, 1, kMaxContext));
  RETURN_IF_ERROR(check_range("layers", spec.layers.size(), 1, kMaxLayers));
  RETURN_IF_ERROR(check_positive("norm_eps", spec.norm_eps));
  RETURN_IF_ERROR(validate_attention(spec));
  if (spec.has_mixer(LayerKind::sliding_attention))
    RETURN_IF_ERROR(check_range("sliding_window", spec.sliding_window, 1, kMaxContext));
  if (spec.has_mixer(LayerKind::delta_net)) RETURN_IF_ERROR(validate_delta_net(spec.delta));
  return validate_ffn(spec);
}

Json spec_to_json(const ArchitectureSpec& spec) {
  Json json = {{"family", spec.family}};
  for (const auto& [field, name] : kDims) json[name] = spec.*field;
  for (const auto& [field, name] : kNumbers) json[name] = spec.*field;
  for (const auto& [field, name] : kFlags) json[name] = spec.*field;
  json["activation"] = name_of(kActivations, spec.activation);
  json["router"] = name_of(kRouterRules, spec.router);
  json["rope"] = {{"theta", spec.rope.theta}};
  if (const auto& yarn = spec.rope.yarn) {
    json["rope"]["yarn"] = {
        {"factor", yarn->factor},       {"original_context", yarn->original_context},
        {"beta_fast", yarn->beta_fast}, {"beta_slow", yarn->beta_slow},
        {"truncate", yarn->truncate},   {"attention_factor", yarn->attention_factor}};
  }
  if (spec.has_mixer(LayerKind::delta_net))
    for (const auto& [field, name] : kDeltaDims) json["delta"][name] = spec.delta.*field;
  json["layers"] = Json::array();
  for (const LayerSpec& layer : spec.layers)
    json["layers"].push_back(
        {{"mixer", name_of(kLayerKinds, layer.mixer)}, {"ffn", name_of(kFfnKinds, layer.ffn)}});
  return json;
}

namespace {

Status refuse_unknown_keys(const Json& json, const std::set<std::string>& known,
                           std::string_view what) {
  for (const auto& [key, value] : json.items())
    if (!known.contains(key))
      return unsupported_error("{} has a key '{}' that this version does not know", what, key);
  return {};
}

Result<Yarn> yarn_from_json(const Json& json) {
  RETURN_IF_ERROR(refuse_unknown_keys(
      json,
      {"factor", "original_context", "beta_fast", "beta_slow", "truncate", "attention_factor"},
      "yarn"));
  Yarn yarn{};
  ASSIGN_OR_RETURN(yarn.factor, json_number(json, "factor", 0, 1e9));
  ASSIGN_OR_RETURN(yarn.original_context, json_number(json, "original_context", 0, 1e12));
  ASSIGN_OR_RETURN(yarn.beta_fast, json_number(json, "beta_fast", 0, 1e9));
  ASSIGN_OR_RETURN(yarn.beta_slow, json_number(json, "beta_slow", 0, 1e9));
  ASSIGN_OR_RETURN(yarn.truncate, json_bool(json, "truncate"));
  ASSIGN_OR_RETURN(yarn.attention_factor, json_number(json, "attention_factor", 0, 1e9));
  return yarn;
}

Result<Rope> rope_from_json(const Json& json) {
  RETURN_IF_ERROR(refuse_unknown_keys(json, {"theta", "yarn"}, "rope"));
  Rope rope{};
  ASSIGN_OR_RETURN(rope.theta, json_number(json, "theta", 1, 1e12));
  if (json_has(json, "yarn")) {
    ASSIGN_OR_RETURN(rope.yarn, yarn_from_json(json["yarn"]));
  }
  return rope;
}

Result<DeltaNetSpec> delta_from_json(const Json& json) {
  DeltaNetSpec delta;
  std::set<std::string> known;
  for (const auto& [field, name] : kDeltaDims) {
    known.insert(name);
    ASSIGN_OR_RETURN(const uint64_t value, json_uint(json, name, 0, UINT32_MAX));
    delta.*field = static_cast<uint32_t>(value);
  }
  RETURN_IF_ERROR(refuse_unknown_keys(json, known, "delta"));
  return delta;
}

Result<std::vector<LayerSpec>> layers_from_json(const Json& json) {
  if (!json.is_array() || json.size() > kMaxLayers)
    return invalid_argument_error("key 'layers' must be an array of at most {} layers", kMaxLayers);
  std::vector<LayerSpec> layers;
  for (const Json& layer : json) {
    ASSIGN_OR_RETURN(const LayerKind mixer, value_of(kLayerKinds, layer, "mixer"));
    ASSIGN_OR_RETURN(const FfnKind ffn, value_of(kFfnKinds, layer, "ffn"));
    RETURN_IF_ERROR(refuse_unknown_keys(layer, {"mixer", "ffn"}, "a layer"));
    layers.emplace_back(mixer, ffn);
  }
  return layers;
}

}  // namespace

Result<ArchitectureSpec> spec_from_json(const Json& json) {
  if (!json.is_object()) return invalid_argument_error("the architecture spec must be an object");
  ArchitectureSpec spec{};
  std::set<std::string> known = {"family", "activation", "router", "rope", "delta", "layers"};
  for (const auto& [field, name] : kDims) {
    known.insert(name);
    ASSIGN_OR_RETURN(const uint64_t value, json_uint(json, name, 0, UINT32_MAX));
    spec.*field = static_cast<uint32_t>(value);
  }
  for (const auto& [field, name] : kNumbers) {
    known.insert(name);
    ASSIGN_OR_RETURN(spec.*field, json_number(json, name, 0, 1e12));
  }
  for (const auto& [field, name] : kFlags) {
    known.insert(name);
    ASSIGN_OR_RETURN(spec.*field, json_bool(json, name));
  }
  RETURN_IF_ERROR(refuse_unknown_keys(json, known, "the architecture spec"));
  ASSIGN_OR_RETURN(spec.family, json_string(json, "family"));
  ASSIGN_OR_RETURN(spec.activation, value_of(kActivations, json, "activation"));
  ASSIGN_OR_RETURN(spec.router, value_of(kRouterRules, json, "router"));
  ASSIGN_OR_RETURN(const Json* rope, json_member(json, "rope"));
  ASSIGN_OR_RETURN(spec.rope, rope_from_json(*rope));
  if (json_has(json, "delta")) {
    ASSIGN_OR_RETURN(spec.delta, delta_from_json(json["delta"]));
  }
  ASSIGN_OR_RETURN(const Json* layers, json_member(json, "layers"));
  ASSIGN_OR_RETURN(spec.layers, layers_from_json(*layers));
  RETURN_IF_ERROR(validate_spec(spec));
  return spec;
}

}  // namespace wader
