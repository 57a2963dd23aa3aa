// Cli: runs the built program in a home of its own, where models/demo and tiny-gpt-oss ("tiny",
// bf16 trunk) are installed once a process.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/sanitized_testing.h"
#include "cli_process.h"

namespace wader::testing {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

inline const std::string kSource = WADER_SOURCE_DIR;

class Cli : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string name = (fs::temp_directory_path() / "wader-cli-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    home_ = name;
    for (const auto& args : std::vector<std::vector<std::string>>{
             {"install", kSource + "/models/demo"},
             {"install", kSource + "/tests/data/tiny-gpt-oss", "--trunk", "bf16", "-o",
              (home_ / "tiny.wader").string()}}) {
      const RunResult result = wader(args);
      ASSERT_EQ(result.exit_code, 0) << result.err;
      ASSERT_THAT(result.out, HasSubstr("memory budget"));
      ASSERT_THAT(result.out, HasSubstr("next: wader chat"));
    }
  }
  static void TearDownTestSuite() { fs::remove_all(home_); }

  static RunResult wader(const std::vector<std::string>& args, RunOptions options = {}) {
    options.env.insert({"WADER_HOME", home_.string()});
    options.env.insert({"XDG_STATE_HOME", (home_ / "state").string()});
    options.env.insert({"SOURCE_DATE_EPOCH", "1700000000"});
    return run_wader(args, options);
  }
  static RunResult wader_fed(const std::vector<std::string>& args, std::string input) {
    RunOptions options;
    options.input = std::move(input);
    return wader(args, options);
  }
  static Json json_of(const RunResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    Result<Json> json = parse_json(result.out, "output");
    EXPECT_TRUE(json.ok()) << result.out;
    return json.ok() ? *json : Json();
  }
  // A failure: nothing on standard output, one error line (and hints) on standard error.
  static void expect_error(const std::vector<std::string>& args, int exit_code,
                           const std::string& text) {
    const RunResult result = wader(args);
    const std::string shown = ::testing::PrintToString(args).substr(0, 500);
    EXPECT_EQ(result.exit_code, exit_code) << shown << "\n" << result.err;
    EXPECT_THAT(result.err, StartsWith("wader: error: ")) << shown;
    EXPECT_THAT(result.err, HasSubstr(text)) << shown;
    EXPECT_EQ(result.out, "") << shown;
  }

  static inline fs::path home_;
};

}  // namespace wader::testing
