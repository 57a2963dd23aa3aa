#include "child_process.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace wader::testing {
namespace {

std::string drain(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  close(fd);
  return text;
}

}  // namespace

ChildRun run_child(std::vector<std::string> args, const std::function<bool()>& before_exec) {
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  int out[2], err[2];
  EXPECT_EQ(pipe(out) + pipe(err), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(out[1], 1);
    dup2(err[1], 2);
    for (const int fd : {out[0], out[1], err[0], err[1]}) close(fd);
    if (!before_exec || before_exec()) execv(argv[0], argv.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  ChildRun run;
  run.out = drain(out[0]);
  run.err = drain(err[0]);
  int status = 0;
  rusage usage{};
  EXPECT_EQ(wait4(pid, &status, 0, &usage), pid);
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  run.peak_rss_bytes = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
  return run;
}

}  // namespace wader::testing
