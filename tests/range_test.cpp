// `wader range` on the demo model: the map that a user gets, the bar that it must meet, and the
// file beside the model.
#include <fstream>

#include "cli_fixture.h"
#include "io/file.h"

namespace wader::testing {
namespace {

std::string text_of(const fs::path& path) {
  return read_text_file(path, 1u << 30).value();
}

TEST_F(Cli, RangeOfTheDemoRepeatsAndChanceDoesNot) {
  if (kSanitized) GTEST_SKIP() << "slow under a sanitizer";
  const RunResult run = wader({"range", "demo"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  for (const char* topic : {"python", "maths proofs", "clinical notes", "history", "By chance"})
    EXPECT_THAT(run.out, HasSubstr(topic));
  const fs::path file = home_ / "demo.wader" / "range.json";
  EXPECT_THAT(run.out, HasSubstr("wrote " + file.string()));
  const Json map = parse_json(text_of(file), "range.json").value();
  EXPECT_EQ(map["topics"].size(), 12u);
  EXPECT_EQ(map["experts"].size(), 8u * 32);
  const int credited = map["credited"], repeated = map["repeated"];
  EXPECT_GT(credited, 12);
  EXPECT_GE(2 * repeated, credited);  // of all that are credited, not only of those tested
  EXPECT_LT(map["by_chance"]["credited"], 0.05);
  EXPECT_LT(map["by_chance"]["repeated"], 0.05);
  EXPECT_LT(map["by_chance"]["repeat_rate"], 0.5 * map["repeat_rate"].get<double>());

  // Each token of a probe used four experts of each layer.
  for (uint32_t layer = 0; layer < 8; ++layer) {
    uint64_t uses = 0, tokens = 0;
    for (uint32_t e = 0; e < 32; ++e)
      uses += map["experts"][layer * 32 + e]["activations"].get<uint64_t>();
    for (const Json& of_topic : map["tokens"]) tokens += of_topic.get<uint64_t>();
    EXPECT_EQ(uses, 4 * tokens) << layer;
  }

  // The same map whatever the slots, the threads and the chunk; elsewhere when told so.
  const fs::path other = home_ / "other.json";
  const Json facts = json_of(wader({"range", "demo", "-o", other.string(), "--json", "--slots",
                                    "40", "--threads", "1", "--chunk", "33"}));
  EXPECT_EQ(text_of(other), text_of(file));
  EXPECT_EQ(facts["file"], other.string());
  EXPECT_EQ(facts["credited"], map["credited"]);
  EXPECT_FALSE(facts.contains("experts"));
}

TEST_F(Cli, ARangeMapBelongsToItsModel) {
  const std::string model = (home_ / "mapped.wader").string();
  ASSERT_EQ(wader({"install", kSource + "/models/demo", "-o", model, "--layers", "2"}).exit_code,
            0);
  const RunResult cut = wader({"range", model, "--context", "64"});
  ASSERT_EQ(cut.exit_code, 0) << cut.err;
  EXPECT_THAT(cut.err, HasSubstr("24 of 24 probes were cut to the context of 64 tokens"));
  ASSERT_TRUE(fs::exists(model + "/range.json"));
  EXPECT_EQ(wader({"verify", model}).exit_code, 0);
  EXPECT_THAT(wader({"list"}).out, HasSubstr("mapped"));
  EXPECT_EQ(wader({"generate", model, "--tokens", "5,6", "--count", "1"}).exit_code, 0);
  EXPECT_EQ(wader({"rm", model, "--yes"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(model));
}

TEST_F(Cli, RangeNamesWhatIsWrong) {
  expect_error({"range"}, 2, "needs MODEL");
  expect_error({"range", "nowhere"}, 1, "no model 'nowhere'");
  expect_error({"range", "tiny"}, 1, "no tokenizer");
  expect_error({"range", "demo", "--slots", "x"}, 2, "--slots");
  expect_error({"range", "demo", "-o", "/nowhere/x", "--context", "16"}, 1, "/nowhere/x");
}

}  // namespace
}  // namespace wader::testing
