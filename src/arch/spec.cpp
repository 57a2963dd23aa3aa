#include "arch/spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.h"

namespace wader {
namespace {

// Bounds that no released model comes near; they keep every product of dims far below 2^63.
constexpr uint64_t kMaxDim = 1u << 20, kMaxVocab = 1u << 22, kMaxLayers = 1024,
                   kMaxExperts = 1u << 14, kMaxContext = 1u << 24;

constexpr std::array<std::pair<LayerKind, const char*>, 2> kLayerKinds = {
    {{LayerKind::full_attention, "full_attention"},
     {LayerKind::sliding_attention, "sliding_attention"}}};
constexpr std::array<std::pair<Activation, const char*>, 1> kActivations = {
    {{Activation::swiglu_clamped, "swiglu_clamped"}}};
constexpr std::array<std::pair<RouterRule, const char*>, 1> kRouterRules = {
    {{RouterRule::topk_then_softmax, "topk_then_softmax"}}};

template <typename Enum, size_t N>
const char* name_of(const std::array<std::pair<Enum, const char*>, N>& names, Enum value) {
  for (const auto& [candidate, name] : names)
    if (candidate == value) return name;
  UNREACHABLE("enum value without a name");
}

template <typename Enum, size_t N>
Result<Enum> value_of(const std::array<std::pair<Enum, const char*>, N>& names,
                      const std::string& text, std::string_view key) {
  for (const auto& [value, name] : names)
    if (text == name) return value;
  return unsupported_error("{} '{}' is not known to this version", key, text);
}

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

}  // namespace

Status validate_spec(const ArchitectureSpec& spec) {
  RETURN_IF_ERROR(check_range("vocab_rows", spec.vocab_rows, 1, kMaxVocab));
  RETURN_IF_ERROR(check_range("hidden", spec.hidden, 32, kMaxDim));
  RETURN_IF_ERROR(check_range("query_heads", spec.query_heads, 1, 4096));
  RETURN_IF_ERROR(check_range("kv_heads", spec.kv_heads, 1, spec.query_heads));
  RETURN_IF_ERROR(check_range("head_dim", spec.head_dim, 2, 4096));
  RETURN_IF_ERROR(check_range("experts", spec.experts, 1, kMaxExperts));
  RETURN_IF_ERROR(check_range("experts_per_token", spec.experts_per_token, 1,
                              std::min<uint64_t>(spec.experts, 64)));
  RETURN_IF_ERROR(check_range("expert_inner", spec.expert_inner, 32, kMaxDim));
  RETURN_IF_ERROR(check_range("max_context", spec.max_context, 1, kMaxContext));
  RETURN_IF_ERROR(check_range("layers", spec.layers.size(), 1, kMaxLayers));
  if (spec.query_heads % spec.kv_heads != 0)
    return invalid_argument_error("query_heads {} is not a multiple of kv_heads {}",
                                  spec.query_heads, spec.kv_heads);
  if (spec.head_dim % 2 != 0)
    return invalid_argument_error("head_dim {} is odd; rotary embedding needs pairs",
                                  spec.head_dim);
  if (spec.hidden % 32 != 0 || spec.expert_inner % 32 != 0)
    return invalid_argument_error(
        "hidden {} and expert_inner {} must be multiples of 32 (MXFP4 blocks)", spec.hidden,
        spec.expert_inner);
  const bool slides = std::find(spec.layers.begin(), spec.layers.end(),
                                LayerKind::sliding_attention) != spec.layers.end();
  if (slides) RETURN_IF_ERROR(check_range("sliding_window", spec.sliding_window, 1, kMaxContext));
  RETURN_IF_ERROR(check_positive("norm_eps", spec.norm_eps));
  RETURN_IF_ERROR(check_positive("swiglu_limit", spec.swiglu_limit));
  return validate_rope(spec.rope);
}

Json spec_to_json(const ArchitectureSpec& spec) {
  Json layers = Json::array();
  for (LayerKind kind : spec.layers) layers.push_back(name_of(kLayerKinds, kind));
  Json rope = {{"theta", spec.rope.theta}};
  if (const auto& yarn = spec.rope.yarn) {
    rope["yarn"] = {{"factor", yarn->factor},       {"original_context", yarn->original_context},
                    {"beta_fast", yarn->beta_fast}, {"beta_slow", yarn->beta_slow},
                    {"truncate", yarn->truncate},   {"attention_factor", yarn->attention_factor}};
  }
  return {{"family", spec.family},
          {"vocab_rows", spec.vocab_rows},
          {"hidden", spec.hidden},
          {"query_heads", spec.query_heads},
          {"kv_heads", spec.kv_heads},
          {"head_dim", spec.head_dim},
          {"experts", spec.experts},
          {"experts_per_token", spec.experts_per_token},
          {"expert_inner", spec.expert_inner},
          {"sliding_window", spec.sliding_window},
          {"max_context", spec.max_context},
          {"norm_eps", spec.norm_eps},
          {"rope", std::move(rope)},
          {"layers", std::move(layers)},
          {"activation", name_of(kActivations, spec.activation)},
          {"swiglu_limit", spec.swiglu_limit},
          {"router", name_of(kRouterRules, spec.router)},
          {"attention_bias", spec.attention_bias},
          {"attention_sinks", spec.attention_sinks},
          {"router_bias", spec.router_bias},
          {"expert_bias", spec.expert_bias}};
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

}  // namespace

Result<ArchitectureSpec> spec_from_json(const Json& json) {
  ArchitectureSpec spec{};
  if (!json.is_object()) return invalid_argument_error("the architecture spec must be an object");
  std::set<std::string> known;
  Status status;
  const auto read_u32 = [&](const char* key, uint32_t& field) {
    known.insert(key);
    if (!status.ok()) return;
    auto value = json_uint(json, key, 0, UINT32_MAX);
    if (value.ok())
      field = static_cast<uint32_t>(*value);
    else
      status = std::move(value).error();
  };
  const auto read_number = [&](const char* key, double& field) {
    known.insert(key);
    if (!status.ok()) return;
    auto value = json_number(json, key, 0, 1e12);
    if (value.ok())
      field = *value;
    else
      status = std::move(value).error();
  };
  const auto read_bool = [&](const char* key, bool& field) {
    known.insert(key);
    if (!status.ok()) return;
    auto value = json_bool(json, key);
    if (value.ok())
      field = *value;
    else
      status = std::move(value).error();
  };
  read_u32("vocab_rows", spec.vocab_rows);
  read_u32("hidden", spec.hidden);
  read_u32("query_heads", spec.query_heads);
  read_u32("kv_heads", spec.kv_heads);
  read_u32("head_dim", spec.head_dim);
  read_u32("experts", spec.experts);
  read_u32("experts_per_token", spec.experts_per_token);
  read_u32("expert_inner", spec.expert_inner);
  read_u32("sliding_window", spec.sliding_window);
  read_u32("max_context", spec.max_context);
  read_number("norm_eps", spec.norm_eps);
  read_number("swiglu_limit", spec.swiglu_limit);
  read_bool("attention_bias", spec.attention_bias);
  read_bool("attention_sinks", spec.attention_sinks);
  read_bool("router_bias", spec.router_bias);
  read_bool("expert_bias", spec.expert_bias);
  RETURN_IF_ERROR(std::move(status));

  known.insert({"family", "rope", "layers", "activation", "router"});
  RETURN_IF_ERROR(refuse_unknown_keys(json, known, "the architecture spec"));
  ASSIGN_OR_RETURN(spec.family, json_string(json, "family"));
  ASSIGN_OR_RETURN(const Json* rope, json_member(json, "rope"));
  ASSIGN_OR_RETURN(spec.rope, rope_from_json(*rope));
  ASSIGN_OR_RETURN(const std::string activation, json_string(json, "activation"));
  ASSIGN_OR_RETURN(spec.activation, value_of(kActivations, activation, "activation"));
  ASSIGN_OR_RETURN(const std::string router, json_string(json, "router"));
  ASSIGN_OR_RETURN(spec.router, value_of(kRouterRules, router, "router"));
  ASSIGN_OR_RETURN(const Json* layers, json_member(json, "layers"));
  if (!layers->is_array() || layers->size() > kMaxLayers)
    return invalid_argument_error("key 'layers' must be an array of at most {} layer kinds",
                                  kMaxLayers);
  for (const Json& layer : *layers) {
    if (!layer.is_string()) return invalid_argument_error("key 'layers' must hold strings");
    ASSIGN_OR_RETURN(LayerKind kind, value_of(kLayerKinds, layer.get<std::string>(), "layer kind"));
    spec.layers.push_back(kind);
  }
  RETURN_IF_ERROR(validate_spec(spec));
  return spec;
}

}  // namespace wader
