#include "engine/chat_prompt.h"

#include <gtest/gtest.h>

#include <map>

#include "container/container_testing.h"

namespace wader {
namespace {

// The template of a small container that has these files too.
Result<std::string> template_with(const std::map<std::string, std::string>& files) {
  const testing::TempDirectory scratch;
  ContainerPlan plan = testing::small_plan();
  for (const auto& [name, text] : files)
    plan.manifest.files.emplace(name, FileRecord{text.size(), ""});
  const auto directory = scratch.path() / "small.wader";
  ASSIGN_OR_RETURN(ContainerWriter writer, ContainerWriter::open(directory, std::move(plan)));
  for (const auto& [name, text] : files) RETURN_IF_ERROR(writer.write_small_file(name, text));
  RETURN_IF_ERROR(testing::write_rest(writer, scratch.path()));
  ASSIGN_OR_RETURN(const Container container, Container::open(directory));
  return chat_template_of(container);
}

TEST(ChatTemplate, ItsOwnFileIsFirst) {
  const std::string config = R"({"chat_template": "of the config"})";
  EXPECT_EQ(*template_with({{"chat_template.jinja", "own"}, {"tokenizer_config.json", config}}),
            "own");
  EXPECT_EQ(*template_with({{"tokenizer_config.json", config}}), "of the config");
  EXPECT_EQ(*template_with({{"tokenizer_config.json", "{}"}}), "");
  EXPECT_EQ(*template_with({}), "");
}

TEST(ChatTemplate, ErrorsNameTheFile) {
  const auto text = template_with({{"tokenizer_config.json", "{\"chat_template\": 1}"}});
  ASSERT_FALSE(text);
  EXPECT_TRUE(text.error().message.starts_with("tokenizer_config.json: ")) << text.error().message;
}

}  // namespace
}  // namespace wader
