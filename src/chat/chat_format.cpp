#include <array>
#include <utility>

#include "base/error.h"
#include "chat/chat.h"
#include "chat/harmony.h"
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
  std::unique_ptr<ChatParser> parser() const override {
    return make_harmony_parser(tokenizer_, tokens_);
  }
  std::vector<TokenId> stop_ids() const override { return {tokens_.return_, tokens_.call}; }

 private:
  const Tokenizer& tokenizer_;
  const HarmonyTokens tokens_;
};

}  // namespace

Result<std::unique_ptr<ChatFormat>> make_chat_format(std::string_view family,
                                                     const Tokenizer& tokenizer) {
  if (family != "gpt_oss") {
    return unsupported_error(
        "no chat format is known for model family {}; there is one for: gpt_oss", quote(family));
  }
  ASSIGN_OR_RETURN(const HarmonyTokens tokens, find_harmony_tokens(tokenizer));
  return std::unique_ptr<ChatFormat>(std::make_unique<HarmonyFormat>(tokenizer, tokens));
}

}  // namespace wader
