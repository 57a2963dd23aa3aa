// Tool calls as models write them, in both forms, well-formed and not.
#include <gtest/gtest.h>

#include <string>

#include "chat/qwen_testing.h"

namespace wader {
namespace {

constexpr std::string_view kTools = R"([
  {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
    "s": {"type": "string"}, "n": {"type": "integer"}, "x": {"type": "number"},
    "b": {"type": "boolean"}, "o": {"type": "object"}, "l": {"type": "array"},
    "sn": {"type": ["string", "null"]}, "a": {}}}}},
  {"type": "function", "function": {"name": "g"}}])";

ChatRequest with_tools(std::optional<ReasoningEffort> effort = {}) {
  ChatRequest request;
  request.tools = json_of(kTools);
  request.reasoning = effort;
  return request;
}

const ChatFormat& json_form() {
  static const auto format = qwen_format("qwen3_moe");
  return *format;
}
const ChatFormat& xml_form() {
  static const auto format = qwen_format("qwen3_5_moe");
  return *format;
}

// "reasoning|content|name(arguments) name(arguments)".
std::string summary(const Message& message) {
  std::string out = message.reasoning + '|' + message.content + '|';
  for (const ToolCall& call : message.tool_calls) {
    if (out.back() != '|') out += ' ';
    out += call.name + '(' + call.arguments + ')';
  }
  return out;
}

std::string json_answer(std::string_view text) {
  return summary(parse_ids(json_form(), qwen_ids(text), with_tools()));
}
std::string xml_answer(std::string_view text) {
  return summary(parse_ids(xml_form(), qwen_ids(text), with_tools(ReasoningEffort::off)));
}

TEST(QwenJsonCall, AsTheModelWroteIt) {
  EXPECT_EQ(json_answer("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, 2.50, \"}\"]}}\n"
                        "</tool_call><|im_end|>"),
            "||f({\"a\": [1, 2.50, \"}\"]})");
  EXPECT_EQ(json_answer("<think>\nhm\n</think>\n\nOne moment.\n<tool_call>\n{\"name\": \"f\", "
                        "\"arguments\": {}}\n</tool_call><|im_end|>"),
            "hm|One moment.|f({})");
  EXPECT_EQ(json_answer("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
                        "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"),
            "||f({\"a\": 1}) g({})");
  const Message message = parse_ids(json_form(), qwen_ids("<tool_call>{\"name\": \"f\"}</tool_call>"
                                                          "<tool_call>{\"name\": \"f\"}"));
  EXPECT_EQ(summary(message), "||f({}) f({})") << "whatever the request's tools are";
  EXPECT_TRUE(message.tool_calls[0].id.starts_with("call_"));
  EXPECT_NE(message.tool_calls[0].id, message.tool_calls[1].id);
}

TEST(QwenJsonCall, ArgumentsStream) {
  const auto parser = json_form().parser(with_tools());
  std::string arguments, name;
  for (const TokenId id :
       qwen_ids("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"long ")) {
    for (const auto& call : parser->push(id).tool_calls) {
      arguments += call.arguments;
      name += call.name;
    }
  }
  EXPECT_EQ(name, "f");
  EXPECT_EQ(arguments, "{\"a\": \"long ") << "nothing waits for the end";
}

TEST(QwenJsonCall, OtherShapesOfTheObject) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"({"arguments": {"a": 1}, "name": "f"})", R"(f({"a": 1}))"},
      {R"({"id": "x", "name": "f", "n": [{}], "arguments": {"a": 1}, "t": true})",
       R"(f({"a": 1}))"},
      {R"({"name":"f","arguments":{"a":1}})", R"(f({"a":1}))"},
      {R"({"name": "f"})", "f({})"},
      {R"({"name": "f", "arguments": null})", "f({})"},
      {R"({"name": "f", "arguments": "{\"a\": 1}"})", R"(f({"a": 1}))"},
      {R"({"name": "f", "arguments": "text"})", R"(f("text"))"},
      {R"({"name": "f", "arguments": 12})", "f(12)"},
      {R"({"name": "f", "arguments": [1]})", "f([1])"},
      {R"({"name": "\u0066\"é", "arguments": {}})", "f\"é({})"},
      {R"({"name": "f", "arguments": {"a": "<think></think><tool_call>"}})",
       R"(f({"a": "<think></think><tool_call>"}))"},
      {R"({"name": "f", "arguments": {"a": 1}}}})", R"(f({"a": 1}))"},
      {R"({"name": "f", "arguments": {"a": 1})", R"(f({"a": 1}))"},
      {R"({"name": "f", "arguments": {"a": 1,}})", R"(f({"a": 1,}))"},
      {R"({"name": "f", "arguments": {}, "name": "g", "arguments": {"a": 1}})", "f({})"},
      {"{\"name\": \"f\"}\n{\"name\": \"g\"}", "f({}) g({})"},
  };
  for (const auto& [object, call] : cases) {
    for (const std::string_view end : {"\n</tool_call><|im_end|>", "</tool_call>", "<|im_end|>"}) {
      EXPECT_EQ(json_answer("<tool_call>\n" + std::string(object) + std::string(end)),
                "||" + std::string(call))
          << object << end;
    }
    EXPECT_EQ(xml_answer("<tool_call>\n" + std::string(object) + "\n</tool_call>"),
              "||" + std::string(call));
  }
}

