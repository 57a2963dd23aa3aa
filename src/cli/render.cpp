#include "base/error.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/options.h"
#include "engine/chat_prompt.h"

namespace wader {
namespace {

Result<ChatRequest> read_request(const Args& args) {
  const std::string file = args.text("--messages", "-");
  if (file == "-" && !args.has("--messages") && input_is_terminal()) {
    return invalid_argument_error(
        "wader render needs --messages FILE, or messages on standard input");
  }
  const std::string what = file == "-" ? "standard input" : file;
  std::string text;
  if (file == "-") {
    ASSIGN_OR_RETURN(text, read_input(kMaxInputBytes));
  } else {
    ASSIGN_OR_RETURN(text, read_text_file(file, kMaxInputBytes));
  }
  ASSIGN_OR_RETURN(const Json json, parse_json(text, what));
  auto request = chat_request_from_json(json);
  if (!request.ok()) return not_usage(std::move(request).error().within(what));
  return request;
}

}  // namespace

Result<int> run_render(const Args& args) {
  ASSIGN_OR_RETURN(const auto reasoning, reasoning_effort(args));
  ASSIGN_OR_RETURN(const std::string date, conversation_date(args));
  ASSIGN_OR_RETURN(const Container container, open_container(args));
  if (!container.has_file("tokenizer.json")) {
    return unsupported_error("{} has no tokenizer", container.directory().string());
  }
  ASSIGN_OR_RETURN(ChatRequest request, read_request(args));
  if (reasoning) request.reasoning = reasoning;
  if (request.date.empty() || args.has("--date")) request.date = date;
  auto tokenizer = Tokenizer::load((container.directory() / "tokenizer.json").string());
  if (!tokenizer.ok()) return not_usage(std::move(tokenizer).error());
  ASSIGN_OR_RETURN(const auto format, chat_format_of(container, *tokenizer));
  auto ids = format->render(request);
  if (!ids.ok()) return not_usage(std::move(ids).error());
  print_json({{"format", format->name()}, {"ids", *ids}, {"text", tokenizer->decode(*ids, true)}});
  return 0;
}

}  // namespace wader
