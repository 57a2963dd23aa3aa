// What this machine lets this process use: CPUs and memory, looking through cgroups v1 and v2 and
// hybrid cores. All functions read files below `root`, so that tests can hand in a tree of their
// own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace wader {

struct ThreadChoice {
  uint32_t threads;    // compute threads, at least 1
  std::string reason;  // "8 performance cores of 20 CPUs", "cgroup quota of 7.65 CPUs"
};

// floor(min(usable cores, every CPU quota up the cgroup tree)). Usable cores: of the CPUs in
// `affinity`, the fast ones where cores differ (a slow core in a static partition makes all others
// wait), one per physical core.
ThreadChoice choose_threads(const std::vector<uint32_t>& affinity,
                            const std::filesystem::path& root = "/");
std::vector<uint32_t> process_affinity();  // sched_getaffinity
uint32_t
online_cpus();  // of the machine, also those that this process may not use; when first asked

// The directories of this process' cgroup and all its parents, nearest first, the mount last.
// `controller` empty: cgroup v2, which hybrid systems mount at sys/fs/cgroup/unified.
std::vector<std::filesystem::path> cgroup_directories(const std::filesystem::path& root,
                                                      std::string_view controller);

struct MemoryRoom {
  uint64_t available_bytes;  // what the process may still take without being killed or swapping
  std::string reason;        // "MemAvailable", "cgroup limit /sys/fs/cgroup/…/memory.max"
};

// What MemoryWatch reads (memory_watch.h), once; the largest number where nothing is known.
MemoryRoom memory_room(const std::filesystem::path& root = "/");

struct ProcessMemory {
  uint64_t resident_bytes;       // now
  uint64_t peak_resident_bytes;  // VmHWM
};
ProcessMemory process_memory();

}  // namespace wader
