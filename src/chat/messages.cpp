#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "chat/chat.h"
#include "chat/python_text.h"
#include "chat/tools.h"
#include "tokenizer/quote.h"
#include "tokenizer/utf8.h"

namespace wader {
namespace {

constexpr std::array<std::pair<std::string_view, Message::Role>, 5> kRoles = {{
    {"system", Message::Role::system},
    {"developer", Message::Role::developer},
    {"user", Message::Role::user},
    {"assistant", Message::Role::assistant},
    {"tool", Message::Role::tool},
}};

std::string_view role_name(Message::Role role) {
  for (const auto& [name, value] : kRoles)
    if (value == role) return name;
  UNREACHABLE("no such case");
  return {};
}

// Optional string; "" when absent or null. Invalid UTF-8 becomes U+FFFD (parse_json() has refused
// it already), so that a stored chat can always be sent again.
Result<std::string> string_or_empty(const Json& object, std::string_view key, std::string_view at) {
  const Json* value = find_field(object, key);
  if (value == nullptr) return std::string();
  if (!value->is_string()) return invalid_argument_error("{}.{} must be a string", at, key);
  return replace_invalid_utf8(value->get_ref<const std::string&>());
}

// Text parts are pieces of one text, so nothing is put between them.
Result<std::string> text_of_parts(const Json& parts, std::string_view at) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string here = fmt::format("{}[{}]", at, i);
    if (!parts[i].is_object()) return invalid_argument_error("{} must be an object", here);
    ASSIGN_OR_RETURN(const std::string type, string_or_empty(parts[i], "type", here));
    if (type.empty()) return invalid_argument_error("{}.type is missing", here);
    if (type != "text") {
      return invalid_argument_error("{}.type {} is not supported: this model takes text only", here,
                                    quote(type));
    }
    const Json* piece = find_field(parts[i], "text");
    if (piece == nullptr) return invalid_argument_error("{}.text is missing", here);
    if (!piece->is_string()) return invalid_argument_error("{}.text must be a string", here);
    text += replace_invalid_utf8(piece->get_ref<const std::string&>());
  }
  return text;
}

// Absent, null and [] are no content; "" is.
Result<std::optional<std::string>> read_content(const Json& message, const std::string& at) {
  const Json* content = find_field(message, "content");
  if (content == nullptr) return std::optional<std::string>();
  if (content->is_string())
    return std::optional(replace_invalid_utf8(content->get_ref<const std::string&>()));
  if (!content->is_array())
    return invalid_argument_error("{}.content must be a string or a list of text parts", at);
  if (content->empty()) return std::optional<std::string>();
  ASSIGN_OR_RETURN(std::string text, text_of_parts(*content, at + ".content"));
  return std::optional(std::move(text));
}

Result<ToolCall> read_tool_call(const Json& json, const std::string& at) {
  if (!json.is_object()) return invalid_argument_error("{} must be an object", at);
  ASSIGN_OR_RETURN(const std::string type, string_or_empty(json, "type", at));
  if (!type.empty() && type != "function")
    return invalid_argument_error("{}.type {} is not supported: only 'function' is", at,
                                  quote(type));
  const Json* function = find_field(json, "function");
  if (function == nullptr) return invalid_argument_error("{}.function is missing", at);
  if (!function->is_object()) return invalid_argument_error("{}.function must be an object", at);
  ToolCall call;
  ASSIGN_OR_RETURN(call.id, string_or_empty(json, "id", at));
  ASSIGN_OR_RETURN(call.name, string_or_empty(*function, "name", at + ".function"));
  if (call.name.empty()) return invalid_argument_error("{}.function.name is missing", at);
  const Json* arguments = find_field(*function, "arguments");
  if (arguments == nullptr) {
    call.arguments = "{}";
  } else if (arguments->is_string()) {
    call.arguments = replace_invalid_utf8(arguments->get_ref<const std::string&>());
  } else if (arguments->is_object()) {
    call.arguments = python_json(*arguments);  // as templates write an object
  } else {
    return invalid_argument_error("{}.function.arguments must be a string of JSON", at);
  }
  return call;
}

Status read_tool_calls(const Json& json, const std::string& at, std::vector<ToolCall>& calls) {
  const Json* list = find_field(json, "tool_calls");
  if (list == nullptr) return {};
  if (!list->is_array()) return invalid_argument_error("{}.tool_calls must be a list", at);
  for (size_t i = 0; i < list->size(); ++i) {
    ASSIGN_OR_RETURN(ToolCall call,
                     read_tool_call((*list)[i], fmt::format("{}.tool_calls[{}]", at, i)));
    calls.push_back(std::move(call));
  }
  return {};
}