// One token may end an object and begin the next.
TEST(QwenJsonCall, ObjectsThatMeetInsideOfAToken) {
  std::vector<TokenId> ids = qwen_ids("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1");
  const std::vector<TokenId> seam = plain_ids("}}{"),
                             rest = qwen_ids("\"name\": \"g\"}</tool_call>");
  ASSERT_EQ(seam.size(), 1u);
  ids.insert(ids.end(), seam.begin(), seam.end());
  ids.insert(ids.end(), rest.begin(), rest.end());
  EXPECT_EQ(summary(parse_ids(json_form(), ids, with_tools())), "||f({\"a\": 1}) g({})");
}

TEST(QwenJsonCall, WhatIsNoCallIsText) {
  EXPECT_EQ(json_answer("<tool_call>\nf(1)\n</tool_call>"), "|\nf(1)\n|");
  EXPECT_EQ(json_answer("a <tool_call>f(1)</tool_call> b"), "|a f(1) b|");
  EXPECT_EQ(json_answer("<tool_call>{\"a\": 1}</tool_call>"), "|{\"a\": 1}|");
  EXPECT_EQ(json_answer("<tool_call>{name: f}</tool_call>b"), "|{name: f}b|");
  EXPECT_EQ(json_answer("<tool_call>{\"name\": \"\"}</tool_call>"), "|{\"name\": \"\"}|");
  EXPECT_EQ(json_answer("<tool_call>{\"name\": 1, \"arguments\": {}}"),
            "|{\"name\": 1, \"arguments\": {}}|");
  EXPECT_EQ(json_answer("<tool_call>{\"name\": \"f\" \"arguments\": {}}</tool_call>"),
            "|{\"name\": \"f\" \"arguments\": {}}|");
  EXPECT_EQ(json_answer("<tool_call>{\"name\": \"f\", \"arguments\": {}} so</tool_call> be it"),
            "|so be it|f({})");
  EXPECT_EQ(json_answer("<tool_call></tool_call>"), "||");
  EXPECT_EQ(json_answer("<tool_call>"), "||");
  EXPECT_EQ(json_answer("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1</tool_call>"),
            "||f({\"a\": 1)")
      << "the client sees what the model wrote";
  EXPECT_EQ(json_answer("<tool_call><tool_call>{\"name\": \"f\"}</tool_call>"), "||f({})");
}

TEST(QwenJsonCall, SpelledTags) {
  const auto spelled = [](std::string_view text) {
    return summary(parse_ids(json_form(), plain_ids(text), with_tools()));
  };
  const std::string call =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  EXPECT_EQ(spelled(call), "||f({\"a\": 1})");
  EXPECT_EQ(spelled("Wait.\n" + call + "\n" + call), "|Wait.|f({\"a\": 1}) f({\"a\": 1})");
  EXPECT_EQ(spelled("As in " + call), "|As in " + call + "|") << "in the middle of a line";
  EXPECT_EQ(spelled("<tool_call>\nnot JSON\n</tool_call>"),
            "|<tool_call>\nnot JSON\n</tool_call>|");
  EXPECT_EQ(spelled("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"</tool_call>\"}}"
                    "</tool_call>x"),
            "|x|f({\"a\": \"</tool_call>\"})")
      << "in a string it is text";
}

