#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "chat/chat.h"
#include "chat/harmony.h"
#include "chat/qwen.h"
#include "tokenizer/quote.h"

namespace wader {

Result<HarmonyTokens> find_harmony_tokens(const Tokenizer& tokenizer) {
  HarmonyTokens tokens{};
  const std::array<std::pair<std::string_view, TokenId*>, 7> wanted = {{
      {"<|start|>", &tokens.start},
      {"<|end|>", &tokens.end},
      {"<|message|>", &tokens.message},
      {"<|channel|>", &tokens.channel},
      {"<|constrain|>", &tokens.constrain},
      {"<|return|>", &tokens.return_},
      {"<|call|>", &tokens.call},
  }};
  std::string missing;
  for (const auto& [text, id] : wanted) {
    const std::optional<TokenId> found = tokenizer.added_token(text);
    if (found)
      *id = *found;
    else
      missing += (missing.empty() ? "" : ", ") + std::string(text);
  }
  if (!missing.empty())
    return unsupported_error("the tokenizer lacks control tokens of the harmony format: {}",
                             missing);
  tokens.end_of_text = tokenizer.added_token("<|endoftext|>").value_or(-1);
  return tokens;
}

namespace {

class HarmonyFormat final : public ChatFormat {
 public:
  HarmonyFormat(const Tokenizer& tokenizer, const HarmonyTokens& tokens)
      : tokenizer_(tokenizer), tokens_(tokens) {}

  std::string_view name() const override { return "harmony"; }
  Result<std::vector<TokenId>> render(const ChatRequest& request) const override {
    return render_harmony(request, tokenizer_, tokens_);
  }
  std::unique_ptr<ChatParser> parser(const ChatRequest&) const override {
    return make_harmony_parser(tokenizer_, tokens_);
  }
  std::vector<TokenId> stop_ids() const override { return {tokens_.return_, tokens_.call}; }

 private:
  const Tokenizer& tokenizer_;
  const HarmonyTokens tokens_;
};

class QwenFormat final : public ChatFormat {
 public:
  QwenFormat(const Tokenizer& tokenizer, const QwenTokens& tokens, QwenTemplate format)
      : tokenizer_(tokenizer), tokens_(tokens), format_(std::move(format)) {}

  std::string_view name() const override {
    switch (format_.shape) {
      case QwenTemplate::Shape::qwen3:
        return "qwen3";
      case QwenTemplate::Shape::coder:
        return "qwen3-coder";
      case QwenTemplate::Shape::qwen3_5:
        return "qwen3.5";
    }
    UNREACHABLE("no such case");
  }
  Result<std::vector<TokenId>> render(const ChatRequest& request) const override {
    return render_qwen(request, tokenizer_, tokens_, format_);
  }
  std::unique_ptr<ChatParser> parser(const ChatRequest& request) const override {
    return make_qwen_parser(tokenizer_, tokens_, format_, request);
  }
  std::vector<TokenId> stop_ids() const override {
    if (tokens_.end_of_text < 0) return {tokens_.im_end};
    return {tokens_.im_end, tokens_.end_of_text};
  }

 private:
  const Tokenizer& tokenizer_;
  const QwenTokens tokens_;
  const QwenTemplate format_;
};

constexpr std::string_view kQwenFamilies[] = {"qwen3_moe", "qwen3_next", "qwen3_5_moe"};

bool is_qwen(std::string_view family) {
  return std::find(std::begin(kQwenFamilies), std::end(kQwenFamilies), family) !=
         std::end(kQwenFamilies);
}

}  // namespace

Result<QwenTokens> find_qwen_tokens(const Tokenizer& tokenizer) {
  QwenTokens tokens{};
  std::string missing;
  const auto needed = [&](std::string_view text) {
    const std::optional<TokenId> found = tokenizer.added_token(text);
    if (!found) missing += (missing.empty() ? "" : ", ") + std::string(text);
    return found.value_or(-1);
  };
  tokens.im_start = needed("<|im_start|>");
  tokens.im_end = needed("<|im_end|>");
  if (!missing.empty())
    return unsupported_error("the tokenizer lacks control tokens of Qwen's chat formats: {}",
                             missing);
  tokens.end_of_text = tokenizer.added_token("<|endoftext|>").value_or(-1);
  for (size_t i = 0; i < kQwenTags.size(); ++i)
    tokens.tags[i] = tokenizer.added_token(kQwenTags[i]).value_or(-1);
  return tokens;
}

Result<std::unique_ptr<ChatFormat>> make_chat_format(std::string_view family,
                                                     std::string_view chat_template,
                                                     const Tokenizer& tokenizer) {
  if (family == "gpt_oss") {
    ASSIGN_OR_RETURN(const HarmonyTokens tokens, find_harmony_tokens(tokenizer));
    return std::unique_ptr<ChatFormat>(std::make_unique<HarmonyFormat>(tokenizer, tokens));
  }
  if (is_qwen(family)) {
    ASSIGN_OR_RETURN(const QwenTokens tokens, find_qwen_tokens(tokenizer));
    ASSIGN_OR_RETURN(QwenTemplate format, read_qwen_template(family, chat_template));
    return std::unique_ptr<ChatFormat>(
        std::make_unique<QwenFormat>(tokenizer, tokens, std::move(format)));
  }
  return unsupported_error(
      "no chat format is known for model family {}; there is one for: gpt_oss, {}", quote(family),
      fmt::join(kQwenFamilies, ", "));
}

Result<std::string> chat_template_of_config(std::string_view tokenizer_config_json) {
  ASSIGN_OR_RETURN(const Json config, parse_json(tokenizer_config_json, "tokenizer_config.json"));
  const auto wrong = [] {
    return corrupt_error(
        "tokenizer_config.json: chat_template is neither a string nor a list of templates with one "
        "named 'default'");
  };
  if (!config.is_object() || !json_has(config, "chat_template")) return std::string();
  const Json& entry = config["chat_template"];
  if (entry.is_string()) return entry.get<std::string>();
  if (!entry.is_array()) return wrong();
  for (const Json& named : entry) {
    if (!named.is_object() || !json_has(named, "name") || named["name"] != "default") continue;
    if (json_has(named, "template") && named["template"].is_string())
      return named["template"].get<std::string>();
  }
  return wrong();
}

}  // namespace wader
