// Reasoning and content of answers as models write them, well-formed and not, token by token.
// Calls: qwen_call_test.cpp.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "chat/qwen_testing.h"
#include "tokenizer/utf8.h"

namespace wader {
namespace {

ChatRequest with_reasoning(std::optional<ReasoningEffort> effort) {
  ChatRequest request;
  request.reasoning = effort;
  return request;
}

const ChatFormat& hybrid() {
  static const auto format = qwen_format("qwen3_moe");
  return *format;
}
const ChatFormat& instruct() {
  static const auto format = qwen_format("qwen3_next");
  return *format;
}
const ChatFormat& thinking() {
  static const auto format = qwen_format("qwen3_next", kThinkingTemplate);
  return *format;
}
const ChatFormat& qwen3_5() {
  static const auto format = qwen_format("qwen3_5_moe");
  return *format;
}

void expect_answer(const ChatFormat& format, std::string_view text, std::string_view reasoning,
                   std::string_view content, const ChatRequest& request = {}) {
  const Message message = parse_ids(format, qwen_ids(text), request);
  EXPECT_EQ(message.reasoning, reasoning) << text;
  EXPECT_EQ(message.content, content) << text;
  EXPECT_TRUE(message.tool_calls.empty()) << text;
  EXPECT_EQ(message.role, Message::Role::assistant);
}

TEST(QwenParser, ReasoningThenAnswer) {
  expect_answer(hybrid(), "<think>\nOne word wanted.\n</think>\n\nfour<|im_end|>",
                "One word wanted.", "four");
  expect_answer(hybrid(), "<think>\n\n</think>\n\nfour<|im_end|>", "", "four");
  expect_answer(hybrid(), "\n<think>\na\n\nb\n</think>\n\n\n    code\n<|im_end|>", "a\n\nb",
                "    code\n");
  expect_answer(hybrid(), "<think>a</think>b<|endoftext|>", "a", "b");
}

TEST(QwenParser, NoReasoningAtAll) {
  expect_answer(hybrid(), "four<|im_end|>", "", "four");
  expect_answer(hybrid(), "four", "", "four", with_reasoning(ReasoningEffort::off));
  expect_answer(qwen3_5(), "four", "", "four", with_reasoning(ReasoningEffort::off));
  expect_answer(instruct(), " spaces\n stay \n<|im_end|>", "", " spaces\n stay \n");
  expect_answer(instruct(), "\n", "", "\n");
}

// The prompt ends in <think>: everything up to the closing tag is reasoning, though the opening one
// is never generated.
TEST(QwenParser, TheOpeningTagMayStandInThePrompt) {
  for (const ChatFormat* format : {&thinking(), &qwen3_5()}) {
    expect_answer(*format, "Hm.\n</think>\n\nfour<|im_end|>", "Hm.", "four");
    expect_answer(*format, "Hm.\n</think>\n\nfour", "Hm.", "four",
                  with_reasoning(ReasoningEffort::low));
    expect_answer(*format, "<think>\nHm.\n</think>\n\nfour", "Hm.",
                  "four");  // written all the same
    expect_answer(*format, "\n\n</think>\n\nfour", "", "four");
    expect_answer(*format, "It never ends", "It never ends", "");
    expect_answer(*format, "It never ends.<|im_end|>", "It never ends.", "");
    expect_answer(*format, "", "", "");
  }
  ChatRequest bare;
  bare.add_generation_prompt = false;  // then nothing is opened
  expect_answer(qwen3_5(), "<think>\nHm.\n</think>\n\nfour", "Hm.", "four", bare);
}

TEST(QwenParser, TagsOutOfPlace) {
  expect_answer(hybrid(), "<think>a<think>b</think>c</think>d", "ab", "c\n\nd");
  expect_answer(hybrid(), "a</think>\n\nb", "", "a\n\nb");
  expect_answer(hybrid(), "</think>\n\nb", "", "b");
  expect_answer(hybrid(), "a\n<think>\nb\n</think>\n\nc", "b", "a\n\nc");
  expect_answer(hybrid(), "<think>a</think><think>b</think>c", "a\n\nb", "c");
  expect_answer(hybrid(), "a<tool_response>b</tool_response>c", "", "abc");
  expect_answer(hybrid(), "a</tool_call>b<|vision_start|>c", "", "abc");
  expect_answer(instruct(), "<think>\na\n</think>\n\nb", "a", "b");
  expect_answer(qwen3_5(), "<think>\na\n</think>\n\nb", "a", "b",
                with_reasoning(ReasoningEffort::off));
}

// Tags in ordinary tokens: markup where the format has it, text where an answer speaks of tags.
TEST(QwenParser, SpelledTags) {
  const auto parsed = [](const ChatFormat& format, std::string_view text) {
    const Message message = parse_ids(format, plain_ids(text));
    EXPECT_TRUE(message.tool_calls.empty());
    return std::pair(message.reasoning, message.content);
  };
  using Parsed = std::pair<std::string, std::string>;
  EXPECT_EQ(parsed(hybrid(), "<think>\na\n</think>\n\nb"), Parsed("a", "b"));
  EXPECT_EQ(parsed(hybrid(), " <think>a</think>b"), Parsed("a", "b"));
  EXPECT_EQ(parsed(qwen3_5(), "a</think>b"), Parsed("a", "b"));
  EXPECT_EQ(parsed(qwen3_5(), "<think>a</think>b"), Parsed("a", "b"));
  EXPECT_EQ(parsed(hybrid(), "Strip <think> and </think> tags."),
            Parsed("", "Strip <think> and </think> tags."));
  EXPECT_EQ(parsed(hybrid(), "```\n<think>\nx\n</think>\n```"),
            Parsed("", "```\n<think>\nx\n</think>\n```"));
  EXPECT_EQ(parsed(hybrid(), "<tool_call>\n{\"name\": \"f\"}\n</tool_call>"),
            Parsed("", "<tool_call>\n{\"name\": \"f\"}\n</tool_call>"))
      << "the request has no tools";
  EXPECT_EQ(parsed(hybrid(), "a < b <th <thin"), Parsed("", "a < b <th <thin"));
  EXPECT_EQ(parsed(qwen3_5(), "a </thin </think>b"), Parsed("a </thin ", "b"));
  EXPECT_EQ(parsed(hybrid(), "<|im_end|>"), Parsed("", "<|im_end|>")) << "text, not the token";
}

// A tokenizer without think tokens spells them always.
TEST(QwenParser, TagsThatAreNoTokens) {
  const Tokenizer tokenizer = make_qwen_tokenizer({"<think>", "</think>", "<|endoftext|>"});
  const auto format = qwen_format("qwen3_moe", "", tokenizer);
  const auto parsed = [&](std::string_view text) {
    const Message message = parse_ids(*format, qwen_ids(text, tokenizer));
    return message.reasoning + '|' + message.content;
  };
  EXPECT_EQ(format->stop_ids().size(), 1u);
  EXPECT_EQ(parsed("<think>\na\n</think>\n\nb<|im_end|>"), "a|b");
  EXPECT_EQ(parsed("a\n<think>b</think>c"), "b|a\n\nc");
  EXPECT_EQ(parsed("a\n</think>\n\nb"), "|a\n\nb");
}

TEST(QwenParser, DeltasComeAsTheTextDoes) {
  const auto parser = hybrid().parser({});
  std::string reasoning, content;
  for (const TokenId id : qwen_ids("<think>\none two")) reasoning += parser->push(id).reasoning;
  EXPECT_EQ(reasoning, "one two") << "nothing waits for the closing tag";
  for (const TokenId id : qwen_ids("\n</think>\n\nthree four")) content += parser->push(id).content;
  EXPECT_EQ(content, "three four") << "nothing waits for the end";
}

TEST(QwenParser, WhatMayBecomeATagIsHeldBack) {
  const auto parser = qwen3_5().parser({});
  std::string out;
  for (const char c : std::string("a </thin"))
    out += parser->push(static_cast<uint8_t>(c)).reasoning;
  EXPECT_EQ(out, "a");
  EXPECT_EQ(parser->push('g').reasoning, " </thing");
  for (const char c : std::string("</think")) EXPECT_TRUE(parser->push(c).empty());
  EXPECT_TRUE(parser->push('>').empty());
  EXPECT_EQ(parser->push('b').content, "b");
  EXPECT_EQ(parser->message().reasoning, "a </thing");
}

TEST(QwenParser, AnswersGoOnBehindTheirEnd) {
  expect_answer(hybrid(), "<think>a<|im_end|>b", "a", "b");
  expect_answer(hybrid(), "a<|im_end|>\n<|im_start|>assistant\nb", "", "a\n\nb");
  expect_answer(hybrid(), "a<|im_end|>\n<|im_start|>user\nAnd then?", "And then?", "a");
  expect_answer(hybrid(), "a<|im_start|>model b", "", "a\n\nmodel b");
  expect_answer(hybrid(), "a<|im_start|>assist", "", "a");
  expect_answer(hybrid(), "a<|im_start|>Hi", "", "a\n\nHi");
  expect_answer(hybrid(), "a<|im_start|>assistant<|im_end|>", "", "a\n\nassistant");
  expect_answer(hybrid(), "<|im_start|><|im_start|><|im_end|><|im_start|>", "", "");
}

// Every prefix of a good answer: what is delivered is a prefix too, and never a tag.
TEST(QwenParser, CutAnywhere) {
  const std::vector<TokenId> ids =
      qwen_ids("<think>\nZwei plus\n\nzwei 🤔\n</think>\n\nVier.\n\nJa.<|im_end|>");
  const Message whole = parse_ids(hybrid(), ids);
  EXPECT_EQ(whole.reasoning, "Zwei plus\n\nzwei 🤔");
  EXPECT_EQ(whole.content, "Vier.\n\nJa.");
  for (size_t cut = 0; cut < ids.size(); ++cut) {
    const Message part = parse_ids(hybrid(), {ids.begin(), ids.begin() + static_cast<long>(cut)});
    // An emoji cut in two reads as U+FFFD.
    const std::string reasoning = part.reasoning.substr(0, part.reasoning.find("\uFFFD"));
    EXPECT_TRUE(whole.reasoning.starts_with(reasoning)) << cut << ": " << part.reasoning;
    EXPECT_TRUE(whole.content.starts_with(part.content)) << cut << ": " << part.content;
  }
}

TEST(QwenParser, CharactersAreNeverCut) {
  const std::string text = "日本語 🏳️‍🌈 é нет";
  const auto parser = hybrid().parser({});
  std::string sum;
  for (const TokenId id : qwen_ids(text + "<|im_end|>")) {
    const std::string delta = parser->push(id).content;
    EXPECT_EQ(valid_utf8_prefix(delta), delta.size()) << "a delta is whole UTF-8";
    sum += delta;
  }
  EXPECT_EQ(sum, text);
}

// Half a character in front of a tag must not join the next one's bytes; bytes that are no UTF-8
// must not pass for a tag.
TEST(QwenParser, BrokenBytes) {
  std::vector<TokenId> ids = qwen_ids("<think>");
  for (const TokenId id : {0xF0, 0x9F, 0xA6}) ids.push_back(id);
  for (const TokenId id : qwen_ids("</think>x")) ids.push_back(id);
  for (TokenId id = 0xF8; id <= 0xFF; ++id) ids.push_back(id);
  ids.push_back('y');
  const Message message = parse_ids(hybrid(), ids);
  EXPECT_EQ(message.reasoning, "\uFFFD");
  EXPECT_EQ(message.content, "x\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDy");
}

TEST(QwenParser, IdsOutsideTheVocabularyAreNothing) {
  std::vector<TokenId> ids = plain_ids("x");
  for (const TokenId id : {-1, -1000, 8192, 200006, 2147483647}) ids.push_back(id);
  EXPECT_EQ(parse_ids(hybrid(), ids).content, "x");
  EXPECT_TRUE(hybrid().parser({})->finish().empty());
}

// Layout is held back, but not without bound: a model that only writes spaces still streams.
TEST(QwenParser, LongRuns) {
  const std::string spaces(100000, ' ');
  expect_answer(hybrid(), spaces + "x", "", spaces + "x");
  expect_answer(hybrid(), "<tool_call>" + spaces + "x", "", spaces + "x");
  std::string brackets;
  for (int i = 0; i < 20000; ++i) brackets += "<<think></";
  parse_ids(hybrid(), plain_ids(brackets));
  parse_ids(qwen3_5(), plain_ids(brackets));
}

// The same text in any tokens is the same answer.
TEST(QwenParser, TokensDoNotMatter) {
  const std::string text =
      "<think>\nThe <b>thin</b> one.\n\n</thinker> 🤔 in the end\n</think>\n\nWell: < 5 > 3 "
      "{\"a\"}";
  const Message whole = parse_ids(hybrid(), plain_ids(text));
  EXPECT_EQ(whole.reasoning, "The <b>thin</b> one.\n\n</thinker> 🤔 in the end");
  EXPECT_EQ(whole.content, "Well: < 5 > 3 {\"a\"}");
  std::vector<TokenId> bytes;
  for (const char c : text) bytes.push_back(static_cast<uint8_t>(c));
  expect_same(parse_ids(hybrid(), bytes), whole);
  expect_same(parse_ids(hybrid(), qwen_ids(text)), whole);
}

}  // namespace
}  // namespace wader
