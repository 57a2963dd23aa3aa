// Parsed command line of one command. Getters take a flag of the table (flags.h); asking for one
// that the command does not have is a bug. Every error is invalid_argument and names the flag:
// wrong usage, exit status 2.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/flags.h"

namespace wader {

class Args {
 public:
  // `words`: what follows the command's name. Unknown flags and surplus words are refused with a
  // suggestion, missing operands are not (so that --help works): see require_operands().
  static Result<Args> parse(const CommandSpec& spec, std::span<const std::string> words);

  // This command line with the flags that `flag`'s value holds, separated by spaces, over its own:
  // one setting of a comparison. Refuses flags that are not among `allowed`, and operands.
  Result<Args> with_setting(std::string_view flag, std::span<const std::string_view> allowed) const;

  Command command() const { return command_; }
  Status require_operands() const;

  // Operand by position; empty when it was not given.
  const std::string& operand(size_t index) const { return operands_[index]; }
  bool has_operand(size_t index) const { return has_operand_[index]; }

  bool has(std::string_view flag) const;
  std::string text(std::string_view flag, std::string_view fallback = {}) const;
  Result<uint64_t> whole(std::string_view flag, uint64_t min, uint64_t max,
                         uint64_t fallback) const;
  Result<double> number(std::string_view flag, double fallback) const;
  // "auto" is 0.
  Result<uint64_t> bytes(std::string_view flag, uint64_t fallback) const;

 private:
  Command command_ = Command::list;
  std::string operands_[2];
  bool has_operand_[2] = {};
  std::map<std::string, std::string, std::less<>> values_;  // given flags; switches map to ""
};

}  // namespace wader
