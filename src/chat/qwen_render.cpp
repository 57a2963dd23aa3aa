#include <algorithm>
#include <optional>

#include "base/error.h"
#include "chat/prompt.h"
#include "chat/python_text.h"
#include "chat/qwen.h"
#include "chat/tools.h"

namespace wader {
namespace {

using Kept = QwenTemplate::Kept;
using Role = Message::Role;
using Shape = QwenTemplate::Shape;
using Thinking = QwenTemplate::Thinking;

bool is_instruction(const Message& message) {
  return message.role == Role::system || message.role == Role::developer;
}

// Qwen's templates take a user message of this shape for a tool's result.
bool looks_like_response(std::string_view content) {
  return content.starts_with(qwen_tag_text(QwenTag::response)) &&
         content.ends_with(qwen_tag_text(QwenTag::end_response));
}

struct Answer {
  std::string_view reasoning, content;
};

// Clients that know no reasoning field send it inside of the content.
Answer split_reasoning(std::string_view content) {
  const std::string_view open = qwen_tag_text(QwenTag::think);
  const std::string_view close = qwen_tag_text(QwenTag::end_think);
  const size_t first = content.find(close);
  if (first == content.npos) return {"", content};
  std::string_view reasoning = strip_newlines_right(content.substr(0, first));
  const size_t opened = reasoning.rfind(open);
  if (opened != reasoning.npos) reasoning.remove_prefix(opened + open.size());
  const std::string_view rest = content.substr(content.rfind(close) + close.size());
  return {strip_newlines_left(reasoning), strip_newlines_left(rest)};
}

class Renderer {
 public:
  Renderer(const ChatRequest& request, const Tokenizer& tokenizer, const QwenTokens& tokens,
           const QwenTemplate& format)
      : request_(request),
        messages_(request.messages),
        tokens_(tokens),
        format_(format),
        trimmed_(format.shape == Shape::qwen3_5),
        prompt_(tokenizer) {}

  Result<std::vector<TokenId>> render() {
    RETURN_IF_ERROR(check_tools(request_.tools));
    RETURN_IF_ERROR(check_effort());
    ASSIGN_OR_RETURN(last_query_, find_last_query());
    const size_t first = instructions();
    for (size_t i = first; i < messages_.size(); ++i) RETURN_IF_ERROR(message(i));
    if (request_.add_generation_prompt) generation_prompt();
    return prompt_.finish();
  }

 private:
  Status check_effort() const {
    if (format_.thinking == Thinking::always && request_.reasoning == ReasoningEffort::off) {
      return invalid_argument_error(
          "this model always reasons, its chat template has no switch: leave out --reasoning off "
          "(reasoning_effort, enable_thinking)");
    }
    if (format_.thinking == Thinking::never && request_.reasoning == ReasoningEffort::high) {
      return invalid_argument_error(
          "this model cannot reason, its chat template has no thinking: leave out --reasoning high "
          "(reasoning_effort)");
    }
    return {};
  }

  std::string_view content_of(const Message& message) const {
    return trimmed_ ? python_strip(message.content) : std::string_view(message.content);
  }

  // Index of the last message in which the user asks something: answers behind it are "late".
  Result<size_t> find_last_query() const {
    for (size_t i = messages_.size(); i-- > 0;) {
      if (messages_[i].role == Role::user && !looks_like_response(content_of(messages_[i])))
        return i;
    }
    if (trimmed_) {
      return invalid_argument_error(
          "messages hold no question: this model's chat template needs a message of role 'user'");
    }
    return messages_.empty() ? 0 : messages_.size() - 1;
  }

  // Markup and words of the template: tags in it are ids.
  Renderer& literal(std::string_view text) {
    while (!text.empty()) {
      const size_t at = std::min(text.find('<'), text.size());
      prompt_.text(text.substr(0, at));
      text.remove_prefix(at);
      const size_t used = tag(text);
      if (used == 0 && !text.empty()) {
        prompt_.text(text.substr(0, 1));
        text.remove_prefix(1);
      }
      text.remove_prefix(used);
    }
    return *this;
  }
  // Bytes of the tag with an id that `text` begins with; its id is written.
  size_t tag(std::string_view text) {
    for (size_t i = 0; i < kQwenTags.size(); ++i) {
      if (tokens_.tags[i] < 0 || !text.starts_with(kQwenTags[i])) continue;
      prompt_.control(tokens_.tags[i]);
      return kQwenTags[i].size();
    }
    return 0;
  }

  void begin(std::string_view role) { prompt_.control(tokens_.im_start).text(role); }
  void end() { prompt_.control(tokens_.im_end).text("\n"); }
  void whole(std::string_view role, std::string_view body) {
    begin(role);
    prompt_.text("\n").text(body);
    end();
  }

  // The system message, with the tools. Returns the index of the first message after it.
  size_t instructions() {
    std::optional<std::string> system;
    size_t next = 0;
    if (!messages_.empty() && is_instruction(messages_[0])) {
      system = content_of(messages_[next++]);
      // Qwen3.5's template refuses a second one; what opens the conversation reads as one text.
      while (trimmed_ && next < messages_.size() && is_instruction(messages_[next])) {
        const std::string_view more = content_of(messages_[next++]);
        if (!system->empty() && !more.empty()) *system += "\n\n";
        *system += more;
      }
    }
    if (!request_.tools.empty())
      tools(system);
    else if (system)
      whole("system", *system);
    return next;
  }

