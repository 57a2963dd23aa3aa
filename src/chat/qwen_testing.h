// Shared by the tests of Qwen's chat formats: a tokenizer with Qwen3's added tokens on a vocabulary
// of bytes and a few words, and formats on it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/harmony_testing.h"
#include "chat/qwen.h"
#include "tokenizer/test_files.h"

namespace wader {

// Added tokens as Qwen3 has them; of `without`, none.
inline Tokenizer make_qwen_tokenizer(const std::vector<std::string_view>& without = {}) {
  Json file = test_file({{"t", "h"},
                         {"i", "n"},
                         {"e", "r"},
                         {"l", "l"},
                         {"{", "\""},
                         {">", "Ċ"},
                         {"}", "}"},
                         {"}}", "{"}});
  file["normalizer"] = {{"type", "NFC"}};
  int64_t id = 300;
  const auto add = [&](std::string_view text, bool special) {
    if (std::find(without.begin(), without.end(), text) == without.end())
      file["added_tokens"].push_back(added_token(text, id++, special));
  };
  for (const char* text : {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>"})
    add(text, true);
  for (const std::string_view text : kQwenTags) add(text, false);
  auto tokenizer = Tokenizer::parse(file.dump());
  if (!tokenizer) ADD_FAILURE() << tokenizer.error().message;
  return std::move(tokenizer).value();
}

inline const Tokenizer& qwen_tokenizer() {
  static const Tokenizer tokenizer = make_qwen_tokenizer();
  return tokenizer;
}

// The least that tells a thinking-only release's template from others.
constexpr std::string_view kThinkingTemplate =
    "{%- if loop.index0 > ns.last_query_index %}"
    "{%- if loop.last or (not loop.last and reasoning_content) %}{{- '<think>' + '</think>' }}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}";
constexpr std::string_view kCoderTemplate =
    "{{- \"<|im_start|>system\\nYou are a test.\" }}{{- \"\\n<function>\\n<name>\" ~ tool.name }}"
    "{{- '\\n\\nCall so:\\n\\n<tool_call>\\n<function=example_function_name>\\n</tool_call>' }}";

inline std::unique_ptr<ChatFormat> qwen_format(std::string_view family,
                                               std::string_view chat_template = "",
                                               const Tokenizer& tokenizer = qwen_tokenizer()) {
  auto format = make_chat_format(family, chat_template, tokenizer);
  if (!format) ADD_FAILURE() << format.error().message;
  return std::move(format).value();
}

// Tags and control tokens in `text` become their ids.
inline std::vector<TokenId> qwen_ids(std::string_view text,
                                     const Tokenizer& tokenizer = qwen_tokenizer()) {
  return tokenizer.encode(text, Tokenizer::Markup::on).value();
}
// Nothing in `text` does.
inline std::vector<TokenId> plain_ids(std::string_view text,
                                      const Tokenizer& tokenizer = qwen_tokenizer()) {
  return tokenizer.encode(text, Tokenizer::Markup::off).value();
}

inline ChatRequest qwen_request(std::string_view json) {
  auto request = chat_request_from_json(json_of(json));
  if (!request) ADD_FAILURE() << request.error().message;
  return request ? std::move(request).value() : ChatRequest();
}

}  // namespace wader
