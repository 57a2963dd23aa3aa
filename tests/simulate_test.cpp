// `wader trace` and `wader simulate` as a user meets them, and what a replay says against what an
// engine did.
#include <fstream>
#include <sstream>

#include "cli_fixture.h"
#include "io/file.h"

namespace wader::testing {
namespace {

std::string text_of(const fs::path& path) {
  return read_text_file(path, 1u << 30).value();
}

TEST_F(Cli, TraceIsReplayedThroughEveryPolicy) {
  const std::string trace = (home_ / "a.trace").string(), svg = (home_ / "a.svg").string();
  const RunResult recorded =
      wader({"trace", "demo", "-o", trace, "--random", "40", "--repeat", "2", "--count", "20",
             "--seed", "5", "--temperature", "1", "--json"});
  const Json facts = json_of(recorded);
  EXPECT_EQ(facts["prompts"], 2);
  EXPECT_EQ(facts["tokens"], 2 * (40 + 19));  // the last token is sampled, not computed
  EXPECT_EQ(facts["bytes"], fs::file_size(trace));

  const RunResult table = wader({"simulate", trace, "--svg", svg});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  for (const char* name : {"belady", "blend", "lru", "lfu", "lfu-aged", "tinylfu", "layer-budget"})
    EXPECT_THAT(table.out, HasSubstr(name));
  const std::string drawn = text_of(svg);
  EXPECT_THAT(drawn, StartsWith("<svg "));
  EXPECT_THAT(drawn, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(drawn, HasSubstr(">blend</text>"));

  const Json sim = json_of(wader({"simulate", trace, "--json", "--slots", "64,50%", "--policies",
                                  "lru,blend", "--learn", trace, "--warm-up", "30"}));
  EXPECT_EQ(sim["results"].size(), 6u);
  for (const Json& result : sim["results"])
    EXPECT_LE(sim["results"][result["slots"] == 64 ? 0 : 1]["missed"], result["missed"]);
}

// What the simulator counts is what the engine does with as many slots: the same misses.
TEST_F(Cli, TheReplayReadsWhatTheEngineReads) {
  const std::string trace = (home_ / "b.trace").string();
  const std::vector<std::string> work = {
      "--tokens", "8183,39,6778", "--count", "40",        "--temperature",
      "1",        "--seed",       "9",       "--threads", "1"};
  std::vector<std::string> record = {"trace", "demo", "-o", trace};
  record.insert(record.end(), work.begin(), work.end());
  ASSERT_EQ(wader(record).exit_code, 0);
  for (const char* policy : {"lru", "lfu", "blend"}) {
    std::vector<std::string> generate = {
        "generate",    "demo", "--slots", "96", "--json",         "--usage", "off",
        "--lookahead", "off",  "--chunk", "1",  "--cache-policy", policy};
    generate.insert(generate.end(), work.begin(), work.end());
    const Json stats = json_of(wader(generate))["stats"];
    std::vector<std::string> chunked = record;
    chunked.insert(chunked.end(), {"--chunk", "1"});
    ASSERT_EQ(wader(chunked).exit_code, 0);
    const Json sim =
        json_of(wader({"simulate", trace, "--json", "--slots", "96", "--policies", policy}));
    EXPECT_EQ(sim["results"][1]["missed"], stats["expert_misses"]) << policy << stats;
  }
}

TEST_F(Cli, TraceTakesChatsAndRepeats) {
  const std::string one = (home_ / "c1.trace").string(), two = (home_ / "c2.trace").string();
  std::ofstream(home_ / "prompts.txt") << "Write a poem.\n\nWrite a SQL query.\n";
  const auto run = [&](const std::string& file) {
    return wader({"trace", "demo", "-o", file, "--prompts", (home_ / "prompts.txt").string(),
                  "--count", "12", "--seed", "3", "--date", "2024-05-06", "--json"});
  };
  EXPECT_EQ(json_of(run(one))["prompts"], 2);
  ASSERT_EQ(run(two).exit_code, 0);
  EXPECT_EQ(text_of(one), text_of(two));
  std::ofstream(home_ / "chats.json") << R"([{"messages": [{"role": "user", "content": "Hello"}]},
             {"messages": [{"role": "user", "content": "Write a poem."}]}])";
  EXPECT_EQ(json_of(wader({"trace", "demo", "-o", two, "--messages",
                           (home_ / "chats.json").string(), "--count", "3", "--json"}))["prompts"],
            2);
}

TEST_F(Cli, TraceAndSimulateNameWhatIsWrong) {
  const std::string file = (home_ / "d.trace").string();
  expect_error({"trace", "demo", "-o", file}, 2, "one of --prompt");
  expect_error({"trace", "demo", "--random", "4"}, 2, "--output");
  expect_error({"trace", "demo", "-o", file, "--random", "4", "--tokens", "1"}, 2, "one of");
  expect_error({"trace", "demo", "-o", file, "--tokens", "1", "--repeat", "2"}, 2, "--repeat");
  expect_error({"trace", "tiny", "-o", file, "--prompt", "x"}, 1, "no tokenizer");
  expect_error({"trace", "demo", "-o", "/nowhere/x", "--random", "4"}, 1, "/nowhere/x");
  expect_error({"simulate", "/nowhere/x"}, 1, "/nowhere/x");
  std::ofstream(home_ / "not.trace") << std::string(100, 'x');
  expect_error({"simulate", (home_ / "not.trace").string()}, 1, "not a routing trace");
  ASSERT_EQ(wader({"trace", "tiny", "-o", file, "--random", "4", "--count", "2"}).exit_code, 0);
  for (const char* slots : {"0", "65", "101%", "x", "", "1.5", "-1"})
    expect_error({"simulate", file, "--slots", slots}, 2, "--slots");
  expect_error({"simulate", file, "--policies", "lru,fifo"}, 2, "fifo");
}

// The usage of the experts is remembered beside the model, unless told not to; a bad file is no
// harm and is replaced; and the model is removed with it.
TEST_F(Cli, UsageIsKeptBesideTheModel) {
  const std::string model = (home_ / "used.wader").string();
  ASSERT_EQ(wader({"install", kSource + "/tests/data/tiny-gpt-oss", "-o", model}).exit_code, 0);
  const auto generate = [&](const char* usage) {
    return wader(
        {"generate", model, "--tokens", "5,6,7", "--count", "8", "--greedy", "--usage", usage});
  };
  const RunResult off = generate("off");
  EXPECT_FALSE(fs::exists(model + "/usage"));
  EXPECT_EQ(generate("on").out, off.out);
  ASSERT_TRUE(fs::exists(model + "/usage"));
  const std::string first = text_of(model + "/usage");
  EXPECT_EQ(generate("on").out, off.out);
  std::ofstream(model + "/usage") << "damaged";
  EXPECT_EQ(generate("on").out, off.out);
  EXPECT_EQ(text_of(model + "/usage"), first);  // as after the first run: no past was taken over
  fs::permissions(model, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(generate("on").exit_code, 0);
  fs::permissions(model, fs::perms::owner_all);
  EXPECT_EQ(wader({"verify", model}).exit_code, 0);
  expect_error({"generate", model, "--tokens", "5", "--count", "1", "--usage", "x"}, 2, "--usage");
  EXPECT_EQ(wader({"rm", model, "--yes"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(model));
}

}  // namespace
}  // namespace wader::testing
