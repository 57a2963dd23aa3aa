#include "cli/line_editor.h"

#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>

#include "base/error.h"
#include "cli/console.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

constexpr int kHistoryLines = 1000;
constexpr int kPastePauseMs = 15;

// libedit speaks multibyte text through the locale; a C locale would garble everything that is not
// ASCII.
void use_utf8_locale() {
  setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

struct LineEditor::Impl {
  EditLine* edit = nullptr;
  History* history = nullptr;
  fs::path history_file;
  std::string prompt;
  bool interrupted = false;
  bool waited = false;        // for a key in this read(): what came before was typed ahead
  std::string typed;          // the line as it was when Ctrl-C came
  std::mbstate_t state = {};  // of the character being read

  ~Impl() {
    if (edit != nullptr) el_end(edit);
    if (history != nullptr) history_end(history);
  }

  static Impl& of(EditLine* edit) {
    void* data = nullptr;
    el_get(edit, EL_CLIENTDATA, &data);
    return *static_cast<Impl*>(data);
  }
  static char* prompt_of(EditLine* edit) { return of(edit).prompt.data(); }
  static int read_char(EditLine* edit, wchar_t* out) { return of(edit).next_char(out); }

  int next_char(wchar_t* out);
  void load_history();
};

int LineEditor::Impl::next_char(wchar_t* out) {
  for (;;) {
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    waited = waited || poll(&input, 1, 0) == 0;
    if (!wait_for_input()) {
      const LineInfo* line = el_line(edit);
      typed.assign(line->buffer, line->lastchar);
      interrupted = true;
      return -1;
    }
    char byte = 0;
    const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) return static_cast<int>(count);
    if (byte == '\0') {
      // A Ctrl-D typed while the terminal was in line mode (during an answer) arrives as NUL, which
      // libedit would take for "quote the next key". A NUL that was typed now (Ctrl-Space) has no
      // meaning here.
      if (waited) continue;
      byte = '\x04';
    }
    const size_t length = std::mbrtowc(out, &byte, 1, &state);
    if (length == static_cast<size_t>(-2)) continue;  // more bytes of this character follow
    if (length == static_cast<size_t>(-1)) {
      state = {};
      *out = L'\uFFFD';
    }
    return 1;
  }
}

void LineEditor::Impl::load_history() {
  if (history_file.empty()) return;
  // What one asks a model is private: made for the owner only, before anything is written.
  const mode_t old_mask = umask(077);
  std::error_code ignored;
  fs::create_directories(history_file.parent_path(), ignored);
  const int fd = open(history_file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  umask(old_mask);
  if (fd < 0) {
    history_file.clear();
    return;
  }
  fchmod(fd, 0600);
  close(fd);
  HistEvent event;
  ::history(history, &event, H_LOAD, history_file.c_str());
}

Result<LineEditor> LineEditor::create(const fs::path& history_file) {
  use_utf8_locale();
  auto impl = std::make_unique<Impl>();
  impl->history_file = history_file;
  impl->edit = el_init("wader", stdin, stdout, stderr);
  impl->history = history_init();
  if (impl->edit == nullptr || impl->history == nullptr)
    return io_error("the terminal cannot be set up");
  el_set(impl->edit, EL_CLIENTDATA, impl.get());
  el_set(impl->edit, EL_PROMPT, &Impl::prompt_of);
  el_set(impl->edit, EL_SIGNAL, 0);  // signals are the program's own (console.h)
  el_set(impl->edit, EL_EDITOR, "emacs");
  el_set(impl->edit, EL_GETCFN, &Impl::read_char);
  HistEvent event;
  history(impl->history, &event, H_SETSIZE, kHistoryLines);
  history(impl->history, &event, H_SETUNIQUE, 1);
  el_set(impl->edit, EL_HIST, history, impl->history);
  el_set(impl->edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_source(impl->edit, nullptr);  // the user's ~/.editrc
  impl->load_history();
  return LineEditor(std::move(impl));
}

LineEditor::LineEditor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LineEditor::LineEditor(LineEditor&&) noexcept = default;
LineEditor::~LineEditor() = default;

LineEditor::Line LineEditor::read(std::string_view prompt) {
  impl_->prompt = prompt;
  impl_->interrupted = false;
  impl_->waited = false;
  impl_->typed.clear();
  el_resize(impl_->edit);  // the window may have changed since
  int count = 0;
  const char* text = el_gets(impl_->edit, &count);
  if (impl_->interrupted) return {Event::interrupted, impl_->typed};
  if (text == nullptr || count <= 0) return {Event::end, ""};
  std::string line(text, static_cast<size_t>(count));
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  return {Event::line, line};
}

bool LineEditor::input_pending() const {
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, kPastePauseMs) > 0 && (input.revents & POLLIN) != 0;
}

void LineEditor::remember(const std::string& line) {
  if (line.empty()) return;
  HistEvent event;
  history(impl_->history, &event, H_ENTER, line.c_str());
  // Saved at once: a chat may end by a closed terminal.
  if (!impl_->history_file.empty())
    history(impl_->history, &event, H_SAVE, impl_->history_file.c_str());
}

fs::path history_path() {
  const auto environment = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value != nullptr ? value : "");
  };
  if (const fs::path state = environment("XDG_STATE_HOME"); !state.empty())
    return state / "wader" / "history";
  if (const fs::path home = environment("HOME"); !home.empty()) {
    return home / ".local" / "state" / "wader" / "history";
  }
  return {};
}

}  // namespace wader
