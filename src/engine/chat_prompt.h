// From a chat to what an engine is given: the model's chat format, the prompt's ids, where in it
// the answer begins, and the ids that end one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/chat.h"
#include "container/container.h"
#include "tokenizer/tokenizer.h"

namespace wader {

// Text of chat_template.jinja, else the one in tokenizer_config.json, else empty. Errors name the
// file.
Result<std::string> chat_template_of(const Container& container);
// The model's own format, in the variant that its template tells. `tokenizer` must outlive it.
Result<std::unique_ptr<ChatFormat>> chat_format_of(const Container& container,
                                                   const Tokenizer& tokenizer);
// What ends an answer: the format's ids and those of the model's generation_config.json.
std::vector<TokenId> answer_stop_ids(const ChatFormat& format, const std::vector<TokenId>& eos_ids);

// No text longer than this fits `context` tokens, however it is cut into them.
uint64_t most_text_bytes(const Tokenizer& tokenizer, uint32_t context);

struct ChatPrompt {
  std::vector<TokenId> ids;
  uint32_t turn_start;  // where the answer's own header begins (GenerateOptions::turn_start)
};
// over_budget when the messages and tools hold more than max_text_bytes: refused before it is
// encoded, which takes up to 40 bytes of memory per byte of the longest word.
Result<ChatPrompt> chat_prompt(const ChatFormat& format, const ChatRequest& request,
                               uint64_t max_text_bytes);

}  // namespace wader
