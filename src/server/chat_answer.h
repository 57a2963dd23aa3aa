// /v1/chat/completions: what goes back. A stream is chat_role() once a choice, chat_chunk() for
// each piece, chat_finish() once a choice, then chat_usage() where include_usage asks, then
// kSseDone. All return events ready to write; a piece with nothing to say gives "".
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "server/answer.h"
#include "server/answer_json.h"
#include "server/api.h"

namespace wader {

class ChatStream : public ChunkStream {
 public:
  ChatStream(AnswerHead head, const AnswerRequest& request);

  std::string role(uint32_t choice) const;
  std::string chunk(uint32_t choice, const AnswerPiece& piece) const;
  std::string finish(uint32_t choice, AnswerFinish finish) const;

 private:
  std::string event(uint32_t choice, Json delta, const Json& finish, Json logprobs) const;
};

// The whole answer: one of `answers` for each choice.
Json chat_completion_json(const AnswerHead& head, const AnswerRequest& request,
                          std::span<const Answer> answers, const AnswerUsage& usage);

std::string_view finish_name(AnswerFinish finish);  // "tool_calls"

}  // namespace wader
