#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "cli/chat_loop.h"
#include "cli/chat_template.h"
#include "cli/chat_view.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/conversation.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/text.h"

namespace wader {
namespace {

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

Json answer_json(const Answer& answer, uint64_t budget_bytes) {
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
  ASSIGN_OR_RETURN(const Answer answer, conversation.ask(question, listener, interrupted()));
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

// --state: goes on with what an earlier chat has left there.
Status continue_from(const Args& args, Conversation& conversation) {
  const std::filesystem::path file = args.text("--state");
  std::error_code error;
  if (!args.has("--state")) return {};
  // Where it cannot be written to shows now, not after an hour of talk.
  if (!std::filesystem::is_directory(std::filesystem::absolute(file, error).parent_path(), error))
    return not_found_error("--state {}: its folder does not exist", file.string());
  if (!std::filesystem::exists(file, error)) return {};
  if (args.has("--system"))
    return invalid_argument_error(
        "{} holds a conversation that has begun; --system can only start one", file.string());
  if (Status loaded = conversation.load(file); !loaded.ok())
    return not_usage(std::move(loaded).error());
  return {};
}

// --state: leaves the conversation there. One that was reset to nothing leaves nothing.
Status keep_state(const Args& args, Conversation& conversation) {
  if (!args.has("--state")) return {};
  const std::filesystem::path file = args.text("--state");
  if (conversation.answers() > 0) return conversation.save(file);
  std::error_code error;
  std::filesystem::remove(file, error);
  if (error) return errno_error(error.value(), file.string());
  return {};
}

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

// No text longer than this fits the context.
uint64_t most_text_bytes(const Tokenizer& tokenizer, uint32_t context) {
  size_t longest = 1;
  for (uint32_t id = 0; id < tokenizer.vocab_size(); ++id)
    longest = std::max(longest, tokenizer.bytes_of(static_cast<TokenId>(id)).size());
  return uint64_t{context} * longest;
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
  ASSIGN_OR_RETURN(const std::string chat_template, chat_template_of(container));
  ASSIGN_OR_RETURN(const auto format,
                   make_chat_format(container.spec().family, chat_template, *engine->tokenizer()));
  RETURN_IF_ERROR(check_start(*format, options.start));
  options.stop_ids = format->stop_ids();
  const auto& eos = engine->eos_ids();
  options.stop_ids.insert(options.stop_ids.end(), eos.begin(), eos.end());
  ASSIGN_OR_RETURN(const auto session, engine->new_session());
  Conversation conversation(
      *session, *format, [&] { return engine->stats(); }, std::move(options));
  RETURN_IF_ERROR(continue_from(args, conversation));
  Result<int> result = question ? answer_once(args, *engine, conversation, *question)
                                : chat_loop({*engine, conversation, args.operand(0),
                                             args.has("--show-reasoning"), args.has("--stats")});
  const Status kept = keep_state(args, conversation);
  if (!result.ok()) return result;
  RETURN_IF_ERROR(kept);
  return result;
}

}  // namespace wader
