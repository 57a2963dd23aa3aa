// Prompt: collects the ids of a rendered chat. Text between two control ids is encoded in one
// piece, so that the ids are those of the whole rendered text, and with markup off, so that no text
// can become a control id. One thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace wader {

class Prompt {
 public:
  explicit Prompt(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  Prompt& text(std::string_view text) {
    run_ += text;
    return *this;
  }
  Prompt& control(TokenId id) {
    flush();
    ids_.push_back(id);
    return *this;
  }
  // The ids, once. The error is the tokenizer's.
  Result<std::vector<TokenId>> finish() {
    flush();
    RETURN_IF_ERROR(std::move(encoded_));
    return std::move(ids_);
  }

 private:
  void flush() {
    if (!run_.empty() && encoded_.ok())
      encoded_ = tokenizer_.encode(run_, Tokenizer::Markup::off, ids_);
    run_.clear();
  }

  const Tokenizer& tokenizer_;
  std::string run_;
  std::vector<TokenId> ids_;
  Status encoded_;
};

}  // namespace wader
