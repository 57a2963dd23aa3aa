// What memory this process may still take, and whether tasks already wait for memory: read again
// and again while the program runs.
//
// Files below `root` (so that tests can hand in a tree of their own) are opened once and read with
// pread into a buffer of this object: read() allocates nothing and costs some 100 µs, so ask a few
// times a second, not once a layer. A file that is not there, cannot be parsed or was removed is no
// information: it limits nothing. The cgroup is that of construction; a process that is moved later
// is not followed. One thread at a time.
//
// Sources: Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst, accounting/psi.rst and
// filesystems/proc.rst of the Linux kernel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace wader {

struct MemoryState {
  // What the process may still take without being killed or swapping: the least of MemAvailable
  // and, for every finite cgroup limit up the tree, limit − use + droppable page cache. Nothing:
  // unknown.
  std::optional<uint64_t> room_bytes;
  std::string_view room_reason;  // "MemAvailable", "cgroup limit …/memory.max"; lives as the watch
  // Time in which at least one task stood still for want of memory ("some"), since the start of the
  // machine or of the cgroup.
  std::optional<uint64_t> machine_stall_microseconds, cgroup_stall_microseconds;
  uint64_t resident_bytes = 0, swapped_bytes = 0;  // of this process: VmRSS, VmSwap
};

class MemoryWatch {
 public:
  explicit MemoryWatch(const std::filesystem::path& root = "/");
  MemoryState read();

 private:
  // A file kept open; closed with its owner.
  class OpenFile {
   public:
    explicit OpenFile(const std::filesystem::path& path);
    ~OpenFile();
    OpenFile(OpenFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    OpenFile& operator=(OpenFile&&) = delete;
    // Its beginning, as far as `into` reaches; empty when there is none.
    std::string_view read(std::array<char, 16384>& into) const;

   private:
    int fd_;
  };
  struct Limit {
    OpenFile file;
    std::string reason;
  };
  // One directory of a memory controller.
  struct Group {
    bool is_v1;
    std::vector<Limit> limits;
    OpenFile usage, stat;
  };

  void add_group(const std::filesystem::path& directory, bool is_v1);
  void apply(const Group& group, MemoryState& state);

  OpenFile meminfo_, status_, machine_pressure_;
  std::optional<OpenFile> cgroup_pressure_;
  std::vector<Group> groups_;
  std::array<char, 16384> buffer_;
};

}  // namespace wader
