#include "server/answer.h"

#include <algorithm>

namespace wader {
namespace {

// A header of a message between two texts is some ten tokens; a model that writes markup without
// end must not make the list grow.
constexpr size_t kMaxPending = 256;

}  // namespace

AnswerAssembler::AnswerAssembler(std::unique_ptr<ChatParser> parser, const Tokenizer& tokenizer,
                                 AnswerOptions options)
    : parser_(std::move(parser)),
      tokenizer_(tokenizer),
      options_(std::move(options)),
      stop_(options_.stop) {}

ChatDelta AnswerAssembler::parse(TokenId id) {
  if (parser_) return parser_->push(id);
  ChatDelta delta;
  if (!tokenizer_.is_special(id)) delta.content = text_.push(tokenizer_.bytes_of(id));
  return delta;
}

AnswerPiece AnswerAssembler::push(const GeneratedToken& token) {
  if (ended_) return {};
  ++answer_.tokens;
  ++undecided_;
  note_logprob(token);
  ChatDelta delta = parse(token.id);
  count(delta);
  return deliver(std::move(delta), /*last=*/false);
}

AnswerPiece AnswerAssembler::finish(const GenerationResult& result) {
  AnswerPiece piece;
  if (!ended_) {
    ChatDelta delta;
    if (parser_) {
      if (result.stop_id >= 0) {
        ChatDelta before = parser_->push(result.stop_id);
        count(before);
        piece = deliver(std::move(before), /*last=*/false);
      }
      if (!ended_) delta = parser_->finish();
    } else {
      delta.content = text_.finish();
    }
    count(delta);
    AnswerPiece rest = deliver(std::move(delta), /*last=*/true);
    piece.content += rest.content;
    piece.reasoning += rest.reasoning;
    for (auto& call : rest.tool_calls) piece.tool_calls.push_back(std::move(call));
    for (auto& entry : rest.logprobs) piece.logprobs.push_back(std::move(entry));
  }
  const bool cut = !ended_ && (result.end == GenerationEnd::length ||
                               result.end == GenerationEnd::context_full ||
                               result.end == GenerationEnd::deadline);
  ended_ = true;
  if (cut) {
    answer_.finish = AnswerFinish::length;
  } else if (!answer_.tool_calls.empty()) {
    answer_.finish = AnswerFinish::tool_calls;
  } else {
    answer_.finish = AnswerFinish::stop;
  }
  return piece;
}

// Markup before a text is written for its sake: the tokens of a header count to what follows it.
void AnswerAssembler::count(const ChatDelta& delta) {
  if (delta.empty()) return;
  if (!delta.reasoning.empty()) answer_.reasoning_tokens += undecided_;
  undecided_ = 0;
}

void AnswerAssembler::note_logprob(const GeneratedToken& token) {
  if (!options_.logprobs) return;
  const auto text = [&](TokenId id) { return std::string(tokenizer_.bytes_of(id)); };
  Pending pending{{text(token.id), token.logprob.value_or(0), {}}, tokenizer_.is_special(token.id)};
  for (const TokenLogprob& other : token.top)
    pending.entry.top.emplace_back(text(other.id), other.logprob);
  if (pending_.size() == kMaxPending) pending_.erase(pending_.begin());
  pending_.push_back(std::move(pending));
}

// Which of the latest tokens the new content is made of: the last ones, as many as have its bytes.
// What stands before them is the header of the message, or markup.
void AnswerAssembler::place_logprobs(const ChatDelta& delta) {
  if (!options_.logprobs || delta.empty()) return;
  size_t first = pending_.size(), bytes = 0;
  while (first > 0 && bytes < delta.content.size() && !pending_[first - 1].special)
    bytes += pending_[--first].entry.bytes.size();
  uint64_t offset = parsed_bytes_;
  for (; first < pending_.size(); ++first) {
    const size_t size = pending_[first].entry.bytes.size();
    if (!pending_[first].special) placed_.push_back({std::move(pending_[first].entry), offset});
    offset += size;
  }
  pending_.clear();
}

void AnswerAssembler::cut_second_call(ChatDelta& delta) {
  if (options_.parallel_tool_calls) return;
  const auto second = std::find_if(delta.tool_calls.begin(), delta.tool_calls.end(),
                                   [](const auto& call) { return call.index > 0; });
  if (second == delta.tool_calls.end()) return;
  delta.tool_calls.erase(second, delta.tool_calls.end());
  ended_ = true;
}

AnswerPiece AnswerAssembler::deliver(ChatDelta delta, bool last) {
  AnswerPiece piece;
  place_logprobs(delta);
  parsed_bytes_ += delta.content.size();
  cut_second_call(delta);
  // A stop string lies within one run of text. Held text goes out before what follows it.
  if (!delta.reasoning.empty()) piece.content = stop_.flush();
  piece.content += stop_.push(delta.content);
  if (last || ended_ || !delta.tool_calls.empty()) piece.content += stop_.flush();
  answer_.content += piece.content;
  const bool stopped = stop_.found();
  const bool all = (last || ended_) && !stopped;
  while (!placed_.empty() && (all || placed_.front().offset < answer_.content.size())) {
    answer_.logprobs.push_back(placed_.front().entry);
    piece.logprobs.push_back(std::move(placed_.front().entry));
    placed_.pop_front();
  }
  // A stop string ends the answer where it stands: what came in the same step came after it.
  if (stopped) {
    ended_ = true;
    return piece;
  }
  piece.reasoning = std::move(delta.reasoning);
  answer_.reasoning += piece.reasoning;
  piece.tool_calls = std::move(delta.tool_calls);
  for (const ChatDelta::ToolCallDelta& call : piece.tool_calls) {
    if (call.index >= answer_.tool_calls.size()) answer_.tool_calls.resize(call.index + 1);
    ToolCall& whole = answer_.tool_calls[call.index];
    whole.id += call.id;
    whole.name += call.name;
    whole.arguments += call.arguments;
  }
  return piece;
}

std::optional<ApiError> generation_error(const GenerationResult& result, const Answer& answer) {
  switch (result.end) {
    case GenerationEnd::stop:
    case GenerationEnd::length:
    case GenerationEnd::context_full:
      return std::nullopt;
    case GenerationEnd::cancelled:
      return ApiError{503, "the server is shutting down, or loads another model", "",
                      "shutting_down"};
    case GenerationEnd::deadline:
      if (answer.tokens > 0) return std::nullopt;
      return ApiError{504, "the request's time was over before its first token", "",
                      "deadline_exceeded"};
    case GenerationEnd::failed:
      return ApiError{500, result.error ? result.error->message : "generation failed", "",
                      "generation_failed"};
  }
  return std::nullopt;
}

}  // namespace wader
