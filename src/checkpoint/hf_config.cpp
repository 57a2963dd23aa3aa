#include "checkpoint/hf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "checkpoint/families.h"
#include "checkpoint/json_events.h"

namespace wader {
namespace {

// Keys that do not touch what a forward pass computes: training, token numbers
// (generation_config.json and the tokenizer have the say), bookkeeping. Keys that begin with '_'
// count as such too.
constexpr std::array<std::string_view, 29> kHarmless = {"architectures",
                                                        "attention_dropout",
                                                        "bos_token_id",
                                                        "dtype",
                                                        "eos_token_id",
                                                        "id2label",
                                                        "initializer_range",
                                                        "is_decoder",
                                                        "is_encoder_decoder",
                                                        "label2id",
                                                        "output_attentions",
                                                        "output_hidden_states",
                                                        "output_router_logits",
                                                        "pad_token_id",
                                                        "problem_type",
                                                        "return_dict",
                                                        "router_aux_loss_coef",
                                                        "sep_token_id",
                                                        "task_specific_params",
                                                        "tokenizer_class",
                                                        "torch_dtype",
                                                        "torchscript",
                                                        "transformers_version",
                                                        "unsloth_fixed",
                                                        "unsloth_version",
                                                        "use_bfloat16",
                                                        "use_cache",
                                                        "chunk_size_feed_forward",
                                                        "decoder_start_token_id"};

// An object of the config whose keys are ticked off as they are read.
class Section {
 public:
  Section(const Json& json, std::string name) : json_(json), name_(std::move(name)) {}

  // Whether `key` stands there with a value other than null; it then counts as read.
  bool has(std::string_view key) {
    read_.emplace(key);
    return json_has(json_, key);
  }
  Result<uint64_t> whole(std::string_view key, uint64_t min, uint64_t max) {
    read_.emplace(key);
    return json_uint(json_, key, min, max);
  }
  Result<double> number(std::string_view key, double min, double max) {
    read_.emplace(key);
    return json_number(json_, key, min, max);
  }
  Result<double> number_or(std::string_view key, double min, double max, double fallback) {
    if (!has(key)) return fallback;
    return number(key, min, max);
  }
  Result<bool> boolean(std::string_view key) {
    read_.emplace(key);
    return json_bool(json_, key);
  }
  Result<bool> boolean_or(std::string_view key, bool fallback) {
    if (!has(key)) return fallback;
    return boolean(key);
  }
  Result<std::string> string(std::string_view key) {
    read_.emplace(key);
    return json_string(json_, key);
  }
  // `key` must be absent or exactly this string.
  Status only(std::string_view key, std::string_view value) {
    if (!has(key)) return {};
    ASSIGN_OR_RETURN(const std::string text, string(key));
    if (text == value) return {};
    return unsupported_error("{} is {}; only '{}' is supported", key, in_quotes(text), value);
  }
  Result<const Json*> object(std::string_view key) {
    read_.emplace(key);
    ASSIGN_OR_RETURN(const Json* value, json_member(json_, key));
    if (!value->is_object()) return invalid_argument_error("key '{}' must be an object", key);
    return value;
  }
  Result<const Json*> array(std::string_view key) {
    read_.emplace(key);
    ASSIGN_OR_RETURN(const Json* value, json_member(json_, key));
    if (!value->is_array()) return invalid_argument_error("key '{}' must be an array", key);
    return value;
  }

  // Last: every key was read, or is harmless, or is null.
  Status refuse_unread() const {
    for (const auto& [key, value] : json_.items()) {
      if (value.is_null() || key.starts_with('_') || read_.contains(key) ||
          std::find(kHarmless.begin(), kHarmless.end(), key) != kHarmless.end())
        continue;
      return unsupported_error(
          "{} has {}, which this version doesn't know and which may change the arithmetic", name_,
          in_quotes(key));
    }
    return {};
  }

