#include "server/chat_answer.h"

#include <utility>

#include "base/check.h"

namespace wader {
namespace {

Json call_delta(const ChatDelta::ToolCallDelta& call) {
  Json json = {{"index", call.index}};
  if (!call.id.empty()) {
    json["id"] = call.id;
    json["type"] = "function";
  }
  Json function = Json::object();
  if (!call.name.empty()) function["name"] = call.name;
  function["arguments"] = call.arguments;
  json["function"] = std::move(function);
  return json;
}

Json message_json(const Answer& answer) {
  Json message = {{"role", "assistant"}};
  if (answer.content.empty() && !answer.tool_calls.empty()) {
    message["content"] = nullptr;
  } else {
    message["content"] = answer.content;
  }
  message["refusal"] = nullptr;
  if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
  for (const ToolCall& call : answer.tool_calls) {
    message["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return message;
}

Json logprobs_or_null(bool wanted, const std::vector<LogprobEntry>& entries) {
  if (!wanted) return nullptr;
  return {{"content", logprobs_json(entries)}, {"refusal", nullptr}};
}

}  // namespace

std::string_view finish_name(AnswerFinish finish) {
  switch (finish) {
    case AnswerFinish::stop:
      return "stop";
    case AnswerFinish::length:
      return "length";
    case AnswerFinish::tool_calls:
      return "tool_calls";
  }
  UNREACHABLE("no such case");
  return {};
}

ChatStream::ChatStream(AnswerHead head, const AnswerRequest& request)
    : ChunkStream(std::move(head), "chat.completion.chunk", request) {}

std::string ChatStream::event(uint32_t choice, Json delta, const Json& finish,
                              Json logprobs) const {
  return ChunkStream::event({{"index", choice},
                             {"delta", std::move(delta)},
                             {"logprobs", std::move(logprobs)},
                             {"finish_reason", finish}});
}

std::string ChatStream::role(uint32_t choice) const {
  return event(choice, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
}

std::string ChatStream::chunk(uint32_t choice, const AnswerPiece& piece) const {
  Json delta = Json::object();
  if (!piece.reasoning.empty()) delta["reasoning_content"] = piece.reasoning;
  if (!piece.content.empty()) delta["content"] = piece.content;
  for (const ChatDelta::ToolCallDelta& call : piece.tool_calls)
    delta["tool_calls"].push_back(call_delta(call));
  if (delta.empty() && piece.logprobs.empty()) return {};
  return event(choice, std::move(delta), nullptr,
               logprobs_or_null(has_logprobs() && !piece.logprobs.empty(), piece.logprobs));
}

std::string ChatStream::finish(uint32_t choice, AnswerFinish finish) const {
  return event(choice, Json::object(), finish_name(finish), nullptr);
}

Json chat_completion_json(const AnswerHead& head, const AnswerRequest& request,
                          std::span<const Answer> answers, const AnswerUsage& usage) {
  Json choices = Json::array();
  for (const Answer& answer : answers) {
    choices.push_back(
        {{"index", choices.size()},
         {"message", message_json(answer)},
         {"logprobs", logprobs_or_null(request.top_logprobs.has_value(), answer.logprobs)},
         {"finish_reason", finish_name(answer.finish)}});
  }
  return completion_body(head, "chat.completion", std::move(choices), usage);
}

}  // namespace wader
