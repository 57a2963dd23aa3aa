// Installing under the faults of real machines: killed processes, two at once, disks that are too
// small, fill up or cannot be written, and little memory.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/sanitized_testing.h"
#include "container/container_testing.h"
#include "install/install.h"
#include "small_disk.h"

extern char** environ;

namespace wader {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

const fs::path kDemo = WADER_SOURCE_DIR "/models/demo";

// One install_worker process, its output in files beside the destination.
class Worker {
 public:
  Worker(const fs::path& destination, int pace_us, const char* trunk = "auto",
         const char* experts = "auto")
      : log_(destination) {
    log_ += ".log";
    const std::string pace = std::to_string(pace_us);
    const char* argv[] = {INSTALL_WORKER, kDemo.c_str(), destination.c_str(), trunk, experts,
                          pace.c_str(),   nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    EXPECT_EQ(
        ::posix_spawn(&pid_, INSTALL_WORKER, &actions, nullptr, const_cast<char**>(argv), environ),
        0);
    posix_spawn_file_actions_destroy(&actions);
  }

  void kill() const { ::kill(pid_, SIGKILL); }
  // The wait status, and what it printed.
  int wait() {
    int status = -1;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    output_ = testing::read_bytes(log_);
    return status;
  }
  const std::string& output() const { return output_; }

 private:
  pid_t pid_ = -1;
  fs::path log_;
  std::string output_;
};

std::map<std::string, std::string> reference_tree() {
  testing::TempDirectory scratch;
  const InstallOptions options{kDemo, scratch.path() / "demo.wader"};
  const auto report = install(options, {});
  EXPECT_TRUE(report.ok()) << (report.ok() ? "" : report.error().message);
  return testing::read_tree(options.destination);
}

TEST(InstallFaults, KilledAtAnyMomentItLosesNothing) {
  const auto want = reference_tree();
  testing::TempDirectory scratch;
  constexpr int kPaceUs = 3000;

  const auto begin = Clock::now();
  Worker calm(scratch.path() / "calm.wader", kPaceUs);
  ASSERT_EQ(calm.wait(), 0) << calm.output();
  double whole_us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();

  std::mt19937 random(20261129);
  std::uniform_real_distribution<double> moment(0, 1);
  int interrupted = 0, interrupted_again = 0;
  for (int round = 0; interrupted < 10; ++round) {
    ASSERT_LT(round, 40) << "installs end before they can be killed; this test means nothing here";
    const fs::path destination = scratch.path() / ("round" + std::to_string(round) + ".wader");
    // Killed once, and again while it continues.
    for (int run = 0; run < 2; ++run) {
      Worker worker(destination, kPaceUs);
      std::this_thread::sleep_for(
          std::chrono::microseconds(static_cast<int64_t>(moment(random) * whole_us)));
      worker.kill();
      worker.wait();
      // Either it was no container yet, or it had come to its end, and then all of it is there.
      if (Container::open(destination).ok()) {
        if (run == 0) whole_us *= 0.8;  // the machine got faster since the calm one was timed
        break;
      }
      ++(run == 0 ? interrupted : interrupted_again);
    }
    if (!Container::open(destination).ok()) {
      Worker last(destination, 0);
      ASSERT_EQ(last.wait(), 0) << "round " << round << ": " << last.output();
    }
    testing::expect_same_tree(testing::read_tree(destination), want);
    fs::remove_all(destination);
  }
  EXPECT_GT(interrupted_again, 0);
}

TEST(InstallFaults, OfTwoAtOnceOneIsRefused) {
  testing::TempDirectory scratch;
  const fs::path destination = scratch.path() / "demo.wader";
  Worker first(destination, 30000);
  for (int i = 0; i < 2000 && !fs::exists(destination / "trunk.bin"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto second = install({kDemo, destination}, {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::already_exists);
  EXPECT_THAT(second.error().message, HasSubstr("another install is writing"));
  EXPECT_EQ(first.wait(), 0) << first.output();
  testing::expect_same_tree(testing::read_tree(destination), reference_tree());
}

// The demo's files are 22 MB, and a process that held a shard of them would grow by 11 MB and more.
TEST(InstallFaults, MemoryDoesNotGrowWithTheModel) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer's own memory is no measure";
  testing::TempDirectory scratch;
  for (const auto& [trunk, experts] :
       {std::pair("auto", "auto"), {"bf16", "affine4"}, {"affine8", "bf16"}}) {
    Worker worker(scratch.path() / experts, 0, trunk, experts);
    ASSERT_EQ(worker.wait(), 0) << worker.output();
    const Json facts = Json::parse(worker.output());
    EXPECT_GT(facts["source_bytes_read"].get<uint64_t>(), 20'000'000u);
    EXPECT_LT(facts["peak_growth_kib"].get<uint64_t>(), 12u * 1024) << trunk << " " << experts;
  }
}

class InstallDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    if (disk_.mounted()) return;
    if (disk_.must_mount()) FAIL() << disk_.error();
    GTEST_SKIP() << disk_.error() << ": full disks are not tested";
  }

  fs::path disk() const { return disk_.path(); }
  fs::path destination() const { return disk() / "demo.wader"; }
  bool resize_disk(uint64_t bytes, unsigned long flags = 0) { return disk_.resize(bytes, flags); }
  void fill_disk() const { disk_.fill(); }
  void free_disk() const { disk_.free(); }

  InstallOptions options() const { return {kDemo, destination()}; }

 private:
  testing::TempDirectory scratch_;
  testing::SmallDisk disk_{scratch_.path() / "disk", "size=32m"};
};

TEST_F(InstallDisk, TooSmallIsRefusedBeforeAnythingIsWritten) {
  const uint64_t needed = planned_container_bytes(options()).value();
  ASSERT_TRUE(resize_disk(needed - 4096));
  const auto report = install(options(), {});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, ErrorCode::over_budget);
  EXPECT_THAT(report.error().message, HasSubstr(std::to_string(needed) + " bytes"));
  struct statvfs info {};
  ASSERT_EQ(::statvfs(disk().c_str(), &info), 0);
  EXPECT_THAT(report.error().message,
              HasSubstr(std::to_string(info.f_bavail * info.f_frsize) + " bytes) are free"));
  EXPECT_FALSE(fs::exists(destination()));
}

// The plan's number is enough, and not far more than enough.
TEST_F(InstallDisk, ThePlannedSizeIsEnough) {
  ASSERT_TRUE(resize_disk(planned_container_bytes(options()).value()));
  const auto report = install(options(), {});
  ASSERT_TRUE(report.ok()) << report.error().message;
  testing::expect_same_tree(testing::read_tree(destination()), reference_tree());
}

TEST_F(InstallDisk, FillingUpAtAnyStepLosesNothing) {
  const auto want = reference_tree();
  int steps = 0;
  ASSERT_TRUE(install(options(), [&](const Progress&) { return ++steps > 0; }).ok());
  ASSERT_GE(steps, 10);
  for (int full_at = 1; full_at <= steps; ++full_at) {
    fs::remove_all(destination());
    int step = 0;
    const auto full = install(options(), [&](const Progress&) {
      if (++step == full_at) fill_disk();
      return true;
    });
    ASSERT_FALSE(full.ok()) << "the disk filled up at step " << full_at << " and nobody noticed";
    EXPECT_EQ(full.error().code, ErrorCode::over_budget) << full.error().message;
    EXPECT_THAT(full.error().message, HasSubstr("No space left on device"));
    EXPECT_THAT(full.error().message, HasSubstr("run the same install again"));
    EXPECT_THAT(Container::open(destination()).error().message, HasSubstr("was not finished"));
    free_disk();
    const auto report = install(options(), {});
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_TRUE(report->resumed);
    testing::expect_same_tree(testing::read_tree(destination()), want);
  }
}

// Full to the last block from the first byte on: not even the journal fits.
TEST_F(InstallDisk, AFullDiskTakesNothing) {
  fill_disk();
  const auto report = install(options(), {});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, ErrorCode::over_budget);
  EXPECT_FALSE(fs::exists(destination()));
}

