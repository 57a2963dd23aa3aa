// /v1/completions: what goes back. A stream is chunk() for each piece, finish() once a choice, then
// usage() where include_usage asks, then kSseDone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "server/answer.h"
#include "server/answer_json.h"
#include "server/api.h"

namespace wader {

// The text that `echo` puts before each answer: as sent, or spelt from ids with all their markup.
// "" without echo.
std::string echo_text(const CompletionRequest& request, const Tokenizer& tokenizer);

class CompletionStream : public ChunkStream {
 public:
  // `echo` is echo_text()'s: it comes with the first event of each choice.
  CompletionStream(AnswerHead head, const CompletionRequest& request, std::string echo);

  std::string chunk(uint32_t choice, const AnswerPiece& piece);  // "" for nothing
  std::string finish(uint32_t choice, AnswerFinish finish);

 private:
  std::string event(uint32_t choice, const std::string& text, Json logprobs, const Json& finish);

  std::string echo_;
  std::vector<uint64_t> offsets_;  // of each choice: characters of the tokens sent
  std::vector<bool> begun_;
};

Json completion_json(const AnswerHead& head, const CompletionRequest& request,
                     const std::string& echo, std::span<const Answer> answers,
                     const AnswerUsage& usage);

}  // namespace wader
