#include "cli/live_screen.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "cli/console.h"

namespace wader {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kSlice{100};  // until a signal or another size is seen at the latest
constexpr char kCtrlZ = 0x1A;
// The cursor; and no wrapping at the edge, for characters that are wider than they count.
constexpr std::string_view kEnter = "\x1b[?25l\x1b[?7l", kLeave = "\x1b[?7h\x1b[?25h";

}  // namespace

ScreenSize screen_size() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return {80, 24};
  return {size.ws_col, size.ws_row};
}

LiveScreen::LiveScreen() {
  enter();
}

LiveScreen::~LiveScreen() {
  leave();
}

void LiveScreen::enter() {
  termios now = {};
  takes_keys_ = input_is_terminal() && tcgetattr(STDIN_FILENO, &now) == 0;
  if (takes_keys_) {
    before_ = now;
    now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    // Ctrl-Z comes as a key: the terminal is put in order before the program stops.
    now.c_cc[VSUSP] = _POSIX_VDISABLE;
    now.c_cc[VMIN] = 1;
    now.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &now);
  }
  print(kEnter);
  flush_output();
}

void LiveScreen::leave() {
  print(kLeave);
  flush_output();
  if (before_) tcsetattr(STDIN_FILENO, TCSADRAIN, &*before_);
  before_.reset();
}

void LiveScreen::draw(const std::vector<std::string>& lines) {
  const ScreenSize size = screen_size();
  std::string out;
  if (drawn_lines_ > 0 && size != drawn_size_) {
    // Terminals differ in how they break lines anew: where the old ones stand now is not known.
    out += "\x1b[H";
  } else if (drawn_lines_ > 0) {
    out += fmt::format("\x1b[{}A\r", drawn_lines_);
  }
  // Erased first: after a line that fills the screen, the cursor stands on its last character.
  for (const std::string& line : lines) out += fmt::format("\x1b[K{}\n", line);
  out += "\x1b[J";
  print(out);
  flush_output();
  drawn_lines_ = lines.size();
  drawn_size_ = size;
}

LiveScreen::Event LiveScreen::read_key() {
  char key = 0;
  const ssize_t count = read(STDIN_FILENO, &key, 1);
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return Event::none;
  if (count <= 0) {
    takes_keys_ = false;  // the terminal is gone; a signal says so, if anything
    return Event::none;
  }
  if (key == 'q' || key == 'Q') return Event::quit;
  if (key != kCtrlZ) return Event::none;
  leave();
  kill(0, SIGTSTP);
  enter();
  drawn_lines_ = 0;  // below what the shell has written
  return Event::drawn;
}

LiveScreen::Event LiveScreen::wait(milliseconds time) {
  const auto end = Clock::now() + time;
  for (;;) {
    if (interrupted()) return Event::quit;
    if (drawn_lines_ > 0 && screen_size() != drawn_size_) return Event::drawn;
    const auto left =
        std::max(std::chrono::ceil<milliseconds>(end - Clock::now()), milliseconds(0));
    pollfd keys = {takes_keys_ ? STDIN_FILENO : -1, POLLIN, 0};
    if (poll(&keys, 1, static_cast<int>(std::min(left, kSlice).count())) > 0) {
      const Event event = read_key();
      if (event != Event::none) return event;
    } else if (left == milliseconds(0)) {
      return Event::none;
    }
  }
}

}  // namespace wader
