// The command line as data: commands, operands and flags. The parser (args.cpp), `--help` and
// docs/cli.md (help.cpp) all read these tables; nothing else knows a flag's name, default or help
// text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace wader {

enum class Command : uint8_t {
  install,
  list,
  rm,
  info,
  verify,
  chat,
  serve,
  generate,
  logits,
  tokenize,
  render,
  check,
  bench_kernels,
  bench_decode,
  bench_prefill,
  bench_io,
  trace,
  simulate,
  range,
  stats,
};

struct OperandSpec {
  std::string_view name;  // "MODEL"; empty: none
  std::string_view help;
  bool required = true;
};

struct CommandSpec {
  Command id;
  std::string_view name;     // "chat", or of a group "bench decode"
  std::string_view summary;  // one line, for the list of commands
  std::string_view details;  // paragraphs separated by \n
  OperandSpec operands[2];
};

enum class FlagGroup : uint8_t { command, sampling, engine, general };

struct FlagSpec {
  std::string_view name;      // "--temperature"
  std::string_view value;     // "T"; empty for a switch
  std::string_view fallback;  // what holds when the flag is absent, as text; empty: nothing
  std::string_view help;
  FlagGroup group;
  uint32_t commands;  // one bit a Command

  bool belongs_to(Command command) const { return (commands >> static_cast<int>(command)) & 1u; }
};

std::span<const CommandSpec> command_specs();
std::span<const FlagSpec> flag_specs();
const CommandSpec& spec_of(Command command);
// Null when no command has the name.
const CommandSpec* find_command(std::string_view name);
// "kernels, decode, prefill" of "bench"; empty when no command's first word of two is `group`.
std::string commands_of_group(std::string_view group);
std::string_view group_title(FlagGroup group);

}  // namespace wader
