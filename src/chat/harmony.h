// Harmony, the chat format of GPT-OSS (https://github.com/openai/harmony, docs/format.md). What is
// rendered, and where it differs from the released Jinja template: docs/harmony.md.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat.h"

namespace wader {

// Control ids by the name between "<|" and "|>".
struct HarmonyTokens {
  TokenId start, end, message, channel, constrain, return_, call;
  TokenId end_of_text;  // ends an answer too; not every tokenizer has it, -1 then
};

// Refuses a tokenizer that lacks one of the control tokens, naming all that it lacks.
Result<HarmonyTokens> find_harmony_tokens(const Tokenizer& tokenizer);

// The "# Tools" section of a developer message: functions as TypeScript types, byte for byte as
// harmony writes them. `tools` has passed check_tools() and is not empty.
std::string render_harmony_tools(const Json& tools);

// The request as ids. Errors name the message.
Result<std::vector<TokenId>> render_harmony(const ChatRequest& request, const Tokenizer& tokenizer,
                                            const HarmonyTokens& tokens);

// Text of a header between control tokens, as the model wrote it.
struct HarmonyHeaderText {
  bool role_known = false;             // the prompt ended in "<|start|>assistant"
  std::string role;                    // before <|channel|>
  std::optional<std::string> channel;  // after <|channel|>
  std::optional<std::string> type;     // after <|constrain|>
  size_t bytes() const {
    return role.size() + (channel ? channel->size() : 0) + (type ? type->size() : 0);
  }
};

// What a header says, and what in it is no header at all.
struct HarmonyHeader {
  enum class Field : uint8_t { content, reasoning, call };
  Field field = Field::content;
  std::string tool;  // full recipient ("functions.f", "python"); set iff field == call
  std::string text;  // words that belong to no header field: text to deliver
};

// How a header ended.
enum class HarmonyHeaderEnd : uint8_t {
  message,  // in <|message|>, as it should: odd single words in it are odd field values
  broken,   // in another token, or it grew too long: what is no field value is the message's text
  cut,      // generation stopped in it: as broken, but its last word may be half a field value
};

// Reads any header, however malformed.
HarmonyHeader read_harmony_header(const HarmonyHeaderText& text, HarmonyHeaderEnd end);

std::unique_ptr<ChatParser> make_harmony_parser(const Tokenizer& tokenizer,
                                                const HarmonyTokens& tokens);

// "functions.get_weather" → "get_weather"; built-in tools ("python", "browser.open") stay whole.
std::string_view harmony_tool_name(std::string_view recipient);
// True for the tools that GPT-OSS was trained with and that stand in no namespace "functions".
bool is_harmony_builtin(std::string_view name);

}  // namespace wader
