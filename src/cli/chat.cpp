#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/error.h"
#include "cli/chat_loop.h"
#include "cli/chat_view.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/conversation.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/text.h"
#include "engine/chat_prompt.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

Result<ConversationOptions> read_options(const Args& args) {
  ConversationOptions options;
  ASSIGN_OR_RETURN(options.start.reasoning, reasoning_effort(args));
  ASSIGN_OR_RETURN(options.start.date, conversation_date(args));
  ASSIGN_OR_RETURN(options.max_tokens, max_tokens(args));
  RETURN_IF_ERROR(check_sampling_flags(args));
  if (args.has("--system")) {
    Message system = {};
    system.role = Message::Role::system;
    system.content = args.text("--system");
    options.start.messages.push_back(std::move(system));
  }
  return options;
}

Json answer_json(const ConversationAnswer& answer, uint64_t budget_bytes) {
  Json calls = Json::array();
  for (const ToolCall& call : answer.message.tool_calls) {
    calls.push_back({{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
  }
  return {{"content", answer.message.content},
          {"reasoning", answer.message.reasoning},
          {"tool_calls", calls},
          {"finish_reason", finish_name(answer.reason)},
          {"stats", figures_json(answer.figures, budget_bytes)}};
}

Result<int> answer_once(const Args& args, const Engine& engine, Conversation& conversation,
                        const std::string& question) {
  const bool json = args.has("--json");
  ChatView view(args.has("--show-reasoning"));
  const Conversation::Listener listener = json ? Conversation::Listener() : view.listener();
  ASSIGN_OR_RETURN(const ConversationAnswer answer,
                   conversation.ask(question, listener, interrupted()));
  if (json) {
    print_json(answer_json(answer, engine.plan().budget_bytes));
  } else {
    view.finish(answer, engine.plan().context, conversation.options().max_tokens);
  }
  if (args.has("--stats")) print_note(figures_line(answer.figures, engine.plan().budget_bytes));
  if (answer.reason == FinishReason::cancelled && output_status().ok())
    return cancelled_error("stopped");
  return 0;
}

// The conversation's file of --state, as it was at the start.
class StateFile {
 public:
  explicit StateFile(const Args& args) : given_(args.has("--state")), path_(args.text("--state")) {}

  // Goes on with what an earlier chat has left there.
  Status load(const Args& args, Conversation& conversation) {
    if (!given_) return {};
    std::error_code error;
    const fs::path folder = fs::absolute(path_, error).parent_path();
    // Where it cannot be written to shows now, not after an hour of talk.
    if (path_.empty() || !fs::is_directory(folder, error))
      return not_found_error("--state '{}': its folder does not exist", path_.string());
    if (::access(folder.c_str(), W_OK) != 0) return errno_error(errno, folder.string());
    stamp_ = stamp();
    if (!stamp_) return {};
    if (args.has("--system"))
      return invalid_argument_error(
          "{} holds a conversation that has begun; --system can only start one", path_.string());
    if (Status loaded = conversation.load(path_); !loaded.ok())
      return not_usage(std::move(loaded).error());
    return {};
  }

  // Leaves the conversation there; one that was reset to nothing leaves nothing. What another chat
  // has left there meanwhile stays, and where the file cannot be written the conversation goes to
  // another place: an error says which.
  Status keep(Conversation& conversation) const {
    if (!given_) return {};
    const bool changed = stamp() != stamp_;
    if (conversation.answers() == 0) {
      std::error_code error;
      if (!changed) fs::remove(path_, error);
      return error ? Status(errno_error(error.value(), path_.string())) : Status();
    }
    Status kept = changed ? Status(already_exists_error("{} was changed by another chat meanwhile",
                                                        path_.string()))
                          : conversation.save(path_);
    if (kept.ok()) return {};
    std::error_code error;
    const std::string name = fmt::format("{}.{}", path_.filename().string(), ::getpid());
    for (const fs::path& folder : {path_.parent_path(), fs::temp_directory_path(error)})
      if (conversation.save(folder / name).ok()) {
        Error reason = std::move(kept).error();
        reason.message += fmt::format("; this conversation is in {}", (folder / name).string());
        return reason;
      }
    return kept;
  }

 private:
  using Stamp = std::optional<std::pair<uintmax_t, fs::file_time_type>>;
  Stamp stamp() const {
    std::error_code error;
    const auto time = fs::last_write_time(path_, error);
    if (error) return std::nullopt;
    const uintmax_t size = fs::is_regular_file(path_, error) ? fs::file_size(path_, error) : 0;
    return std::pair(size, time);
  }

  bool given_;
  fs::path path_;
  Stamp stamp_;
};

// What the format refuses for every question (--reasoning off on a model that always reasons) shows
// before the first one.
Status check_start(const ChatFormat& format, ChatRequest start) {
  Message question = {};
  question.role = Message::Role::user;
  start.messages.push_back(std::move(question));
  auto prompt = format.render(start);
  if (!prompt.ok()) return std::move(prompt).error();
  return {};
}

// The question of a one-shot run; nothing when the chat is interactive.
Result<std::optional<std::string>> one_question(const Args& args, uint64_t max_bytes) {
  if (args.has("--prompt")) return std::optional(args.text("--prompt"));
  if (input_is_terminal() && output_is_terminal() && !args.has("--json"))
    return std::optional<std::string>();
  ASSIGN_OR_RETURN(std::string text, read_input(max_bytes));
  if (text.find_first_not_of(" \t\r\n") == text.npos) {
    return invalid_argument_error(
        "standard input holds no question; give one there or with --prompt");
  }
  if (text.ends_with('\n')) text.pop_back();
  return std::optional(std::move(text));
}

}  // namespace

Result<int> run_chat(const Args& args) {
  ASSIGN_OR_RETURN(const EngineOptions engine_flags, engine_options(args));
  ASSIGN_OR_RETURN(ConversationOptions options, read_options(args));
  ASSIGN_OR_RETURN(const Container container, open_container(args));
  watch_interrupts();
  show_status("loading");
  ASSIGN_OR_RETURN(const auto engine, open_engine(container, engine_flags));
  show_status("");
  if (engine->tokenizer() == nullptr) {
    return unsupported_error("{} has no tokenizer: wader generate takes raw ids",
                             container.directory().string());
  }
  options.max_text_bytes = most_text_bytes(*engine->tokenizer(), engine->plan().context);
  ASSIGN_OR_RETURN(const std::optional<std::string> question,
                   one_question(args, options.max_text_bytes));
  ASSIGN_OR_RETURN(options.sampling, sampling_params(args, engine->default_sampling()));
  ASSIGN_OR_RETURN(const auto format, chat_format_of(container, *engine->tokenizer()));
  RETURN_IF_ERROR(check_start(*format, options.start));
  options.stop_ids = answer_stop_ids(*format, engine->eos_ids());
  ASSIGN_OR_RETURN(const auto session, engine->new_session());
  Conversation conversation(
      *session, *format, [&] { return engine->stats(); }, std::move(options));
  StateFile state(args);
  RETURN_IF_ERROR(state.load(args, conversation));
  Result<int> result = question ? answer_once(args, *engine, conversation, *question)
                                : chat_loop({*engine, conversation, args.operand(0),
                                             args.has("--show-reasoning"), args.has("--stats")});
  const Status kept = state.keep(conversation);
  if (!result.ok()) return result;
  RETURN_IF_ERROR(kept);
  return result;
}

}  // namespace wader
