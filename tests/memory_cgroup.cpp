#include "memory_cgroup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/machine.h"

namespace wader::testing {
namespace {

namespace fs = std::filesystem;

bool write_file(const fs::path& path, const std::string& text) {
  std::ofstream out(path);
  out << text << std::flush;
  return out.good();
}

uint64_t number_of(const fs::path& path, const std::string& wanted) {
  std::ifstream in(path);
  std::string key;
  uint64_t value = 0;
  if (wanted.empty()) return in >> value ? value : 0;
  while (in >> key >> value)
    if (key == wanted) return value;
  return 0;
}

}  // namespace

MemoryCgroup::MemoryCgroup(fs::path directory, bool is_v1)
    : directory_(std::move(directory)), procs_(directory_ / "cgroup.procs"), is_v1_(is_v1) {}

// Version 1: below our own, so that limits above keep holding. Version 2 forbids that where
// processes are: below the root.
std::unique_ptr<MemoryCgroup> MemoryCgroup::create(const std::string& name, std::string& why_not) {
  const auto v1 = cgroup_directories("/", "memory"), v2 = cgroup_directories("/", "");
  const bool is_v1 = !v1.empty() && fs::exists(v1.front() / "memory.limit_in_bytes");
  if (!is_v1 && v2.empty()) {
    why_not = "this machine has no cgroups";
    return nullptr;
  }
  const fs::path directory = (is_v1 ? v1.front() : v2.back()) / name;
  std::error_code error;
  fs::create_directory(directory, error);
  if (error) {
    why_not = fmt::format("no right to make {} ({})", directory.string(), error.message());
    return nullptr;
  }
  std::unique_ptr<MemoryCgroup> cgroup(new MemoryCgroup(directory, is_v1));
  if (fs::exists(directory / (is_v1 ? "memory.limit_in_bytes" : "memory.max"))) return cgroup;
  why_not = fmt::format("{} has no memory controller", directory.string());
  return nullptr;
}

MemoryCgroup::~MemoryCgroup() {
  // The kernel needs a moment after the last process has ended.
  for (int i = 0; i < 100 && ::rmdir(directory_.c_str()) != 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

bool MemoryCgroup::set_limit(uint64_t bytes) {
  return write_file(directory_ / (is_v1_ ? "memory.limit_in_bytes" : "memory.max"),
                    std::to_string(bytes));
}

bool MemoryCgroup::enter() const {
  const int fd = ::open(procs_.c_str(), O_WRONLY | O_CLOEXEC);
  const bool entered = fd >= 0 && ::write(fd, "0", 1) == 1;
  if (fd >= 0) ::close(fd);
  return entered;
}

uint64_t MemoryCgroup::usage_bytes() const {
  return number_of(directory_ / (is_v1_ ? "memory.usage_in_bytes" : "memory.current"), "");
}

uint64_t MemoryCgroup::kills() const {
  return number_of(directory_ / (is_v1_ ? "memory.oom_control" : "memory.events"), "oom_kill");
}

uint64_t MemoryCgroup::times_at_limit() const {
  return is_v1_ ? number_of(directory_ / "memory.failcnt", "")
                : number_of(directory_ / "memory.events", "max");
}

}  // namespace wader::testing
