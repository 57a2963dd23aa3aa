#include "server/responses_answer.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"

namespace wader {
namespace {

constexpr std::string_view kTextIsInSummary = "the text is in summary";

Json summary_part(const std::string& text) {
  return {{"type", "summary_text"}, {"text", text}};
}

}  // namespace

ResponsesAnswer::ResponsesAnswer(AnswerHead head, const ResponsesRequest& request)
    : head_(std::move(head)),
      as_sent_(request.as_sent),
      returns_reasoning_(request.returns_reasoning),
      logprobs_(request.top_logprobs.has_value()) {}

Json ResponsesAnswer::response() const {
  Json json = {{"id", head_.id},       {"object", "response"}, {"created_at", head_.created_unix_s},
               {"status", status_},    {"error", error_},      {"incomplete_details", incomplete_},
               {"model", head_.model}, {"output", output_}};
  json.update(as_sent_);
  json["usage"] = usage_;
  if (!timings_.is_null()) json["timings"] = timings_;
  return json;
}

std::string ResponsesAnswer::event(std::string_view type, Json fields) {
  Json json = {{"type", type}, {"sequence_number", sequence_++}};
  json.update(fields);
  return sse_event(type, json);
}

std::string ResponsesAnswer::whole_event(std::string_view type) {
  Json fields = Json::object();
  fields["response"] = response();
  return event(type, std::move(fields));
}

std::string ResponsesAnswer::begin() {
  std::string events = whole_event("response.created");
  return events + whole_event("response.in_progress");
}

std::string ResponsesAnswer::item_id(std::string_view prefix) const {
  const std::string_view id = head_.id;
  const size_t from = id.find('_');
  return fmt::format("{}_{}_{}", prefix, from == id.npos ? id : id.substr(from + 1),
                     output_.size());
}

Json ResponsesAnswer::place(bool part) const {
  Json fields = {{"item_id", output_.back().at("id")}, {"output_index", output_.size() - 1}};
  if (part) fields[kind_ == Kind::reasoning ? "summary_index" : "content_index"] = 0;
  return fields;
}

Json ResponsesAnswer::text_part() const {
  return {{"type", "output_text"},
          {"text", text_},
          {"annotations", Json::array()},
          {"logprobs", text_logprobs_}};
}

std::string ResponsesAnswer::open(Kind kind, Json item) {
  std::string events = close("completed");
  kind_ = kind;
  text_.clear();
  text_logprobs_ = Json::array();
  output_.push_back(std::move(item));
  Json fields = {{"output_index", output_.size() - 1}, {"item", output_.back()}};
  return events + event("response.output_item.added", std::move(fields));
}

std::string ResponsesAnswer::open_text(Kind kind) {
  if (kind_ == kind) return {};
  if (kind == Kind::reasoning) {
    Json item = {{"id", item_id("rs")}, {"type", "reasoning"}, {"summary", Json::array()}};
    if (returns_reasoning_) item["encrypted_content"] = kTextIsInSummary;
    item["status"] = "in_progress";
    std::string events = open(kind, std::move(item));
    Json fields = place(true);
    fields["part"] = summary_part("");
    return events + event("response.reasoning_summary_part.added", std::move(fields));
  }
  std::string events = open(kind, {{"id", item_id("msg")},
                                   {"type", "message"},
                                   {"status", "in_progress"},
                                   {"role", "assistant"},
                                   {"content", Json::array()}});
  Json fields = place(true);
  fields["part"] = text_part();
  return events + event("response.content_part.added", std::move(fields));
}

std::string ResponsesAnswer::close(std::string_view status) {
  if (kind_ == Kind::none) return {};
  Json& item = output_.back();
  item["status"] = status;
  std::string events;
  const auto done = [&](std::string_view type, std::string_view key, Json value, bool part = true) {
    Json fields = place(part);
    fields[std::string(key)] = std::move(value);
    if (type == "response.output_text.done") fields["logprobs"] = text_logprobs_;
    if (!part) fields["name"] = item.at("name");
    events += event(type, std::move(fields));
  };
  switch (kind_) {
    case Kind::reasoning:
      item["summary"] = Json::array({summary_part(text_)});
      done("response.reasoning_summary_text.done", "text", text_);
      done("response.reasoning_summary_part.done", "part", summary_part(text_));
      break;
    case Kind::message:
      item["content"] = Json::array({text_part()});
      done("response.output_text.done", "text", text_);
      done("response.content_part.done", "part", text_part());
      break;
    case Kind::call:
      item["arguments"] = text_;
      done("response.function_call_arguments.done", "arguments", text_, /*part=*/false);
      break;
    case Kind::none:
      UNREACHABLE("returned above");
  }
  Json fields = {{"output_index", output_.size() - 1}, {"item", item}};
  events += event("response.output_item.done", std::move(fields));
  kind_ = Kind::none;
  return events;
}

std::string ResponsesAnswer::reasoning_delta(const std::string& text) {
  std::string events = open_text(Kind::reasoning);
  text_ += text;
  Json fields = place(true);
  fields["delta"] = text;
  return events + event("response.reasoning_summary_text.delta", std::move(fields));
}

std::string ResponsesAnswer::text_delta(const AnswerPiece& piece) {
  std::string events = open_text(Kind::message);
  text_ += piece.content;
  Json logprobs = Json::array();
  if (logprobs_) logprobs = logprobs_json(piece.logprobs);
  for (const Json& entry : logprobs) text_logprobs_.push_back(entry);
  Json fields = place(true);
  fields["delta"] = piece.content;
  fields["logprobs"] = std::move(logprobs);
  return events + event("response.output_text.delta", std::move(fields));
}

std::string ResponsesAnswer::call_delta(const ChatDelta::ToolCallDelta& call) {
  std::string events;
  if (!call.id.empty() || kind_ != Kind::call) {
    events = open(Kind::call, {{"id", item_id("fc")},
                               {"type", "function_call"},
                               {"status", "in_progress"},
                               {"call_id", call.id},
                               {"name", call.name},
                               {"arguments", ""}});
  }
  if (call.arguments.empty()) return events;
  text_ += call.arguments;
  Json fields = place(false);
  fields["delta"] = call.arguments;
  return events + event("response.function_call_arguments.delta", std::move(fields));
}

std::string ResponsesAnswer::push(const AnswerPiece& piece) {
  std::string events;
  if (!piece.reasoning.empty()) events += reasoning_delta(piece.reasoning);
  if (!piece.content.empty() || !piece.logprobs.empty()) events += text_delta(piece);
  for (const ChatDelta::ToolCallDelta& call : piece.tool_calls) events += call_delta(call);
  return events;
}

std::string ResponsesAnswer::finish(AnswerFinish finish, const AnswerUsage& usage) {
  // Clients look for a message where nothing else is.
  std::string events = output_.empty() ? open_text(Kind::message) : std::string();
  const bool cut = finish == AnswerFinish::length;
  status_ = cut ? "incomplete" : "completed";
  events += close(status_);
  if (cut) incomplete_ = {{"reason", "max_output_tokens"}};
  usage_ = usage.responses();
  timings_ = usage.timings();
  return events + whole_event(cut ? "response.incomplete" : "response.completed");
}

std::string ResponsesAnswer::fail(const ApiError& error) {
  std::string events = close("incomplete");
  status_ = "failed";
  error_ = {{"code", "server_error"}, {"message", error.message}};
  return events + whole_event("response.failed");
}

}  // namespace wader
