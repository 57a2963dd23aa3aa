// Reads a tokenizer.json in one pass (two when its merges stand before its vocabulary), straight
// into the tables: the text, 28 MB for GPT-OSS, is never held in memory, nor as a document tree.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tokenizer/bpe.h"
#include "tokenizer/vocabulary.h"

namespace wader {

struct TokenizerFile {
  Json config;            // all of the file but model.vocab and model.merges
  Vocabulary vocabulary;  // sealed; added tokens are not in it yet
  std::vector<Merge> merges;
};

// Checks the JSON (depth, keys named twice, types), the ids, and that every merge joins two tokens
// of the vocabulary to a third. What `config` means is for read_tokenizer_config().
Result<TokenizerFile> parse_tokenizer_file(std::string_view text);
Result<TokenizerFile> read_tokenizer_file(const std::string& path);

}  // namespace wader
