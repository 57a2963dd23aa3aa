#include "cli/console.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/units.h"
#include "cli/text.h"

namespace wader {
namespace {

int output_errno = 0;       // of the first failed write to standard output
bool status_shown = false;  // a temporary line stands on standard error

std::atomic<bool> interrupt_flag{false};
std::atomic<bool> terminate_flag{false};
std::atomic<int> unanswered{0};
// Readable while interrupt_flag is set. Any thread may take the signal, so a blocked read of the
// main thread need not return: it waits for this as well.
std::atomic<int> interrupt_event{-1};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void on_signal(int number) {
  if (number != SIGINT) terminate_flag = true;
  interrupt_flag = true;
  const int saved_errno = errno;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(interrupt_event, &one, sizeof one);
  errno = saved_errno;
  if (++unanswered < 3) return;
  signal(number, SIG_DFL);
  raise(number);
}

void print_stderr(std::string_view text) {
  flush_output();
  show_status("");
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void remember_failure() {
  if (output_errno == 0) output_errno = errno != 0 ? errno : EIO;
}

}  // namespace

void print(std::string_view text) {
  show_status("");
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) remember_failure();
}

void print_json(const Json& value) {
  print(json_text(value, output_is_terminal() ? 2 : -1) + "\n");
}

void flush_output() {
  errno = 0;
  if (std::fflush(stdout) != 0) remember_failure();
}

Status output_status() {
  if (output_errno == 0) return {};
  return errno_error(output_errno, "standard output");
}

void print_error(const Error& error) {
  const std::string text = terminal_safe(error.message);
  std::string out = "wader: error: ";
  for (const char c : text) out += c == '\n' ? std::string("\n  ") : std::string(1, c);
  print_stderr(out + "\n");
}

void print_note(std::string_view text) {
  print_stderr("wader: " + terminal_safe(text) + "\n");
}

void show_status(std::string_view text) {
  if (!errors_are_terminal() || (text.empty() && !status_shown)) return;
  if (!text.empty()) flush_output();
  const std::string line = fmt::format("\r\x1b[K{}", text);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  status_shown = !text.empty();
}

void show_waiting(std::string_view why) {
  if (errors_are_terminal()) {
    if (!why.empty()) show_status(terminal_safe_line(std::string(why)));
    return;
  }
  static std::string last;
  static std::optional<std::chrono::steady_clock::time_point> last_at;
  const auto now = std::chrono::steady_clock::now();
  if (why == last || (!why.empty() && last_at && now - *last_at < std::chrono::seconds(10))) return;
  last = why;
  if (why.empty()) return;
  last_at = now;
  print_note(why);
}

bool input_is_terminal() {
  return isatty(STDIN_FILENO) == 1;
}
bool output_is_terminal() {
  return isatty(STDOUT_FILENO) == 1;
}
bool errors_are_terminal() {
  return isatty(STDERR_FILENO) == 1;
}

bool use_colour() {
  const char* no_colour = std::getenv("NO_COLOR");
  return output_is_terminal() && (no_colour == nullptr || *no_colour == '\0');
}

std::string dim(std::string_view text) {
  return use_colour() ? fmt::format("\x1b[2m{}\x1b[0m", text) : std::string(text);
}
std::string bold(std::string_view text) {
  return use_colour() ? fmt::format("\x1b[1m{}\x1b[0m", text) : std::string(text);
}

void watch_interrupts() {
  if (interrupt_event < 0) interrupt_event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  struct sigaction action = {};
  action.sa_handler = on_signal;  // without SA_RESTART: a blocked read of the terminal returns
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
}

const std::atomic<bool>& interrupted() {
  return interrupt_flag;
}

void clear_interrupt() {
  interrupt_flag = false;
  unanswered = 0;
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t drained = read(interrupt_event, &count, sizeof count);
}

bool wait_for_input() {
  pollfd fds[2] = {{STDIN_FILENO, POLLIN, 0},
                   {interrupt_event, POLLIN, 0}};  // poll skips an fd of −1
  while (!interrupt_flag) {
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return true;  // the read will say what is wrong
    if (fds[0].revents != 0) return !interrupt_flag;
  }
  return false;
}

bool terminate_requested() {
  return terminate_flag;
}

namespace {

using Clock = std::chrono::steady_clock;

struct ProgressState {
  ProgressStyle style;
  std::string phase;
  Clock::time_point phase_start, last_drawn;
  uint64_t phase_start_bytes = 0;
};

void draw(ProgressState& state, const Progress& progress) {
  const bool new_phase = progress.phase != state.phase;
  const auto now = Clock::now();
  if (new_phase) {
    state.phase = progress.phase;
    state.phase_start = now;
    state.phase_start_bytes = progress.done_bytes;  // a resumed install starts with what is there
  }
  const bool finished = progress.done_bytes >= progress.total_bytes;
  if (!new_phase && !finished && now - state.last_drawn < std::chrono::milliseconds(100)) return;
  state.last_drawn = now;
  if (state.style == ProgressStyle::json) {
    Json event = {{"event", "progress"},
                  {"phase", state.phase},
                  {"done_bytes", progress.done_bytes},
                  {"total_bytes", progress.total_bytes}};
    if (!progress.note.empty()) event["note"] = progress.note;
    print_json(event);
    flush_output();
    return;
  }
  if (!errors_are_terminal()) {
    if (new_phase) {
      print_note(fmt::format("{}, {} of {}", state.phase, format_bytes(progress.done_bytes),
                             format_bytes(progress.total_bytes)));
    }
    show_waiting(progress.note);
    return;
  }
  const std::chrono::duration<double> elapsed = now - state.phase_start;
  const double done = static_cast<double>(progress.done_bytes);
  const double total = static_cast<double>(progress.total_bytes);
  const double rate = elapsed.count() > 0
                          ? (done - static_cast<double>(state.phase_start_bytes)) / elapsed.count()
                          : 0;
  if (!progress.note.empty())
    return show_status(fmt::format("{:8} {:3.0f} %  {}", state.phase,
                                   total > 0 ? 100 * done / total : 100,
                                   terminal_safe_line(std::string(progress.note))));
  show_status(fmt::format(
      "{:8} [{}] {:3.0f} %  {} of {}  {}{}", state.phase, bar(total > 0 ? done / total : 1, 30),
      total > 0 ? 100 * done / total : 100, format_bytes(progress.done_bytes),
      format_bytes(progress.total_bytes), format_rate(rate),
      rate > 0 && !finished ? ", " + format_seconds((total - done) / rate) + " left" : ""));
}

}  // namespace

ProgressFn make_progress(ProgressStyle style) {
  auto state = std::make_shared<ProgressState>();
  state->style = style;
  return [state](const Progress& progress) {
    if (state->style != ProgressStyle::none) draw(*state, progress);
    // Who read the progress, and could have stopped this, has gone.
    const bool unread = state->style == ProgressStyle::json && output_errno == EPIPE;
    return !interrupted().load() && !unread;
  };
}

}  // namespace wader