// Servers disagree on the name of the field, and some send it twice; two texts are a mistake.
Status read_reasoning(const Json& json, const std::string& at, std::string& reasoning) {
  for (const std::string_view key : {"reasoning_content", "reasoning", "thinking"}) {
    ASSIGN_OR_RETURN(std::string text, string_or_empty(json, key, at));
    if (text.empty()) continue;
    if (!reasoning.empty() && reasoning != text)
      return invalid_argument_error("{}.{} contradicts another reasoning field", at, key);
    reasoning = std::move(text);
  }
  return {};
}

bool is_blank(const Json& value) {
  return value.is_null() || (value.is_structured() && value.empty());
}

// `name` is taken on every role because agent frameworks set it, but only a tool's reaches the
// model. Clients that echo an answer send empty extras ("refusal": null, "annotations": []).
Status check_message_keys(const Json& json, Message::Role role, const std::string& at) {
  constexpr std::string_view kAny[] = {"role", "content", "name"};
  constexpr std::string_view kAssistant[] = {"tool_calls", "reasoning_content", "reasoning",
                                             "thinking"};
  const auto among = [](const auto& keys, std::string_view key) {
    return std::find(std::begin(keys), std::end(keys), key) != std::end(keys);
  };
  for (const auto& [key, value] : json.items()) {
    const bool known = among(kAny, key) ||
                       (role == Message::Role::assistant && among(kAssistant, key)) ||
                       (role == Message::Role::tool && key == "tool_call_id");
    if (!known && !is_blank(value)) {
      return invalid_argument_error("{}: key {} is not supported in a message of role '{}'", at,
                                    quote(key), role_name(role));
    }
  }
  return {};
}

bool names_earlier_call(const std::vector<Message>& earlier, std::string_view id) {
  for (const Message& message : earlier)
    for (const ToolCall& call : message.tool_calls)
      if (call.id == id) return true;
  return false;
}

Status read_tool_result(const Json& json, const std::string& at,
                        const std::vector<Message>& earlier, Message& message) {
  ASSIGN_OR_RETURN(message.tool_call_id, string_or_empty(json, "tool_call_id", at));
  ASSIGN_OR_RETURN(message.name, string_or_empty(json, "name", at));
  if (!message.name.empty()) return {};
  if (message.tool_call_id.empty()) return invalid_argument_error("{}.tool_call_id is missing", at);
  if (!names_earlier_call(earlier, message.tool_call_id)) {
    return invalid_argument_error("{}.tool_call_id {} answers no earlier tool call", at,
                                  quote(message.tool_call_id));
  }
  return {};
}

Result<Message> read_message(const Json& json, const std::string& at,
                             const std::vector<Message>& earlier) {
  if (!json.is_object()) return invalid_argument_error("{} must be an object", at);
  ASSIGN_OR_RETURN(const std::string role, string_or_empty(json, "role", at));
  if (role.empty()) return invalid_argument_error("{}.role is missing", at);
  const auto known = std::find_if(kRoles.begin(), kRoles.end(),
                                  [&](const auto& entry) { return entry.first == role; });
  if (known == kRoles.end()) {
    return invalid_argument_error(
        "{}.role {} is not one of system, developer, user, assistant, tool", at, quote(role));
  }
  Message message{};
  message.role = known->second;
  RETURN_IF_ERROR(check_message_keys(json, message.role, at));
  ASSIGN_OR_RETURN(std::optional<std::string> content, read_content(json, at));
  if (message.role == Message::Role::assistant) {
    RETURN_IF_ERROR(read_tool_calls(json, at, message.tool_calls));
    RETURN_IF_ERROR(read_reasoning(json, at, message.reasoning));
    if (!content && message.tool_calls.empty())
      return invalid_argument_error("{} has neither content nor tool_calls", at);
  } else if (!content) {
    return invalid_argument_error("{}.content is missing", at);
  }
  if (message.role == Message::Role::tool)
    RETURN_IF_ERROR(read_tool_result(json, at, earlier, message));
  message.content = std::move(content).value_or("");
  return message;
}

Result<std::vector<Message>> read_messages(const Json& json) {
  if (!json.is_array()) return invalid_argument_error("messages must be a list");
  if (json.empty()) return invalid_argument_error("messages must not be empty");
  std::vector<Message> messages;
  for (size_t i = 0; i < json.size(); ++i) {
    ASSIGN_OR_RETURN(Message message,
                     read_message(json[i], fmt::format("messages[{}]", i), messages));
    messages.push_back(std::move(message));
  }
  return messages;
}

