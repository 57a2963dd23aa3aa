// Our prompts against the released GPT-OSS Jinja template's, on the conversations of
// npm/harmony_jinja.mjs. Each group of conversations shows at most one or two of the differences
// that docs/harmony.md lists; its normalisation touches exactly those bytes of the template's text,
// and the rest must be equal.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include "chat/harmony_testing.h"

namespace wader {
namespace {

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size(), ++count)
    text.replace(at, from.size(), to);
  EXPECT_GT(count, 0u) << "the template does not write " << from << " any more";
}

// " json" in the header of a call is " <|constrain|>json" in harmony.
void constrain_calls(const Json& line, std::string& text) {
  std::map<std::string, std::string> headers;  // each text once: a second pass would not find it
  for (const Json& message : line["request"]["messages"]) {
    if (!message.contains("tool_calls")) continue;
    const auto name = message["tool_calls"][0]["function"]["name"].get<std::string>();
    const std::string head = "<|start|>assistant to=functions." + name + "<|channel|>commentary ";
    headers[head + "json<|message|>"] = head + "<|constrain|>json<|message|>";
  }
  for (const auto& [from, to] : headers) replace_all(text, from, to);
}

// Schemas that the two write differently: the template's text and harmony's, between "type f = "
// and " => any".
struct Shape {
  std::string template_text, our_text;
};
const std::map<std::string, Shape> kShapes = {
    {"default_of_string",
     {"p?: string, // default: \"north\",\n", "p?: string, // default: \"north\"\n"}},
    {"default_of_enum",
     {"p?: \"n\" | \"s\", // default: n,\n", "p?: \"n\" | \"s\", // default: n\n"}},
    {"default_of_list",
     {"p?: number[], // default: [1, 2],\n", "p?: number[], // default: [1,2]\n"}},
    {"nullable_number", {"p?: number,\n", "p?: number | null,\n"}},
    {"integer_in_list", {"p?: integer | null,\n", "p?: number | null,\n"}},
    {"array_without_items", {"p?: any[],\n", "p?: Array<any>,\n"}},
    {"array_of_enum", {"p?: string[],\n", "p?: \"n\" | \"s\"[],\n"}},
    {"array_of_objects",
     {"p?: {\nk?: \n                number}[],\n", "p?: {\n    k?: number,\n    }[],\n"}},
    {"object",
     {"p?: {\nk: \n                number, l?: \n                string},\n",
      "p?: {\n    k: number,\n    l?: string,\n    },\n"}},
    {"object_without_properties", {"p?: object,\n", "p?: {\n    },\n"}},
    {"union",
     {"p?: string                    // default: \"n\" | \nnumber// degrees// default: 20,\n",
      "// default: 20\np?:\n | string // default: \"n\"\n | number // degrees\n,\n"}},
    {"title_and_examples",
     {"p?: string,\n",
      "// Where\n//\n// Examples:\n// - \"north\"\n// - \"south\"\np?: string,\n"}},
    {"description_of_parameters", {"(_: {\np?: string,\n", "(_: // All.\n{\np?: string,\n"}},
    {"description_of_two_lines", {"// One.\nTwo.\n", "// One.\n// Two.\n"}},
};

using Normalise = std::function<void(const Json& line, std::string& text)>;

const std::map<std::string, Normalise> kGroups = {
    {"equal", [](const Json&, std::string&) {}},
    {"instructions",
     [](const Json& line, std::string& text) {
       const std::string body =
           "# Instructions\n\n" + line["request"]["messages"][0]["content"].get<std::string>();
       replace_all(text, body + "\n\n<|end|>", body + "<|end|>");
     }},
    {"call", constrain_calls},
    {"result",
     [](const Json& line, std::string& text) {
       constrain_calls(line, text);
       const std::string head = " to=assistant<|channel|>commentary<|message|>";
       replace_all(text, head + line["quoted_result"].get<std::string>() + "<|end|>",
                   head + line["result"].get<std::string>() + "<|end|>");
     }},
    {"preamble",
     [](const Json& line, std::string& text) {
       constrain_calls(line, text);
       const std::string body = "<|message|>" + line["preamble"].get<std::string>() + "<|end|>";
       replace_all(text, "<|start|>assistant<|channel|>analysis" + body,
                   "<|start|>assistant<|channel|>commentary" + body);
     }},
    {"last_answer",
     [](const Json&, std::string& text) {
       ASSERT_TRUE(text.ends_with("<|return|>"));
       text.replace(text.size() - 10, 10, "<|end|>");
     }},
    {"shape",
     [](const Json& line, std::string& text) {
       const Shape& shape = kShapes.at(line["shape"].get<std::string>());
       replace_all(text, shape.template_text, shape.our_text);
     }},
};

TEST(HarmonyJinja, RendersWhatTheReleasedTemplateRenders) {
  std::ifstream file(HARMONY_JINJA_CASES);
  if (!file) {
    const bool must = std::getenv("CI") != nullptr && std::filesystem::exists(HARMONY_TEMPLATE);
    if (must)
      FAIL() << "no " HARMONY_JINJA_CASES ": the test harmony_jinja_cases needs node and npm ci";
    GTEST_SKIP() << "no " HARMONY_JINJA_CASES ": the test harmony_jinja_cases says why";
  }
  std::map<std::string, int> counts;
  for (std::string row; std::getline(file, row);) {
    const Json line = json_of(row);
    const auto group = line["group"].get<std::string>();
    const auto request = chat_request_from_json(line["request"]);
    ASSERT_TRUE(request) << request.error().message << row;
    const auto ids = demo_format().render(*request);
    ASSERT_TRUE(ids) << ids.error().message << row;
    auto expected = line["expected_text"].get<std::string>();
    kGroups.at(group)(line, expected);
    EXPECT_EQ(demo_tokenizer().decode(*ids, true), expected) << group << ' ' << row;
    if (HasFailure()) return;  // one is enough to read
    ++counts[group];
  }
  EXPECT_EQ(counts.size(), kGroups.size());
  EXPECT_GE(counts["equal"], 200);
  EXPECT_EQ(counts["shape"], static_cast<int>(kShapes.size()));
}

}  // namespace
}  // namespace wader
