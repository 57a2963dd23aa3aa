// Line editing on the terminal, by libedit: cursor keys, history with search, kept between runs.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace wader {

class LineEditor {
 public:
  // `history_file`: created with mode 0600 in a directory of mode 0700; empty keeps nothing. A file
  // that cannot be read or written costs the history only.
  static Result<LineEditor> create(const std::filesystem::path& history_file);
  LineEditor(LineEditor&&) noexcept;
  LineEditor& operator=(LineEditor&&) = delete;
  ~LineEditor();

  enum class Event : uint8_t {
    line,         // Enter
    interrupted,  // Ctrl-C; `text` is what had been typed
    end,          // Ctrl-D on an empty line, or the terminal is gone
  };
  struct Line {
    Event event;
    std::string text;  // without the newline
  };
  Line read(std::string_view prompt);

  // True when more input is already there, as in the middle of a paste: typing is slower than 15 ms
  // a line.
  bool input_pending() const;
  void remember(const std::string& line);

 private:
  struct Impl;
  explicit LineEditor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// $XDG_STATE_HOME/wader/history, or ~/.local/state/wader/history; empty when neither is known.
std::filesystem::path history_path();

}  // namespace wader
