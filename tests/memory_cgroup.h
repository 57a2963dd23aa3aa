// A memory cgroup of our own, for tests that run processes at a limit: version 1 or 2, whichever
// has the memory controller. Needs the right to make one, as root has on most machines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace wader::testing {

class MemoryCgroup {
 public:
  // Null, and the reason in `why_not`, where none can be made.
  static std::unique_ptr<MemoryCgroup> create(const std::string& name, std::string& why_not);
  ~MemoryCgroup();  // removes it; all its processes must have ended
  MemoryCgroup(const MemoryCgroup&) = delete;
  MemoryCgroup& operator=(const MemoryCgroup&) = delete;

  bool set_limit(uint64_t bytes);
  // The calling process and its later children, before they take memory. Safe after fork().
  bool enter() const;

  uint64_t usage_bytes() const;
  uint64_t kills() const;           // processes that the kernel ended for want of memory
  uint64_t times_at_limit() const;  // allocations that had to reclaim first; page cache causes them

 private:
  MemoryCgroup(std::filesystem::path directory, bool is_v1);
  const std::filesystem::path directory_;
  const std::string procs_;
  const bool is_v1_;
};

}  // namespace wader::testing
