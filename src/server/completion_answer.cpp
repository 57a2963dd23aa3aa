#include "server/completion_answer.h"

#include <fmt/format.h>

#include <utility>

#include "server/chat_answer.h"
#include "tokenizer/utf8.h"

namespace wader {
namespace {

// As the completions endpoint spells what is no text of its own: "bytes:\xe2\x80".
std::string token_name(const std::string& bytes) {
  if (valid_utf8_prefix(bytes) == bytes.size()) return bytes;
  std::string name = "bytes:";
  for (const char c : bytes)
    fmt::format_to(std::back_inserter(name), "\\x{:02x}", static_cast<uint8_t>(c));
  return name;
}

// Begins of characters, so that a character of two tokens counts with the first of them.
uint64_t count_characters(const std::string& bytes) {
  uint64_t count = 0;
  for (const char c : bytes) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

// `offset`: of the first token, in characters; moved on.
Json lists_json(const std::vector<LogprobEntry>& entries, uint64_t& offset) {
  Json tokens = Json::array(), logprobs = Json::array(), tops = Json::array(),
       offsets = Json::array();
  for (const LogprobEntry& entry : entries) {
    tokens.push_back(token_name(entry.bytes));
    logprobs.push_back(finite_logprob(entry.logprob));
    Json top = Json::object();
    for (const auto& [bytes, logprob] : entry.top) top[token_name(bytes)] = finite_logprob(logprob);
    top[token_name(entry.bytes)] = finite_logprob(entry.logprob);  // also when not among them
    tops.push_back(std::move(top));
    offsets.push_back(offset);
    offset += count_characters(entry.bytes);
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

}  // namespace

std::string echo_text(const CompletionRequest& request, const Tokenizer& tokenizer) {
  if (!request.echo) return {};
  if (request.prompt_ids.empty()) return replace_invalid_utf8(request.prompt_text);
  return replace_invalid_utf8(tokenizer.decode(request.prompt_ids, /*with_special=*/true));
}

CompletionStream::CompletionStream(AnswerHead head, const CompletionRequest& request,
                                   std::string echo)
    : ChunkStream(std::move(head), "text_completion", request),
      echo_(std::move(echo)),
      offsets_(request.n, count_characters(echo_)),
      begun_(request.n, echo_.empty()) {}

std::string CompletionStream::event(uint32_t choice, const std::string& text, Json logprobs,
                                    const Json& finish) {
  Json entry = {{"text", begun_[choice] ? text : echo_ + text},
                {"index", choice},
                {"logprobs", std::move(logprobs)},
                {"finish_reason", finish}};
  begun_[choice] = true;
  return ChunkStream::event(std::move(entry));
}

std::string CompletionStream::chunk(uint32_t choice, const AnswerPiece& piece) {
  if (piece.content.empty() && piece.logprobs.empty()) return {};
  Json logprobs;
  if (has_logprobs()) logprobs = lists_json(piece.logprobs, offsets_[choice]);
  return event(choice, piece.content, std::move(logprobs), nullptr);
}

std::string CompletionStream::finish(uint32_t choice, AnswerFinish finish) {
  return event(choice, "", nullptr, finish_name(finish));
}

Json completion_json(const AnswerHead& head, const CompletionRequest& request,
                     const std::string& echo, std::span<const Answer> answers,
                     const AnswerUsage& usage) {
  Json choices = Json::array();
  for (const Answer& answer : answers) {
    uint64_t offset = count_characters(echo);
    Json logprobs;
    if (request.top_logprobs) logprobs = lists_json(answer.logprobs, offset);
    choices.push_back({{"text", echo + answer.content},
                       {"index", choices.size()},
                       {"logprobs", std::move(logprobs)},
                       {"finish_reason", finish_name(answer.finish)}});
  }
  return completion_body(head, "text_completion", std::move(choices), usage);
}

}  // namespace wader
