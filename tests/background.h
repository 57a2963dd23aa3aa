// A wader that runs beside a test, to be killed or waited for.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "io/io_testing.h"

namespace wader::testing {

class Background {
 public:
  Background(const std::vector<std::string>& args, const std::map<std::string, std::string>& env,
             std::filesystem::path log)
      : log_(std::move(log)) {
    pid_ = fork();
    if (pid_ != 0) return;
    for (const auto& [name, value] : env) setenv(name.c_str(), value.c_str(), 1);
    const int fd = open(log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    std::vector<char*> argv = {const_cast<char*>("wader")};
    for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
    argv.push_back(nullptr);
    execv(WADER_PROGRAM, argv.data());
    _exit(127);
  }
  ~Background() {
    if (pid_ > 0) kill_now(), wait();
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  void kill_now() const { ::kill(pid_, SIGKILL); }
  void interrupt() const { ::kill(pid_, SIGINT); }
  // The wait status.
  int wait() {
    int status = -1;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return status;
  }
  std::string output() const { return read_bytes(log_); }

 private:
  pid_t pid_ = -1;
  std::filesystem::path log_;
};

}  // namespace wader::testing
