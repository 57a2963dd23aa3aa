// Shared by the tests of chat/: the demo model's tokenizer and the harmony format on it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat.h"
#include "chat/harmony.h"

namespace wader {

inline const Tokenizer& demo_tokenizer() {
  static const Tokenizer tokenizer = [] {
    auto loaded = Tokenizer::load(WADER_SOURCE_DIR "/models/demo/tokenizer.json");
    if (!loaded) ADD_FAILURE() << loaded.error().message;
    return std::move(loaded).value();
  }();
  return tokenizer;
}

inline const ChatFormat& demo_format() {
  static const std::unique_ptr<ChatFormat> format =
      make_chat_format("gpt_oss", "", demo_tokenizer()).value();
  return *format;
}

inline Json json_of(std::string_view text) {
  auto parsed = parse_json(text, "test");
  if (!parsed) ADD_FAILURE() << parsed.error().message << " in " << text;
  return parsed ? std::move(parsed).value() : Json();
}

// Markup in `text` becomes control ids.
inline std::vector<TokenId> with_markup(std::string_view text) {
  return demo_tokenizer().encode(text, Tokenizer::Markup::on).value();
}

inline void add_delta(const ChatDelta& delta, Message& sum) {
  sum.content += delta.content;
  sum.reasoning += delta.reasoning;
  for (const ChatDelta::ToolCallDelta& call : delta.tool_calls) {
    if (call.index == sum.tool_calls.size()) {
      EXPECT_FALSE(call.id.empty());
      EXPECT_FALSE(call.name.empty());
      sum.tool_calls.push_back({call.id, call.name, ""});
    } else {
      EXPECT_EQ(call.id + call.name, "") << "id and name stand in the first delta only";
    }
    ASSERT_EQ(call.index + 1, sum.tool_calls.size()) << "calls come one after the other";
    sum.tool_calls.back().arguments += call.arguments;
  }
}

inline void expect_same(const Message& a, const Message& b) {
  EXPECT_EQ(a.content, b.content);
  EXPECT_EQ(a.reasoning, b.reasoning);
  ASSERT_EQ(a.tool_calls.size(), b.tool_calls.size());
  for (size_t i = 0; i < a.tool_calls.size(); ++i) {
    EXPECT_EQ(a.tool_calls[i].id, b.tool_calls[i].id);
    EXPECT_EQ(a.tool_calls[i].name, b.tool_calls[i].name);
    EXPECT_EQ(a.tool_calls[i].arguments, b.tool_calls[i].arguments);
  }
}

// Feeds a parser one id at a time and checks that the deltas add up to message().
inline Message parse_ids(const ChatFormat& format, const std::vector<TokenId>& ids,
                         const ChatRequest& request = {}) {
  const std::unique_ptr<ChatParser> parser = format.parser(request);
  Message streamed{};
  for (const TokenId id : ids) add_delta(parser->push(id), streamed);
  add_delta(parser->finish(), streamed);
  expect_same(parser->message(), streamed);
  EXPECT_TRUE(parser->finish().empty()) << "finish() twice adds nothing";
  return parser->message();
}

inline Message parse_answer(std::string_view text_with_markup) {
  return parse_ids(demo_format(), with_markup(text_with_markup));
}

}  // namespace wader
