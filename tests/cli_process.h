// Runs the built `wader` as a process, plainly or on a terminal of its own.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace wader::testing {

struct RunOptions {
  std::string input;                       // standard input, then its end
  std::map<std::string, std::string> env;  // over the test's own environment
  std::string stdout_path;                 // where standard output goes instead of into the result
  bool close_stdout = false;
};

struct RunResult {
  int exit_code;  // 128 + signal when one ended it
  std::string out, err;
};

// Waits for the end; kills after two minutes.
RunResult run_wader(const std::vector<std::string>& args, const RunOptions& options = {});

// A wader on a pseudo-terminal, typed to as a person would.
class Terminal {
 public:
  Terminal(const std::vector<std::string>& args, const std::map<std::string, std::string>& env);
  ~Terminal();  // kills what still runs
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& text);
  // Reads until `text` has appeared since the last successful wait. False after `seconds`.
  bool wait_for(const std::string& text, double seconds = 60);
  // Everything seen so far, escape sequences included.
  const std::string& seen() const { return seen_; }
  // Reads to the end and returns the exit code; -1 when it does not end in time.
  int finish(double seconds = 60);

 private:
  bool read_more(double seconds);

  pid_t pid_ = -1;
  int fd_ = -1;
  std::string seen_;
  size_t waited_ = 0;  // seen_ up to here was consumed by wait_for
};

}  // namespace wader::testing
