#include "cli/chat_loop.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "base/error.h"
#include "base/units.h"
#include "cli/chat_view.h"
#include "cli/console.h"
#include "cli/line_editor.h"
#include "cli/report.h"
#include "cli/text.h"

namespace wader {
namespace {

constexpr std::string_view kHelp =
    "/reset      forget the conversation\n"
    "/stats      figures of the last answer and of the whole chat\n"
    "/save FILE  write the conversation as JSON (wader render --messages reads it)\n"
    "/exit       leave, as Ctrl-D does\n"
    "Ctrl-C stops an answer. A line that ends in a backslash continues on the next; a pasted text "
    "is one message.\n"
    "A message that starts with a slash: write two.\n";

struct State {
  const ChatLoop& chat;
  LineEditor editor;
  std::optional<ConversationAnswer> last;
};

// One message: lines joined while a paste goes on or a backslash asks for more. Nothing when the
// user leaves.
std::optional<std::string> read_message(LineEditor& editor) {
  std::string text;
  bool first = true, warned = false;
  for (;;) {
    const LineEditor::Line line = editor.read(first ? "> " : ". ");
    if (line.event == LineEditor::Event::end) return first ? std::nullopt : std::optional(text);
    if (line.event == LineEditor::Event::interrupted) {
      clear_interrupt();
      print("\n");
      if (terminate_requested()) return std::nullopt;
      const bool empty = first && line.text.empty();
      if (empty && warned) return std::nullopt;
      if (empty) print(dim("Ctrl-C again, or Ctrl-D, leaves\n"));
      warned = empty;
      text.clear();
      first = true;
      continue;
    }
    warned = false;
    editor.remember(line.text);
    text += line.text;
    const bool continues = line.text.ends_with('\\');
    if (continues) text.pop_back();
    if (!continues && !editor.input_pending()) return text;
    text += '\n';
    first = false;
  }
}

void show_stats(const State& state) {
  const MemoryPlan& plan = state.chat.engine.plan();
  if (state.last)
    print(fmt::format("last answer  {}\n", figures_line(state.last->figures, plan.budget_bytes)));
  const EngineStats all = state.chat.engine.stats();
  const uint64_t wanted = all.experts.hits + all.experts.misses;
  print(fmt::format(
      "this chat    {} answers, {} prompt and {} new tokens computed, {} read, hit rate {:.0f} %\n",
      state.chat.conversation.answers(), all.prefill_tokens, all.decode_tokens,
      format_bytes(all.experts.bytes_read),
      wanted > 0 ? 100.0 * static_cast<double>(all.experts.hits) / static_cast<double>(wanted)
                 : 0.0));
  print(
      fmt::format("memory       peak {} of {}, {} of {} expert slots in use, context {} "
                  "tokens\n",
                  format_bytes(all.peak_rss_bytes), format_bytes(plan.budget_bytes),
                  all.usable_slots, plan.slots, plan.context));
  if (all.pool_shrinks > 0)
    print(fmt::format("             short of memory: {} times fewer slots, {} times more again\n",
                      all.pool_shrinks, all.pool_growths));
  print(fmt::format("reads        {}\n", terminal_safe_line(state.chat.engine.io_description())));
}

// Never overwrites: a conversation is not worth another file.
Status save(const Conversation& conversation, std::string name) {
  if (name.empty()) return invalid_argument_error("/save needs a file name");
  if (const char* home = std::getenv("HOME"); home != nullptr && name.starts_with("~/")) {
    name = fmt::format("{}{}", home, name.substr(1));
  }
  const std::string text = json_text(conversation.to_json(), 2) + "\n";
  const int fd = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 && errno == EEXIST)
    return already_exists_error("{} is there already; choose another name", name);
  if (fd < 0) return errno_error(errno, name);
  size_t written = 0;
  int problem = 0;
  while (written < text.size() && problem == 0) {
    const ssize_t n = write(fd, text.data() + written, text.size() - written);
    if (n >= 0)
      written += static_cast<size_t>(n);
    else if (errno != EINTR)
      problem = errno;
  }
  if (close(fd) != 0 && problem == 0) problem = errno;
  if (problem != 0) {
    unlink(name.c_str());  // ours: O_EXCL made it
    return errno_error(problem, name);
  }
  print(terminal_safe(
      fmt::format("saved {} messages to {}\n", conversation.messages().size(), name)));
  return {};
}

// False when the user wants to leave.
bool run_slash_command(State& state, const std::string& line) {
  const std::string name = line.substr(0, line.find(' '));
  const size_t begin = line.find_first_not_of(' ', name.size());
  std::string argument = begin == line.npos ? "" : line.substr(begin);
  while (argument.ends_with(' ')) argument.pop_back();
  if (name == "/exit" || name == "/quit") return false;
  if (name == "/help") {
    print(kHelp);
  } else if (name == "/reset") {
    state.chat.conversation.reset();
    state.last.reset();
    print("the conversation starts over\n");
  } else if (name == "/stats") {
    show_stats(state);
  } else if (name == "/save") {
    if (const Status saved = save(state.chat.conversation, argument); !saved.ok())
      print_error(saved.error());
  } else {
    print_error(invalid_argument_error(
        "unknown command {}\n/help lists the commands; // starts a message with a slash", name));
  }
  return true;
}

void answer(State& state, const std::string& question) {
  ChatView view(state.chat.show_reasoning);
  clear_interrupt();
  Conversation& conversation = state.chat.conversation;
  Result<ConversationAnswer> result = conversation.ask(question, view.listener(), interrupted());
  show_status("");
  clear_interrupt();
  if (!result.ok()) {
    print_error(result.error());
    if (result.error().code == ErrorCode::over_budget) {
      print_note("the conversation is kept; /reset starts over, or start with a larger --context");
    }
    return;
  }
  view.finish(*result, state.chat.engine.plan().context, conversation.options().max_tokens);
  if (state.chat.stats)
    print_note(figures_line(result->figures, state.chat.engine.plan().budget_bytes));
  state.last = std::move(*result);
}

}  // namespace

Result<int> chat_loop(const ChatLoop& chat) {
  ASSIGN_OR_RETURN(LineEditor editor, LineEditor::create(history_path()));
  State state = {chat, std::move(editor), std::nullopt};
  const MemoryPlan& plan = chat.engine.plan();
  print(terminal_safe(
      fmt::format("{}: {} expert slots within {}, context {} tokens. /help lists the commands.\n",
                  chat.model, plan.slots, format_bytes(plan.budget_bytes), plan.context)));
  while (output_status().ok() && !terminate_requested()) {
    flush_output();
    const std::optional<std::string> message = read_message(state.editor);
    if (!message) break;
    if (message->find_first_not_of(" \t\n") == message->npos) continue;
    const bool escaped = message->starts_with("//");
    const bool command =
        message->starts_with('/') && !escaped && message->find('\n') == message->npos;
    if (!command) {
      answer(state, escaped ? message->substr(1) : *message);
    } else if (!run_slash_command(state, *message)) {
      break;
    }
  }
  print("\n");
  return 0;
}

}  // namespace wader
