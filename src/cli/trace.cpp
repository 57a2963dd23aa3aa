#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>

#include "base/error.h"
#include "base/units.h"
#include "cli/chat_template.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/options.h"
#include "cli/text.h"
#include "experts/routing_trace.h"

namespace wader {
namespace {

// What the engine shows layer by layer becomes passes of a trace.
class Recorder {
 public:
  Recorder(RoutingTraceWriter writer, const TraceShape& shape)
      : writer_(std::move(writer)), shape_(shape) {}

  void begin_prompt() {
    pass_.clear();
    layers_ = 0;
    begins_prompt_ = true;
  }
  void take(std::span<const uint32_t> ids) {
    for (const uint32_t id : ids) pass_.push_back(static_cast<uint16_t>(id));
    if (++layers_ < shape_.layers) return;
    const auto rows = static_cast<uint32_t>(ids.size() / shape_.experts_per_token);
    if (written_.ok()) written_ = writer_.append(rows, begins_prompt_, pass_);
    begins_prompt_ = false;
    ++passes_;
    tokens_ += rows;
    pass_.clear();
    layers_ = 0;
  }
  // Everything so far is in the file.
  Status flush() {
    RETURN_IF_ERROR(written_);
    return writer_.flush();
  }
  Status finish() {
    RETURN_IF_ERROR(written_);
    return writer_.finish();
  }
  uint64_t passes() const { return passes_; }
  uint64_t tokens() const { return tokens_; }
  uint64_t bytes() const { return writer_.bytes(); }

