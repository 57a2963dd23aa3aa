// Chat: messages → token ids, and generated ids → content, reasoning and tool calls, in a model's
// own format.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace wader {

struct ToolCall {
  std::string id;    // "call_…", unique in the conversation; made here when the model writes none
  std::string name;  // without namespace: "get_weather"
  std::string arguments;  // JSON text as the model wrote it, not necessarily valid
};

struct Message {
  enum class Role : uint8_t { system, developer, user, assistant, tool };
  Role role;
  std::string content;
  std::string reasoning;             // assistant only
  std::vector<ToolCall> tool_calls;  // assistant only
  std::string tool_call_id;          // tool only: which call this answers
  std::string name;                  // tool only: function name, when no call of that id is known
};

enum class ReasoningEffort : uint8_t { low, medium, high, off };

struct ChatRequest {
  std::vector<Message> messages;
  Json tools = Json::array();  // OpenAI form: [{type: "function", function: {name, description,
                               // parameters}}]
  std::optional<ReasoningEffort> reasoning;  // absent: the format's default. enable_thinking true
                                             // reads as medium, false as off
  std::string
      date;  // YYYY-MM-DD, fixed once per conversation so that the cached prefix survives midnight
  bool add_generation_prompt = true;
};

// Messages from JSON in the OpenAI form (content string, null or list of text parts; tool_calls;
// tool results); reasoning_effort, enable_thinking, chat_template_kwargs. Errors name the field:
// "messages[2].role".
Result<ChatRequest> chat_request_from_json(const Json& json);
Json message_to_json(const Message& message);

// What generation added to the answer since the last call.
struct ChatDelta {
  std::string content;
  std::string reasoning;
  struct ToolCallDelta {
    uint32_t index;
    std::string id, name;  // both set in the first delta of a call, empty after it
    std::string arguments;
  };
  std::vector<ToolCallDelta> tool_calls;
  bool empty() const { return content.empty() && reasoning.empty() && tool_calls.empty(); }
};

// Parses one answer as it is generated. Survives anything a model may write; all text is delivered
// somewhere, no marker ever is. Output is whole UTF-8.
class ChatParser {
 public:
  virtual ~ChatParser() = default;
  virtual ChatDelta push(TokenId id) = 0;
  virtual ChatDelta finish() = 0;              // the end, also in the middle of a header
  virtual const Message& message() const = 0;  // everything so far
};

class ChatFormat {
 public:
  virtual ~ChatFormat() = default;
  virtual std::string_view name() const = 0;
  // Ids of the request as the model was trained to see it. Control ids come only from here, never
  // from text.
  virtual Result<std::vector<TokenId>> render(const ChatRequest& request) const = 0;
  // Of the answer to `request`: what its prompt ends in is known to it. Keeps no reference to it.
  virtual std::unique_ptr<ChatParser> parser(const ChatRequest& request) const = 0;
  // Ids that end an answer (harmony: return, call; Qwen: im_end, endoftext; also the generation
  // config's list, added by the caller).
  virtual std::vector<TokenId> stop_ids() const = 0;
};

// The native format of a model. The family decides the kind ("gpt_oss" → harmony, the Qwen families
// → Qwen's), and of a kind with variants `chat_template`, the text of the released Jinja template,
// says which it is; without one (empty) the family's usual variant is taken. No template is ever
// run. Refuses families without a format, a template that is of no known one, and a tokenizer that
// lacks the format's control tokens, by name. `tokenizer` must outlive the result.
Result<std::unique_ptr<ChatFormat>> make_chat_format(std::string_view family,
                                                     std::string_view chat_template,
                                                     const Tokenizer& tokenizer);

// The template in a tokenizer_config.json, where releases without chat_template.jinja have it: a
// string, or a list whose entry "default" counts. Empty when it has none.
Result<std::string> chat_template_of_config(std::string_view tokenizer_config_json);

}  // namespace wader
