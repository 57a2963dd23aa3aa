#include "cli_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>

namespace wader::testing {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

[[noreturn]] void exec_wader(const std::vector<std::string>& args,
                             const std::map<std::string, std::string>& env) {
  for (const auto& [name, value] : env) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv = {const_cast<char*>("wader")};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  execv(WADER_PROGRAM, argv.data());
  _exit(127);
}

int exit_code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Feeds `input` and collects both outputs at once, so that no pipe can fill up and stop the
// process.
void exchange(int in, int out, int err, const std::string& input, RunResult& result, pid_t pid) {
  const auto start = Clock::now();
  size_t fed = 0;
  while (out >= 0 || err >= 0) {
    pollfd fds[3] = {
        {fed < input.size() ? in : -1, POLLOUT, 0}, {out, POLLIN, 0}, {err, POLLIN, 0}};
    poll(fds, 3, 1000);
    if (seconds_since(start) > 120) kill(pid, SIGKILL);
    if (fds[0].revents != 0) {
      const ssize_t count = write(in, input.data() + fed, input.size() - fed);
      fed = count > 0 ? fed + static_cast<size_t>(count) : input.size();
    }
    if (fed == input.size() && in >= 0) {
      close(in);
      in = -1;
    }
    char buffer[65536];
    if (fds[1].revents != 0) {
      const ssize_t count = read(out, buffer, sizeof buffer);
      if (count > 0) result.out.append(buffer, static_cast<size_t>(count));
      if (count <= 0) close(out), out = -1;
    }
    if (fds[2].revents != 0) {
      const ssize_t count = read(err, buffer, sizeof buffer);
      if (count > 0) result.err.append(buffer, static_cast<size_t>(count));
      if (count <= 0) close(err), err = -1;
    }
  }
  if (in >= 0) close(in);
}

}  // namespace

RunResult run_wader(const std::vector<std::string>& args, const RunOptions& options) {
  signal(SIGPIPE, SIG_IGN);  // a wader that does not read its input
  int in[2], out[2], err[2];
  EXPECT_TRUE(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0 &&
              pipe2(err, O_CLOEXEC) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    signal(SIGPIPE, SIG_DFL);
    dup2(in[0], STDIN_FILENO);
    dup2(err[1], STDERR_FILENO);
    if (!options.stdout_path.empty()) {
      dup2(open(options.stdout_path.c_str(), O_WRONLY), STDOUT_FILENO);
    } else {
      dup2(out[1], STDOUT_FILENO);
    }
    if (options.close_stdout) close(STDOUT_FILENO);
    exec_wader(args, options.env);
  }
  for (const int fd : {in[0], out[1], err[1]}) close(fd);
  RunResult result = {};
  exchange(in[1], out[0], err[0], options.input, result, pid);
  int status = 0;
  waitpid(pid, &status, 0);
  result.exit_code = exit_code_of(status);
  return result;
}

Terminal::Terminal(const std::vector<std::string>& args,
                   const std::map<std::string, std::string>& env) {
  winsize size = {24, 100, 0, 0};
  pid_ = forkpty(&fd_, nullptr, nullptr, &size);
  if (pid_ == 0) exec_wader(args, env);
  EXPECT_GT(pid_, 0);
}

Terminal::~Terminal() {
  if (fd_ >= 0) close(fd_);
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

void Terminal::type(const std::string& text) {
  ASSERT_EQ(write(fd_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

bool Terminal::read_more(double seconds) {
  pollfd input = {fd_, POLLIN, 0};
  if (seconds <= 0 || poll(&input, 1, static_cast<int>(seconds * 1000) + 1) <= 0) return false;
  char buffer[4096];
  const ssize_t count = read(fd_, buffer, sizeof buffer);
  if (count <= 0) return false;  // EIO: the other side has closed
  seen_.append(buffer, static_cast<size_t>(count));
  return true;
}

bool Terminal::wait_for(const std::string& text, double seconds) {
  const auto start = Clock::now();
  for (;;) {
    const size_t at = seen_.find(text, waited_);
    if (at != seen_.npos) {
      waited_ = at + text.size();
      return true;
    }
    if (!read_more(seconds - seconds_since(start))) return false;
  }
}

int Terminal::finish(double seconds) {
  const auto start = Clock::now();
  while (read_more(seconds - seconds_since(start))) {
  }
  int status = 0;
  while (seconds_since(start) < seconds) {
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return exit_code_of(status);
    }
    usleep(10'000);
  }
  return -1;
}

}  // namespace wader::testing
