// A part of the terminal that is drawn again and again in place, below what stood there before. For
// commands that show how things stand; standard output must be a terminal. One object a process.
#pragma once

#include <termios.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace wader {

struct ScreenSize {
  size_t columns, lines;
  bool operator==(const ScreenSize&) const = default;
};
// Of the terminal on standard output; 80 by 24 where it does not say.
ScreenSize screen_size();

class LiveScreen {
 public:
  // Hides the cursor, and takes keys without Enter or echo where standard input is a terminal too.
  LiveScreen();
  // Gives both back. What was drawn last stays.
  ~LiveScreen();
  LiveScreen(const LiveScreen&) = delete;
  LiveScreen& operator=(const LiveScreen&) = delete;

  // `lines` need no more than the screen's size less one line.
  void draw(const std::vector<std::string>& lines);

  enum class Event : uint8_t {
    none,   // the time is over
    drawn,  // draw again: the size has changed, or the program was stopped and goes on
    quit,   // q, Ctrl-C or a signal that ends programs
  };
  Event wait(std::chrono::milliseconds time);

 private:
  void enter();
  void leave();
  Event read_key();

  std::optional<termios> before_;  // of standard input
  bool takes_keys_ = false;
  size_t drawn_lines_ = 0;
  ScreenSize drawn_size_ = {0, 0};
};

}  // namespace wader
