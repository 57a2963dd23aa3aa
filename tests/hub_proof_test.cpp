// What a hub's files are held against: whole files by their SHA-256, also over several runs and
// with gaps; what is said of those that cannot be; and `wader install --repair` from a hub.
#include <chrono>
#include <fstream>
#include <thread>

#include "background.h"
#include "hub_fixture.h"

namespace wader::testing {
namespace {

class HubProof : public HubTest {
 protected:
  static Json rule(Json fields) { return {{"rules", Json::array({std::move(fields)})}}; }
  // The last line that an install prints with --json.
  static Json report_of(const RunResult& result) {
    const size_t end = result.out.find_last_not_of('\n');
    const size_t begin = result.out.rfind('\n', end);
    const auto json = parse_json(result.out.substr(begin + 1, end - begin), "the report");
    EXPECT_TRUE(json.ok()) << result.out << result.err;
    return json.ok() ? *json : Json::object();
  }
  static uint64_t sent(const StubHub& stub, const std::string& file) {
    uint64_t bytes = 0;
    const Json files = stub.log()["files"];
    for (const auto& [name, facts] : files.items())
      if (name.ends_with(file)) bytes += facts["sent"].get<uint64_t>();
    return bytes;
  }
  RunResult repair(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> args = {"--repair", "--json"};
    args.insert(args.end(), more.begin(), more.end());
    return install("demo", args);
  }
};

TEST_F(HubProof, EveryFileOfEveryFixtureIsProven) {
  for (const std::string& model : kHubModels) {
    const RunResult dry = install(model, {"--dry-run", "--json"});
    const RunResult result = install(model, {"--json"});
    ASSERT_EQ(result.exit_code, 0) << model << "\n" << result.err;
    const Json report = report_of(result), plan = report_of(dry);
    ASSERT_FALSE(report["weight_files"].empty());
    for (const Json& file : report["weight_files"]) {
      EXPECT_TRUE(file["sha256_verified"].get<bool>()) << model << ": " << json_text(file);
      EXPECT_EQ(file["sha256"].get<std::string>().size(), 64u);
    }
    EXPECT_EQ(plan["sha256_verifiable_files"], report["weight_files"].size());
    fs::remove_all(destination());
  }
}

// Of a part of a model not all bytes are fetched, and that is what is said.
TEST_F(HubProof, WhatIsNotFetchedIsNotCalledVerified) {
  const RunResult result = install("demo", {"--layers", "1", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  bool all = true;
  const Json report = report_of(result);
  for (const Json& file : report["weight_files"]) all = all && file["sha256_verified"].get<bool>();
  EXPECT_FALSE(all) << json_text(report);
  EXPECT_LT(weight_bytes(stub_->log()).sent, 20'000'000u);
  fs::remove_all(destination());
  EXPECT_THAT(install("demo", {"--layers", "1"}).out,
              HasSubstr("covered by the container's digests only"));
}

// Both digests and the file are named; the next run makes again what came of that file, and keeps
// what came of others.
TEST_F(HubProof, AFlippedBitCostsOneFile) {
  const std::string second = "model-00002-of-00002.safetensors";
  // Far behind the header. The low half of a number: no NaN comes of it.
  stub_->faults(
      rule({{"on", "cdn"}, {"path", second}, {"skip", 4}, {"fault", "wrong_bytes"}, {"at", 1000}}));
  const RunResult result = install("demo");
  ASSERT_EQ(stub_->log()["faults"], 1);
  expect_refused(result, second + ": what was fetched has the SHA-256 ");
  EXPECT_THAT(result.err, HasSubstr("run the same install again"));
  const RunResult list = wader({"list"});
  EXPECT_THAT(list.out, Not(HasSubstr("out")));

  stub_->faults(Json::object());
  stub_->clear();
  const RunResult again = install("demo", {"--json"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  expect_same_tree(read_tree(destination()), local_tree("demo"));
  EXPECT_TRUE(report_of(again)["resumed"].get<bool>());
  // The trunk is in both files. Of layers that are in the first alone, 2.6 MB, what was written is
  // there, and what was not is still in the window.
  const uint64_t first_bytes =
      fs::file_size(directory_of("demo") / "model-00001-of-00002.safetensors");
  EXPECT_LT(sent(*stub_, "model-00001-of-00002.safetensors"), first_bytes - 2'000'000);
}

// Killed and gone on with, a file is still one from its first byte to its last.
TEST_F(HubProof, AKillDoesNotBreakTheProof) {
  const uint64_t whole = 22'000'000;
  for (const double part : {0.1, 0.4, 0.7, 0.9}) {
    stub_->options({{"bytes_per_s", 30'000'000}});
    stub_->clear();
    Background worker({"install", repository_of("demo"), "-o", destination().string()}, env(),
                      home() / "background.log");
    for (int i = 0; i < 3000; ++i) {
      if (static_cast<double>(weight_bytes(stub_->log()).sent) > part * whole) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    worker.kill_now();
    worker.wait();
    stub_->options({{"bytes_per_s", 0}});
    if (fs::exists(destination() / "manifest.json")) {  // a slow test, a fast install
      fs::remove_all(destination());
      continue;
    }
    const RunResult result = install("demo", {"--json"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const Json weight_files = report_of(result)["weight_files"];
    for (const Json& file : weight_files)
      EXPECT_TRUE(file["sha256_verified"].get<bool>()) << part << ": " << json_text(file);
    expect_same_tree(read_tree(destination()), local_tree("demo"));
    fs::remove_all(destination());
  }
}

TEST_F(HubProof, RepairFetchesWhatIsDamagedAndNoMore) {
  ASSERT_EQ(install("demo").exit_code, 0);
  const auto whole = local_tree("demo");
  stub_->clear();
  RunResult result = repair();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(report_of(result)["parts"], 0);
  EXPECT_EQ(stub_->log()["files"].size(), 0u) << "nothing was wrong";

  std::string expert_file;
  for (const auto& [name, bytes] : whole)
    if (name.starts_with("experts/")) expert_file = name;
  flip_bit(destination() / expert_file, 5000);
  flip_bit(destination() / "trunk.bin", 70'000);
  flip_bit(destination() / "tokenizer.json", 10);
  EXPECT_EQ(wader({"verify", destination().string()}).exit_code, 1);
  stub_->clear();
  result = repair();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(report_of(result)["parts"], 3);
  expect_same_tree(read_tree(destination()), whole);
  EXPECT_EQ(wader({"verify", destination().string()}).exit_code, 0);
  EXPECT_LT(weight_bytes(stub_->log()).sent, 6'000'000u);

  // A file that is gone, and one that was cut short.
  fs::remove(destination() / expert_file);
  fs::resize_file(destination() / "trunk.bin", fs::file_size(destination() / "trunk.bin") / 2);
  result = repair();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_same_tree(read_tree(destination()), whole);
}

// Another source, or other options, cannot give what was there: nothing is written over.
TEST_F(HubProof, RepairRefusesAnotherModel) {
  ASSERT_EQ(install("demo").exit_code, 0);
  flip_bit(destination() / "trunk.bin", 70'000);
  const auto damaged = read_tree(destination());
  RunResult result = repair({"--experts", "bf16"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("the options that it was installed with"));
  result = install("tiny-gpt-oss", {"--repair"});
  EXPECT_NE(result.exit_code, 0);
  expect_same_tree(read_tree(destination()), damaged);
  // One whose manifest is damaged cannot say what it was.
  flip_bit(destination() / "manifest.json", 100);
  EXPECT_NE(repair().exit_code, 0);
}

}  // namespace
}  // namespace wader::testing
