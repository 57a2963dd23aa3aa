#include "checkpoint/hf_config.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "checkpoint/config_section.h"
#include "checkpoint/file_checks.h"
#include "checkpoint/rope_config.h"

namespace wader {
namespace {

// Keys that do not touch what a forward pass computes: training, token numbers
// (generation_config.json and the tokenizer have the say), bookkeeping, the multi-token prediction
// head. Keys that begin with '_' count as such too.
constexpr std::array<std::string_view, 38> kHarmless = {"architectures",
                                                        "attention_dropout",
                                                        "bos_token_id",
                                                        "chunk_size_feed_forward",
                                                        "decoder_start_token_id",
                                                        "dtype",
                                                        "eos_token_id",
                                                        "id2label",
                                                        "image_token_id",
                                                        "image_token_index",
                                                        "initializer_range",
                                                        "is_decoder",
                                                        "is_encoder_decoder",
                                                        "label2id",
                                                        "mtp_num_hidden_layers",
                                                        "mtp_use_dedicated_embeddings",
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
                                                        "video_token_id",
                                                        "video_token_index",
                                                        "vision_end_token_id",
                                                        "vision_start_token_id",
                                                        "vision_token_id"};

bool is_harmless(std::string_view key) {
  return std::find(kHarmless.begin(), kHarmless.end(), key) != kHarmless.end();
}

Status read_dimension(Section& config, const DimensionKey& dimension, ArchitectureSpec& spec) {
  const bool by_alias =
      !dimension.alias.empty() && config.has(dimension.alias) && !config.has(dimension.key);
  const std::string_view key = by_alias ? dimension.alias : dimension.key;
  if (dimension.optional && !config.has(key)) return {};
  ASSIGN_OR_RETURN(const uint64_t value, config.whole(key, 1, UINT32_MAX));
  spec.*dimension.field = static_cast<uint32_t>(value);
  if (dimension.alias.empty() || by_alias || !config.has(dimension.alias)) return {};
  ASSIGN_OR_RETURN(const uint64_t again, config.whole(dimension.alias, 1, UINT32_MAX));
  if (again == value) return {};
  return invalid_argument_error("{} is {} and {} is {}; they must agree", dimension.key, value,
                                dimension.alias, again);
}

Status read_dimensions(Section& config, const Family& family, ArchitectureSpec& spec) {
  for (const DimensionKey& dimension : family.dimensions)
    RETURN_IF_ERROR(read_dimension(config, dimension, spec));
  if (spec.head_dim > 0) return {};
  if (spec.hidden % spec.query_heads != 0)
    return invalid_argument_error(
        "there is no head_dim, and hidden_size {} is not a multiple of num_attention_heads {}",
        spec.hidden, spec.query_heads);
  spec.head_dim = spec.hidden / spec.query_heads;
  return {};
}

std::string_view kind_name(LayerKind kind) {
  switch (kind) {
    case LayerKind::full_attention:
      return "full_attention";
    case LayerKind::sliding_attention:
      return "sliding_attention";
    case LayerKind::delta_net:
      return "linear_attention";
  }
  UNREACHABLE("layer kind");
}

// The mixers by layer_types where the config has it, as the reference does; else by the family's
// pattern.
Status read_mixers(Section& config, const LayerPattern& pattern, ArchitectureSpec& spec) {
  ASSIGN_OR_RETURN(const uint64_t count, config.whole("num_hidden_layers", 1, 1024));
  uint64_t interval = pattern.interval;
  if (!pattern.interval_key.empty() && config.has(pattern.interval_key)) {
    ASSIGN_OR_RETURN(interval, config.whole(pattern.interval_key, 1, 1024));
  }
  for (uint64_t n = 0; n < count; ++n)
    spec.layers.emplace_back((n + 1) % interval == 0 ? pattern.last : pattern.usual);
  if (!config.has("layer_types")) return {};

  ASSIGN_OR_RETURN(const Json* kinds, config.array("layer_types"));
  if (kinds->size() != count)
    return invalid_argument_error("layer_types has {} entries, num_hidden_layers is {}",
                                  kinds->size(), count);
  for (uint64_t n = 0; n < count; ++n) {
    const Json& kind = (*kinds)[n];
    if (kind != kind_name(pattern.usual) && kind != kind_name(pattern.last))
      return unsupported_error(
          "layer_types has {}; {}{} known", in_quotes(json_text(kind)), kind_name(pattern.usual),
          pattern.usual == pattern.last ? " is"
                                        : fmt::format(" and {} are", kind_name(pattern.last)));
    spec.layers[n].mixer = kind == kind_name(pattern.last) ? pattern.last : pattern.usual;
  }
  return {};
}

Status read_delta_net(Section& config, const Family& family, ArchitectureSpec& spec) {
  DeltaNetSpec delta;
  for (const DeltaKey& dimension : family.delta_dimensions) {
    ASSIGN_OR_RETURN(const uint64_t value, config.whole(dimension.key, 1, UINT32_MAX));
    delta.*dimension.field = static_cast<uint32_t>(value);
  }
  if (spec.has_mixer(LayerKind::delta_net)) spec.delta = delta;
  // The recurrent state is kept in f32, which is what every release asks for.
  return family.delta_dimensions.empty() ? Status{} : config.only("mamba_ssm_dtype", "float32");
}

// Layer i has experts unless mlp_only_layers has it or decoder_sparse_step does not divide i + 1.
Status read_dense_layers(Section& config, const Family& family, ArchitectureSpec& spec) {
  config.ignore({"intermediate_size"});  // of dense layers, read below where there are any
  std::set<uint64_t> dense;
  if (config.has("mlp_only_layers")) {
    ASSIGN_OR_RETURN(const Json* layers, config.array("mlp_only_layers"));
    for (const Json& layer : *layers) {
      if (!layer.is_number_unsigned() || layer.get<uint64_t>() >= spec.layer_count())
        return invalid_argument_error("mlp_only_layers has {}, which is no layer's number",
                                      in_quotes(json_text(layer)));
      dense.insert(layer.get<uint64_t>());
    }
  }
  ASSIGN_OR_RETURN(const uint64_t step, config.whole_or("decoder_sparse_step", 1, 1024, 1));
  for (uint64_t n = 0; n < spec.layer_count(); ++n)
    if (dense.contains(n) || (n + 1) % step != 0) spec.layers[n].ffn = FfnKind::dense;
  if (spec.moe_layer_count() == spec.layer_count()) return {};
  if (!family.dense_layers)
    return unsupported_error(
        "mlp_only_layers and decoder_sparse_step make layers dense, which the reference of {} does "
        "not do",
        family.model_type);
  ASSIGN_OR_RETURN(const uint64_t inner, config.whole("intermediate_size", 1, UINT32_MAX));
  spec.dense_inner = static_cast<uint32_t>(inner);
  return {};
}

Status read_attention(Section& config, const Family& family, ArchitectureSpec& spec) {
  ASSIGN_OR_RETURN(spec.attention_bias, config.boolean_or("attention_bias", family.attention_bias));
  if (family.attention_gate) {
    RETURN_IF_ERROR(config.only_flag("attn_output_gate", true));
    if (spec.attention_bias)
      return unsupported_error(
          "attention_bias is true; a gated attention with biases is not known");
  }
  const bool slides = family.layers.usual == LayerKind::sliding_attention ||
                      family.layers.last == LayerKind::sliding_attention;
  if (slides) return {};
  RETURN_IF_ERROR(config.only_flag("use_sliding_window", false));
  config.ignore({"sliding_window", "max_window_layers"});  // of no effect without it
  return {};
}

Status read_router(Section& config, const Family& family, ArchitectureSpec& spec) {
  spec.router = family.router;
  if (family.norm_topk == NormTopk::no_key) return {};
  if (family.norm_topk == NormTopk::always)
    RETURN_IF_ERROR(config.only_flag("norm_topk_prob", true));
  ASSIGN_OR_RETURN(const bool renormalise,
                   config.boolean_or("norm_topk_prob", family.norm_topk != NormTopk::absent_false));
  if (renormalise) spec.router = RouterRule::softmax_then_topk_renormalised;
  return {};
}

// All of the text part but how it is stored.
Status read_text(Section& config, const Family& family, ArchitectureSpec& spec) {
  spec.family = family.model_type;
  spec.activation = family.activation;
  spec.attention_sinks = family.attention_sinks;
  spec.attention_gate = family.attention_gate;
  spec.qk_norm = family.qk_norm;
  spec.router_bias = family.router_bias;
  spec.expert_bias = family.expert_bias;
  RETURN_IF_ERROR(config.only("hidden_act", "silu"));
  RETURN_IF_ERROR(read_dimensions(config, family, spec));
  RETURN_IF_ERROR(read_mixers(config, family.layers, spec));
  RETURN_IF_ERROR(read_delta_net(config, family, spec));
  RETURN_IF_ERROR(read_attention(config, family, spec));
  RETURN_IF_ERROR(read_router(config, family, spec));
  RETURN_IF_ERROR(read_dense_layers(config, family, spec));
  RETURN_IF_ERROR(read_rope(config, family, spec));
  ASSIGN_OR_RETURN(spec.norm_eps, config.number("rms_norm_eps", 0, 1));
  if (spec.activation == Activation::swiglu_clamped) {
    ASSIGN_OR_RETURN(spec.swiglu_limit,
                     config.number_or("swiglu_limit", 0, 1e6, family.swiglu_limit));
  }
  return {};
}

// quantization_config of a family that is released quantised, or of another quantiser.
Status check_quant_method(const Json& json, const Family& family) {
  Section section(json, "config.json's quantization_config");
  ASSIGN_OR_RETURN(const std::string method, section.string("quant_method"));
  if (family.quant_method.empty())
    return unsupported_error(
        "quant_method is {}; of {} models only unquantised and MLX's affine ones are supported",
        in_quotes(method), family.model_type);
  if (method != family.quant_method)
    return unsupported_error("quant_method is {}; only '{}' is supported", in_quotes(method),
                             family.quant_method);
  // The tensors' own names and dtypes say what is converted, and are all checked. `dequantize` says
  // what transformers should do with the codes on loading.
  section.ignore({"modules_to_not_convert", "dequantize"});
  return section.refuse_unread();
}

// MLX writes its settings as `quantization` and again as quantization_config, where it may leave
// the original's. Without either a family must be one that is released unquantised.
Result<MlxQuantisation> read_quantisation(Section& config, const Family& family) {
  const Json* other = nullptr;
  if (config.has("quantization_config")) {
    ASSIGN_OR_RETURN(other, config.object("quantization_config"));
  }
  const bool other_is_mlx =
      other != nullptr && !json_has(*other, "quant_method") && json_has(*other, "bits");
  if (other != nullptr && !other_is_mlx) RETURN_IF_ERROR(check_quant_method(*other, family));
  if (!config.has("quantization")) {
    if (other_is_mlx) return mlx_quantisation(*other);
    if (other == nullptr && !family.quant_method.empty())
      return unsupported_error("there is no quantization_config; only experts in {} are supported",
                               family.quant_method);
    return MlxQuantisation{};
  }
  ASSIGN_OR_RETURN(const Json* own, config.object("quantization"));
  ASSIGN_OR_RETURN(MlxQuantisation quantisation, mlx_quantisation(*own));
  if (other_is_mlx) {
    ASSIGN_OR_RETURN(const MlxQuantisation again, mlx_quantisation(*other));
    if (again != quantisation)
      return invalid_argument_error("quantization and quantization_config contradict each other");
  }
  return quantisation;
}

// Of the whole file and of text_config; where both have it they must agree.
Result<bool> read_tied(Section& config, Section& text) {
  ASSIGN_OR_RETURN(const bool inside, text.boolean_or("tie_word_embeddings", false));
  ASSIGN_OR_RETURN(const bool outside, config.boolean_or("tie_word_embeddings", inside));
  if (text.has("tie_word_embeddings") && outside != inside)
    return invalid_argument_error(
        "tie_word_embeddings is {} and {} in text_config; they must agree", outside, inside);
  return outside;
}

// One id or a list of them; what is neither has no say, as generation_config.json is what counts.
std::vector<uint64_t> read_eos(const Json& config) {
  std::vector<uint64_t> ids;
  if (!json_has(config, "eos_token_id")) return ids;
  const Json& value = config["eos_token_id"];
  const Json list = value.is_array() ? value : Json::array({value});
  for (const Json& id : list)
    if (id.is_number_unsigned() && ids.size() < 64) ids.push_back(id.get<uint64_t>());
  return ids;
}

Result<HfModel> read_model(const Json& json) {
  if (!json.is_object()) return invalid_argument_error("not an object");
  Section config(json, "config.json");
  ASSIGN_OR_RETURN(const std::string model_type, config.string("model_type"));
  HfModel model{};
  model.family = find_family(model_type);
  if (model.family == nullptr)
    return unsupported_error("model_type {} is not supported; supported: {}", in_quotes(model_type),
                             supported_families());
  ASSIGN_OR_RETURN(model.quantisation, read_quantisation(config, *model.family));
  model.eos = read_eos(json);
  if (model.family->text_model_type.empty() || !config.has("text_config")) {
    RETURN_IF_ERROR(read_text(config, *model.family, model.spec));
    ASSIGN_OR_RETURN(model.spec.tied_head, config.boolean_or("tie_word_embeddings", false));
  } else {
    ASSIGN_OR_RETURN(const Json* nested, config.object("text_config"));
    Section text(*nested, "config.json's text_config");
    RETURN_IF_ERROR(text.only("model_type", model.family->text_model_type));
    RETURN_IF_ERROR(read_text(text, *model.family, model.spec));
    ASSIGN_OR_RETURN(model.spec.tied_head, read_tied(config, text));
    if (model.eos.empty()) model.eos = read_eos(*nested);
    RETURN_IF_ERROR(text.refuse_unread(is_harmless));
    config.ignore({"vision_config"});
  }
  RETURN_IF_ERROR(config.refuse_unread(is_harmless));
  RETURN_IF_ERROR(validate_spec(model.spec));
  return model;
}

}  // namespace

Result<HfModel> model_from_hf_config(const Json& config) {
  auto model = read_model(config);
  if (!model.ok()) return named_error(std::move(model).error(), "config.json");
  return model;
}

}  // namespace wader
