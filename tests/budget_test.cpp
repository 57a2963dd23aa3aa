// Design rule 2: the budget is a promise. The kernel's own count of the process' peak resident
// memory against --memory, for ten budgets from the smallest that works (one working set of slots)
// to a roomy one.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/units.h"
#include "child_process.h"

namespace wader {
namespace {

using Outcome = testing::ChildRun;

Outcome run_wader(std::vector<std::string> args) {
  const char* binary = std::getenv("WADER_BINARY");
  EXPECT_NE(binary, nullptr) << "run through ctest, which sets WADER_BINARY";
  args.insert(args.begin(), binary);
  return testing::run_child(std::move(args));
}

class Budget : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ =
        std::filesystem::temp_directory_path() / ("wader_budget_" + std::to_string(getpid()));
    std::filesystem::create_directories(directory_);
    const Outcome install = run_wader({"install", WADER_SOURCE_DIR "/models/demo", "-o", model()});
    ASSERT_EQ(install.exit_code, 0) << install.err;
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(directory_); }
  static std::string model() { return directory_ / "demo.wader"; }

  static Outcome generate(const std::string& memory, const std::vector<std::string>& more = {}) {
    std::string prompt = "8183";
    for (int i = 1; i < 960; ++i) prompt.append(",").append(std::to_string(i * 17 % 8000));
    std::vector<std::string> args = {"generate", model(),    "--tokens", prompt,
                                     "--count",  "60",       "--greedy", "--context",
                                     "1024",     "--memory", memory};
    args.insert(args.end(), more.begin(), more.end());
    return run_wader(args);
  }

  static inline std::filesystem::path directory_;
};

TEST_F(Budget, PeakStaysWithinTenBudgetsAndTheTextIsTheSame) {
  const Outcome refused = generate("4MiB");
  EXPECT_EQ(refused.exit_code, 1);
  const std::string marker = "try --memory ";
  const auto at = refused.err.find(marker);
  ASSERT_NE(at, std::string::npos) << refused.err;
  const std::string smallest = refused.err.substr(
      at + marker.size(), refused.err.find(' ', at + marker.size()) - at - marker.size());
  EXPECT_NE(refused.err.find(" bytes too small"), std::string::npos) << refused.err;

  const uint64_t smallest_bytes = parse_bytes(smallest).value();
  std::string text;
  for (const uint64_t more_mib : {0, 1, 2, 3, 4, 6, 8, 12, 16, 64}) {
    const uint64_t budget = smallest_bytes + more_mib * kMiB;
    const Outcome run = generate(std::to_string(budget));
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_LE(run.peak_rss_bytes, budget) << "with --memory " << format_bytes(budget);
    std::printf("--memory %s: peak %s\n", format_bytes(budget).c_str(),
                format_bytes(run.peak_rss_bytes).c_str());
    if (text.empty()) text = run.out;
    EXPECT_EQ(run.out, text);
  }
  // What the message said would fit is not more than one MiB off.
  EXPECT_EQ(generate(std::to_string(smallest_bytes - 2 * kMiB)).exit_code, 1);
}

// Not of programs whose own pages count: unoptimised ones, sanitizers.
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Pages that happen to be resident after a start differ; the plan may not follow them.
TEST_F(Budget, TwoStartsMakeOnePlan) {
  const auto plan = [] {
    const Outcome run = run_wader({"info", model(), "--memory", "32MiB", "--json"});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return Json::parse(run.out).at("plan");
  };
  const Json first = plan();
  EXPECT_GE(first.at("slots"), 20);
  EXPECT_EQ(first.at("process_bytes").get<uint64_t>() % kMiB, 0) << "resident pages were counted";
  for (int i = 0; i < 5; ++i) EXPECT_EQ(plan(), first);
}
#endif

TEST_F(Budget, OneWorkingSetOfSlotsGivesTheSameText) {
  const Outcome all = generate("512MiB"), few = generate("512MiB", {"--slots", "4"});
  ASSERT_EQ(few.exit_code, 0) << few.err;
  EXPECT_EQ(few.out, all.out);
  const Outcome none = generate("512MiB", {"--slots", "3"});
  EXPECT_NE(none.exit_code, 0);
  EXPECT_NE(none.err.find("working set"), std::string::npos) << none.err;
}

}  // namespace
}  // namespace wader
