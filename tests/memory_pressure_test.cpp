// A machine short of memory, for real: processes in a memory cgroup a little above their budget,
// alone and beside a neighbour that takes memory and gives it back. Nothing may be killed or
// swapped, and answers stay the same. WADER_SOAK_SECONDS makes the load longer (make soak).

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/units.h"
#include "child_process.h"
#include "memory_cgroup.h"
#include "shapes.h"
#include "synth.h"

namespace wader {
namespace {

using testing::MemoryCgroup;

struct WorkerRun : testing::ChildRun {
  Json report;
};

// In `cgroup`, where one is given, from its first page on.
WorkerRun run_worker(std::vector<std::string> args, const MemoryCgroup* cgroup) {
  args.insert(args.begin(), LOAD_WORKER);
  WorkerRun run{testing::run_child(std::move(args),
                                   [cgroup] { return cgroup == nullptr || cgroup->enter(); }),
                {}};
  if (run.exit_code == 0) run.report = parse_json(run.out, "load_worker").value();
  return run;
}

// Takes `bytes` in small steps, holds them, gives them back at once, again and again.
class Neighbour {
 public:
  Neighbour(const MemoryCgroup& cgroup, uint64_t bytes, uint64_t bytes_per_second) {
    pid_ = fork();
    if (pid_ != 0) return;
    if (!cgroup.enter()) _exit(127);
    constexpr uint64_t kStep = kMiB / 4;
    const auto pause = std::chrono::microseconds(kStep * 1000000 / bytes_per_second);
    for (;;) {
      std::this_thread::sleep_for(std::chrono::seconds(3));
      void* memory =
          mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) _exit(126);
      for (uint64_t at = 0; at + kStep <= bytes; at += kStep) {
        std::memset(static_cast<char*>(memory) + at, 1, kStep);
        std::this_thread::sleep_for(pause);
      }
      std::this_thread::sleep_for(std::chrono::seconds(1));
      munmap(memory, bytes);
      std::this_thread::sleep_for(std::chrono::seconds(6));
    }
  }
  ~Neighbour() { end(); }
  bool is_alive() const { return pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == 0; }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
};

// Small enough to be written in a second, large enough that a budget of tens of MiB holds only a
// part: 512 experts of 222 KiB, DeltaNet and attention.
ArchitectureSpec small_shape() {
  ArchitectureSpec spec = *bench::released_shape("qwen3-next-80b-a3b");
  spec.vocab_rows = 4096;
  spec.hidden = 512;
  spec.expert_inner = spec.shared_inner = 256;
  spec.query_heads = 4;
  spec.head_dim = 128;
  spec.experts = 64;
  spec.experts_per_token = 4;
  spec.delta = {.key_heads = 2, .value_heads = 4, .key_dim = 64, .value_dim = 64, .conv_kernel = 4};
  spec.layers.resize(8, LayerKind::full_attention);
  return spec;
}

// Pages are charged to who reads them first; writing the model was this process.
void drop_from_page_cache(const std::filesystem::path& directory) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    const int fd = open(entry.path().c_str(), O_RDONLY);
    EXPECT_EQ(fsync(fd) + posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    close(fd);
  }
}

double soak_seconds() {
  const char* text = std::getenv("WADER_SOAK_SECONDS");
  return text != nullptr ? std::strtod(text, nullptr) : 0;
}

