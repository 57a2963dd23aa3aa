// One answer, token by token: what a client may see now, and how it ended. Streamed and whole
// answers are made of the same pieces, so they are the same text. Belongs to one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/chat.h"
#include "server/api.h"
#include "server/generation.h"
#include "server/stop_strings.h"
#include "tokenizer/tokenizer.h"

namespace wader {

// A token as `logprobs` show it: its bytes, which need not be whole characters.
struct LogprobEntry {
  std::string bytes;
  float logprob = 0;
  std::vector<std::pair<std::string, float>> top;
};

// What a step added.
struct AnswerPiece : ChatDelta {
  std::vector<LogprobEntry> logprobs;  // of the tokens that `content` is made of
};

enum class AnswerFinish : uint8_t { stop, length, tool_calls };

// All pieces together.
struct Answer {
  std::string content, reasoning;
  std::vector<ToolCall> tool_calls;
  std::vector<LogprobEntry> logprobs;
  AnswerFinish finish = AnswerFinish::stop;
  uint32_t tokens = 0;            // generated, without the one that ended it
  uint32_t reasoning_tokens = 0;  // of them, with the markup before reasoning
};

struct AnswerOptions {
  std::vector<std::string> stop = {};  // looked for in content: neither in reasoning, which clients
                                       // do not take for the answer, nor in the arguments of calls
  bool parallel_tool_calls = true;     // false: a second call ends the answer and is not part of it
  bool logprobs = false;
};

class AnswerAssembler {
 public:
  // `parser` null: plain text, of which special tokens are no part. `tokenizer` must outlive this.
  AnswerAssembler(std::unique_ptr<ChatParser> parser, const Tokenizer& tokenizer,
                  AnswerOptions options);

  // Nothing once ended().
  AnswerPiece push(const GeneratedToken& token);
  // True when the answer is complete though generation may go on: cancel it. What it then still
  // sends is no part of the answer.
  bool ended() const { return ended_; }
  // The end of generation, once: what was held back. Where generation_error() has something to
  // say, the answer is not wanted any more.
  AnswerPiece finish(const GenerationResult& result);

  // Everything so far; `finish` is right after finish().
  const Answer& answer() const { return answer_; }

 private:
  struct Pending {
    LogprobEntry entry;
    bool special;
  };
  struct Placed {
    LogprobEntry entry;
    uint64_t offset;  // of its first byte in all content, held back or not
  };

  ChatDelta parse(TokenId id);
  void count(const ChatDelta& delta);
  void note_logprob(const GeneratedToken& token);
  void place_logprobs(const ChatDelta& delta);
  AnswerPiece deliver(ChatDelta delta, bool last);
  void cut_second_call(ChatDelta& delta);

  std::unique_ptr<ChatParser> parser_;
  Utf8Stream text_;  // instead of the parser
  const Tokenizer& tokenizer_;
  AnswerOptions options_;
  StopMatcher stop_;
  Answer answer_;
  bool ended_ = false;
  uint32_t undecided_ = 0;        // tokens since the last text: they belong to what comes next
  std::vector<Pending> pending_;  // since the last text, as undecided_
  std::deque<Placed> placed_;     // of content that may still be held back
  uint64_t parsed_bytes_ = 0;     // of content, held back or not
};

// What the endpoint answers instead, when generation ended so: failed; cancelled from outside
// (shutdown: 503); the deadline with no token made (504). A deadline with tokens is an answer of
// finish "length".
std::optional<ApiError> generation_error(const GenerationResult& result, const Answer& answer);

}  // namespace wader
