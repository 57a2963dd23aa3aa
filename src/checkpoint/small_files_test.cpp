#include "checkpoint/small_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/qwen_testing.h"

namespace wader {
namespace {

namespace fs = std::filesystem;
using namespace wader::testing;  // NOLINT

// The ids of the file that is made, or nothing where none is.
Json made_ids(const char* family, uint32_t vocab_rows, std::vector<uint64_t> own) {
  std::vector<SmallFile> files = {{"config.json"}};
  ArchitectureSpec spec{};
  spec.vocab_rows = vocab_rows;
  add_generation_config(*find_family(family), spec, own, files);
  if (files.size() == 1) return {};
  EXPECT_EQ(files.at(1).name, "generation_config.json");
  const Json json = Json::parse(files[1].text.value());
  add_generation_config(*find_family(family), spec, own, files);  // it is there now
  EXPECT_EQ(files.size(), 2u);
  return json["eos_token_id"];
}

TEST(SmallFiles, GenerationConfigOfTheFamily) {
  EXPECT_EQ(made_ids("gpt_oss", 201088, {}), Json({200002, 199999, 200012}));
  EXPECT_EQ(made_ids("qwen3_moe", 151936, {}), Json({151645, 151643}));
  EXPECT_EQ(made_ids("qwen3_next", 151936, {151645}), Json({151645, 151643}));
  // Qwen3.6's config.json says 248044 only.
  EXPECT_EQ(made_ids("qwen3_5_moe", 248320, {248044}), Json({248044, 248046}));
  EXPECT_EQ(made_ids("qwen3_5_moe", 248320, {7, 7}), Json({7, 248046, 248044}));
  EXPECT_EQ(made_ids("qwen3_5_moe", 248046, {}), Json({248044}));
  EXPECT_EQ(made_ids("qwen3_5_moe", 96, {95, 96}), Json({95}));
  EXPECT_EQ(made_ids("qwen3_5_moe", 96, {}), Json());
}

TEST(SmallFiles, CheckpointsMakeOneOnlyWhereItIsMissing) {
  for (const char* type : {"qwen3_moe", "qwen3_5_moe"}) {
    const TempDirectory directory;
    Json config = small_qwen_config(type);
    (config.contains("text_config") ? config["text_config"] : config)["eos_token_id"] = {3, 5};
    write_raw(directory.path(), config, small_qwen_tensors(config));
    const auto made = Checkpoint::open(directory.path()).value()->small_files();
    ASSERT_EQ(made.size(), 2u);
    EXPECT_EQ(Json::parse(made[1].text.value()), Json({{"eos_token_id", {3, 5}}}));
    directory.write("generation_config.json", "{}");
    for (const SmallFile& file : Checkpoint::open(directory.path()).value()->small_files())
      EXPECT_FALSE(file.text.has_value()) << file.name;
  }
}

}  // namespace
}  // namespace wader
