#include "base/machine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/memory_watch.h"
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
  put("sys/fs/cgroup/user/memory.stat",
      "anon 536870912\nfile 636870912\ninactive_anon 100000000\nshmem 100000000\n"
      "inactive_file 500000000\nactive_file 36870912\n");
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
  put("sys/fs/cgroup/memory/box/memory.stat",
      "cache 5\ninactive_file 5\ntotal_cache 1073741824\n"
      "total_shmem 73741824\ntotal_inactive_file 900000000\ntotal_active_file 100000000\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(memory_room(root_).available_bytes, kGiB + 1000000000);
  // A container sees its own cgroup as the root, and hears of a limit above only so.
  put("sys/fs/cgroup/memory/memory.stat", "hierarchical_memory_limit 1000000\n");
  EXPECT_EQ(memory_room(root_).available_bytes, 1000000u);
}

TEST_F(MachineTest, WithoutFilesNothingIsKnown) {
  std::filesystem::remove_all(root_);
  MemoryWatch watch(root_);
  const MemoryState state = watch.read();
  EXPECT_FALSE(state.room_bytes || state.machine_stall_microseconds ||
               state.cgroup_stall_microseconds);
  EXPECT_EQ(state.swapped_bytes, 0u);
  EXPECT_EQ(memory_room(root_).reason, "no limit found");
}

TEST_F(MachineTest, AWatchSeesWhatChanges) {
  put("proc/self/cgroup", "0::/app\n");
  put("proc/self/status", "VmPeak:\t 9000 kB\nVmRSS:\t 3000 kB\nVmSwap:\t  0 kB\n");
  put("proc/pressure/memory",
      "some avg10=0.00 avg60=0.00 avg300=0.00 total=7335\n"
      "full avg10=0.00 avg60=0.00 avg300=0.00 total=12\n");
  put("sys/fs/cgroup/app/memory.pressure", "some avg10=1.50 avg60=0.00 avg300=0.00 total=35\n");
  put("sys/fs/cgroup/app/memory.max", "max\n");
  put("sys/fs/cgroup/app/memory.current", "1000000\n");
  MemoryWatch watch(root_);
  const MemoryState before = watch.read();
  EXPECT_EQ(before.room_bytes, 8000000 * kKiB);
  EXPECT_EQ(before.room_reason, "MemAvailable");
  EXPECT_EQ(before.machine_stall_microseconds, 7335u);
  EXPECT_EQ(before.cgroup_stall_microseconds, 35u);
  EXPECT_EQ(before.resident_bytes, 3000 * kKiB);
  put("sys/fs/cgroup/app/memory.max", "4000000\n");
  put("proc/self/status", "VmRSS:\t 2000 kB\nVmSwap:\t 8 kB\n");
  put("proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=\n");
  const MemoryState after = watch.read();
  EXPECT_EQ(after.room_bytes, 3000000u);
  EXPECT_NE(after.room_reason.find("app/memory.max"), std::string_view::npos);
  EXPECT_FALSE(after.machine_stall_microseconds.has_value());
  EXPECT_EQ(after.swapped_bytes, 8 * kKiB);
  put("proc/meminfo", "MemAvailable: 18446744073709551615 kB\n");
  put("sys/fs/cgroup/app/memory.max", "-5\n");
  EXPECT_FALSE(watch.read().room_bytes.has_value());
}

TEST_F(MachineTest, PressureOfAHybridSystemIsInItsUnifiedTree) {
  put("proc/self/cgroup", "4:memory:/box\n0::/box\n");
  put("sys/fs/cgroup/unified/box/memory.pressure", "some avg10=0.00 total=5\n");
  put("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "5000000\n");
  MemoryWatch watch(root_);
  const MemoryState state = watch.read();
  EXPECT_EQ(state.cgroup_stall_microseconds, 5u);
  EXPECT_EQ(state.room_bytes, 5000000u);
}

TEST(Machine, ThisMachineIsKnown) {
  MemoryWatch watch;
  const MemoryState state = watch.read();
  ASSERT_TRUE(state.room_bytes.has_value());
  EXPECT_GT(*state.room_bytes, kMiB);
  EXPECT_GT(state.resident_bytes, 100 * kKiB);
}

TEST(Machine, ThisProcess) {
  const ProcessMemory memory = process_memory();
  EXPECT_GT(memory.resident_bytes, 100 * kKiB);
  EXPECT_GE(memory.peak_resident_bytes, memory.resident_bytes);
  EXPECT_GE(choose_threads(process_affinity()).threads, 1u);
}

}  // namespace
}  // namespace wader
