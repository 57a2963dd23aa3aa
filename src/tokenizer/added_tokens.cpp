#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "base/check.h"

namespace wader {

bool AddedTokens::build(std::vector<Token> tokens, std::string* duplicate) {
  tokens_ = std::move(tokens);
  std::sort(tokens_.begin(), tokens_.end(),
            [](const Token& a, const Token& b) { return a.content < b.content; });
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = tokens_[i].content;
    CHECK(!content.empty() && content.size() <= kMaxBytes);
    if (i > 0 && content == tokens_[i - 1].content) {
      *duplicate = content;
      return false;
    }
    starts_[static_cast<uint8_t>(content[0])] = true;
  }
  return true;
}

// Narrows the sorted range of tokens that agree with the text so far, a byte at a time.
std::optional<AddedTokens::Match> AddedTokens::longest_at(std::string_view text, size_t at) const {
  std::optional<Match> longest;
  auto low = tokens_.begin();
  auto high = tokens_.end();
  for (size_t depth = 0; at + depth < text.size() && low != high; ++depth) {
    const auto wanted = static_cast<uint8_t>(text[at + depth]);
    const auto byte = [depth](const Token& token) {  // -1: the token has ended
      return depth < token.content.size() ? static_cast<uint8_t>(token.content[depth]) : -1;
    };
    low = std::partition_point(low, high, [&](const Token& token) { return byte(token) < wanted; });
    high =
        std::partition_point(low, high, [&](const Token& token) { return byte(token) <= wanted; });
    // Of tokens with a common beginning the one that ends here sorts first.
    if (low != high && low->content.size() == depth + 1) longest = {at, at + depth + 1, low->id};
  }
  return longest;
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, size_t from) const {
  if (tokens_.empty()) return std::nullopt;
  for (size_t at = from; at < text.size(); ++at) {
    if (!starts_[static_cast<uint8_t>(text[at])]) continue;
    if (const auto match = longest_at(text, at)) return match;
  }
  return std::nullopt;
}

std::optional<uint32_t> AddedTokens::id_of(std::string_view content) const {
  const auto at = std::lower_bound(
      tokens_.begin(), tokens_.end(), content,
      [](const Token& token, std::string_view text) { return token.content < text; });
  if (at == tokens_.end() || at->content != content) return std::nullopt;
  return at->id;
}

}  // namespace wader
