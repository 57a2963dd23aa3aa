// Design rule 2: the budget is a promise. The kernel's own count of the process' peak resident
// memory against --memory, for ten budgets from the smallest that works (one working set of slots)
// to a roomy one.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/units.h"

namespace wader {
namespace {

struct Outcome {
  int exit_code;
  uint64_t peak_rss_bytes;
  std::string out, err;
};

std::string drain(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  close(fd);
  return text;
}

// This process stays small and loads no model itself: a child's peak counts its parent's pages at
// the fork.
Outcome run_wader(std::vector<std::string> args) {
  const char* binary = std::getenv("WADER_BINARY");
  EXPECT_NE(binary, nullptr) << "run through ctest, which sets WADER_BINARY";
  args.insert(args.begin(), binary);
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  int out[2], err[2];
  EXPECT_EQ(pipe(out) + pipe(err), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(out[1], 1);
    dup2(err[1], 2);
    for (const int fd : {out[0], out[1], err[0], err[1]}) close(fd);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  Outcome run;
  run.out = drain(out[0]);
  run.err = drain(err[0]);
  int status = 0;
  rusage usage{};
  EXPECT_EQ(wait4(pid, &status, 0, &usage), pid);
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  run.peak_rss_bytes = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
  return run;
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
