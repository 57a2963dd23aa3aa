#include "cli/cli.h"

#include <signal.h>

#include <algorithm>
#include <exception>
#include <new>

#include "base/error.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/help.h"
#include "cli/text.h"

namespace wader {
namespace {

Result<int> dispatch(const Args& args) {
  switch (args.command()) {
    case Command::install:
      return run_install(args);
    case Command::list:
      return run_list(args);
    case Command::rm:
      return run_rm(args);
    case Command::info:
      return run_info(args);
    case Command::verify:
      return run_verify(args);
    case Command::chat:
      return run_chat(args);
    case Command::serve:
      return run_serve(args);
    case Command::stats:
      return run_stats(args);
    case Command::generate:
      return run_generate(args);
    case Command::logits:
      return run_logits(args);
    case Command::tokenize:
      return run_tokenize(args);
    case Command::render:
      return run_render(args);
    case Command::check:
      return run_check(args);
    case Command::bench_kernels:
      return run_bench_kernels(args);
    case Command::bench_decode:
      return run_bench_decode(args);
    case Command::bench_prefill:
      return run_bench_prefill(args);
    case Command::trace:
      return run_trace(args);
    case Command::simulate:
      return run_simulate(args);
    case Command::range:
      return run_range(args);
    case Command::bench_io:
      return run_bench_io(args);
  }
  UNREACHABLE("no such case");
}

Error unknown_command(const std::string& word) {
  std::vector<std::string_view> names = {"help"};
  for (const CommandSpec& spec : command_specs()) names.push_back(spec.name);
  const std::string_view nearest = nearest_name(word, names);
  const std::string_view kind = word.starts_with('-') ? "flag" : "command";
  if (nearest.empty()) {
    return invalid_argument_error("unknown {} '{}'\n`wader --help` lists the commands", kind, word);
  }
  return invalid_argument_error("unknown {} '{}'\ndid you mean `wader {}`?", kind, word, nearest);
}

// The command that `words` begin with, and how many of them name it: one, or two of a group.
struct NamedCommand {
  const CommandSpec* spec;
  size_t words;
};
Result<NamedCommand> named_command(std::span<const std::string> words) {
  if (const CommandSpec* spec = find_command(words[0])) return NamedCommand{spec, 1};
  const std::string members = commands_of_group(words[0]);
  if (members.empty()) return unknown_command(words[0]);
  if (words.size() == 1 || words[1].starts_with('-'))
    return invalid_argument_error("wader {} needs one of: {}\n`wader {} --help` explains them",
                                  words[0], members, words[0]);
  const std::string name = words[0] + " " + words[1];
  if (const CommandSpec* spec = find_command(name)) return NamedCommand{spec, 2};
  return unknown_command(name);
}

Result<int> run(const std::vector<std::string>& words) {
  if (words.empty())
    return invalid_argument_error("which command?\n`wader --help` lists the commands");
  if (words[0] == "--version") {
    print(version_text());
    return 0;
  }
  const bool help = words[0] == "--help" || words[0] == "-h" || words[0] == "help";
  if (help && words.size() == 1) {
    print(overview_help());
    return 0;
  }
  const std::span<const std::string> rest = std::span(words).subspan(help ? 1 : 0);
  const bool group_alone = rest.size() == (help ? 1u : 2u) && !commands_of_group(rest[0]).empty();
  if (group_alone && (help || rest[1] == "--help" || rest[1] == "-h")) {
    print(group_help(rest[0]));
    return 0;
  }
  ASSIGN_OR_RETURN(const NamedCommand command, named_command(rest));
  const CommandSpec* spec = command.spec;
  ASSIGN_OR_RETURN(const Args args, Args::parse(*spec, rest.subspan(command.words)));
  if (help || args.has("--help")) {
    print(command_help(*spec));
    return 0;
  }
  if (Status status = args.require_operands(); !status.ok()) {
    Error error = std::move(status).error();
    error.message += "\nusage: " + command_usage(*spec);
    return error;
  }
  return dispatch(args);
}

Result<int> run_guarded(const std::vector<std::string>& words) {
  try {
    return run(words);
  } catch (const std::bad_alloc&) {
    return over_budget_error("out of memory");
  } catch (const std::exception& exception) {
    // The program throws nothing itself; a library that does has not kept its word.
    return io_error("unexpected: {}", exception.what());
  }
}

}  // namespace

int run_cli(const std::vector<std::string>& words) {
  signal(SIGXFSZ, SIG_IGN);  // a file-size limit (ulimit -f) likewise
  signal(SIGPIPE, SIG_IGN);  // a reader that went away is an error like a full disk
  Result<int> result = run_guarded(words);
  flush_output();
  show_status("");
  if (!result.ok()) {
    print_error(result.error());
    return result.error().code == ErrorCode::invalid_argument ? 2 : 1;
  }
  if (const Status output = output_status(); !output.ok()) {
    print_error(output.error());
    return 1;
  }
  return *result;
}

}  // namespace wader
