#include <algorithm>

#include "base/error.h"
#include "chat/harmony.h"
#include "chat/prompt.h"
#include "chat/tools.h"
#include "tokenizer/quote.h"

namespace wader {
namespace {

using Role = Message::Role;

constexpr std::string_view kIdentity = "You are ChatGPT, a large language model trained by OpenAI.";
constexpr std::string_view kKnowledgeCutoff = "2024-06";
constexpr std::string_view kChannels =
    "# Valid channels: analysis, commentary, final. Channel must be included for every message.";
constexpr std::string_view kToolsChannel =
    "Calls to these tools must go to the commentary channel: 'functions'.";

std::string_view effort_name(ReasoningEffort effort) {
  switch (effort) {
    case ReasoningEffort::medium:
      return "medium";
    case ReasoningEffort::high:
      return "high";
    // GPT-OSS was trained with three efforts and cannot be told to skip its analysis.
    case ReasoningEffort::off:
    case ReasoningEffort::low:
      return "low";
  }
  UNREACHABLE("no such case");
  return {};
}

bool is_instruction(const Message& message) {
  return message.role == Role::system || message.role == Role::developer;
}

bool is_final(const Message& message) {
  if (message.role != Role::assistant || !message.tool_calls.empty()) return false;
  return !message.content.empty() ||
         message.reasoning.empty();  // else it broke off while reasoning
}

class Renderer {
 public:
  Renderer(const ChatRequest& request, const Tokenizer& tokenizer, const HarmonyTokens& tokens)
      : request_(request), tokens_(tokens), prompt_(tokenizer) {}

  Result<std::vector<TokenId>> render() {
    RETURN_IF_ERROR(check_tools(request_.tools));
    system_message();
    const size_t first = instructions();
    for (size_t i = first; i < request_.messages.size(); ++i) RETURN_IF_ERROR(message(i));
    if (request_.add_generation_prompt) prompt_.control(tokens_.start).text("assistant");
    return prompt_.finish();
  }

 private:
  // <|start|>HEADER<|channel|>CHANNEL<|message|>BODY<|end|>; no channel when it is empty.
  void whole(std::string_view header, std::string_view channel, std::string_view body) {
    prompt_.control(tokens_.start).text(header);
    if (!channel.empty()) prompt_.control(tokens_.channel).text(channel);
    prompt_.control(tokens_.message).text(body).control(tokens_.end);
  }

  void system_message() {
    std::string text = fmt::format("{}\nKnowledge cutoff: {}\n", kIdentity, kKnowledgeCutoff);
    if (!request_.date.empty()) text += fmt::format("Current date: {}\n", request_.date);
    text +=
        fmt::format("\nReasoning: {}\n\n{}",
                    effort_name(request_.reasoning.value_or(ReasoningEffort::medium)), kChannels);
    if (!request_.tools.empty()) text.append("\n").append(kToolsChannel);
    whole("system", "", text);
  }

  // The developer message: leading system and developer texts, then the tools. Returns the index of
  // the first message after them.
  size_t instructions() {
    const std::vector<Message>& messages = request_.messages;
    std::string text;
    size_t next = 0;
    for (; next < messages.size() && is_instruction(messages[next]); ++next) {
      if (messages[next].content.empty()) continue;
      text += text.empty() ? "# Instructions\n\n" : "\n\n";
      text += messages[next].content;
    }
    if (!request_.tools.empty())
      text += (text.empty() ? "" : "\n\n") + render_harmony_tools(request_.tools);
    if (!text.empty()) whole("developer", "", text);
    return next;
  }

  Status message(size_t index) {
    const Message& message = request_.messages[index];
    switch (message.role) {
      case Role::system:
      case Role::developer:
        if (!message.content.empty())
          whole("developer", "", "# Instructions\n\n" + message.content);
        return {};
      case Role::user:
        whole("user", "", message.content);
        return {};
      case Role::assistant:
        assistant(index);
        return {};
      case Role::tool:
        return tool_result(index);
    }
    UNREACHABLE("no such case");
    return {};
  }

  void assistant(size_t index) {
    const Message& message = request_.messages[index];
    if (!message.reasoning.empty() && keeps_analysis(index))
      whole("assistant", "analysis", message.reasoning);
    if (is_final(message)) {
      whole("assistant", "final", message.content);
      return;
    }
    // A preamble: text for the user before the calls.
    if (!message.content.empty()) whole("assistant", "commentary", message.content);
    for (const ToolCall& call : message.tool_calls) tool_call(call);
  }

  // Analysis that precedes a final answer is dropped: the model was trained without it. Only where
  // that answer ends the prompt (nothing is to be generated) it stays.
  bool keeps_analysis(size_t index) const {
    const std::vector<Message>& messages = request_.messages;
    const auto answer = std::find_if(messages.begin() + static_cast<std::ptrdiff_t>(index),
                                     messages.end(), is_final);
    if (answer == messages.end()) return true;
    return !request_.add_generation_prompt && answer + 1 == messages.end();
  }

  void tool_call(const ToolCall& call) {
    prompt_.control(tokens_.start).text("assistant to=").text(recipient(call.name));
    prompt_.control(tokens_.channel);
    if (is_builtin(call.name))
      prompt_.text("commentary code");
    else
      prompt_.text("commentary ").control(tokens_.constrain).text("json");
    prompt_.control(tokens_.message).text(call.arguments).control(tokens_.call);
  }

  Status tool_result(size_t index) {
    const Message& message = request_.messages[index];
    const std::string* name = called_name(index);
    if (name == nullptr && !message.name.empty()) name = &message.name;
    if (name == nullptr) {
      return invalid_argument_error("messages[{}].tool_call_id {} answers no earlier tool call",
                                    index, quote(message.tool_call_id));
    }
    whole(recipient(*name) + " to=assistant", "commentary", message.content);
    return {};
  }

  // Function name of the latest call that the tool message answers.
  const std::string* called_name(size_t index) const {
    const Message& result = request_.messages[index];
    if (result.tool_call_id.empty()) return nullptr;
    for (size_t i = index; i-- > 0;)
      for (const ToolCall& call : request_.messages[i].tool_calls)
        if (call.id == result.tool_call_id) return &call.name;
    return nullptr;
  }

  // A tool of the request may be called "python" too; it is a function then.
  bool is_builtin(std::string_view name) const {
    if (!is_harmony_builtin(name)) return false;
    return std::none_of(request_.tools.begin(), request_.tools.end(),
                        [&](const Json& tool) { return tool["function"]["name"] == name; });
  }

  std::string recipient(const std::string& name) const {
    return is_builtin(name) ? name : "functions." + name;
  }

  const ChatRequest& request_;
  const HarmonyTokens& tokens_;
  Prompt prompt_;
};

}  // namespace

std::string_view harmony_tool_name(std::string_view recipient) {
  constexpr std::string_view kNamespace = "functions.";
  if (recipient.starts_with(kNamespace)) recipient.remove_prefix(kNamespace.size());
  return recipient;
}

bool is_harmony_builtin(std::string_view name) {
  return name == "python" || name.starts_with("browser.");
}

Result<std::vector<TokenId>> render_harmony(const ChatRequest& request, const Tokenizer& tokenizer,
                                            const HarmonyTokens& tokens) {
  return Renderer(request, tokenizer, tokens).render();
}

}  // namespace wader
