#include "base/memory_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/machine.h"
#include "base/units.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

// Version 1 writes "no limit" as 2^63 less a page, version 2 as "max". No machine has this much.
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

std::string_view skip_blanks(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(" \t"), text.size()));
}

std::optional<uint64_t> leading_number(std::string_view text) {
  text = skip_blanks(text);
  uint64_t value = 0;
  const auto [end, errc] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (errc != std::errc{}) return std::nullopt;
  // The whole word: "12MB" and "0x10" are not what these files hold.
  if (end != text.data() + text.size() && *end != ' ' && *end != '\t' && *end != '\n')
    return std::nullopt;
  return value;
}

// What follows `key` at the beginning of a line: "MemAvailable:   8000 kB", "total_cache 5".
std::optional<std::string_view> after_key(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(key) && line.size() > key.size() &&
        (line[key.size()] == ' ' || line[key.size()] == '\t'))
      return line.substr(key.size());
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return std::nullopt;
}

std::optional<uint64_t> keyed(std::string_view text, std::string_view key) {
  const auto rest = after_key(text, key);
  return rest ? leading_number(*rest) : std::nullopt;
}

std::optional<uint64_t> keyed_kib(std::string_view text, std::string_view key) {
  const auto kib = keyed(text, key);
  return kib && *kib < kNoLimit / kKiB ? std::optional(*kib * kKiB) : std::nullopt;
}

// "some avg10=0.00 avg60=0.00 avg300=0.00 total=7335" → 7335.
std::optional<uint64_t> some_total(std::string_view text) {
  const auto line = after_key(text, "some");
  if (!line) return std::nullopt;
  constexpr std::string_view kTotal = "total=";
  const size_t at = line->find(kTotal);
  return at == line->npos ? std::nullopt : leading_number(line->substr(at + kTotal.size()));
}

}  // namespace

MemoryWatch::OpenFile::OpenFile(const fs::path& path)
    : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}

MemoryWatch::OpenFile::~OpenFile() {
  if (fd_ >= 0) ::close(fd_);
}

std::string_view MemoryWatch::OpenFile::read(std::array<char, 16384>& into) const {
  const ssize_t bytes = fd_ >= 0 ? ::pread(fd_, into.data(), into.size(), 0) : -1;
  return {into.data(), bytes > 0 ? static_cast<size_t>(bytes) : 0};
}

MemoryWatch::MemoryWatch(const fs::path& root)
    : meminfo_(root / "proc/meminfo"),
      status_(root / "proc/self/status"),
      machine_pressure_(root / "proc/pressure/memory") {
  const auto v2 = cgroup_directories(root, "");
  // The root of the tree is the machine, which has its own file.
  if (v2.size() > 1) cgroup_pressure_.emplace(v2.front() / "memory.pressure");
  for (const fs::path& directory : v2) add_group(directory, false);
  for (const fs::path& directory : cgroup_directories(root, "memory")) add_group(directory, true);
}

void MemoryWatch::add_group(const fs::path& directory, bool is_v1) {
  Group group{is_v1,
              {},
              OpenFile(directory / (is_v1 ? "memory.usage_in_bytes" : "memory.current")),
              OpenFile(directory / "memory.stat")};
  // Beyond `high` nothing is killed, but every allocation is slowed down and reclaims.
  std::error_code error;
  for (const char* name : {"memory.limit_in_bytes", "memory.max", "memory.high"}) {
    if (fs::path file = directory / name; fs::exists(file, error))
      group.limits.push_back({OpenFile(file), "cgroup limit " + file.string()});
  }
  if (!group.limits.empty()) groups_.push_back(std::move(group));
}

// What is used does not count where the kernel gives it back rather than kill: pages of files on
// its lists. Not "cache" or "file" as a whole: these hold tmpfs and shared memory too, which have
// nowhere to go. Limits can change while the program runs, so that none is skipped for good.
void MemoryWatch::apply(const Group& group, MemoryState& state) {
  uint64_t limit = kNoLimit;
  const std::string* reason = nullptr;
  for (const Limit& one : group.limits) {
    const auto bytes = leading_number(one.file.read(buffer_));
    if (bytes && *bytes < limit) limit = *bytes, reason = &one.reason;
  }
  // A container sees its own cgroup as the root; version 1 still tells it of limits above.
  if (reason == nullptr && !group.is_v1) return;
  const std::string_view stat = group.stat.read(buffer_);
  if (group.is_v1) {
    const auto above = keyed(stat, "hierarchical_memory_limit");
    if (above && *above < limit) limit = *above, reason = &group.limits.front().reason;
  }
  if (reason == nullptr) return;
  const uint64_t droppable =
      keyed(stat, group.is_v1 ? "total_inactive_file" : "inactive_file").value_or(0) +
      keyed(stat, group.is_v1 ? "total_active_file" : "active_file").value_or(0);
  const uint64_t usage = leading_number(group.usage.read(buffer_)).value_or(0);
  const uint64_t held = usage - std::min(usage, droppable);
  const uint64_t left = limit - std::min(limit, held);
  if (!state.room_bytes || left < *state.room_bytes)
    state.room_bytes = left, state.room_reason = *reason;
}

MemoryState MemoryWatch::read() {
  MemoryState state;
  state.room_bytes = keyed_kib(meminfo_.read(buffer_), "MemAvailable:");
  if (state.room_bytes) state.room_reason = "MemAvailable";
  for (const Group& group : groups_) apply(group, state);
  state.machine_stall_microseconds = some_total(machine_pressure_.read(buffer_));
  if (cgroup_pressure_)
    state.cgroup_stall_microseconds = some_total(cgroup_pressure_->read(buffer_));
  const std::string_view status = status_.read(buffer_);
  state.resident_bytes = keyed_kib(status, "VmRSS:").value_or(0);
  state.swapped_bytes = keyed_kib(status, "VmSwap:").value_or(0);
  return state;
}

}  // namespace wader
