// A checkpoint's directory as MODEL, as a user meets it.
#include <sys/file.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "background.h"
#include "cli_fixture.h"
#include "io/file.h"

namespace wader::testing {
namespace {

// A checkpoint as MODEL: used in place after one reading of it, which only the first run does.
TEST_F(Cli, ACheckpointIsUsedWhereItIs) {
  const std::string checkpoint = kSource + "/models/demo";
  const auto ask = [&](const std::string& model) {
    return wader({"chat", model, "--prompt", "Write a poem.", "--greedy", "--max-tokens", "12"});
  };
  const RunResult first = ask(checkpoint), second = ask(checkpoint), installed = ask("demo");
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("is used in place: reading it once"));
  EXPECT_THAT(second.err, Not(HasSubstr("reading it once")));
  EXPECT_EQ(first.out, installed.out);
  EXPECT_EQ(second.out, installed.out);

  const Json facts = json_of(wader({"info", checkpoint, "--json"}));
  EXPECT_EQ(facts["in_place"], fs::canonical(checkpoint).string());
  const Json own = json_of(wader({"info", "demo", "--json"}));
  EXPECT_TRUE(own["in_place"].is_null());
  EXPECT_EQ(facts["identity"], own["identity"]);
  // Planned as any other model: the reading was another process's, which would leave all 16 MiB of
  // the model. Beside a sanitizer pages differ from start to start by some MiB.
  EXPECT_NEAR(facts["plan"]["process_bytes"].get<double>(),
              own["plan"]["process_bytes"].get<double>(), 8 << 20);
  EXPECT_THAT(wader({"list"}).out, HasSubstr("experts in place in " + checkpoint));
  EXPECT_EQ(wader({"verify", checkpoint}).exit_code, 0);

  // The source is never deleted.
  const std::string name = fs::path(facts["path"].get<std::string>()).stem();
  expect_error({"rm", checkpoint, "--yes"}, 1, "wader rm " + name);
  EXPECT_EQ(wader({"rm", name, "--yes"}).exit_code, 0);
  EXPECT_TRUE(fs::exists(checkpoint + "/config.json"));
  EXPECT_THAT(wader({"list"}).out, Not(HasSubstr("in-place")));