class MemoryPressure : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ =
        std::filesystem::temp_directory_path() / ("wader_pressure_" + std::to_string(getpid()));
    std::filesystem::create_directories(directory_);
    bench::SynthOptions options{.spec = small_shape(),
                                .experts = bench::usual_expert_format(small_shape()),
                                .skew = 0.5,
                                .destination = model()};
    const auto written =
        bench::write_synthetic_container(options, [](const Progress&) { return true; });
    ASSERT_TRUE(written.ok()) << written.error().message;
    const WorkerRun refused =
        run_worker({model(), "1048576", "1", "1", "1", "on", "auto"}, nullptr);
    const std::string marker = "try --memory ";
    const auto at = refused.err.find(marker);
    ASSERT_NE(at, std::string::npos) << refused.err;
    smallest_bytes_ = parse_bytes(refused.err.substr(at + marker.size(),
                                                     refused.err.find(' ', at + marker.size()) -
                                                         at - marker.size()))
                          .value();
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(directory_); }
  static std::string model() { return directory_ / "model.wader"; }

  void SetUp() override {
    std::string why_not;
    cgroup_ = MemoryCgroup::create(
        fmt::format("wader_{}_{}", getpid(),
                    ::testing::UnitTest::GetInstance()->current_test_info()->name()),
        why_not);
    if (cgroup_ == nullptr) GTEST_SKIP() << "needs a memory cgroup of its own: " << why_not;
  }

  // At the limit: `seconds` of load. Checks what must hold whatever the pressure.
  WorkerRun load(uint64_t budget_bytes, uint64_t limit_bytes, double seconds,
                 const char* direct = "auto") {
    EXPECT_TRUE(cgroup_->set_limit(limit_bytes));
    const uint64_t kills = cgroup_->kills();
    const WorkerRun run =
        run_worker({model(), std::to_string(budget_bytes), std::to_string(seconds),
                    std::to_string(~0u), "7", "on", direct},
                   cgroup_.get());
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(cgroup_->kills(), kills);
    if (run.exit_code != 0) return run;
    EXPECT_LE(run.report["peak_rss_bytes"], budget_bytes);
    EXPECT_EQ(run.report["swapped_bytes"], 0);
    EXPECT_GT(run.report["regenerations"], 0);
    EXPECT_EQ(run.report["differences"], 0);
    std::printf("--memory %s below %s, %llu times at it: %s\n", format_bytes(budget_bytes).c_str(),
                format_bytes(limit_bytes).c_str(),
                static_cast<unsigned long long>(cgroup_->times_at_limit()),
                run.report.dump().c_str());
    return run;
  }

  // The same actions with all the memory they want and without a governor.
  static void expect_same_as_without_pressure(const WorkerRun& run) {
    if (run.exit_code != 0 || soak_seconds() > 0) return;  // a soak would have to be run twice
    const WorkerRun free =
        run_worker({model(), std::to_string(kGiB), "600",
                    std::to_string(run.report["actions"].get<uint64_t>()), "7", "off", "auto"},
                   nullptr);
    ASSERT_EQ(free.exit_code, 0) << free.err;
    EXPECT_EQ(free.report["slots"], 512);
    EXPECT_EQ(free.report["pool_shrinks"], 0);
    EXPECT_EQ(free.report["digest"], run.report["digest"]);
  }

  static inline std::filesystem::path directory_;
  static inline uint64_t smallest_bytes_ = 0;
  std::unique_ptr<MemoryCgroup> cgroup_;
};

TEST_F(MemoryPressure, NothingIsKilledTenPercentAboveTheBudget) {
  const double seconds = std::max(4.0, soak_seconds() / 3);
  WorkerRun run;
  for (const uint64_t budget :
       {smallest_bytes_, smallest_bytes_ + 16 * kMiB, smallest_bytes_ + 64 * kMiB})
    run = load(budget, budget + budget / 10, seconds);
  expect_same_as_without_pressure(run);
}

// Reads through the page cache fill the cgroup to its limit, which is not a shortage: the pool
// stays, and the kernel drops pages of the file.
TEST_F(MemoryPressure, PageCacheIsNotUse) {
  drop_from_page_cache(model());
  const uint64_t budget = smallest_bytes_ + 32 * kMiB;
  const WorkerRun run =
      load(budget, budget + budget / 10, std::max(4.0, soak_seconds() / 4), "off");
  EXPECT_GT(cgroup_->times_at_limit(), 0u);
  if (run.exit_code == 0) EXPECT_EQ(run.report["usable_slots"], run.report["slots"]);
}

// The warning at the start says that the system may end the program: the pool is then not filled as
// far as it was planned.
TEST_F(MemoryPressure, ABudgetBeyondTheLimitIsNotFilled) {
  const uint64_t budget = smallest_bytes_ + 64 * kMiB;
  const WorkerRun run =
      load(budget, smallest_bytes_ + 24 * kMiB, std::max(4.0, soak_seconds() / 10));
  if (run.exit_code == 0) EXPECT_LT(run.report["usable_slots"], run.report["slots"]);
}

TEST_F(MemoryPressure, ThePoolMakesRoomForANeighbourAndTakesItBack) {
  const uint64_t budget = smallest_bytes_ + 64 * kMiB, limit = budget + 16 * kMiB;
  ASSERT_TRUE(cgroup_->set_limit(limit));
  Neighbour neighbour(*cgroup_, 40 * kMiB, 8 * kMiB);
  const WorkerRun run = load(budget, limit, std::max(16.0, soak_seconds() / 4));
  EXPECT_TRUE(neighbour.is_alive());
  neighbour.end();
  if (run.exit_code != 0) return;
  const auto slots = run.report["slots"].get<uint32_t>();
  EXPECT_GT(run.report["pool_shrinks"], 0);
  EXPECT_GT(run.report["pool_growths"], 0);
  EXPECT_LT(run.report["fewest_slots"], slots * 9 / 10);
  EXPECT_GE(run.report["usable_slots"], run.report["fewest_slots"]);
  expect_same_as_without_pressure(run);
}

}  // namespace
}  // namespace wader
