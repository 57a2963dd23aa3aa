// /v1/responses: what goes back. One object makes the events and, from the same state, the response
// that the last of them carries or that is sent whole: begin(), push() for each piece, finish() or
// fail(); response() at any time. All return events ready to write; there is no [DONE] here.
//
// Reasoning goes out as the summary of a reasoning item: the field that clients show. Responses are
// not stored, so clients that keep reasoning for the next turn must send it back; they do so for
// items with `encrypted_content`. For who includes that, or says store false, it is a mark that
// tells where the text stands.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/answer.h"
#include "server/answer_json.h"
#include "server/api.h"

namespace wader {

class ResponsesAnswer {
 public:
  ResponsesAnswer(AnswerHead head, const ResponsesRequest& request);

  std::string begin();
  std::string push(const AnswerPiece& piece);
  std::string finish(AnswerFinish finish, const AnswerUsage& usage);
  std::string fail(const ApiError& error);  // instead of finish()

  Json response() const;

 private:
  enum class Kind : uint8_t { none, reasoning, message, call };

  std::string event(std::string_view type, Json fields);
  std::string whole_event(std::string_view type);  // that carries the response
  std::string open(Kind kind, Json item);
  std::string open_text(Kind kind);
  std::string close(std::string_view status);
  std::string text_delta(const AnswerPiece& piece);
  std::string reasoning_delta(const std::string& text);
  std::string call_delta(const ChatDelta::ToolCallDelta& call);
  Json place(bool part) const;  // item_id, output_index and, of a part, its index
  std::string item_id(std::string_view prefix) const;
  Json text_part() const;

  AnswerHead head_;
  Json as_sent_;
  bool returns_reasoning_;
  bool logprobs_;
  uint64_t sequence_ = 0;
  std::string status_ = "in_progress";
  Json error_, incomplete_, usage_, timings_;
  Json output_ = Json::array();
  Kind kind_ = Kind::none;  // of the last item while it is open
  std::string text_;        // of the open item: text, reasoning or arguments
  Json text_logprobs_ = Json::array();
};

}  // namespace wader
