// What a tokenizer.json says beside its vocabulary and merges, reduced to the steps that Wader
// implements.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace wader {

struct AddedTokenConfig {
  std::string content;  // 1 to AddedTokens::kMaxBytes bytes
  uint32_t id;
  bool special;
  bool normalized;  // looked for after normalization, in what the others left
};

struct TokenizerConfig {
  bool nfc = false;
  std::string split_pattern;   // as in the file: Oniguruma syntax
  bool ignore_merges = false;  // a piece that is a token as a whole is not merged from bytes
  std::vector<AddedTokenConfig> added_tokens;
};

// `config` is TokenizerFile::config. Anything that could change ids and is not in TokenizerConfig
// is an error that names it: unsupported, or corrupt when the type is wrong.
Result<TokenizerConfig> read_tokenizer_config(const Json& config);

}  // namespace wader