TEST(QwenJsonCall, CutAnywhere) {
  const std::vector<TokenId> ids = qwen_ids(
      "Wait.\n<tool_call>\n{\"name\": \"find\", \"arguments\": {\"key\": "
      "\"a🤔b\"}}\n</tool_call>");
  const Message whole = parse_ids(json_form(), ids, with_tools());
  EXPECT_EQ(summary(whole), "|Wait.|find({\"key\": \"a🤔b\"})");
  for (size_t cut = 0; cut < ids.size(); ++cut) {
    const Message part =
        parse_ids(json_form(), {ids.begin(), ids.begin() + static_cast<long>(cut)}, with_tools());
    EXPECT_TRUE(std::string("Wait.\n").starts_with(part.content)) << part.content;
    if (part.tool_calls.empty()) continue;
    EXPECT_EQ(part.tool_calls[0].name, "find") << "half a name makes no call";
    const std::string& arguments = part.tool_calls[0].arguments;
    EXPECT_TRUE(
        whole.tool_calls[0].arguments.starts_with(arguments.substr(0, arguments.find("\uFFFD"))))
        << arguments;
  }
}

constexpr std::string_view kXmlCall =
    "<tool_call>\n<function=f>\n<parameter=s>\none\ntwo\n</parameter>\n<parameter=n>\n5\n"
    "</parameter>\n</function>\n</tool_call>";

TEST(QwenXmlCall, TypesComeFromTheSchema) {
  EXPECT_EQ(xml_answer(kXmlCall), R"(||f({"s": "one\ntwo", "n": 5}))");
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"s>\n5", R"("s": "5")"},
      {"s>\ntrue", R"("s": "true")"},
      {"s>\nnull", R"("s": "null")"},
      {"s>\n\"q\" \\ \t \x01", R"("s": "\"q\" \\ \t \u0001")"},
      {"s>\n\n  a\n\n", R"("s": "\n  a\n\n")"},
      {"s>\n", R"("s": "")"},
      {"sn>\nNone", R"("sn": null)"},
      {"sn>\n 5", R"("sn": " 5")"},
      {"n>\n-5", R"("n": -5)"},
      {"n>\n5.0", R"("n": 5.0)"},
      {"n>\n5.5", R"("n": "5.5")"},
      {"n>\n007", R"("n": "007")"},
      {"n>\nfive", R"("n": "five")"},
      {"n>\n12345678901234567890123", R"("n": 12345678901234567890123)"},
      {"x>\n1e5", R"("x": 1e5)"},
      {"x>\n1e999", R"("x": "1e999")"},
      {"x>\nNaN", R"("x": "NaN")"},
      {"x>\n2", R"("x": 2)"},
      {"b>\nTrue", R"("b": true)"},
      {"b>\nfalse", R"("b": false)"},
      {"b>\nyes", R"("b": "yes")"},
      {"o>\n{\"k\": [1,\n2]}", "\"o\": {\"k\": [1,\n2]}"},
      {"o>\n{\"k\": 1", R"("o": "{\"k\": 1")"},
      {"o>\n[1]", R"("o": "[1]")"},
      {"l>\n[]", R"("l": [])"},
      {"a>\n5", R"("a": "5")"},
      {"unknown>\n5", R"("unknown": "5")"},
      {"é\"k>\n5", R"("é\"k": "5")"},
      {"n>5", R"("n": 5)"},
      {"n\n5", R"("n": 5)"},
      {" n >\n5", R"("n": 5)"},
      {"\"n\">\n5", R"("n": 5)"},
  };
  for (const auto& [parameter, member] : cases) {
    EXPECT_EQ(xml_answer("<tool_call>\n<function=f>\n<parameter=" + std::string(parameter) +
                         "\n</parameter>\n</function>\n</tool_call>"),
              "||f({" + std::string(member) + "})");
  }
}

