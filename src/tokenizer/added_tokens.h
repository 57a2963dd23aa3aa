// Finds added tokens ("<|start|>") in text: at each place the longest one, from left to right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace wader {

class AddedTokens {
 public:
  static constexpr size_t kMaxBytes =
      256;  // of one token's text: bounds the work a byte of text can cause

  struct Token {
    std::string content;  // 1 to kMaxBytes bytes
    uint32_t id;
  };
  struct Match {
    size_t begin, end;
    uint32_t id;
  };

  // False, with *duplicate set, when a content occurs twice.
  bool build(std::vector<Token> tokens, std::string* duplicate);

  // The first match that begins at or after `from`.
  std::optional<Match> find(std::string_view text, size_t from) const;
  // The id of the token that is all of `content`.
  std::optional<uint32_t> id_of(std::string_view content) const;
  bool empty() const { return tokens_.empty(); }

 private:
  std::optional<Match> longest_at(std::string_view text, size_t at) const;

  std::vector<Token> tokens_;  // sorted by content
  bool starts_[256] = {};      // by first byte
};

}  // namespace wader
