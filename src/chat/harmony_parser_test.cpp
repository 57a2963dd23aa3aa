// Answers as models write them, well-formed and not, token by token.
#include <gtest/gtest.h>

#include <string>

#include "chat/harmony_testing.h"

namespace wader {
namespace {

void expect_answer(std::string_view text, std::string_view reasoning, std::string_view content) {
  const Message message = parse_answer(text);
  EXPECT_EQ(message.reasoning, reasoning) << text;
  EXPECT_EQ(message.content, content) << text;
  EXPECT_TRUE(message.tool_calls.empty()) << text;
}

// One call, nothing in content; `reasoning` is what the call came with.
void expect_call(std::string_view text, std::string_view name, std::string_view arguments,
                 std::string_view reasoning = "") {
  const Message message = parse_answer(text);
  EXPECT_EQ(message.content, "") << text;
  EXPECT_EQ(message.reasoning, reasoning) << text;
  ASSERT_EQ(message.tool_calls.size(), 1u) << text;
  EXPECT_EQ(message.tool_calls[0].name, name) << text;
  EXPECT_EQ(message.tool_calls[0].arguments, arguments) << text;
}

TEST(HarmonyParser, ReasoningThenAnswer) {
  expect_answer(
      "<|channel|>analysis<|message|>One word wanted.<|end|>"
      "<|start|>assistant<|channel|>final<|message|>four<|return|>",
      "One word wanted.", "four");
  expect_answer("<|channel|>final<|message|> spaces\n stay \n<|return|>", "", " spaces\n stay \n");
  EXPECT_EQ(parse_answer("<|channel|>final<|message|>x").role, Message::Role::assistant);
}

TEST(HarmonyParser, DeltasComeAsTheTextDoes) {
  const auto parser = demo_format().parser({});
  std::string before_end;
  for (const TokenId id : with_markup("<|channel|>final<|message|>one two three"))
    before_end += parser->push(id).content;
  EXPECT_EQ(before_end, "one two three") << "nothing waits for the end token";
}

TEST(HarmonyParser, PreamblesAreShown) {
  expect_answer(
      "<|channel|>commentary<|message|>I will look twice.<|end|>"
      "<|start|>assistant<|channel|>final<|message|>Done.<|return|>",
      "", "I will look twice.\n\nDone.");
  const Message message = parse_answer(
      "<|channel|>analysis<|message|>A.<|end|>"
      "<|start|>assistant<|channel|>commentary<|message|>Plan.<|end|>"
      "<|start|>assistant<|channel|>commentary to=functions.f "
      "<|constrain|>json<|message|>{}<|call|>");
  EXPECT_EQ(message.reasoning, "A.");
  EXPECT_EQ(message.content, "Plan.");
  ASSERT_EQ(message.tool_calls.size(), 1u);
}

TEST(HarmonyParser, AnEmptyMessageLeavesNoGap) {
  expect_answer(
      "<|channel|>analysis<|message|><|end|><|start|>assistant<|channel|>analysis<|message|>"
      "a<|end|><|start|>assistant<|channel|>analysis<|message|><|end|>",
      "a", "");
}

TEST(HarmonyParser, CallsInEveryShape) {
  for (const std::string_view header : {
           " to=functions.f<|channel|>commentary <|constrain|>json",
           " to=functions.f<|channel|>commentary<|constrain|>json",
           " to=functions.f<|channel|>commentary json",
           " to=functions.f<|channel|>analysis code",
           " to=functions.f<|channel|>final",
           " to=functions.f",
           "<|channel|>commentary to=functions.f <|constrain|>json",
           "<|channel|>commentary to=functions.f<|constrain|>json",
           "<|channel|>commentary to=functions.f json",
           "<|channel|>commentary json to=functions.f",
           "<|channel|>commentary <|constrain|>json to=functions.f",
           "<|channel|>analysis to=functions.f",
           "<|channel|>commentary to= functions.f",
           "<|channel|>commentary functions.f",
           "<|channel|>commentaryto=functions.f",
           "<|channel|>to=functions.f",
           "<|start|>assistant to=functions.f<|channel|>commentary",
           "<|start|>assistantto=functions.f<|channel|>commentary",
           "<|channel|>commentary to=functions.f<|channel|>commentary json",
           "<|channel|>commentary to=f",
       }) {
    expect_call(std::string(header) + R"(<|message|>{"a": 1}<|call|>)", "f", R"({"a": 1})");
    expect_call("<|channel|>analysis<|message|>hm<|end|><|start|>assistant" + std::string(header) +
                    R"(<|message|>{"a": 1}<|end|>)",
                "f", R"({"a": 1})", "hm");
  }
}

TEST(HarmonyParser, NamesThatAreMoreThanLetters) {
  expect_call(
      "<|channel|>commentary to=functions.get-weather_2 <|constrain|>json<|message|>{}<|call|>",
      "get-weather_2", "{}");
  expect_call("<|channel|>commentary to=functions.mcp.files.read<|message|>{}<|call|>",
              "mcp.files.read", "{}");
  expect_call("<|channel|>analysis to=python code<|message|>print(1)<|call|>", "python",
              "print(1)");
  expect_call("<|channel|>commentary to=browser.search code<|message|>{\"q\": 1}<|call|>",
              "browser.search", "{\"q\": 1}");
}

TEST(HarmonyParser, SeveralCalls) {
  const Message message = parse_answer(
      "<|channel|>commentary to=functions.f<|message|>{\"n\": 1}<|call|>"
      "<|start|>assistant to=functions.g<|channel|>commentary<|message|>{\"n\": 2}<|call|>");
  ASSERT_EQ(message.tool_calls.size(), 2u);
  EXPECT_EQ(message.tool_calls[0].name, "f");
  EXPECT_EQ(message.tool_calls[0].arguments, "{\"n\": 1}");
  EXPECT_EQ(message.tool_calls[1].name, "g");
  EXPECT_EQ(message.tool_calls[1].arguments, "{\"n\": 2}");
  EXPECT_TRUE(message.tool_calls[0].id.starts_with("call_"));
  EXPECT_NE(message.tool_calls[0].id, message.tool_calls[1].id);
}

TEST(HarmonyParser, NoOneIsCalled) {
  expect_answer("<|channel|>final to=user<|message|>x<|return|>", "", "x");
  expect_answer("<|channel|>final to=all<|message|>x<|return|>", "", "x");
  expect_answer("<|channel|>commentary to=<|message|>x<|end|>", "", "x");
  expect_answer("<|channel|>commentary to=functions.<|message|>x<|end|>", "", "x");
}

TEST(HarmonyParser, ChannelNamesGoneWrong) {
  const std::string body = "<|message|>text<|return|>";
  for (const std::string_view header : {"<|channel|>final",
                                        "<|channel|>",
                                        "",
                                        "<|channel|> final ",
                                        "<|channel|>--final",
                                        "<|channel|>analysisfinal",
                                        "<|channel|><|channel|>final",
                                        "<|channel|>analysis<|channel|>final",
                                        "<|channel|>final json",
                                        "<|channel|>final <|constrain|>json",
                                        "<|channel|>response",
                                        "<|channel|>comment json",
                                        "<|start|>assistant<|channel|>final",
                                        "<|start|>assistantfinal",
                                        "<|start|>assistant final",
                                        "<|start|>final",
                                        "final",
                                        "<|start|><|channel|>final",
                                        "<|start|>Assistant<|channel|>final",
                                        "<|start|>model<|channel|>final",
                                        "<|constrain|><|constrain|>json<|channel|>final"}) {
    expect_answer(std::string(header) + body, "", "text");
  }
  for (const std::string_view header : {"<|channel|>--analysis", "<|channel|>analysis code",
                                        "<|channel|>finalanalysis", "<|start|>assistantanalysis"}) {
    expect_answer(std::string(header) + body, "text", "");
  }
  expect_answer("<|channel|>--commentary<|message|>text<|return|>", "", "text");
}

TEST(HarmonyParser, TheMessageTokenNeverComes) {
  expect_answer("<|channel|>final The answer is 4.<|return|>", "", "The answer is 4.");
  expect_answer("<|channel|>finalThe answer<|return|>", "", "The answer");
  expect_answer("<|channel|>final 4<|return|>", "", "4");
  expect_answer("<|channel|>finally we are there<|return|>", "", "finally we are there");
  expect_answer("<|channel|>analysis Think.<|end|><|start|>assistant<|channel|>final<|message|>x",
                "Think.", "x");
  expect_answer("<|channel|>analysis Think.<|start|>assistant<|channel|>final<|message|>x",
                "Think.", "x");
  expect_answer("<|channel|>analysis Think.<|channel|>final<|message|>x", "Think.", "x");
  expect_answer("Hello, how are you?<|return|>", "", "Hello, how are you?");
  expect_answer("json is a format<|return|>", "", "json is a format");
  expect_answer("Hello<|channel|>final<|message|>there<|return|>", "", "Hello\n\nthere");
  expect_answer("<|constrain|>hello there<|return|>", "", "hello there");
  expect_answer("<|constrain|>hello there<|channel|>final<|message|>x<|return|>", "",
                "hello there\n\nx");
  expect_answer("Hello<|channel|>commentary to=functions.get_wea", "", "Hello");
  expect_call("<|channel|>commentary to=functions.f <|constrain|>json{\"a\": 1}<|call|>", "f",
              "{\"a\": 1}");
  expect_call("<|channel|>commentary to=functions.f{\"a\": 1}<|call|>", "f", "{\"a\": 1}");
  expect_call("<|channel|>commentary to=functions.f json<|call|>", "f", "");
  expect_call("<|channel|>commentary to=functions.f please<|message|>{}<|call|>", "f", "{}",
              "please");
}

TEST(HarmonyParser, TheEndTokenNeverComes) {
  expect_answer("<|channel|>analysis<|message|>a<|channel|>final<|message|>b", "a", "b");
  expect_answer("<|channel|>analysis<|message|>a<|start|>assistant<|channel|>final<|message|>b",
                "a", "b");
  expect_answer("<|channel|>analysis<|message|>a<|end|>assistant<|channel|>final<|message|>b", "a",
                "b");
  expect_answer(
      "<|channel|>final<|message|>b<|message|>c<|constrain|>d<|startoftext|>e<|endoftext|>", "",
      "bcde");
  expect_call("<|channel|>analysis<|message|>a<|channel|>commentary to=functions.f<|message|>{}",
              "f", "{}", "a");
}

// Every prefix of a good answer: what is delivered is a prefix too, and never a marker or a
// header's word.
TEST(HarmonyParser, CutAnywhere) {
  const std::vector<TokenId> ids = with_markup(
      "<|channel|>analysis<|message|>Zwei plus zwei 🤔<|end|>"
      "<|start|>assistant<|channel|>commentary<|message|>Ich rechne.<|end|>"
      "<|start|>assistant to=functions.add<|channel|>commentary <|constrain|>json<|message|>"
      "{\"a\": [2, 2]}<|call|>");
  const Message whole = parse_ids(demo_format(), ids);
  EXPECT_EQ(whole.reasoning, "Zwei plus zwei 🤔");
  EXPECT_EQ(whole.content, "Ich rechne.");
  ASSERT_EQ(whole.tool_calls.size(), 1u);
  for (size_t cut = 0; cut < ids.size(); ++cut) {
    const Message part =
        parse_ids(demo_format(), {ids.begin(), ids.begin() + static_cast<long>(cut)});
    // An emoji cut in two reads as U+FFFD.
    const std::string reasoning = part.reasoning.substr(0, part.reasoning.find("\uFFFD"));
    EXPECT_TRUE(whole.reasoning.starts_with(reasoning)) << cut << ": " << part.reasoning;
    EXPECT_TRUE(whole.content.starts_with(part.content)) << cut << ": " << part.content;
    ASSERT_LE(part.tool_calls.size(), 1u);
    if (!part.tool_calls.empty()) {
      EXPECT_EQ(part.tool_calls[0].name, "add") << "half a name makes no call";
      EXPECT_TRUE(whole.tool_calls[0].arguments.starts_with(part.tool_calls[0].arguments));
    }
  }
}

TEST(HarmonyParser, OtherRolesAreNotTheAnswer) {
  expect_answer("<|channel|>final<|message|>Yes.<|end|><|start|>user<|message|>And then?<|end|>",
                "And then?", "Yes.");
  const Message message = parse_answer(
      "<|channel|>commentary to=functions.f<|message|>{}<|call|>"
      "<|start|>functions.f to=assistant<|channel|>commentary<|message|>{\"made\": \"up\"}<|end|>");
  EXPECT_EQ(message.tool_calls.size(), 1u) << "an imagined result is no second call";
  EXPECT_EQ(message.reasoning, "{\"made\": \"up\"}");
}

TEST(HarmonyParser, SpelledMarkersAreText) {
  std::vector<TokenId> ids = with_markup("<|channel|>final<|message|>");
  const std::string text = "Use <|channel|>final and <|end|>.";
  const auto spelled = demo_tokenizer().encode(text).value();
  ids.insert(ids.end(), spelled.begin(), spelled.end());
  EXPECT_EQ(parse_ids(demo_format(), ids).content, text);
}

TEST(HarmonyParser, CharactersAreNeverCut) {
  const std::string text = "日本語 🏳️‍🌈 é нет";
  const std::vector<TokenId> ids = with_markup("<|channel|>final<|message|>" + text + "<|return|>");
  const auto parser = demo_format().parser({});
  std::string sum;
  for (const TokenId id : ids) {
    const std::string delta = parser->push(id).content;
    EXPECT_TRUE(
        parse_json(Json(delta).dump(-1, ' ', false, Json::error_handler_t::ignore), "delta"));
    EXPECT_NO_THROW(static_cast<void>(Json(delta).dump())) << "a delta is whole UTF-8";
    sum += delta;
  }
  EXPECT_EQ(sum, text);
}

// Half a character at the end of one message must not join the next one's bytes.
TEST(HarmonyParser, HalfACharacterStaysInItsMessage) {
  std::vector<TokenId> ids = with_markup("<|channel|>analysis<|message|>");
  std::vector<TokenId> emoji = demo_tokenizer().encode("🦩").value();
  ASSERT_GE(emoji.size(), 2u) << "the demo tokenizer has no token for it";
  ids.insert(ids.end(), emoji.begin(), emoji.end() - 1);
  for (const TokenId id :
       with_markup("<|end|><|start|>assistant<|channel|>final<|message|>x<|return|>"))
    ids.push_back(id);
  const Message message = parse_ids(demo_format(), ids);
  EXPECT_EQ(message.content, "x");
  EXPECT_EQ(message.reasoning, "\uFFFD");
}

// A model that writes no header at all streams from the 513th byte on, and memory stays bounded.
TEST(HarmonyParser, AHeaderWithoutEndBecomesText) {
  std::string text;
  while (text.size() < 5000) text += "word and word, ";
  const auto parser = demo_format().parser({});
  std::string streamed;
  const std::vector<TokenId> ids = demo_tokenizer().encode(text).value();
  for (const TokenId id : ids) streamed += parser->push(id).content;
  EXPECT_EQ(streamed, text);
  for (int i = 0; i < 5000; ++i)
    EXPECT_TRUE(parser->push(*demo_tokenizer().added_token("<|constrain|>")).empty());
  parser->finish();
  EXPECT_EQ(parser->message().content, text);
}

TEST(HarmonyParser, IdsOutsideTheVocabularyAreNothing) {
  std::vector<TokenId> ids = with_markup("<|channel|>final<|message|>x");
  for (const TokenId id : {-1000, 8192, 200006, 2147483647}) ids.push_back(id);
  EXPECT_EQ(parse_ids(demo_format(), ids).content, "x");
}

TEST(HarmonyParser, NothingAtAll) {
  EXPECT_TRUE(demo_format().parser({})->finish().empty());
  expect_answer("<|return|>", "", "");
  expect_answer("<|start|><|start|><|end|><|channel|><|message|><|call|>", "", "");
}

// What the model writes and the parser reads renders back to what the model wrote.
TEST(HarmonyParser, RoundTripsThroughTheRenderer) {
  const std::string answer =
      "<|channel|>analysis<|message|>Look it up.<|end|>"
      "<|start|>assistant<|channel|>commentary<|message|>One moment.<|end|>"
      "<|start|>assistant to=functions.find<|channel|>commentary <|constrain|>json<|message|>"
      "{\"key\": \"ключ\"}<|call|>";
  ChatRequest request;
  Message user{};
  user.role = Message::Role::user;
  user.content = "Find it.";
  request.messages = {user, parse_answer(answer)};
  request.add_generation_prompt = false;
  const auto ids = demo_format().render(request);
  ASSERT_TRUE(ids);
  const std::string text = demo_tokenizer().decode(*ids, true);
  EXPECT_TRUE(text.ends_with("<|start|>user<|message|>Find it.<|end|><|start|>assistant" + answer))
      << text;
}

}  // namespace
}  // namespace wader
