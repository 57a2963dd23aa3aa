// Shared by the tests of answers: generations made of text, given to an assembler token by token.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/harmony_testing.h"
#include "chat/qwen_testing.h"
#include "server/answer.h"
#include "server/answer_json.h"

namespace wader {

inline GeneratedToken test_token(TokenId id) {
  return {id, -0.5f, {{id, -0.5f}, {65, -2.f}}};
}

inline GenerationResult ended_by(GenerationEnd end, TokenId stop_id = -1) {
  GenerationResult result;
  result.end = end;
  result.stop_id = stop_id;
  result.timings.queue_seconds = 0.25;
  result.timings.prefill_seconds = 1.5;
  result.timings.decode_seconds = 2;
  result.timings.prompt_tokens = 12;
  result.timings.reused_tokens = 8;
  result.timings.bytes_read = 4096;
  result.timings.hit_rate = 0.75;
  return result;
}

struct TestAnswer {
  std::vector<AnswerPiece> pieces;  // of each token, then of the end
  Answer answer;
  size_t taken = 0;  // tokens until ended()
};

// The ids of an answer as the engine gives them: the last is the stop id when the format has it.
inline TestAnswer run_answer(const ChatFormat& format, const Tokenizer& tokenizer,
                             std::vector<TokenId> ids, AnswerOptions options = {},
                             GenerationEnd end = GenerationEnd::stop,
                             const ChatRequest& request = {}) {
  AnswerAssembler assembler(format.parser(request), tokenizer, std::move(options));
  TokenId stop_id = -1;
  for (const TokenId id : format.stop_ids())
    if (!ids.empty() && ids.back() == id) stop_id = id;
  if (stop_id >= 0) ids.pop_back();
  TestAnswer test;
  for (const TokenId id : ids) {
    test.pieces.push_back(assembler.push(test_token(id)));
    ++test.taken;
    if (assembler.ended()) break;
  }
  if (assembler.ended()) end = GenerationEnd::cancelled;
  test.pieces.push_back(assembler.finish(ended_by(end, stop_id)));
  test.answer = assembler.answer();

  Message sum{};
  std::vector<LogprobEntry> logprobs;
  for (const AnswerPiece& piece : test.pieces) {
    add_delta(piece, sum);
    logprobs.insert(logprobs.end(), piece.logprobs.begin(), piece.logprobs.end());
  }
  EXPECT_EQ(sum.content, test.answer.content) << "pieces add up to the answer";
  EXPECT_EQ(sum.reasoning, test.answer.reasoning);
  EXPECT_EQ(sum.tool_calls.size(), test.answer.tool_calls.size());
  EXPECT_EQ(logprobs_json(logprobs), logprobs_json(test.answer.logprobs));
  return test;
}

inline TestAnswer run_harmony(std::string_view text, AnswerOptions options = {},
                              GenerationEnd end = GenerationEnd::stop) {
  return run_answer(demo_format(), demo_tokenizer(), with_markup(text), std::move(options), end);
}

inline std::string bytes_of(const std::vector<LogprobEntry>& entries) {
  std::string bytes;
  for (const LogprobEntry& entry : entries) bytes += entry.bytes;
  return bytes;
}

}  // namespace wader
