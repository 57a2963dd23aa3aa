#include "server/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <utility>

#include "base/error.h"

namespace wader {

namespace asio = boost::asio;

namespace {

constexpr size_t kMaxLineBytes = 4 << 20;  // a report lists every file of a checkpoint
constexpr off_t kMaxErrorBytes = 4 << 10;
constexpr const char* kProgram = "/proc/self/exe";

// What the child gets instead of what this process has.
class SpawnSettings {
 public:
  SpawnSettings(int output, int errors) {
    posix_spawn_file_actions_init(&files_);
    posix_spawn_file_actions_addopen(&files_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files_, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files_, errors, STDERR_FILENO);
    // Connections of clients and the port itself, which would outlive the server.
    posix_spawn_file_actions_addclosefrom_np(&files_, STDERR_FILENO + 1);
    posix_spawnattr_init(&attributes_);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  int spawn(const std::vector<std::string>& arguments, pid_t& pid) const {
    std::vector<char*> argv = {const_cast<char*>("wader")};
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    return posix_spawn(&pid, kProgram, &files_, &attributes_, argv.data(), environ);
  }

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
};

}  // namespace

Result<std::unique_ptr<ChildProcess>> ChildProcess::start(
    asio::any_io_executor executor, const std::vector<std::string>& arguments) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) return errno_error(errno, "a pipe for another process");
  const auto [output, input] = pipe_ends;
  const int errors = memfd_create("errors", MFD_CLOEXEC);
  pid_t pid = 0;
  const int failure = errors < 0 ? errno : SpawnSettings(input, errors).spawn(arguments, pid);
  close(input);
  if (failure != 0) {
    close(output);
    if (errors >= 0) close(errors);
    return errno_error(failure, "starting another process");
  }
  return std::unique_ptr<ChildProcess>(new ChildProcess(std::move(executor), pid, output, errors));
}

ChildProcess::ChildProcess(asio::any_io_executor executor, pid_t pid, int output, int errors)
    : executor_(std::move(executor)), pid_(pid), output_(executor_, output), errors_(errors) {}

ChildProcess::~ChildProcess() {
  interrupt();
  close(errors_);
}

Task<std::optional<std::string>> ChildProcess::next_line() {
  auto buffer = asio::dynamic_buffer(buffer_, kMaxLineBytes);
  const auto [error, size] =
      co_await asio::async_read_until(output_, buffer, '\n', asio::as_tuple(asio::use_awaitable));
  if (error || size == 0) co_return std::nullopt;
  std::string line = buffer_.substr(0, size - 1);
  buffer_.erase(0, size);
  co_return line;
}

Task<int> ChildProcess::wait() {
  boost::system::error_code ignored;
  output_.close(ignored);  // else it could wait for somebody to read what is left
  asio::steady_timer pause(executor_);
  for (;;) {
    int status = 0;
    const pid_t ended = waitpid(pid_, &status, WNOHANG);
    if (ended != 0) {
      pid_ = 0;
      co_return ended < 0 ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    pause.expires_after(std::chrono::milliseconds(20));
    co_await pause.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

std::string ChildProcess::errors() const {
  const off_t size = std::max<off_t>(lseek(errors_, 0, SEEK_END), 0);
  const off_t from = std::max<off_t>(size - kMaxErrorBytes, 0);
  std::string text(static_cast<size_t>(size - from), '\0');
  const ssize_t got = pread(errors_, text.data(), text.size(), from);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

void ChildProcess::interrupt() {
  if (pid_ > 0) kill(pid_, SIGINT);
}

}  // namespace wader