 private:
  const Json& json_;
  std::string name_;
  std::set<std::string, std::less<>> read_;
};

Status read_dimensions(Section& config, const Family& family, ArchitectureSpec& spec) {
  for (const DimensionKey& dimension : family.dimensions) {
    const bool by_alias =
        !dimension.alias.empty() && config.has(dimension.alias) && !config.has(dimension.key);
    const std::string_view key = by_alias ? dimension.alias : dimension.key;
    ASSIGN_OR_RETURN(const uint64_t value, config.whole(key, 1, UINT32_MAX));
    spec.*dimension.field = static_cast<uint32_t>(value);
    if (dimension.alias.empty() || by_alias || !config.has(dimension.alias)) continue;
    ASSIGN_OR_RETURN(const uint64_t again, config.whole(dimension.alias, 1, UINT32_MAX));
    if (again != value)
      return invalid_argument_error("{} is {} and {} is {}; they must agree", dimension.key, value,
                                    dimension.alias, again);
  }
  return {};
}

Status read_layers(Section& config, const Family& family, ArchitectureSpec& spec) {
  ASSIGN_OR_RETURN(const uint64_t count, config.whole("num_hidden_layers", 1, 1024));
  if (!config.has("layer_types")) {
    for (uint64_t n = 0; n < count; ++n)
      spec.layers.push_back(n % 2 == 0 ? family.even_layers : family.odd_layers);
    return {};
  }
  ASSIGN_OR_RETURN(const Json* kinds, config.array("layer_types"));
  if (kinds->size() != count)
    return invalid_argument_error("layer_types has {} entries, num_hidden_layers is {}",
                                  kinds->size(), count);
  for (const Json& kind : *kinds) {
    if (kind == "sliding_attention") {
      spec.layers.push_back(LayerKind::sliding_attention);
    } else if (kind == "full_attention") {
      spec.layers.push_back(LayerKind::full_attention);
    } else {
      return unsupported_error("layer_types has {}; sliding_attention and full_attention are known",
                               in_quotes(json_text(kind)));
    }
  }
  return {};
}

Result<Yarn> read_yarn(Section& rope, std::string_view name) {
  Yarn yarn{};
  ASSIGN_OR_RETURN(yarn.factor, rope.number("factor", 1, 1e6));
  ASSIGN_OR_RETURN(yarn.original_context, rope.number("original_max_position_embeddings", 1, 1e9));
  ASSIGN_OR_RETURN(yarn.beta_fast, rope.number_or("beta_fast", 0, 1e6, 32));
  ASSIGN_OR_RETURN(yarn.beta_slow, rope.number_or("beta_slow", 0, 1e6, 1));
  if (yarn.beta_fast <= yarn.beta_slow)
    return invalid_argument_error("beta_fast {} must be over beta_slow {}", yarn.beta_fast,
                                  yarn.beta_slow);
  ASSIGN_OR_RETURN(yarn.attention_factor,
                   rope.number_or("attention_factor", 0, 1e6, 0.1 * std::log(yarn.factor) + 1));
  if (!rope.has("truncate"))
    return unsupported_error(
        "{} has no 'truncate': whether the YaRN range is rounded is never guessed (released "
        "GPT-OSS models have \"truncate\": false)",
        name);
  ASSIGN_OR_RETURN(yarn.truncate, rope.boolean("truncate"));
  return yarn;
}

// The settings under `key`, with theta inside or beside them.
Result<Rope> read_rope_at(Section& config, std::string_view key, const Family& family) {
  ASSIGN_OR_RETURN(const Json* json, config.object(key));
  Section section(*json, fmt::format("config.json's {}", key));
  Rope rope{};
  const bool inside = section.has("rope_theta"), beside = config.has("rope_theta");
  ASSIGN_OR_RETURN(rope.theta, (inside ? section : config).number("rope_theta", 1, 1e12));
  if (inside && beside) {
    ASSIGN_OR_RETURN(const double other, config.number("rope_theta", 1, 1e12));
    if (other != rope.theta)
      return invalid_argument_error("rope_theta is {} in {} and {} beside it; they must agree",
                                    rope.theta, key, other);
  }
  if (!section.has("rope_type") && !section.has("type"))
    return invalid_argument_error("{} has no rope_type", key);
  RETURN_IF_ERROR(section.only("rope_type", family.rope_type));
  RETURN_IF_ERROR(section.only("type", family.rope_type));
  ASSIGN_OR_RETURN(rope.yarn, read_yarn(section, key));
  RETURN_IF_ERROR(section.refuse_unread());
  return rope;
}

bool same_rope(const Rope& a, const Rope& b) {
  const auto fields = [](const Rope& r) {
    const Yarn y = r.yarn.value_or(Yarn{});
    return std::tuple(r.theta, y.factor, y.original_context, y.beta_fast, y.beta_slow, y.truncate,
                      y.attention_factor);
  };
  return fields(a) == fields(b);
}

Status read_rope(Section& config, const Family& family, ArchitectureSpec& spec) {
  const bool scaling = config.has("rope_scaling"), parameters = config.has("rope_parameters");
  if (!scaling && !parameters)
    return invalid_argument_error(
        "there is neither 'rope_scaling' nor 'rope_parameters'; the settings of the rotary "
        "embedding are never guessed");
  ASSIGN_OR_RETURN(spec.rope,
                   read_rope_at(config, scaling ? "rope_scaling" : "rope_parameters", family));
  if (scaling && parameters) {
    ASSIGN_OR_RETURN(const Rope other, read_rope_at(config, "rope_parameters", family));
    if (!same_rope(spec.rope, other))
      return invalid_argument_error("rope_scaling and rope_parameters contradict each other");
  }
  // GPT-OSS's own name for the length before YaRN; the settings above repeat it.
  if (!config.has("initial_context_length")) return {};
  ASSIGN_OR_RETURN(const uint64_t initial, config.whole("initial_context_length", 1, UINT32_MAX));
  if (static_cast<double>(initial) == spec.rope.yarn->original_context) return {};
  return invalid_argument_error(
      "initial_context_length is {}, original_max_position_embeddings {}; they must agree", initial,
      spec.rope.yarn->original_context);
}

Status check_quantisation(Section& config, const Family& family) {
  if (!config.has("quantization_config"))
    return unsupported_error("there is no quantization_config; only experts in {} are supported",
                             family.quant_method);
  ASSIGN_OR_RETURN(const Json* json, config.object("quantization_config"));
  Section section(*json, "config.json's quantization_config");
  ASSIGN_OR_RETURN(const std::string method, section.string("quant_method"));
  if (method != family.quant_method)
    return unsupported_error("quant_method is {}; only '{}' is supported", in_quotes(method),
                             family.quant_method);
  // The tensors' own names and dtypes say what is converted, and are all checked. `dequantize` says
  // what transformers should do with the codes on loading.
  section.has("modules_to_not_convert");
  section.has("dequantize");
  return section.refuse_unread();
}

Result<HfModel> read_model(const Json& json) {
  if (!json.is_object()) return invalid_argument_error("not an object");
  Section config(json, "config.json");
  ASSIGN_OR_RETURN(const std::string model_type, config.string("model_type"));
  const Family* const family = find_family(model_type);
  if (family == nullptr)
    return unsupported_error("model_type {} is not supported; supported: {}", in_quotes(model_type),
                             supported_families());
  HfModel model{};
  ArchitectureSpec& spec = model.spec;
  spec.family = model_type;
  spec.activation = family->activation;
  spec.router = family->router;
  spec.attention_sinks = family->attention_sinks;
  spec.router_bias = family->router_bias;
  spec.expert_bias = family->expert_bias;
  RETURN_IF_ERROR(config.only("hidden_act", "silu"));
  RETURN_IF_ERROR(check_quantisation(config, *family));
  RETURN_IF_ERROR(read_dimensions(config, *family, spec));
  RETURN_IF_ERROR(read_layers(config, *family, spec));
  RETURN_IF_ERROR(read_rope(config, *family, spec));
  ASSIGN_OR_RETURN(spec.norm_eps, config.number("rms_norm_eps", 0, 1));
  ASSIGN_OR_RETURN(spec.swiglu_limit,
                   config.number_or("swiglu_limit", 0, 1e6, family->swiglu_limit));
  ASSIGN_OR_RETURN(spec.attention_bias,
                   config.boolean_or("attention_bias", family->attention_bias));
  ASSIGN_OR_RETURN(model.tied_head, config.boolean_or("tie_word_embeddings", false));
  RETURN_IF_ERROR(config.refuse_unread());
  RETURN_IF_ERROR(validate_spec(spec));
  return model;
}

}  // namespace

Result<HfModel> model_from_hf_config(const Json& config) {
  auto model = read_model(config);
  if (!model.ok() && !model.error().message.starts_with("config.json"))
    return std::move(model).error().within("config.json");
  return model;
}

}  // namespace wader
