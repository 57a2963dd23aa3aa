#include "base/machine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/units.h"

namespace wader {
namespace {

// A fake root with /proc and /sys files.
class MachineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() /
            ("wader_machine_" + std::to_string(::getpid()) + "_" +
             ::testing::UnitTest::GetInstance()->current_test_info()->name());
    put("proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  static std::vector<uint32_t> cpus(uint32_t n) {
    std::vector<uint32_t> list(n);
    for (uint32_t i = 0; i < n; ++i) list[i] = i;
    return list;
  }
  std::filesystem::path root_;
};

TEST_F(MachineTest, AffinityAloneCountsCores) {
  EXPECT_EQ(choose_threads(cpus(4), root_).threads, 4u);
}

TEST_F(MachineTest, QuotaIsFlooredAndFoundOnAParent) {
  put("proc/self/cgroup", "0::/a/b\n");
  put("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  put("sys/fs/cgroup/a/cpu.max", "765000 100000\n");
  EXPECT_EQ(choose_threads(cpus(16), root_).threads, 7u);
  EXPECT_EQ(choose_threads(cpus(4), root_).threads, 4u);
  put("sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(choose_threads(cpus(16), root_).threads, 1u);
}

TEST_F(MachineTest, QuotaOfVersionOne) {
  put("proc/self/cgroup", "5:cpu,cpuacct:/docker/x\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(choose_threads(cpus(8), root_).threads, 2u);
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(choose_threads(cpus(8), root_).threads, 8u);
}

TEST_F(MachineTest, HybridCoresCountTheFastOnes) {
  put("sys/devices/cpu_core/cpus", "0-7\n");
  put("sys/devices/cpu_atom/cpus", "8-19\n");
  EXPECT_EQ(choose_threads(cpus(20), root_).threads, 8u);
  EXPECT_EQ(choose_threads({8, 9, 10}, root_).threads, 3u);  // pinned to slow ones: those
}

TEST_F(MachineTest, SmtSiblingsAreOneCore) {
  for (int cpu = 0; cpu < 8; ++cpu)
    put("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
        std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4) + "\n");
  EXPECT_EQ(choose_threads(cpus(8), root_).threads, 4u);
}

TEST_F(MachineTest, CapacityTellsFastFromSlow) {
  for (int cpu = 0; cpu < 8; ++cpu)
    put("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpu_capacity",
        cpu < 4 ? "446\n" : "1024\n");
  EXPECT_EQ(choose_threads(cpus(8), root_).threads, 4u);
}

TEST_F(MachineTest, MemoryIsTheLeastOfHostAndEveryLimitUpTheTree) {
  EXPECT_EQ(memory_room(root_).available_bytes, 8000000 * kKiB);
  put("proc/self/cgroup", "0::/user/app\n");
  put("sys/fs/cgroup/user/app/memory.max", "max\n");
  put("sys/fs/cgroup/user/app/memory.current", "1000000\n");
  EXPECT_EQ(memory_room(root_).available_bytes, 8000000 * kKiB);
  put("sys/fs/cgroup/user/memory.max", "4294967296\n");
  put("sys/fs/cgroup/user/memory.current", "1073741824\n");
  put("sys/fs/cgroup/user/memory.stat", "anon 536870912\nfile 536870912\n");
  EXPECT_EQ(memory_room(root_).available_bytes, 4 * kGiB - kGiB / 2);
  put("sys/fs/cgroup/user/app/memory.high", "3000000\n");
  EXPECT_EQ(memory_room(root_).available_bytes, 2000000u);
  put("sys/fs/cgroup/user/app/memory.high", "garbage\n");
  EXPECT_EQ(memory_room(root_).available_bytes, 4 * kGiB - kGiB / 2);
}

TEST_F(MachineTest, MemoryOfVersionOne) {
  put("proc/self/cgroup", "9:memory:/box\n0::/\n");
  put("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "2147483648\n");
  put("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "1073741824\n");
  put("sys/fs/cgroup/memory/box/memory.stat", "cache 5\ntotal_cache 1073741824\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(memory_room(root_).available_bytes, 2 * kGiB);
}

TEST(Machine, ThisProcess) {
  const ProcessMemory memory = process_memory();
  EXPECT_GT(memory.resident_bytes, 100 * kKiB);
  EXPECT_GE(memory.peak_resident_bytes, memory.resident_bytes);
  EXPECT_GE(choose_threads(process_affinity()).threads, 1u);
}

}  // namespace
}  // namespace wader
