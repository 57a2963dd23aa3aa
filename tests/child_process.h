// Runs a program to its end: its output, its exit, its peak memory. For tests whose own process
// stays small, since a child's peak counts its parent's pages at the fork.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace wader::testing {

struct ChildRun {
  int exit_code;  // 128 + signal when one ended it
  uint64_t peak_rss_bytes;
  std::string out, err;
};

// args[0] is the program's path. `before_exec` runs in the child; where it says false the exit code
// is 127, as when the program cannot be started.
ChildRun run_child(std::vector<std::string> args, const std::function<bool()>& before_exec = {});

}  // namespace wader::testing
