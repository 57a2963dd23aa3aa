// Requests of /v1/completions, /tokenize and /detokenize.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api_testing.h"

namespace wader {
namespace {

using ::testing::ElementsAre;

TEST(CompletionRequest, Prompts) {
  EXPECT_EQ(completion_of(R"({"prompt": "Hi"})").prompt_text, "Hi");
  EXPECT_EQ(completion_of(R"({"prompt": ["Hi"]})").prompt_text, "Hi");
  EXPECT_THAT(completion_of(R"({"prompt": [1, 999]})").prompt_ids, ElementsAre(1, 999));
  EXPECT_THAT(completion_of(R"({"prompt": [[1, 2]]})").prompt_ids, ElementsAre(1, 2));
  const std::pair<std::string_view, std::string_view> bad[] = {
      {"{}", "prompt"},
      {R"({"prompt": null})", "prompt"},
      {R"({"prompt": []})", "prompt"},
      {R"({"prompt": [[]]})", "prompt"},
      {R"({"prompt": ["a", "b"]})", "prompt"},
      {R"({"prompt": [[1], [2]]})", "prompt"},
      {R"({"prompt": {}})", "prompt"},
      {R"({"prompt": [{}]})", "prompt"},
      {R"({"prompt": [1, 1000]})", "prompt[1]"},
      {R"({"prompt": [-1]})", "prompt[0]"},
      {R"({"prompt": [1.5]})", "prompt[0]"},
      {R"({"prompt": [1, "a"]})", "prompt[1]"},
      {R"({"prompt": [[4294967297]]})", "prompt[0][0]"},
  };
  for (const auto& [text, param] : bad) {
    const auto error = completion_refusal(text);
    EXPECT_EQ(error.status, 400) << text;
    EXPECT_EQ(error.param, param) << text;
  }
}

TEST(CompletionRequest, Fields) {
  const auto request = completion_of(completion_with(
      R"("max_tokens": 5, "logprobs": 5, "stop": ["DEFGHIJ"], "n": 2, "best_of": 1, "suffix": null,
         "seed": 3, "temperature": 0, "stream": true)"));
  EXPECT_EQ(request.max_tokens, 5u);
  EXPECT_EQ(request.top_logprobs, 5u);
  EXPECT_THAT(request.stop, ElementsAre("DEFGHIJ"));
  EXPECT_EQ(request.n, 2u);
  EXPECT_TRUE(request.stream);
  EXPECT_FALSE(request.echo);
  EXPECT_EQ(completion_of(completion_with("")).max_tokens, 16u) << "OpenAI's default";
  EXPECT_EQ(completion_of(completion_with(R"("logprobs": 0)")).top_logprobs, 0u);
  EXPECT_TRUE(completion_of(completion_with(R"("echo": true)")).echo);
  const std::pair<std::string_view, std::string_view> bad[] = {
      {R"("suffix": "x")", "suffix"},
      {R"("best_of": 2)", "best_of"},
      {R"("best_of": 0)", "best_of"},
      {R"("logprobs": 6)", "logprobs"},
      {R"("logprobs": true)", "logprobs"},
      {R"("logprobs": 1, "echo": true)", "logprobs"},
      {R"("max_tokens": 0)", "max_tokens"},
      {R"("messages": [])", "messages"},
      {R"("max_completion_tokens": 5)", "max_completion_tokens"},
      {R"("model": "x")", "model"},
  };
  for (const auto& [fields, param] : bad) {
    std::string text = completion_with(fields);
    if (param == "model") text = R"({"prompt": "x", "model": "x"})";
    EXPECT_EQ(completion_refusal(text).param, param) << fields;
  }
}

TEST(CompletionRequest, TokenizeAndDetokenize) {
  const auto tokenize = [](std::string_view text) {
    return parse_tokenize(body_of(text), test_facts());
  };
  EXPECT_EQ(accepted(tokenize(R"({"prompt": "a"})")).text, "a");
  EXPECT_FALSE(accepted(tokenize(R"({"prompt": "a"})")).markup);
  EXPECT_TRUE(accepted(tokenize(R"({"prompt": "a", "parse_special": true})")).markup);
  EXPECT_EQ(refused(tokenize("{}")).param, "prompt");
  EXPECT_EQ(refused(tokenize(R"({"prompt": 1})")).param, "prompt");
  EXPECT_EQ(refused(tokenize(R"({"prompt": "", "x": 1})")).param, "x");
  const auto detokenize = [](std::string_view text) {
    return parse_detokenize(body_of(text), test_facts());
  };
  EXPECT_THAT(accepted(detokenize(R"({"tokens": [1, 2]})")), ElementsAre(1, 2));
  EXPECT_TRUE(accepted(detokenize(R"({"tokens": []})")).empty());
  EXPECT_EQ(refused(detokenize(R"({"tokens": [-1]})")).param, "tokens[0]");
  EXPECT_EQ(refused(detokenize(R"({"tokens": [1000]})")).param, "tokens[0]");
  EXPECT_EQ(refused(detokenize(R"({"tokens": "a"})")).param, "tokens");
  EXPECT_EQ(refused(detokenize("{}")).param, "tokens");
}

}  // namespace
}  // namespace wader