  void tools(const std::optional<std::string>& system) {
    begin("system");
    prompt_.text("\n");
    if (format_.shape == Shape::coder) prompt_.text(system.value_or(format_.default_system));
    if (format_.shape == Shape::qwen3 && system) prompt_.text(*system);
    if (format_.shape == Shape::coder || (format_.shape == Shape::qwen3 && system))
      prompt_.text("\n\n");
    literal(format_.tools_head);
    if (format_.shape == Shape::coder) {
      prompt_.text(qwen_coder_tools(request_.tools));
    } else {
      for (const Json& tool : request_.tools) prompt_.text("\n").text(python_json(tool));
    }
    literal(format_.tools_tail);
    if (trimmed_ && system && !system->empty()) prompt_.text("\n\n").text(*system);
    end();
  }

  Status message(size_t index) {
    const Message& message = messages_[index];
    switch (message.role) {
      case Role::system:
      case Role::developer:
        if (trimmed_) {
          return invalid_argument_error(
              "messages[{}]: this model's chat template takes system messages at the beginning "
              "only",
              index);
        }
        whole("system", message.content);
        return {};
      case Role::user:
        whole("user", content_of(message));
        return {};
      case Role::assistant:
        if (format_.shape == Shape::coder && !message.tool_calls.empty())
          coder_calls(message);
        else
          assistant(index);
        return {};
      case Role::tool:
        tool_result(index);
        return {};
    }
    UNREACHABLE("no such case");
  }

  bool keeps_reasoning(size_t index, std::string_view reasoning) const {
    switch (format_.kept) {
      case Kept::untouched:
      case Kept::none:
        return false;
      case Kept::late_filled:
        return index > last_query_ && (index + 1 == messages_.size() || !reasoning.empty());
      case Kept::late:
        return index > last_query_;
      case Kept::all:
        return true;
    }
    UNREACHABLE("no such case");
  }

  void assistant(size_t index) {
    const Message& message = messages_[index];
    Answer answer = {message.reasoning, content_of(message)};
    if (format_.kept != Kept::untouched && message.reasoning.empty())
      answer = split_reasoning(answer.content);
    if (trimmed_) answer.reasoning = python_strip(answer.reasoning);
    begin("assistant");
    prompt_.text("\n");
    if (keeps_reasoning(index, answer.reasoning)) {
      literal("<think>\n");
      prompt_.text(trimmed_ ? answer.reasoning : strip_newlines(answer.reasoning));
      literal("\n</think>\n\n");
      prompt_.text(trimmed_ ? answer.content : strip_newlines_left(answer.content));
    } else {
      prompt_.text(answer.content);
    }
    for (size_t i = 0; i < message.tool_calls.size(); ++i) {
      const ToolCall& call = message.tool_calls[i];
      if (trimmed_) {
        prompt_.text(i > 0 ? "\n" : python_strip(answer.content).empty() ? "" : "\n\n");
        xml_call(call);
      } else {
        if (i > 0 || !answer.content.empty()) prompt_.text("\n");
        literal("<tool_call>");
        prompt_.text("\n{\"name\": \"").text(call.name).text("\", \"arguments\": ");
        const bool none = python_strip(call.arguments).empty();  // as some clients send it
        prompt_.text(none ? "{}" : std::string_view(call.arguments)).text("}\n");
        literal("</tool_call>");
      }
    }
    end();
  }

  // Qwen3-Coder's answer with calls.
  void coder_calls(const Message& message) {
    begin("assistant");
    const std::string_view content = python_strip(message.content);
    if (!content.empty()) prompt_.text("\n").text(content).text("\n");
    for (const ToolCall& call : message.tool_calls) {
      prompt_.text("\n");
      xml_call(call);
    }
    end();
  }

  void xml_call(const ToolCall& call) {
    literal("<tool_call>");
    prompt_.text("\n<function=").text(call.name).text(">\n");
    prompt_.text(qwen_parameters(call.arguments, format_.json_scalars)).text("</function>\n");
    literal("</tool_call>");
  }

  // Results that follow each other share one message of role user.
  void tool_result(size_t index) {
    const auto is_result = [&](size_t i) {
      return i < messages_.size() && messages_[i].role == Role::tool;
    };
    const bool coder = format_.shape == Shape::coder;
    if (index == 0 || !is_result(index - 1)) {
      begin("user");
      if (coder) prompt_.text("\n");
    }
    literal(coder ? "<tool_response>\n" : "\n<tool_response>\n");
    prompt_.text(content_of(messages_[index]));
    literal(coder ? "\n</tool_response>\n" : "\n</tool_response>");
    if (!is_result(index + 1)) end();
  }

  void generation_prompt() {
    begin("assistant");
    prompt_.text("\n");
    const bool thinks = format_.thinks(request_);
    if (thinks && format_.opens_thinking) literal("<think>\n");
    if (!thinks && format_.thinking == Thinking::switched) literal("<think>\n\n</think>\n\n");
  }

  const ChatRequest& request_;
  const std::vector<Message>& messages_;
  const QwenTokens& tokens_;
  const QwenTemplate& format_;
  const bool trimmed_;     // Qwen3.5: contents and reasoning lose the whitespace around them
  size_t last_query_ = 0;  // index
  Prompt prompt_;
};

}  // namespace

Result<std::vector<TokenId>> render_qwen(const ChatRequest& request, const Tokenizer& tokenizer,
                                         const QwenTokens& tokens, const QwenTemplate& format) {
  return Renderer(request, tokenizer, tokens, format).render();
}

}  // namespace wader
