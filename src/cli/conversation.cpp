#include "cli/conversation.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "engine/chat_prompt.h"

namespace wader {
namespace {

std::string_view effort_name(ReasoningEffort effort) {
  switch (effort) {
    case ReasoningEffort::low:
      return "low";
    case ReasoningEffort::medium:
      return "medium";
    case ReasoningEffort::high:
      return "high";
    case ReasoningEffort::off:
      return "off";
  }
  UNREACHABLE("no such case");
}

}  // namespace

Conversation::Conversation(Session& session, const ChatFormat& format,
                           std::function<EngineStats()> stats, ConversationOptions options)
    : session_(session),
      format_(format),
      stats_(std::move(stats)),
      options_(std::move(options)),
      request_(options_.start) {}

void Conversation::reset() {
  request_ = options_.start;
  answers_ = 0;
  session_.reset();
}

Result<ConversationAnswer> Conversation::ask(std::string question, const Listener& listener,
                                             const std::atomic<bool>& cancel) {
  Message user = {};
  user.role = Message::Role::user;
  user.content = std::move(question);
  request_.messages.push_back(std::move(user));
  Result<ConversationAnswer> result = answer(listener, cancel);
  if (!result.ok() || !result->kept) {
    request_.messages.pop_back();
    return result;
  }
  request_.messages.push_back(result->message);
  ++answers_;
  return result;
}

Result<ConversationAnswer> Conversation::answer(const Listener& listener,
                                                const std::atomic<bool>& cancel) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  const EngineStats before = stats_();
  ASSIGN_OR_RETURN(const ChatPrompt prompt,
                   chat_prompt(format_, request_, options_.max_text_bytes));

  ConversationAnswer out;
  const std::unique_ptr<ChatParser> parser = format_.parser(request_);
  GenerateOptions options;
  options.sampling = options_.sampling;
  options.sampling.seed += answers_;
  options.max_tokens = options_.max_tokens;
  options.stop_ids = options_.stop_ids;
  options.turn_start = prompt.turn_start;
  options.cancel = &cancel;
  options.on_prefill = listener.on_prefill;
  options.on_token = [&](TokenId id) {
    if (out.figures.first_token_seconds == 0) out.figures.first_token_seconds = seconds();
    const ChatDelta delta = parser->push(id);
    return delta.empty() || !listener.on_delta || listener.on_delta(delta);
  };
  ASSIGN_OR_RETURN(const Generation generation, session_.generate(prompt.ids, options));
  // The stop id tells the parser how the answer ended (harmony: a call or a return); on_token never
  // sees it.
  ChatDelta tail;
  if (generation.reason == FinishReason::stop) tail = parser->push(generation.ids.back());
  if (!tail.empty() && listener.on_delta) listener.on_delta(tail);
  tail = parser->finish();
  if (!tail.empty() && listener.on_delta) listener.on_delta(tail);

  out.message = parser->message();
  out.reason = generation.reason;
  out.kept = generation.reason != FinishReason::cancelled || !out.message.content.empty();
  out.figures.engine = stats_between(before, stats_());
  out.figures.prompt_tokens = static_cast<uint32_t>(prompt.ids.size());
  out.figures.reused_tokens = generation.reused_tokens;
  out.figures.new_tokens = static_cast<uint32_t>(generation.ids.size());
  out.figures.seconds = seconds();
  out.figures.seed = options.sampling.seed;
  return out;
}

Status Conversation::save(const std::filesystem::path& file) {
  return session_.save(file, json_text(to_json()));
}

Status Conversation::load(const std::filesystem::path& file) {
  CHECK(answers_ == 0);
  const auto read = [&]() -> Result<ChatRequest> {
    // JSON takes at most six bytes for one of text; the rest is its own.
    const uint64_t most = std::min(options_.max_text_bytes, kMaxNoteBytes / 6) * 6 + kMiB;
    ASSIGN_OR_RETURN(const std::string note, session_.load(file, most));
    ASSIGN_OR_RETURN(const Json json, parse_json(note, file.string()));
    auto request = chat_request_from_json(json);
    if (!request.ok()) return std::move(request).error().within(file.string());
    return request;
  };
  auto request = read();
  if (!request.ok()) {
    reset();
    return std::move(request).error();
  }
  request_.messages = std::move(request->messages);
  if (!request->date.empty()) request_.date = request->date;
  if (!request_.reasoning) request_.reasoning = request->reasoning;
  for (const Message& message : request_.messages)
    answers_ += message.role == Message::Role::assistant;
  return {};
}

Json Conversation::to_json() const {
  Json messages = Json::array();
  for (const Message& message : request_.messages) messages.push_back(message_to_json(message));
  Json json = {{"messages", messages}};
  if (!request_.date.empty()) json["date"] = request_.date;
  if (request_.reasoning) json["reasoning_effort"] = effort_name(*request_.reasoning);
  return json;
}

}  // namespace wader
