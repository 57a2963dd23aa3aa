#include "base/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <sstream>

#include "base/memory_watch.h"

namespace wader {
namespace {

// What cannot be looked at is none.
bool is_a_directory(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

namespace fs = std::filesystem;

std::optional<std::string> first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  return line;
}

std::optional<int64_t> parse_int(std::string_view text) {
  int64_t value = 0;
  const auto [end, errc] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (errc != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> int_file(const fs::path& path) {
  const auto line = first_line(path);
  return line ? parse_int(*line) : std::nullopt;
}

// "0-3,8" → {0, 1, 2, 3, 8}; empty on nonsense.
std::set<uint32_t> parse_cpu_list(std::string_view text) {
  std::set<uint32_t> cpus;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t dash = std::min(part.find('-'), part.size());
    const auto low = parse_int(part.substr(0, dash));
    const auto high = dash < part.size() ? parse_int(part.substr(dash + 1)) : low;
    if (!low || !high || *low < 0 || *high < *low || *high > 65535) return {};
    for (int64_t cpu = *low; cpu <= *high; ++cpu) cpus.insert(static_cast<uint32_t>(cpu));
  }
  return cpus;
}

// The smallest CPU quota up the tree, in CPUs.
std::optional<double> cpu_quota(const fs::path& root) {
  std::optional<double> least;
  const auto take = [&](double quota, double period) {
    if (quota > 0 && period > 0) least = std::min(least.value_or(quota / period), quota / period);
  };
  for (const fs::path& directory : cgroup_directories(root, "")) {
    const auto line = first_line(directory / "cpu.max");  // "765000 100000" or "max 100000"
    if (!line) continue;
    const size_t space = line->find(' ');
    const auto quota = parse_int(line->substr(0, space));
    const auto period =
        space == std::string::npos ? std::nullopt : parse_int(line->substr(space + 1));
    if (quota && period) take(static_cast<double>(*quota), static_cast<double>(*period));
  }
  for (const fs::path& directory : cgroup_directories(root, "cpu")) {
    const auto quota = int_file(directory / "cpu.cfs_quota_us"),
               period = int_file(directory / "cpu.cfs_period_us");
    if (quota && period) take(static_cast<double>(*quota), static_cast<double>(*period));
  }
  return least;
}

// Of `cpus`, those of the fastest kind: Intel's cpu_core list, or the highest cpu_capacity (Arm).
std::set<uint32_t> fast_cpus(const std::set<uint32_t>& cpus, const fs::path& root) {
  if (const auto list = first_line(root / "sys/devices/cpu_core/cpus")) {
    std::set<uint32_t> fast;
    for (uint32_t cpu : parse_cpu_list(*list))
      if (cpus.contains(cpu)) fast.insert(cpu);
    if (!fast.empty()) return fast;
  }
  std::set<uint32_t> fast;
  int64_t best = -1;
  for (uint32_t cpu : cpus) {
    const int64_t capacity =
        int_file(root / fmt::format("sys/devices/system/cpu/cpu{}/cpu_capacity", cpu)).value_or(0);
    if (capacity > best) fast.clear(), best = capacity;
    if (capacity == best) fast.insert(cpu);
  }
  return fast;
}

size_t physical_cores(const std::set<uint32_t>& cpus, const fs::path& root) {
  std::set<std::string> cores;
  for (uint32_t cpu : cpus) {
    const fs::path topology = root / fmt::format("sys/devices/system/cpu/cpu{}/topology", cpu);
    auto siblings = first_line(topology / "core_cpus_list");
    if (!siblings) siblings = first_line(topology / "thread_siblings_list");
    cores.insert(siblings.value_or(std::to_string(cpu)));
  }
  return cores.size();
}

std::optional<uint64_t> meminfo_bytes(const fs::path& path, std::string_view wanted) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::stringstream words(line);
    std::string key;
    uint64_t kib = 0;
    if (words >> key >> kib && key == wanted) return kib * 1024;
  }
  return std::nullopt;
}

}  // namespace

std::vector<fs::path> cgroup_directories(const fs::path& root, std::string_view controller) {
  std::ifstream in(root / "proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {  // "4:memory:/a/b" or "0::/a/b"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::stringstream names(line.substr(first + 1, second - first - 1));
    bool matches = controller.empty() && first + 1 == second;
    for (std::string name; !controller.empty() && std::getline(names, name, ',');)
      matches |= name == controller;
    if (!matches) continue;
    fs::path mount = root / "sys/fs/cgroup";
    if (!controller.empty())
      mount /= std::string(controller);
    else if (is_a_directory(mount / "unified"))
      mount /= "unified";
    // In a container the path is the host's and is not below the mount; what is there is then the
    // container's own.
    std::vector<fs::path> directories;
    for (fs::path path = fs::path(line.substr(second + 1)).relative_path(); !path.empty();
         path = path.parent_path())
      if (is_a_directory(mount / path)) directories.push_back(mount / path);
    directories.push_back(mount);
    return directories;
  }
  return {};
}

std::vector<uint32_t> process_affinity() {
  std::vector<uint32_t> cpus;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

uint32_t online_cpus() {
  static const long cpus = sysconf(_SC_NPROCESSORS_ONLN);  // reads a file
  return static_cast<uint32_t>(std::max(1L, cpus));
}

ThreadChoice choose_threads(const std::vector<uint32_t>& affinity, const fs::path& root) {
  const std::set<uint32_t> allowed(affinity.begin(), affinity.end());
  const std::set<uint32_t> fast = fast_cpus(allowed, root);
  const auto cores = static_cast<uint32_t>(std::max<size_t>(physical_cores(fast, root), 1));
  ThreadChoice choice{
      cores, fmt::format("{} {}cores of {} usable CPUs", cores,
                         fast.size() < allowed.size() ? "performance " : "", allowed.size())};
  if (const auto quota = cpu_quota(root); quota && *quota < cores) {
    choice.threads = static_cast<uint32_t>(std::max(1.0, std::floor(*quota)));
    choice.reason = fmt::format("cgroup quota of {:.2f} CPUs", *quota);
  }
  return choice;
}

MemoryRoom memory_room(const fs::path& root) {
  MemoryWatch watch(root);
  const MemoryState state = watch.read();
  if (!state.room_bytes) return {std::numeric_limits<uint64_t>::max(), "no limit found"};
  return {*state.room_bytes, std::string(state.room_reason)};
}

ProcessMemory process_memory() {
  return {meminfo_bytes("/proc/self/status", "VmRSS:").value_or(0),
          meminfo_bytes("/proc/self/status", "VmHWM:").value_or(0)};
}

}  // namespace wader