TEST(QwenXmlCall, NamesAndNumbers) {
  EXPECT_EQ(xml_answer("<tool_call>\n<function=g>\n</function>\n</tool_call>"), "||g({})");
  EXPECT_EQ(xml_answer("<tool_call><function=get-weather_2.b></function></tool_call>"),
            "||get-weather_2.b({})");
  EXPECT_EQ(xml_answer("<tool_call>\n<function=\"g\">\n</function>\n</tool_call>"), "||g({})");
  EXPECT_EQ(xml_answer(std::string(kXmlCall) + "\n" + std::string(kXmlCall)),
            R"(||f({"s": "one\ntwo", "n": 5}) f({"s": "one\ntwo", "n": 5}))");
  EXPECT_EQ(xml_answer("<tool_call>\n<function=g>\n</function>\n<function=g>\n<parameter=k>\n1\n"
                       "</parameter>\n</function>\n</tool_call>"),
            "||g({}) g({\"k\": \"1\"})");
  EXPECT_EQ(xml_answer("Wait.\n\n" + std::string(kXmlCall) + "\nDone."),
            R"(|Wait.

Done.|f({"s": "one\ntwo", "n": 5}))");
}

TEST(QwenXmlCall, ClosingTagsThatNeverCome) {
  const std::string head = "<tool_call>\n<function=f>\n<parameter=s>\nv";
  const std::string call = R"(||f({"s": "v"}))";
  for (const std::string_view end :
       {"\n</parameter>\n</function>\n<|im_end|>", "\n</parameter>\n</function>",
        "\n</parameter>\n<|im_end|>", "\n<|im_end|>", "<|im_end|>", "\n</parameter>\n</tool_call>",
        "\n</function>\n</tool_call>", "\n</function>\n<|im_end|>", "\n</function>", "</tool_call>",
        "\n</tool_call><|im_end|>"}) {
    EXPECT_EQ(xml_answer(head + std::string(end)), call) << end;
  }
  EXPECT_EQ(xml_answer(head + "\n<parameter=n>\n5\n</parameter>\n</function>\n</tool_call>"),
            R"(||f({"s": "v", "n": 5}))");
  EXPECT_EQ(xml_answer("<tool_call>\n<function=f>\n<tool_call>\n<function=g>\n</function>"),
            "||f({}) g({})");
  EXPECT_EQ(xml_answer(head + "\n<tool_call>\n<function=g>\n</function>"),
            R"(||f({"s": "v"}) g({}))");
}

// Values are not escaped: what looks like markup is part of one where the call does not go on so.
TEST(QwenXmlCall, ValuesThatHoldTags) {
  const auto value = [](std::string_view text) {
    const Message message =
        parse_ids(xml_form(),
                  qwen_ids("<tool_call>\n<function=f>\n<parameter=s>\n" + std::string(text) +
                           "\n</parameter>\n</function>\n</tool_call>"),
                  with_tools(ReasoningEffort::off));
    EXPECT_EQ(message.tool_calls.size(), 1u) << text;
    EXPECT_EQ(message.content, "") << text;
    return json_of(message.tool_calls[0].arguments)["s"].get<std::string>();
  };
  for (const std::string_view text :
       {"<b>x</b>", "a </parameter> b", "<p>\n</parameter>\n<q>\n", "</function>\nx",
        "a <parameter=n>", "<think>\nx\n</think>", "<tool_response>", "<tool_call> alone", "</",
        "<", "\n<parameter=z>\n", "</parameter> </paramete", "<function=f>"}) {
    EXPECT_EQ(value(text), text);
  }
}

TEST(QwenXmlCall, WhatIsNoCallIsText) {
  EXPECT_EQ(xml_answer("<tool_call>\n<func>\n</tool_call>"), "|<func>\n|");
  EXPECT_EQ(xml_answer("<tool_call>\n<function=>\n</tool_call>"), "|<function=>\n|");
  EXPECT_EQ(xml_answer("<tool_call>\n<function=" + std::string(300, 'x') + ">\n</tool_call>"),
            "|<function=" + std::string(300, 'x') + ">\n|");
  EXPECT_EQ(xml_answer("<tool_call>\n<function=g>\nfirst\n<parameter=k>\n1\n</parameter>\n"
                       "</function>\n</tool_call>"),
            "|first|g({\"k\": \"1\"})");
  EXPECT_EQ(
      xml_answer("<tool_call>\n<function=g>\n<parameter=k>\n1\n</parameter>\n<parameter=k>\n2\n"
                 "</parameter>\n</function>\n</tool_call>"),
      "|2|g({\"k\": \"1\"})")
      << "one key, one value";
  EXPECT_EQ(xml_answer("<tool_call>\n<function=g>\n</parameter> < </function>\n</tool_call> so"),
            "| < \n\n so|g({})");
}

