// The chat formats of Qwen3, Qwen3-Coder, Qwen3-Next, Qwen3.5 and Qwen3.6: one structure, whose
// variants are read off the released Jinja template. What is rendered and parsed, and where that
// differs from the template: docs/qwen.md.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "chat/chat.h"

namespace wader {

// The texts that Qwen's formats are made of, beside the control tokens <|im_start|> and <|im_end|>.
enum class QwenTag : uint8_t { think, end_think, call, end_call, response, end_response };
constexpr std::array<std::string_view, 6> kQwenTags = {
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"};
constexpr std::string_view qwen_tag_text(QwenTag tag) {
  return kQwenTags[static_cast<size_t>(tag)];
}

// Ids; -1 where the tokenizer has none. A tag without an id is ordinary text to the model.
struct QwenTokens {
  TokenId im_start, im_end;  // always there
  TokenId end_of_text;
  std::array<TokenId, kQwenTags.size()> tags;

  TokenId of(QwenTag tag) const { return tags[static_cast<size_t>(tag)]; }
};

// Refuses a tokenizer without <|im_start|> or <|im_end|>, naming what it lacks.
Result<QwenTokens> find_qwen_tokens(const Tokenizer& tokenizer);

// What distinguishes one release's format from another's.
struct QwenTemplate {
  enum class Shape : uint8_t {
    qwen3,    // tools and calls as JSON
    coder,    // tools and calls as XML-like tags
    qwen3_5,  // tools as JSON, calls as XML-like tags, contents trimmed
  };
  enum class Thinking : uint8_t {
    never,     // no switch, no think tags: an instruct release
    always,    // no switch: a thinking release
    switched,  // enable_thinking
  };
  // Which reasoning of earlier answers is written again. "Late" answers follow the last user
  // message that is not a tool's result.
  enum class Kept : uint8_t {
    untouched,  // the template knows nothing of reasoning and takes contents as they are
    none,
    late_filled,  // of late answers, where there is any or the answer ends the conversation
    late,         // of late answers, as an empty block where there is none
    all,
  };

  Shape shape = Shape::qwen3;
  Thinking thinking = Thinking::switched;
  bool thinks_by_default = true;  // what an absent switch means
  bool opens_thinking = false;    // the prompt ends in "<think>\n" when thinking is on
  Kept kept = Kept::late_filled;
  bool json_scalars = false;  // arguments true and null are written so; else True and None
  // The release's own words around the list of tools ("# Tools …<tools>", "\n</tools>…") and, in
  // Qwen3-Coder, in place of a missing system message.
  std::string tools_head, tools_tail, default_system;

  bool thinks(const ChatRequest& request) const;
};

// The variant that `text`, a released Jinja template, describes; the usual one of the family when
// it is empty. A template without <|im_start|> is not of these formats: unsupported.
Result<QwenTemplate> read_qwen_template(std::string_view family, std::string_view text);

// The request as ids. Errors name the message or the field.
Result<std::vector<TokenId>> render_qwen(const ChatRequest& request, const Tokenizer& tokenizer,
                                         const QwenTokens& tokens, const QwenTemplate& format);

// The list of tools as Qwen3-Coder reads it, from "\n<function>" on. `tools` has passed
// check_tools().
std::string qwen_coder_tools(const Json& tools);
// "<parameter=k>\nvalue\n</parameter>\n" for every argument. Arguments that are no JSON object
// stand as they are, on a line of their own: a model that wrote such a thing reads it again.
std::string qwen_parameters(const std::string& arguments, bool json_scalars);

std::unique_ptr<ChatParser> make_qwen_parser(const Tokenizer& tokenizer, const QwenTokens& tokens,
                                             const QwenTemplate& format,
                                             const ChatRequest& request);

}  // namespace wader