TEST_F(InstallDisk, ReadOnlyIsAnErrorThatNamesThePlace) {
  ASSERT_TRUE(resize_disk(32 << 20, MS_RDONLY));
  const auto report = install(options(), {});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, ErrorCode::io);
  EXPECT_THAT(report.error().message, HasSubstr(destination().string()));
  EXPECT_THAT(report.error().message, HasSubstr("Read-only file system"));
  ASSERT_TRUE(resize_disk(32 << 20));
  EXPECT_TRUE(install(options(), {}).ok());
}

// Read-only from one moment on: what is there stays, and continues when the disk is back.
TEST_F(InstallDisk, ReadOnlyHalfWayContinuesLater) {
  bool stopped = false;
  ASSERT_FALSE(install(options(), [&](const Progress& progress) {
                 return !(stopped = progress.phase == "experts");
               }).ok());
  ASSERT_TRUE(stopped);
  ASSERT_TRUE(resize_disk(32 << 20, MS_RDONLY));
  EXPECT_EQ(install(options(), {}).error().code, ErrorCode::io);
  ASSERT_TRUE(resize_disk(32 << 20));
  const auto report = install(options(), {});
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_TRUE(report->resumed);
  testing::expect_same_tree(testing::read_tree(destination()), reference_tree());
}

}  // namespace
}  // namespace wader
