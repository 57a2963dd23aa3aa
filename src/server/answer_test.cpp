// Answers as models write them, from tokens to what a client may see.
#include "server/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "server/answer_testing.h"

namespace wader {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kThinking = "<|channel|>analysis<|message|>Add two and two.<|end|>";
constexpr std::string_view kFinal = "<|start|>assistant<|channel|>final<|message|>";

std::string thought_then(std::string_view text) {
  return std::string(kThinking).append(kFinal).append(text);
}

TEST(Answer, ReasoningAndText) {
  const auto test = run_harmony(thought_then("It is four.<|return|>"));
  EXPECT_EQ(test.answer.content, "It is four.");
  EXPECT_EQ(test.answer.reasoning, "Add two and two.");
  EXPECT_EQ(test.answer.finish, AnswerFinish::stop);
  EXPECT_EQ(test.answer.tokens, with_markup(thought_then("It is four.")).size());
  // The header of the reasoning counts to it, the one of the answer and <|end|> do not.
  EXPECT_EQ(test.answer.reasoning_tokens,
            with_markup("<|channel|>analysis<|message|>Add two and two.").size());
}

// Case D-02 through the chat parser.
TEST(Answer, StopStrings) {
  const auto stopped = [](std::string_view text, std::vector<std::string> stop) {
    return run_harmony(thought_then(text), {.stop = std::move(stop)}).answer;
  };
  const Answer first = stopped("DEFGHIJKLM", {"DEFGHIJ"});
  EXPECT_EQ(first.content, "");
  EXPECT_EQ(first.finish, AnswerFinish::stop);
  EXPECT_EQ(stopped("alpha beta gamma delta<|return|>", {"beta gamma"}).content, "alpha ");
  EXPECT_EQ(stopped("alpha beta gamma delta<|return|>", {"deltaX"}).content,
            "alpha beta gamma delta");
  const Answer thinking = stopped("four<|return|>", {"two and"});
  EXPECT_EQ(thinking.reasoning, "Add two and two.") << "a stop string inside thinking is no stop";
  EXPECT_EQ(thinking.content, "four");
}

TEST(Answer, AStopStringEndsTheAnswerAtOnce) {
  const auto ids = with_markup(thought_then("one two three four five six<|return|>"));
  const auto test = run_answer(demo_format(), demo_tokenizer(), ids, {.stop = {"three"}});
  EXPECT_EQ(test.answer.content, "one two ");
  EXPECT_LT(test.taken + 3, ids.size());
  EXPECT_EQ(test.answer.tokens, test.taken);
  EXPECT_EQ(test.answer.finish, AnswerFinish::stop) << "though the endpoint cancels";
  EXPECT_TRUE(test.pieces.back().empty());
}

TEST(Answer, HeldTextGoesOutBeforeWhatFollowsIt) {
  const auto test = run_harmony(
      "<|channel|>commentary<|message|>I look. be<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.f <|constrain|>json<|message|>{\"a\": \"beta\"}<|call|>",
      {.stop = {"beta"}});
  EXPECT_EQ(test.answer.content, "I look. be");
  ASSERT_EQ(test.answer.tool_calls.size(), 1u) << "a stop string in arguments is no stop";
  EXPECT_EQ(test.answer.tool_calls[0].arguments, R"({"a": "beta"})");
  bool called = false;
  for (const AnswerPiece& piece : test.pieces) {
    EXPECT_FALSE(called && !piece.content.empty()) << "text after the call it came before";
    called = called || !piece.tool_calls.empty();
  }
}

// Case B-02: whatever the channel, one call each, whole, with finish "tool_calls".
TEST(Answer, ToolCalls) {
  const std::string_view calls[] = {
      "<|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>",
      "<|start|>assistant to=functions.f<|channel|>analysis <|constrain|>json<|message|>",
      "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
  };
  for (const std::string_view header : calls) {
    std::string text(kThinking);
    text.append(header).append("{\"x\": 1}<|call|>");
    const Answer answer = run_harmony(text).answer;
    ASSERT_EQ(answer.tool_calls.size(), 1u) << header;
    EXPECT_EQ(answer.tool_calls[0].name, "f");
    EXPECT_EQ(answer.tool_calls[0].arguments, "{\"x\": 1}");
    EXPECT_THAT(answer.tool_calls[0].id, testing::StartsWith("call_"));
    EXPECT_EQ(answer.content, "");
    EXPECT_EQ(answer.finish, AnswerFinish::tool_calls);
  }
}

constexpr std::string_view kTwoCalls =
    "<|channel|>commentary to=functions.f<|message|>{}<|end|>"
    "<|start|>assistant<|channel|>commentary to=functions.g<|message|>{\"x\": 1}<|call|>";

TEST(Answer, ParallelToolCallsOrOne) {
  const Answer both = run_harmony(kTwoCalls).answer;
  ASSERT_EQ(both.tool_calls.size(), 2u);
  EXPECT_EQ(both.tool_calls[1].name, "g");
  const auto one = run_harmony(kTwoCalls, {.parallel_tool_calls = false});
  ASSERT_EQ(one.answer.tool_calls.size(), 1u);
  EXPECT_EQ(one.answer.tool_calls[0].name, "f");
  EXPECT_EQ(one.answer.tool_calls[0].arguments, "{}");
  EXPECT_EQ(one.answer.finish, AnswerFinish::tool_calls);
  EXPECT_LT(one.taken, with_markup(kTwoCalls).size() - 2);
}

// Case B-03: odd headers, and ends in the midst of one.
TEST(Answer, MarkersNeverReachTheClient) {
  const std::string_view texts[] = {
      "<|channel|>--commentary<|message|>four<|return|>",
      "<|channel|><|message|>four<|return|>",
      "<|channel|>final<|return|>",
      "<|channel|>commentary to=functions.get-weather<|message|>{}<|call|>",
      "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>fi",
      "<|start|><|start|><|channel|><|channel|>",
      "four<|channel|>",
      "",
  };
  for (const std::string_view text : texts) {
    for (const GenerationEnd end : {GenerationEnd::stop, GenerationEnd::length}) {
      const Answer answer = run_harmony(text, {.stop = {"|>", "x"}, .logprobs = true}, end).answer;
      EXPECT_THAT(answer.content + answer.reasoning, Not(HasSubstr("<|"))) << text;
    }
  }
}

TEST(Answer, HowItEnded) {
  EXPECT_EQ(run_harmony(thought_then("fo"), {}, GenerationEnd::length).answer.finish,
            AnswerFinish::length);
  EXPECT_EQ(run_harmony(thought_then("fo"), {}, GenerationEnd::context_full).answer.finish,
            AnswerFinish::length);
  const Answer cut =
      run_harmony("<|channel|>commentary to=functions.f<|message|>{\"x", {}, GenerationEnd::length)
          .answer;
  EXPECT_EQ(cut.finish, AnswerFinish::length) << "a cut call is not to be made";
  EXPECT_EQ(cut.tool_calls.size(), 1u);

  const Answer some = run_harmony("four").answer;
  EXPECT_FALSE(generation_error(ended_by(GenerationEnd::stop), some));
  EXPECT_FALSE(generation_error(ended_by(GenerationEnd::deadline), some));
  EXPECT_EQ(generation_error(ended_by(GenerationEnd::deadline), Answer())->status, 504);
  EXPECT_EQ(generation_error(ended_by(GenerationEnd::cancelled), some)->status, 503);
  GenerationResult failed = ended_by(GenerationEnd::failed);
  failed.error = Error{ErrorCode::corrupt, "expert 3 of layer 1 in experts.bin: bad checksum"};
  EXPECT_EQ(generation_error(failed, some)->message, failed.error->message);
  EXPECT_EQ(generation_error(failed, some)->status, 500);
}

TEST(Answer, LogprobsAreOfTheTextAlone) {
  const Answer answer =
      run_harmony(thought_then("Four, vier, →Ω 4.<|return|>"), {.logprobs = true}).answer;
  EXPECT_EQ(answer.content, "Four, vier, →Ω 4.");
  EXPECT_EQ(bytes_of(answer.logprobs), answer.content);
  EXPECT_EQ(answer.logprobs.front().logprob, -0.5f);
  EXPECT_EQ(answer.logprobs.front().top.size(), 2u);
  EXPECT_TRUE(run_harmony(thought_then("x<|return|>")).answer.logprobs.empty());
  EXPECT_TRUE(run_harmony(kTwoCalls, {.logprobs = true}).answer.logprobs.empty());
}

// With a stop string: of the tokens that have a byte in what was delivered.
TEST(Answer, LogprobsEndWithTheText) {
  const Answer answer = run_harmony(thought_then("one two three four<|return|>"),
                                    {.stop = {"wo three"}, .logprobs = true})
                            .answer;
  EXPECT_EQ(answer.content, "one t");
  EXPECT_THAT(bytes_of(answer.logprobs), testing::StartsWith("one t"));
  EXPECT_THAT(bytes_of(answer.logprobs), Not(HasSubstr("three")));
  const Answer held =
      run_harmony(thought_then("one two thr<|return|>"), {.stop = {"three"}, .logprobs = true})
          .answer;
  EXPECT_EQ(bytes_of(held.logprobs), "one two thr");
}

TEST(Answer, QwensTagsToo) {
  const auto format = qwen_format("qwen3_moe");
  const auto ids = qwen_ids(
      "<think>\nTwo and two.\n</think>\n\nIt is → 4.\n<tool_call>\n{\"name\": \"f\", "
      "\"arguments\": {\"x\": 1}}\n</tool_call><|im_end|>");
  const auto test = run_answer(*format, qwen_tokenizer(), ids, {.logprobs = true});
  EXPECT_EQ(test.answer.reasoning, "Two and two.");
  EXPECT_EQ(test.answer.content, "It is → 4.");
  ASSERT_EQ(test.answer.tool_calls.size(), 1u);
  EXPECT_EQ(test.answer.tool_calls[0].name, "f");
  EXPECT_EQ(bytes_of(test.answer.logprobs), test.answer.content);
  EXPECT_EQ(test.answer.finish, AnswerFinish::tool_calls);
}

TEST(Answer, PlainText) {
  const Tokenizer& tokenizer = demo_tokenizer();
  AnswerAssembler assembler(nullptr, tokenizer, {.stop = {"END"}, .logprobs = true});
  std::string text;
  for (const TokenId id : with_markup("<|start|>a → b<|end|> EN"))
    text += assembler.push(test_token(id)).content;
  EXPECT_EQ(text, "a → b ");
  text += assembler.finish(ended_by(GenerationEnd::length)).content;
  EXPECT_EQ(text, "a → b EN");
  EXPECT_EQ(bytes_of(assembler.answer().logprobs), text);
  EXPECT_EQ(assembler.answer().finish, AnswerFinish::length);
  EXPECT_EQ(assembler.answer().reasoning_tokens, 0u);

  AnswerAssembler broken(nullptr, tokenizer, {});
  const TokenId first_half = tokenizer.encode("→").value().front();
  text = broken.push(test_token(first_half)).content;
  text += broken.finish(ended_by(GenerationEnd::length)).content;
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(replace_invalid_utf8(text), text);
}

// Any ids at all, as a model out of its mind writes them: run_answer() checks that pieces add up.
TEST(Answer, AnyTokens) {
  constexpr std::string_view kFragments[2][6] = {
      {"<think>", "</think>\n\n", " alpha →é", "<tool_call>{\"name\": \"f\", \"arguments\": ",
       "{\"a\": 1}}</tool_call>", "<tool_call><function=f><parameter=a>1</parameter></function>"},
      {"<|start|>assistant", "<|channel|>final<|message|>", " alpha →é", "<|end|>",
       "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}",
       "<|channel|>analysis<|message|>"}};
  std::mt19937 random(3);
  const auto qwen = qwen_format("qwen3_moe");
  int stopped = 0, called = 0;
  for (int round = 0; round < 400; ++round) {
    const bool harmony = round % 2 == 0;
    const ChatFormat& format = harmony ? demo_format() : *qwen;
    const Tokenizer& tokenizer = harmony ? demo_tokenizer() : qwen_tokenizer();
    std::vector<TokenId> ids;
    for (size_t i = 0; i < random() % 12; ++i) {
      const std::string_view text = kFragments[harmony][random() % std::size(kFragments[0])];
      std::vector<TokenId> piece = harmony ? with_markup(text) : qwen_ids(text);
      if (random() % 3 == 0) piece.resize(random() % piece.size());
      ids.insert(ids.end(), piece.begin(), piece.end());
      if (random() % 4 == 0) ids.push_back(static_cast<TokenId>(random() % 400));
    }
    AnswerOptions options;
    if (round % 3 == 0) options.stop = {"a", "1}", "→é"};
    options.parallel_tool_calls = round % 5 != 0;
    options.logprobs = true;
    const GenerationEnd end = round % 7 ? GenerationEnd::stop : GenerationEnd::length;
    const TestAnswer test = run_answer(format, tokenizer, ids, options, end);
    EXPECT_EQ(replace_invalid_utf8(test.answer.content), test.answer.content);
    EXPECT_LE(test.answer.reasoning_tokens, test.answer.tokens);
    EXPECT_LE(test.answer.logprobs.size(), test.answer.tokens);
    if (!options.parallel_tool_calls) EXPECT_LE(test.answer.tool_calls.size(), 1u);
    stopped += test.taken < ids.size() && !options.stop.empty();
    called += !test.answer.tool_calls.empty();
  }
  EXPECT_GT(stopped, 20);
  EXPECT_GT(called, 20);
}

TEST(Answer, NothingComesAfterTheEnd) {
  AnswerAssembler assembler(nullptr, demo_tokenizer(), {});
  const TokenId id = demo_tokenizer().encode("a").value().front();
  assembler.push(test_token(id));
  assembler.finish(ended_by(GenerationEnd::stop));
  EXPECT_TRUE(assembler.push(test_token(id)).empty());
  EXPECT_EQ(assembler.answer().content, "a");
  EXPECT_EQ(assembler.answer().tokens, 1u);
}

}  // namespace
}  // namespace wader
