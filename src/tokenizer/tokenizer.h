// Tokenizer: byte-level BPE as a Hugging Face tokenizer.json describes it (Sennrich et al. 2016;
// the file's own split pattern, normalizer and merges). Immutable after load and safe to share
// between threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace wader {

using TokenId = int32_t;

class Tokenizer {
 public:
  // Parses untrusted text. Refuses by name what it does not implement exactly (model types,
  // normalizers, pre-tokenizers, decoders, options that change ids), never ignores it.
  static Result<Tokenizer> parse(std::string_view tokenizer_json);
  // parse() of a file, read in pieces: peak memory stays near the size of the finished tables.
  static Result<Tokenizer> load(const std::string& path);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // off: text that spells markup ("<|end|>") is encoded as plain text, as user text must be.
  // on: the file's added tokens are recognised first.
  enum class Markup : uint8_t { off, on };

  // Appends the ids of `text` to `ids`. Invalid UTF-8 is read as U+FFFD (maximal subparts, as the
  // WHATWG decoder does). Time is linear in text.size() whatever the text. The error is internal
  // limits of PCRE2 only.
  Status encode(std::string_view text, Markup markup, std::vector<TokenId>& ids) const;
  Result<std::vector<TokenId>> encode(std::string_view text, Markup markup = Markup::off) const;

  // Raw bytes of one id (not always whole UTF-8). Empty for ids that the file does not name.
  std::string_view bytes_of(TokenId id) const;
  // Bytes of all ids. Special tokens are spelt out only when asked for.
  std::string decode(std::span<const TokenId> ids, bool with_special) const;

  bool is_special(TokenId id) const;
  // The id of an added token by its exact text ("<|return|>").
  std::optional<TokenId> added_token(std::string_view text) const;
  uint32_t vocab_size() const;  // 1 + the largest id that the file names

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

// Turns a stream of token bytes into a stream of whole UTF-8 characters: an unfinished sequence is
// held back until it completes, bytes that can never become valid come out as U+FFFD.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);
  std::string finish();  // what was held back, as U+FFFD

 private:
  std::string held_;
};

}  // namespace wader