  expect_error({"chat", kSource + "/tests/data/tiny-qwen3-moe", "--prompt", "x"}, 1,
               "experts cannot be used in place; make a container of it with `wader install`");
  EXPECT_THAT(wader({"list"}).out, Not(HasSubstr("in-place")));
}

// What is kept of a checkpoint is used again while it is the same, and made anew when it changed;
// a checkpoint that cannot be used costs nothing that was there.
TEST_F(Cli, WhatIsKeptOfACheckpointFollowsIt) {
  const fs::path copy = home_ / "released";
  fs::copy(kSource + "/models/demo", copy, fs::copy_options::recursive);
  const auto notes_of = [&] {
    const RunResult result = wader({"info", copy.string()});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  };
  EXPECT_THAT(notes_of(), HasSubstr("is used in place: reading it once"));
  EXPECT_EQ(notes_of(), "");
  std::ofstream(copy / "config.json", std::ios::app) << "\n";
  EXPECT_THAT(notes_of(), HasSubstr("changed since it was last used in place: reading it once"));
  EXPECT_EQ(notes_of(), "");
  const fs::path file = copy / "model-00002-of-00002.safetensors";
  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
  EXPECT_THAT(notes_of(), HasSubstr("changed since it was last used in place: reading it once"));
  EXPECT_EQ(notes_of(), "");
  const fs::path kept(json_of(wader({"info", copy.string(), "--json"}))["path"].get<std::string>());
  fs::rename(file, home_ / "whole");
  fs::copy_file(home_ / "whole", file);
  fs::resize_file(file, fs::file_size(file) / 2);
  expect_error({"info", copy.string()}, 1, "model-00002-of-00002.safetensors");
  EXPECT_TRUE(fs::exists(kept / "manifest.json"));
  expect_error({"info", kept.string()}, 1, "with the checkpoint's directory as MODEL");
  fs::rename(home_ / "whole", file);
  EXPECT_EQ(notes_of(), "");
  EXPECT_EQ(wader({"rm", kept.stem().string(), "--yes"}).exit_code, 0);
}

// Of several first uses at once one reads the checkpoint, and the others wait; also where it
// changed.
TEST_F(Cli, FirstUsesAtOnceTakeTurns) {
  const fs::path copy = home_ / "shared", models = home_ / "at-once";
  fs::copy(kSource + "/models/demo", copy, fs::copy_options::recursive);
  const std::map<std::string, std::string> env = {{"WADER_HOME", models},
                                                  {"XDG_STATE_HOME", home_ / "state"}};
  using Runs = std::vector<std::unique_ptr<Background>>;
  const auto start = [&] {
    Runs runs;
    for (int i = 0; i < 4; ++i)
      runs.push_back(
          std::make_unique<Background>(std::vector<std::string>{"info", copy.string()}, env,
                                       home_ / ("at-once" + std::to_string(i) + ".log")));
    return runs;
  };
  const auto saying = [](const Runs& runs, const std::string& text) {
    return std::count_if(runs.begin(), runs.end(), [&](const auto& run) {
      return run->output().find(text) != std::string::npos;
    });
  };
  const auto expect_one_reader = [&](const Runs& runs) {
    for (const auto& run : runs) EXPECT_EQ(run->wait(), 0) << run->output();
    EXPECT_EQ(saying(runs, "reading it once"), 1);
  };
  // Only what is made is left.
  const auto name_of_it = [&] {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(models))
      names.push_back(entry.path().filename().string());
    EXPECT_EQ(names.size(), 1u) << ::testing::PrintToString(names);
    return names.at(0);
  };
  expect_one_reader(start());
  const std::string name = name_of_it();
  EXPECT_THAT(name, StartsWith("shared-in-place-"));

  // Behind one that takes its time, all of them wait.
  std::ofstream(copy / "config.json", std::ios::app) << "\n";
  File lock = File::open(models / ("." + name + ".reading"), File::Mode::update).value();
  ASSERT_EQ(flock(lock.fd(), LOCK_EX | LOCK_NB), 0);
  const Runs runs = start();
  const std::string note = "another wader is reading " + copy.string();
  for (int i = 0; i < 6000 && saying(runs, note) < 4; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(saying(runs, note), 4);
  EXPECT_EQ(saying(runs, "reading it once"), 0);
  lock = File();
  expect_one_reader(runs);
  EXPECT_EQ(name_of_it(), name);
}

TEST_F(Cli, AllThatUsesAModelUsesACheckpoint) {
  const std::string checkpoint = kSource + "/models/demo";
  const Json decode = json_of(wader({"bench", "decode", checkpoint, "--count", "3", "--rounds", "1",
                                     "--slots", "24", "--lookahead", "on", "--json"}));
  EXPECT_GT(decode["bytes_read_per_token"], 0);
  expect_error({"bench", "decode", checkpoint, "--count", "3", "--mmap"}, 1,
               "no mapping shows as one; --mmap needs a container");
  const auto trace_of = [&](const std::string& model) {
    const std::string file = (home_ / "in-place.trace").string();
    fs::remove(file);
    const RunResult result = wader({"trace", model, "--prompt", "Once", "--count", "6", "--greedy",
                                    "--slots", "24", "--memory", "512MiB", "-o", file});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto text = read_text_file(file, 1u << 26);
    return text.ok() ? *text : "none";
  };
  const std::string trace = trace_of(checkpoint);
  EXPECT_NE(trace, "none");
  EXPECT_EQ(trace, trace_of("demo"));
  EXPECT_EQ(wader({"bench", "io", checkpoint, "--depth", "1", "--burst", "none", "--rounds", "1"})
                .exit_code,
            0);
}

}  // namespace
}  // namespace wader::testing
