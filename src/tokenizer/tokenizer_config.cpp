#include "tokenizer/tokenizer_config.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "base/error.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/quote.h"
#include "tokenizer/vocabulary.h"

namespace wader {
namespace {

// ByteLevel's own pattern, when it is told to use it (GPT-2, Radford et al. 2019).
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Error not_supported(std::string_view where, const Json& value) {
  return unsupported_error("{}: {} is not supported", where, quote(json_text(value)));
}

// `object` is an object and has no keys but these: an unknown one may change ids.
Status check_keys(const Json& object, std::string_view where,
                  std::initializer_list<std::string_view> known) {
  if (!object.is_object()) return corrupt_error("{} is not an object", where);
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      return unsupported_error("{}: key {} is not known", where, quote(key));
  }
  return {};
}

Result<bool> flag(const Json& object, std::string_view where, std::string_view key,
                  bool when_absent) {
  const auto found = object.find(std::string(key));
  if (found == object.end()) return when_absent;
  if (!found->is_boolean()) return corrupt_error("{}: {} is neither true nor false", where, key);
  return found->get<bool>();
}

Status require_flag(const Json& object, std::string_view where, std::string_view key, bool wanted,
                    bool when_absent) {
  ASSIGN_OR_RETURN(const bool value, flag(object, where, key, when_absent));
  if (value != wanted) return unsupported_error("{}: {} = {} is not supported", where, key, value);
  return {};
}

Result<std::string> type_of(const Json& object, std::string_view where) {
  Result<std::string> type = json_string(object, "type");
  if (!type.ok()) return std::move(type).error().within(where);
  return type;
}

// null, absent, or a value that means "off" in every release of the format.
Status require_off(const Json& object, std::string_view where, std::string_view key,
                   std::initializer_list<Json> off_values) {
  if (!json_has(object, key)) return {};
  const Json& value = object[std::string(key)];
  if (std::find(off_values.begin(), off_values.end(), value) != off_values.end()) return {};
  return not_supported(fmt::format("{}.{}", where, key), value);
}

Status read_normalizer(const Json& config, TokenizerConfig& result) {
  if (!json_has(config, "normalizer")) return {};
  const Json& normalizer = config["normalizer"];
  ASSIGN_OR_RETURN(const std::string type, type_of(normalizer, "normalizer"));
  if (type != "NFC")
    return unsupported_error("normalizer of type {} is not supported", quote(type));
  RETURN_IF_ERROR(check_keys(normalizer, "normalizer", {"type"}));
  result.nfc = true;
  return {};
}

Status check_byte_level(const Json& step, std::string_view where) {
  RETURN_IF_ERROR(
      check_keys(step, where, {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  return require_flag(step, where, "add_prefix_space", false, true);
}

Status read_split(const Json& step, TokenizerConfig& result) {
  constexpr std::string_view kWhere = "pre_tokenizer Split";
  RETURN_IF_ERROR(check_keys(step, kWhere, {"type", "pattern", "behavior", "invert"}));
  RETURN_IF_ERROR(require_flag(step, kWhere, "invert", false, false));
  if (!json_has(step, "behavior") || step["behavior"] != "Isolated")
    return unsupported_error("{}: only behavior Isolated is supported", kWhere);
  if (!json_has(step, "pattern") || !step["pattern"].is_object() || step["pattern"].size() != 1 ||
      !step["pattern"].contains("Regex") || !step["pattern"]["Regex"].is_string()) {
    return unsupported_error("{}: only a Regex pattern is supported", kWhere);
  }
  result.split_pattern = step["pattern"]["Regex"].get<std::string>();
  return {};
}

// ByteLevel alone with its own pattern, or a Sequence of Split and a ByteLevel without.
Status read_pre_tokenizer(const Json& config, TokenizerConfig& result) {
  constexpr std::string_view kWhere = "pre_tokenizer";
  if (!json_has(config, kWhere))
    return unsupported_error("a file without pre_tokenizer is not supported");
  const Json& root = config[std::string(kWhere)];
  ASSIGN_OR_RETURN(const std::string type, type_of(root, kWhere));
  if (type == "ByteLevel") {
    RETURN_IF_ERROR(check_byte_level(root, "pre_tokenizer ByteLevel"));
    RETURN_IF_ERROR(require_flag(root, "pre_tokenizer ByteLevel", "use_regex", true, true));
    result.split_pattern = kGpt2Pattern;
    return {};
  }
  if (type != "Sequence")
    return unsupported_error("pre_tokenizer of type {} is not supported", quote(type));
  RETURN_IF_ERROR(check_keys(root, kWhere, {"type", "pretokenizers"}));
  if (!json_has(root, "pretokenizers") || !root["pretokenizers"].is_array())
    return corrupt_error("pre_tokenizer: pretokenizers is not a list");
  std::vector<std::string> types;
  for (const Json& step : root["pretokenizers"]) {
    ASSIGN_OR_RETURN(std::string step_type, type_of(step, "pre_tokenizer: a step"));
    types.push_back(std::move(step_type));
  }
  if (types != std::vector<std::string>{"Split", "ByteLevel"}) {
    return unsupported_error(
        "pre_tokenizer: the sequence {} is not supported, only Split, ByteLevel",
        quote(fmt::format("{}", fmt::join(types, ", "))));
  }
  RETURN_IF_ERROR(read_split(root["pretokenizers"][0], result));
  const Json& byte_level = root["pretokenizers"][1];
  RETURN_IF_ERROR(check_byte_level(byte_level, "pre_tokenizer ByteLevel"));
  return require_flag(byte_level, "pre_tokenizer ByteLevel after Split", "use_regex", false, true);
}

Status check_output_steps(const Json& config) {
  if (!json_has(config, "decoder"))
    return unsupported_error("a file without decoder is not supported");
  ASSIGN_OR_RETURN(const std::string decoder, type_of(config["decoder"], "decoder"));
  if (decoder != "ByteLevel")
    return unsupported_error("decoder of type {} is not supported", quote(decoder));
  if (!json_has(config, "post_processor")) return {};
  // ByteLevel here only trims offsets; the other types add ids.
  ASSIGN_OR_RETURN(const std::string post, type_of(config["post_processor"], "post_processor"));
  if (post != "ByteLevel")
    return unsupported_error("post_processor of type {} is not supported", quote(post));
  return {};
}

Status read_model(const Json& config, TokenizerConfig& result) {
  if (!json_has(config, "model")) return corrupt_error("model is missing");
  const Json& model = config["model"];
  ASSIGN_OR_RETURN(const std::string type, type_of(model, "model"));
  if (type != "BPE") return unsupported_error("model of type {} is not supported", quote(type));
  RETURN_IF_ERROR(check_keys(model, "model",
                             {"type", "dropout", "unk_token", "continuing_subword_prefix",
                              "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges"}));
  RETURN_IF_ERROR(require_off(model, "model", "dropout", {0, 0.0}));
  RETURN_IF_ERROR(require_off(model, "model", "unk_token", {}));
  RETURN_IF_ERROR(require_off(model, "model", "continuing_subword_prefix", {""}));
  RETURN_IF_ERROR(require_off(model, "model", "end_of_word_suffix", {""}));
  RETURN_IF_ERROR(require_off(model, "model", "fuse_unk", {false}));
  RETURN_IF_ERROR(require_off(model, "model", "byte_fallback", {false}));
  ASSIGN_OR_RETURN(result.ignore_merges, flag(model, "model", "ignore_merges", false));
  return {};
}

Result<AddedTokenConfig> read_added_token(const Json& token, std::string_view where) {
  RETURN_IF_ERROR(check_keys(
      token, where, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
  for (const std::string_view key : {"single_word", "lstrip", "rstrip"})
    RETURN_IF_ERROR(require_flag(token, where, key, false, false));
  AddedTokenConfig result;
  Result<std::string> content = json_string(token, "content");
  if (!content.ok()) return std::move(content).error().within(where);
  result.content = *std::move(content);
  if (result.content.empty() || result.content.size() > AddedTokens::kMaxBytes)
    return unsupported_error("{}: content has {} bytes, not 1 to {}", where, result.content.size(),
                             AddedTokens::kMaxBytes);
  Result<uint64_t> id = json_uint(token, "id", 0, kMaxTokenId);
  if (!id.ok()) return std::move(id).error().within(where);
  result.id = static_cast<uint32_t>(*id);
  ASSIGN_OR_RETURN(result.special, flag(token, where, "special", false));
  ASSIGN_OR_RETURN(result.normalized, flag(token, where, "normalized", !result.special));
  return result;
}

Status read_added_tokens(const Json& config, TokenizerConfig& result) {
  if (!json_has(config, "added_tokens")) return {};
  const Json& list = config["added_tokens"];
  if (!list.is_array()) return corrupt_error("added_tokens is not a list");
  for (size_t i = 0; i < list.size(); ++i) {
    ASSIGN_OR_RETURN(AddedTokenConfig token,
                     read_added_token(list[i], fmt::format("added_tokens[{}]", i)));
    result.added_tokens.push_back(std::move(token));
  }
  return {};
}

}  // namespace

Result<TokenizerConfig> read_tokenizer_config(const Json& config) {
  TokenizerConfig result;
  RETURN_IF_ERROR(check_keys(config, "tokenizer.json",
                             {"version", "truncation", "padding", "added_tokens", "normalizer",
                              "pre_tokenizer", "post_processor", "decoder", "model"}));
  RETURN_IF_ERROR(require_off(config, "tokenizer.json", "version", {"1.0"}));
  RETURN_IF_ERROR(require_off(config, "tokenizer.json", "truncation", {}));
  RETURN_IF_ERROR(require_off(config, "tokenizer.json", "padding", {}));
  RETURN_IF_ERROR(read_model(config, result));
  RETURN_IF_ERROR(read_normalizer(config, result));
  RETURN_IF_ERROR(read_pre_tokenizer(config, result));
  RETURN_IF_ERROR(check_output_steps(config));
  RETURN_IF_ERROR(read_added_tokens(config, result));
  return result;
}

}  // namespace wader
