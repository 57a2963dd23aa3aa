#include "engine/chat_prompt.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"

namespace wader {

Result<std::string> chat_template_of(const Container& container) {
  constexpr const char* kTemplate = "chat_template.jinja";
  constexpr const char* kConfig = "tokenizer_config.json";
  if (container.has_file(kTemplate)) return container.read_small_file(kTemplate);
  if (!container.has_file(kConfig)) return std::string();
  ASSIGN_OR_RETURN(const std::string config, container.read_small_file(kConfig));
  return chat_template_of_config(config);
}

Result<std::unique_ptr<ChatFormat>> chat_format_of(const Container& container,
                                                   const Tokenizer& tokenizer) {
  ASSIGN_OR_RETURN(const std::string chat_template, chat_template_of(container));
  return make_chat_format(container.spec().family, chat_template, tokenizer);
}

std::vector<TokenId> answer_stop_ids(const ChatFormat& format,
                                     const std::vector<TokenId>& eos_ids) {
  std::vector<TokenId> ids = format.stop_ids();
  ids.insert(ids.end(), eos_ids.begin(), eos_ids.end());
  return ids;
}

uint64_t most_text_bytes(const Tokenizer& tokenizer, uint32_t context) {
  size_t longest = 1;
  for (uint32_t id = 0; id < tokenizer.vocab_size(); ++id)
    longest = std::max(longest, tokenizer.bytes_of(static_cast<TokenId>(id)).size());
  return uint64_t{context} * longest;
}

namespace {

// What is certainly rendered, more or less. The reasoning of finished turns is dropped, so that of
// all messages the longest counts.
uint64_t text_bytes_of(const ChatRequest& request) {
  uint64_t bytes = request.tools.empty() ? 0 : json_text(request.tools).size();
  uint64_t longest_reasoning = 0;
  for (const Message& message : request.messages) {
    bytes += message.content.size();
    for (const ToolCall& call : message.tool_calls)
      bytes += call.name.size() + call.arguments.size();
    longest_reasoning = std::max<uint64_t>(longest_reasoning, message.reasoning.size());
  }
  return std::max(bytes, longest_reasoning);
}

}  // namespace

Result<ChatPrompt> chat_prompt(const ChatFormat& format, const ChatRequest& request,
                               uint64_t max_text_bytes) {
  const uint64_t text_bytes = text_bytes_of(request);
  if (text_bytes > max_text_bytes)
    return over_budget_error(
        "{} of text is more than the context can hold; shorten it, or raise --context",
        format_bytes(text_bytes));
  ChatPrompt prompt{};
  ASSIGN_OR_RETURN(prompt.ids, format.render(request));
  // The next turn's prompt shares all up to there: what follows, such as an opening tag that is
  // filled in, may be another one when the answer has become history.
  ChatRequest history = request;
  history.add_generation_prompt = false;
  ASSIGN_OR_RETURN(const std::vector<TokenId> ids, format.render(history));
  const auto shared =
      std::mismatch(ids.begin(), ids.end(), prompt.ids.begin(), prompt.ids.end()).first;
  prompt.turn_start = static_cast<uint32_t>(shared - ids.begin());
  return prompt;
}

}  // namespace wader
