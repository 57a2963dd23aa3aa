// Variants by what a template says. The released templates themselves: tests/qwen_jinja_test.cpp.
#include <gtest/gtest.h>

#include <string>

#include "chat/jinja_literals.h"
#include "chat/qwen_testing.h"

namespace wader {
namespace {

using Kept = QwenTemplate::Kept;
using Shape = QwenTemplate::Shape;
using Thinking = QwenTemplate::Thinking;

QwenTemplate variant(std::string_view family, std::string_view text) {
  auto format = read_qwen_template(family, text);
  if (!format) ADD_FAILURE() << format.error().message;
  return format ? std::move(format).value() : QwenTemplate();
}

std::vector<std::string> literals(std::string_view source) {
  std::vector<std::string> texts;
  for (const JinjaLiteral& literal : jinja_literals(source)) {
    EXPECT_TRUE(source[literal.offset] == '\'' || source[literal.offset] == '"') << source;
    texts.push_back(literal.text);
  }
  return texts;
}

TEST(JinjaLiterals, InTagsOnly) {
  using List = std::vector<std::string>;
  EXPECT_EQ(literals("a 'b' {{ 'c' + \"d'e\" }} 'f' {%- if g == 'h' -%} { 'i' }"),
            (List{"c", "d'e", "h"}));
  EXPECT_EQ(literals(R"({{ '\n\t\r\'\\\x' }})"), (List{"\n\t\r'\\x"}));
  EXPECT_EQ(literals("{{ 'a}}b%}' }}{{ 'c' }}"), (List{"a}}b%}", "c"}));
  EXPECT_EQ(literals("{# don't {{ 'a' }} #}{{ 'b' }}"), (List{"b"}));
  EXPECT_EQ(literals("{{ 'a\nb' }}"), (List{"a\nb"}));
}

TEST(JinjaLiterals, SurvivesAnything) {
  for (const std::string_view source :
       {"", "{", "{{", "{%", "{#", "{# '", "{{ '", "{{ '\\", "{{ 'a", "}}", "{{}}", "{{{{''}}"})
    literals(source);
  EXPECT_EQ(literals("{{ 'a").size(), 1u);
  literals(std::string(100000, '{'));
  literals(std::string(100000, '\''));
}

TEST(QwenTemplate, UsualOnesOfTheFamilies) {
  const QwenTemplate moe = variant("qwen3_moe", "");
  EXPECT_EQ(moe.shape, Shape::qwen3);
  EXPECT_EQ(moe.thinking, Thinking::switched);
  EXPECT_FALSE(moe.opens_thinking);
  EXPECT_EQ(moe.kept, Kept::late_filled);
  const QwenTemplate next = variant("qwen3_next", "");
  EXPECT_EQ(next.shape, Shape::qwen3);
  EXPECT_EQ(next.thinking, Thinking::never);
  EXPECT_EQ(next.kept, Kept::untouched);
  const QwenTemplate later = variant("qwen3_5_moe", "");
  EXPECT_EQ(later.shape, Shape::qwen3_5);
  EXPECT_EQ(later.thinking, Thinking::switched);
  EXPECT_TRUE(later.opens_thinking);
  EXPECT_EQ(later.kept, Kept::late);
  EXPECT_TRUE(later.tools_head.starts_with("# Tools\n\n"));
  EXPECT_TRUE(later.tools_head.ends_with("\n<tools>"));
  EXPECT_TRUE(later.tools_tail.starts_with("\n</tools>\n\n"));
}

TEST(QwenTemplate, ThinkingIsReadOffThePrompt) {
  const std::string start = "{{- '<|im_start|>' + message.role }}";
  const auto prompt = [&](std::string_view text) {
    return variant("qwen3_moe", start + "{%- if add_generation_prompt %}" + std::string(text));
  };
  EXPECT_EQ(prompt("{{- '<|im_start|>assistant\\n' }}").thinking, Thinking::never);
  EXPECT_EQ(prompt("{{- '<|im_start|>assistant\\n' }}").kept, Kept::untouched);
  const QwenTemplate opened = prompt("{{- '<|im_start|>assistant\\n<think>\\n' }}");
  EXPECT_EQ(opened.thinking, Thinking::always);
  EXPECT_TRUE(opened.opens_thinking);
  const QwenTemplate block = prompt(
      "{%- if enable_thinking is defined and enable_thinking is false %}"
      "{{- '<think>\\n\\n</think>\\n\\n' }}");
  EXPECT_EQ(block.thinking, Thinking::switched);
  EXPECT_TRUE(block.thinks_by_default);
  EXPECT_FALSE(block.opens_thinking);
  const QwenTemplate off = prompt(
      "{%- if enable_thinking is defined and enable_thinking is true %}{{- '<think>\\n' }}"
      "{%- else %}{{- '<think>\\n\\n</think>\\n\\n' }}");
  EXPECT_FALSE(off.thinks_by_default);
  EXPECT_TRUE(off.opens_thinking);
  EXPECT_EQ(variant("qwen3_next", kThinkingTemplate).kept, Kept::late_filled);
  EXPECT_EQ(variant("qwen3_moe", start + "{% if '</think>' in content %}").kept, Kept::none);
  EXPECT_EQ(variant("qwen3_moe", start + "{{ '</think>' }}{% if i > ns.last_query_index %}").kept,
            Kept::late);
  EXPECT_EQ(variant("qwen3_moe", start + "{{ '</think>' }}{% if preserve_thinking is undefined or "
                                         "i > ns.last_query_index %}")
                .kept,
            Kept::all);
}

TEST(QwenTemplate, TheReleasesOwnWords) {
  const QwenTemplate coder = variant(
      "qwen3_moe",
      "{{- '<|im_start|>system\\n' + system }}{{- '<|im_start|>system\\nBe brief.' }}"
      "{{- '\\n\\n# Tools\\n\\nUse these:\\n\\n' }}{{- '<tools>' }}{{- '\\n<name>' ~ tool.name }}"
      "{{- '\\n\\nWrite:\\n\\n<tool_call>\\n<function=example_function_name>\\n</tool_call>' }}");
  EXPECT_EQ(coder.shape, Shape::coder);
  EXPECT_EQ(coder.default_system, "Be brief.");
  EXPECT_EQ(coder.tools_head, "# Tools\n\nUse these:\n\n<tools>");
  EXPECT_EQ(coder.tools_tail,
            "\n</tools>\n\nWrite:\n\n<tool_call>\n<function=example_function_name>\n</tool_call>");
  const QwenTemplate json =
      variant("qwen3_moe",
              "{{- '<|im_start|>' }}{{- \"# Tools\\n\\nUse these:\\n<tools>\" }}"
              "{{- \"\\n</tools>\\n\\nWrite <args-json-object>.<|im_end|>\\n\" }}");
  EXPECT_EQ(json.shape, Shape::qwen3);
  EXPECT_EQ(json.tools_head, "# Tools\n\nUse these:\n<tools>");
  EXPECT_EQ(json.tools_tail, "\n</tools>\n\nWrite <args-json-object>.");
}

TEST(QwenTemplate, OthersAreRefused) {
  const auto format =
      make_chat_format("qwen3_next", "[INST] {{ message }} [/INST]", qwen_tokenizer());
  ASSERT_FALSE(format);
  EXPECT_EQ(format.error().code, ErrorCode::unsupported);
  EXPECT_EQ(format.error().message,
            "the model's chat template writes no <|im_start|>: it is not of the formats known for "
            "model family 'qwen3_next' (docs/qwen.md); wader generate takes prompts as ids");
}

TEST(QwenTemplate, RefusesATokenizerWithoutItsControlTokens) {
  const Tokenizer tokenizer = make_qwen_tokenizer({"<|im_start|>", "<|im_end|>"});
  const auto format = make_chat_format("qwen3_moe", "", tokenizer);
  ASSERT_FALSE(format);
  EXPECT_EQ(format.error().message,
            "the tokenizer lacks control tokens of Qwen's chat formats: <|im_start|>, <|im_end|>");
}

TEST(QwenTemplate, NamesAndStops) {
  EXPECT_EQ(qwen_format("qwen3_moe")->name(), "qwen3");
  EXPECT_EQ(qwen_format("qwen3_next")->name(), "qwen3");
  EXPECT_EQ(qwen_format("qwen3_5_moe")->name(), "qwen3.5");
  EXPECT_EQ(qwen_format("qwen3_moe", kCoderTemplate)->name(), "qwen3-coder");
  const std::vector<TokenId> stops = {*qwen_tokenizer().added_token("<|im_end|>"),
                                      *qwen_tokenizer().added_token("<|endoftext|>")};
  EXPECT_EQ(qwen_format("qwen3_moe")->stop_ids(), stops);
}

TEST(ChatTemplateOfConfig, StringOrList) {
  EXPECT_EQ(*chat_template_of_config(R"({"chat_template": "{{ 'a' }}"})"), "{{ 'a' }}");
  EXPECT_EQ(*chat_template_of_config(R"({"eos_token": "x"})"), "");
  EXPECT_EQ(*chat_template_of_config(R"({"chat_template": null})"), "");
  EXPECT_EQ(*chat_template_of_config("[]"), "");
  EXPECT_EQ(*chat_template_of_config(R"({"chat_template": [{"name": "tool_use", "template": "t"},
                                         {"name": "default", "template": "d"}]})"),
            "d");
  for (const std::string_view config :
       {R"({"chat_template": 1})", R"({"chat_template": []})", R"({"chat_template": ["a"]})",
        R"({"chat_template": [{"name": "default"}]})",
        R"({"chat_template": [{"name": "x", "template": "t"}]})"}) {
    const auto text = chat_template_of_config(config);
    ASSERT_FALSE(text) << config;
    EXPECT_EQ(text.error().message,
              "tokenizer_config.json: chat_template is neither a string nor a list of templates "
              "with one named 'default'");
  }
  EXPECT_FALSE(chat_template_of_config("{"));
}

}  // namespace
}  // namespace wader