// "none" is how OpenAI's API spells off.
Result<ReasoningEffort> read_effort(const Json& value) {
  constexpr std::pair<std::string_view, ReasoningEffort> kEfforts[] = {
      {"low", ReasoningEffort::low},
      {"medium", ReasoningEffort::medium},
      {"high", ReasoningEffort::high},
      {"off", ReasoningEffort::off},
      {"none", ReasoningEffort::off}};
  if (value.is_string()) {
    for (const auto& [name, effort] : kEfforts)
      if (value.get_ref<const std::string&>() == name) return effort;
  }
  return invalid_argument_error("reasoning_effort must be one of low, medium, high, off");
}

// {"enable_thinking": …}, as clients of vLLM and SGLang send it. Nothing else of a template's
// variables is a request's to set.
Result<std::optional<bool>> read_template_kwargs(const Json& value) {
  if (!value.is_object()) return invalid_argument_error("chat_template_kwargs must be an object");
  std::optional<bool> thinking;
  for (const auto& [key, entry] : value.items()) {
    if (entry.is_null()) continue;
    if (key != "enable_thinking")
      return invalid_argument_error("chat_template_kwargs: key {} is not supported", quote(key));
    if (!entry.is_boolean())
      return invalid_argument_error("chat_template_kwargs.enable_thinking must be true or false");
    thinking = entry.get<bool>();
  }
  return thinking;
}

// Two ways to say one thing; true alone asks for the usual effort.
Status apply_thinking(std::optional<bool> thinking, std::string_view at, ChatRequest& request) {
  if (!thinking) return {};
  if (request.reasoning && *thinking != (*request.reasoning != ReasoningEffort::off)) {
    return invalid_argument_error("{} {} contradicts another reasoning setting of the request", at,
                                  *thinking);
  }
  if (!request.reasoning)
    request.reasoning = *thinking ? ReasoningEffort::medium : ReasoningEffort::off;
  return {};
}

Result<std::string> read_date(const Json& value) {
  const auto shaped = [](std::string_view text) {
    constexpr std::string_view kShape = "dddd-dd-dd";
    if (text.size() != kShape.size()) return false;
    for (size_t i = 0; i < text.size(); ++i)
      if (kShape[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != '-') return false;
    return true;
  };
  if (!value.is_string() || !shaped(value.get_ref<const std::string&>()))
    return invalid_argument_error("date must be a string YYYY-MM-DD");
  return value.get<std::string>();
}

}  // namespace

Result<ChatRequest> chat_request_from_json(const Json& json) {
  ChatRequest request;
  if (json.is_array()) {
    ASSIGN_OR_RETURN(request.messages, read_messages(json));
    return request;
  }
  if (!json.is_object())
    return invalid_argument_error("a chat request must be an object or a list of messages");
  std::optional<bool> enable_thinking, kwargs_thinking;
  for (const auto& [key, value] : json.items()) {
    if (key == "messages" || value.is_null()) continue;
    if (key == "tools") {
      RETURN_IF_ERROR(check_tools(value));
      request.tools = value;
    } else if (key == "reasoning_effort") {
      ASSIGN_OR_RETURN(request.reasoning, read_effort(value));
    } else if (key == "enable_thinking") {
      if (!value.is_boolean())
        return invalid_argument_error("enable_thinking must be true or false");
      enable_thinking = value.get<bool>();
    } else if (key == "chat_template_kwargs") {
      ASSIGN_OR_RETURN(kwargs_thinking, read_template_kwargs(value));
    } else if (key == "date") {
      ASSIGN_OR_RETURN(request.date, read_date(value));
    } else if (key == "add_generation_prompt") {
      if (!value.is_boolean())
        return invalid_argument_error("add_generation_prompt must be true or false");
      request.add_generation_prompt = value.get<bool>();
    } else {
      return invalid_argument_error("key {} is not supported in a chat request", quote(key));
    }
  }
  RETURN_IF_ERROR(apply_thinking(enable_thinking, "enable_thinking", request));
  RETURN_IF_ERROR(apply_thinking(kwargs_thinking, "chat_template_kwargs.enable_thinking", request));
  const Json* messages = find_field(json, "messages");
  if (messages == nullptr) return invalid_argument_error("messages is missing");
  ASSIGN_OR_RETURN(request.messages, read_messages(*messages));
  return request;
}

Json message_to_json(const Message& message) {
  Json json;
  json["role"] = role_name(message.role);
  const bool only_calls = !message.tool_calls.empty() && message.content.empty();
  if (only_calls)
    json["content"] = nullptr;
  else
    json["content"] = message.content;
  if (!message.reasoning.empty()) json["reasoning_content"] = message.reasoning;
  for (const ToolCall& call : message.tool_calls) {
    json["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  if (!message.tool_call_id.empty()) json["tool_call_id"] = message.tool_call_id;
  if (!message.name.empty()) json["name"] = message.name;
  return json;
}

}  // namespace wader
