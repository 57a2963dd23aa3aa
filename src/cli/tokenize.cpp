#include <fmt/format.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/options.h"
#include "cli/text.h"

namespace wader {
namespace {

Result<std::string> text_operand(const Args& args) {
  if (args.has_operand(1) && args.operand(1) != "-") return args.operand(1);
  if (!args.has_operand(1) && input_is_terminal()) {
    return invalid_argument_error("wader tokenize needs TEXT, or - for standard input");
  }
  return read_input(kMaxInputBytes);
}

}  // namespace

Result<int> run_tokenize(const Args& args) {
  ASSIGN_OR_RETURN(const Container container, open_container(args));
  if (!container.has_file("tokenizer.json")) {
    return unsupported_error("{} has no tokenizer", container.directory().string());
  }
  ASSIGN_OR_RETURN(const std::string text, text_operand(args));
  auto tokenizer = Tokenizer::load((container.directory() / "tokenizer.json").string());
  if (!tokenizer.ok()) return not_usage(std::move(tokenizer).error());
  if (!args.has("--decode")) {
    const auto markup = args.has("--special") ? Tokenizer::Markup::on : Tokenizer::Markup::off;
    ASSIGN_OR_RETURN(const std::vector<TokenId> ids, tokenizer->encode(text, markup));
    print(fmt::format("[{}]\n", join_ids(ids, ", ")));
    return 0;
  }
  ASSIGN_OR_RETURN(const std::vector<TokenId> ids, parse_token_ids(text, tokenizer->vocab_size()));
  const std::string decoded = tokenizer->decode(ids, args.has("--special"));
  // Exact bytes for a program, harmless ones and a newline for a terminal.
  print(output_is_terminal() ? terminal_safe(decoded) + "\n" : decoded);
  return 0;
}

}  // namespace wader
