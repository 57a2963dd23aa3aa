// HubTest: installs from a stub hub (hub_stub.h) that serves this tree's fixtures and demo model as
// wader-tests/NAME, by the built program in a home of its own.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli_process.h"
#include "container/container_testing.h"
#include "hub_stub.h"

namespace wader::testing {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

inline const std::vector<std::string> kHubModels = {"demo", "tiny-gpt-oss", "tiny-qwen3-moe",
                                                    "tiny-qwen3-next", "tiny-qwen3.5-moe"};

inline fs::path directory_of(const std::string& model) {
  const fs::path source = WADER_SOURCE_DIR;
  return model == "demo" ? source / "models/demo" : source / "tests/data" / model;
}

inline std::string repository_of(const std::string& model) {
  return "wader-tests/" + model;
}

class HubTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { stub_ = std::make_unique<StubHub>(all_repositories()); }
  static std::vector<std::string> all_repositories() {
    std::vector<std::string> repositories;
    for (const std::string& model : kHubModels)
      repositories.push_back(repository_of(model) + "=" + directory_of(model).string());
    return repositories;
  }
  static void TearDownTestSuite() { stub_.reset(); }

  void SetUp() override {
    if (!stub_->ok()) {
      // Where node should be, these must not be skipped unseen.
      if (std::getenv("CI") != nullptr)
        FAIL() << "the stub of the hub did not start: is node here?";
      GTEST_SKIP() << "there is no node: installs from a hub are not tested";
    }
    stub_->faults(Json::object());
    stub_->options({{"link_ttl_ms", 3'600'000}, {"bytes_per_s", 0}, {"page_entries", 3}});
    stub_->clear();
  }
  // Whatever a test does, the token stays with the hub.
  void TearDown() override {
    if (stub_->ok() && !expects_violations_) EXPECT_EQ(json_text(stub_->log()["violations"]), "[]");
  }

  fs::path home() const { return scratch_.path(); }
  fs::path destination() const { return home() / "out.wader"; }

  std::map<std::string, std::string> env() const { return env_of(*stub_, home()); }
  static std::map<std::string, std::string> env_of(const StubHub& stub, const fs::path& home) {
    return {{"HOME", home},
            {"WADER_HOME", home / "models"},
            {"XDG_STATE_HOME", home / "state"},
            {"XDG_CACHE_HOME", home / "cache"},
            {"HF_HOME", home / "hf"},
            {"HF_HUB_CACHE", home / "hf/hub"},
            {"HF_ENDPOINT", stub.hub()},
            {"HF_TOKEN", ""},
            {"HF_TOKEN_PATH", ""},
            // Less patient than for a user: the stub is near.
            {"WADER_HUB_STALL_SECONDS", "1"},
            {"WADER_HUB_RETRY_MS", "20"},
            {"no_proxy", "*"}};
  }
  // `env` goes over env().
  RunResult wader(const std::vector<std::string>& args,
                  const std::map<std::string, std::string>& more = {}) const {
    RunOptions options;
    options.env = more;
    options.env.merge(env());
    return run_wader(args, options);
  }
  // wader install wader-tests/MODEL -o destination() ARGS…
  RunResult install(const std::string& model, const std::vector<std::string>& args = {},
                    const std::map<std::string, std::string>& more = {}) const {
    std::vector<std::string> all = {"install", repository_of(model), "-o", destination().string()};
    all.insert(all.end(), args.begin(), args.end());
    return wader(all, more);
  }
  // One error line that names what is wrong, and no container.
  void expect_refused(const RunResult& result, const std::string& text) const {
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr("wader: error: "));
    EXPECT_THAT(result.err, HasSubstr(text));
    EXPECT_FALSE(fs::exists(destination() / "manifest.json"));
  }

  // What a local install makes of the same commit: from a snapshot in a hub's cache, so that
  // manifest.json says the same repository and commit.
  static const std::map<std::string, std::string>& local_tree(const std::string& model) {
    static std::map<std::string, std::map<std::string, std::string>> trees;
    auto& tree = trees[model];
    if (!tree.empty()) return tree;
    TempDirectory scratch;
    const fs::path snapshot = fill_cache(scratch.path(), model);
    RunOptions options;
    options.env = {{"WADER_HOME", scratch.path() / "models"}};
    const fs::path container = scratch.path() / "local.wader";
    const RunResult result =
        run_wader({"install", snapshot.string(), "-o", container.string()}, options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return tree = read_tree(container);
  }

  // A hub cache (…/models--ORG--NAME) below `hub_cache` with all files of a model's main; returns
  // its snapshot.
  static fs::path fill_cache(const fs::path& hub_cache, const std::string& model) {
    const std::string commit = stub_->commit_of(repository_of(model));
    const fs::path entry = hub_cache / ("models--wader-tests--" + model);
    const fs::path snapshot = entry / "snapshots" / commit;
    fs::create_directories(snapshot);
    fs::create_directories(entry / "refs");
    fs::create_directories(entry / "blobs");
    write_bytes(entry / "refs/main", commit);
    for (const auto& file : fs::directory_iterator(directory_of(model))) {
      const std::string name = file.path().filename().string();
      fs::copy_file(file.path(), entry / "blobs" / ("blob-of-" + name));
      fs::create_symlink("../../blobs/blob-of-" + name, snapshot / name);
    }
    return snapshot;
  }

  static inline std::unique_ptr<StubHub> stub_;
  bool expects_violations_ = false;
  TempDirectory scratch_;
};

}  // namespace wader::testing