TEST(QwenXmlCall, SpelledAndWithoutItsTag) {
  const auto spelled = [](std::string_view text) {
    return summary(parse_ids(xml_form(), plain_ids(text), with_tools(ReasoningEffort::off)));
  };
  const std::string call = R"(f({"s": "one\ntwo", "n": 5}))";
  EXPECT_EQ(spelled(kXmlCall), "||" + call);
  const std::string bare(kXmlCall.substr(kXmlCall.find("<function=")));
  EXPECT_EQ(spelled("Wait.\n" + bare + "\nDone."), "|Wait.\n\nDone.|" + call);
  EXPECT_EQ(spelled("As in <function=f>"), "|As in <function=f>|");
  const Message message = parse_ids(xml_form(), plain_ids(bare), {});
  EXPECT_TRUE(message.tool_calls.empty()) << "the request has no tools";
}

TEST(QwenXmlCall, CutAnywhere) {
  const std::vector<TokenId> ids = qwen_ids("Wait.\n\n" + std::string(kXmlCall));
  const Message whole = parse_ids(xml_form(), ids, with_tools(ReasoningEffort::off));
  for (size_t cut = 0; cut < ids.size(); ++cut) {
    const std::vector<TokenId> prefix(ids.begin(), ids.begin() + static_cast<long>(cut));
    const Message part = parse_ids(xml_form(), prefix, with_tools(ReasoningEffort::off));
    EXPECT_TRUE(std::string("Wait.\n\n").starts_with(part.content)) << part.content;
    if (part.tool_calls.empty()) continue;
    const std::string& arguments = part.tool_calls[0].arguments;
    EXPECT_EQ(part.tool_calls[0].name, "f");
    EXPECT_TRUE(whole.tool_calls[0].arguments.starts_with(arguments)) << arguments;
    const std::string text = qwen_tokenizer().decode(prefix, true);
    EXPECT_EQ(arguments.ends_with('}'), text.find("</function>") != text.npos)
        << "cut short, it must not look whole: " << text;
  }
}

// A call inside of the reasoning counts if nothing but closing tags follows it.
TEST(QwenParser, CallsInReasoning) {
  const std::string call = "<tool_call>\n{\"name\": \"g\"}\n</tool_call>";
  const auto answer = [](std::string_view text) {
    return summary(parse_ids(xml_form(), qwen_ids(text), with_tools()));
  };
  EXPECT_EQ(answer("Let me see.\n" + call + "<|im_end|>"), "Let me see.||g({})");
  EXPECT_EQ(answer("Let me see.\n" + call + "\n</think>\n\n<|im_end|>"), "Let me see.||g({})");
  EXPECT_EQ(answer("Let me see.\n" + call + "\n" + call + "\n"), "Let me see.||g({}) g({})");
  EXPECT_EQ(answer("Let me see.\n<tool_call>\n{\"name\": \"g\"}<|im_end|>"), "Let me see.||g({})");
  EXPECT_EQ(answer("Plan:\n" + call + "\nGood.\n</think>\n\n" + call),
            "Plan:\n{\"name\": \"g\"}\n\nGood.||g({})");
  EXPECT_EQ(answer("Plan:\n" + call + "\n</think>\n\n" + call), "Plan:\n{\"name\": \"g\"}||g({})");
  EXPECT_EQ(answer("Plan:\n" + call + "\n</think>\n\nDone."), "Plan:\n{\"name\": \"g\"}|Done.|");
  const Message spelled = parse_ids(
      xml_form(), plain_ids("Let me see.\n" + call + "\n" + call + "\n</think>\n"), with_tools());
  EXPECT_EQ(summary(spelled), "Let me see.||g({}) g({})");
  EXPECT_EQ(answer("Plan:\n<tool_call>f(1)</tool_call>!"), "Plan:\nf(1)!||");
  EXPECT_EQ(answer("Plan:\n<tool_call>{oops</tool_call>!"), "Plan:\n{oops!||");
  EXPECT_EQ(answer("Plan:\n<tool_call>{\"name\": \"g\", \"argu"),
            "Plan:\n{\"name\": \"g\", \"argu||")
      << "cut in the middle";
}

}  // namespace
}  // namespace wader