 private:
  RoutingTraceWriter writer_;
  TraceShape shape_;
  std::vector<uint16_t> pass_;  // ids so far
  uint32_t layers_ = 0;
  bool begins_prompt_ = false;
  uint64_t passes_ = 0, tokens_ = 0;
  Status written_;
};

struct Work {
  std::vector<std::vector<TokenId>> prompts;
  std::vector<TokenId> stop_ids;
};

Result<std::vector<std::string>> questions(const Args& args) {
  if (args.has("--prompt")) return std::vector<std::string>{args.text("--prompt")};
  ASSIGN_OR_RETURN(const std::string text, read_text_file(args.text("--prompts"), kMaxInputBytes));
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  if (lines.empty()) return invalid_argument_error("{} holds no line", args.text("--prompts"));
  return lines;
}

Result<std::vector<ChatRequest>> requests(const Args& args, const std::string& date) {
  std::vector<ChatRequest> out;
  if (args.has("--messages")) {
    const std::string file = args.text("--messages");
    ASSIGN_OR_RETURN(const std::string text, read_text_file(file, kMaxInputBytes));
    ASSIGN_OR_RETURN(const Json json, parse_json(text, file));
    // One chat, or a list of them.
    const bool list = json.is_array() && !json.empty() && json_has(json[0], "messages");
    for (size_t i = 0; i < (list ? json.size() : 1); ++i) {
      auto request = chat_request_from_json(list ? json[i] : json);
      if (!request.ok()) return not_usage(std::move(request).error().within(file));
      out.push_back(std::move(*request));
    }
  } else {
    ASSIGN_OR_RETURN(const auto texts, questions(args));
    for (const std::string& text : texts) {
      Message user = {};
      user.role = Message::Role::user;
      user.content = text;
      out.emplace_back().messages.push_back(std::move(user));
    }
  }
  for (ChatRequest& request : out)
    if (request.date.empty()) request.date = date;
  return out;
}

Result<Work> chats(const Args& args, const Container& container, const Engine& engine) {
  if (engine.tokenizer() == nullptr)
    return unsupported_error("{} has no tokenizer: use --tokens or --random",
                             container.directory().string());
  ASSIGN_OR_RETURN(const std::string date, conversation_date(args));
  ASSIGN_OR_RETURN(const auto list, requests(args, date));
  ASSIGN_OR_RETURN(const std::string chat_template, chat_template_of(container));
  ASSIGN_OR_RETURN(const auto format,
                   make_chat_format(container.spec().family, chat_template, *engine.tokenizer()));
  Work work;
  for (const ChatRequest& request : list) {
    auto prompt = format->render(request);
    if (!prompt.ok()) return not_usage(std::move(prompt).error());
    work.prompts.push_back(std::move(*prompt));
  }
  work.stop_ids = format->stop_ids();
  const auto& eos = engine.eos_ids();
  work.stop_ids.insert(work.stop_ids.end(), eos.begin(), eos.end());
  return work;
}

Result<Work> random_work(const Args& args, const ArchitectureSpec& spec, uint64_t seed) {
  ASSIGN_OR_RETURN(const uint64_t tokens, args.whole("--random", 1, spec.max_context, 0));
  ASSIGN_OR_RETURN(const uint64_t repeat, args.whole("--repeat", 1, 1'000'000, 1));
  std::mt19937_64 random(seed);
  Work work;
  for (uint64_t r = 0; r < repeat; ++r) {
    auto& prompt = work.prompts.emplace_back(tokens);
    for (TokenId& id : prompt) id = static_cast<TokenId>(random() % spec.vocab_rows);
  }
  return work;
}

// One kind of work; wrong usage shows before the model is loaded.
Status check_usage(const Args& args) {
  int kinds = 0;
  for (const char* flag : {"--prompt", "--prompts", "--messages", "--tokens", "--random"})
    kinds += args.has(flag) ? 1 : 0;
  if (kinds != 1)
    return invalid_argument_error(
        "wader trace needs one of --prompt, --prompts, --messages, --tokens and --random");
  if (args.text("--output").empty())
    return invalid_argument_error("wader trace needs --output FILE");
  if (args.has("--repeat") && !args.has("--random"))
    return invalid_argument_error("--repeat goes with --random");
  return check_sampling_flags(args);
}

Status record(Session& session, const Work& work, GenerateOptions options, Recorder& recorder) {
  for (const std::vector<TokenId>& prompt : work.prompts) {
    session.reset();
    recorder.begin_prompt();
    ASSIGN_OR_RETURN(const Generation done, session.generate(prompt, options));
    RETURN_IF_ERROR(recorder.flush());
    if (done.reason == FinishReason::cancelled) return cancelled_error("stopped");
    ++options.sampling.seed;
  }
  return {};
}

}  // namespace

Result<int> run_trace(const Args& args) {
  RETURN_IF_ERROR(check_usage(args));
  ASSIGN_OR_RETURN(EngineOptions engine_flags, engine_options(args));
  ASSIGN_OR_RETURN(const uint64_t count,
                   args.whole("--count", 1, std::numeric_limits<uint32_t>::max(), 128));
  ASSIGN_OR_RETURN(const Container container, open_container(args));
  const ArchitectureSpec& spec = container.spec();
  const TraceShape shape{spec.moe_layer_count(), spec.experts, spec.experts_per_token,
                         container.manifest().experts.stride_bytes, container.identity()};
  std::optional<Recorder> recorder;
  engine_flags.on_routing = [&](uint32_t, std::span<const uint32_t> ids) { recorder->take(ids); };
  watch_interrupts();
  ASSIGN_OR_RETURN(const auto engine, open_engine(container, engine_flags));
  GenerateOptions options;
  ASSIGN_OR_RETURN(options.sampling, sampling_params(args, engine->default_sampling()));
  options.max_tokens = static_cast<uint32_t>(count);
  options.cancel = &interrupted();
  Work work;
  if (args.has("--random")) {
    ASSIGN_OR_RETURN(work, random_work(args, spec, options.sampling.seed));
  } else if (args.has("--tokens")) {
    ASSIGN_OR_RETURN(auto ids, token_ids_flag(args, "--tokens", spec.vocab_rows));
    work.prompts.push_back(std::move(ids));
  } else {
    ASSIGN_OR_RETURN(work, chats(args, container, *engine));
  }
  options.stop_ids = work.stop_ids;
  ASSIGN_OR_RETURN(const auto session, engine->new_session());
  // Only now: what stands there is not lost to a command that cannot work.
  ASSIGN_OR_RETURN(RoutingTraceWriter writer,
                   RoutingTraceWriter::create(args.text("--output"), shape));
  recorder.emplace(std::move(writer), shape);
  RETURN_IF_ERROR(record(*session, work, options, *recorder));
  RETURN_IF_ERROR(recorder->finish());
  if (args.has("--json"))
    print_json({{"prompts", work.prompts.size()},
                {"passes", recorder->passes()},
                {"tokens", recorder->tokens()},
                {"bytes", recorder->bytes()}});
  else
    print(terminal_safe(fmt::format("{}: {} prompts, {} tokens in {} passes, {}\n",
                                    args.text("--output"), work.prompts.size(), recorder->tokens(),
                                    recorder->passes(), format_bytes(recorder->bytes()))));
  return 0;
}

}  // namespace wader
