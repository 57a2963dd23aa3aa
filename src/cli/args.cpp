#include "cli/args.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <iterator>
#include <sstream>

#include "base/error.h"
#include "base/units.h"
#include "cli/text.h"

namespace wader {
namespace {

Error unknown_word(const CommandSpec& spec, const std::string& word) {
  if (!word.starts_with('-') || word == "-") {
    return invalid_argument_error("wader {}: unexpected argument '{}'", spec.name, word);
  }
  std::vector<std::string_view> names;
  for (const FlagSpec& flag : flag_specs()) {
    if (flag.belongs_to(spec.id)) names.push_back(flag.name);
  }
  const std::string name = word.substr(0, word.find('='));
  const std::string_view nearest = nearest_name(name, names);
  if (nearest.empty()) {
    return invalid_argument_error("wader {}: unknown flag '{}'\n`wader {} --help` lists its flags",
                                  spec.name, name, spec.name);
  }
  return invalid_argument_error("wader {}: unknown flag '{}'\ndid you mean {}?", spec.name, name,
                                nearest);
}

// CLI11's texts start with the flag's name, a switch's without its dashes: "--seed: 1 required TEXT
// missing".
Error wrong_count(const CommandSpec& spec, std::string_view what) {
  std::string name(what.substr(0, what.find_first_of(": ")));
  if (!name.starts_with('-')) name.insert(0, "--");
  const auto specs = flag_specs();
  const bool is_switch = std::any_of(specs.begin(), specs.end(), [&](const FlagSpec& flag) {
    return flag.name == name && flag.value.empty();
  });
  return invalid_argument_error("wader {}: {} takes {} value", spec.name, name,
                                is_switch ? "no" : "one");
}

// CLI11 wants the names it knows; short forms exist for two flags only.
std::string parser_name(std::string_view flag) {
  if (flag == "--output") return "-o,--output";
  if (flag == "--help") return "-h,--help";
  if (flag == "--yes") return "-y,--yes";
  return std::string(flag);
}

}  // namespace

Result<Args> Args::parse(const CommandSpec& spec, std::span<const std::string> words) {
  Args args;
  args.command_ = spec.id;
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  std::vector<std::pair<const FlagSpec*, CLI::Option*>> options;
  std::map<std::string_view, std::string> texts;  // stable addresses for the parser to fill
  for (const FlagSpec& flag : flag_specs()) {
    if (!flag.belongs_to(spec.id)) continue;
    const std::string name = parser_name(flag.name);
    options.emplace_back(&flag, flag.value.empty() ? app.add_flag(name)->disable_flag_override()
                                                   : app.add_option(name, texts[flag.name]));
  }
  CLI::Option* operands[2] = {};
  for (size_t i = 0; i < 2 && !spec.operands[i].name.empty(); ++i) {
    operands[i] = app.add_option(std::string(spec.operands[i].name), args.operands_[i]);
  }
  std::vector<std::string> reversed(words.rbegin(),
                                    words.rend());  // CLI11 takes them from the back
  try {
    app.parse(reversed);
  } catch (const CLI::ArgumentMismatch& error) {
    return wrong_count(spec, error.what());
  } catch (const CLI::ParseError& error) {
    return invalid_argument_error("wader {}: {}", spec.name, error.what());
  }
  std::vector<std::string> rest = app.remaining();
  std::erase(rest, "--");  // what follows it was taken as operands
  if (!rest.empty()) {
    const auto flag = std::find_if(rest.begin(), rest.end(), [](const std::string& word) {
      return word.size() > 1 && word.starts_with('-');
    });
    return unknown_word(spec, flag != rest.end() ? *flag : rest.front());
  }
  for (const auto& [flag, option] : options) {
    if (option->count() > 0)
      args.values_.emplace(flag->name, flag->value.empty() ? "" : texts[flag->name]);
  }
  for (size_t i = 0; i < 2; ++i) args.has_operand_[i] = operands[i] && operands[i]->count() > 0;
  return args;
}

Result<Args> Args::with_setting(std::string_view flag,
                                std::span<const std::string_view> allowed) const {
  std::istringstream text(this->text(flag));
  const std::vector<std::string> words{std::istream_iterator<std::string>(text), {}};
  Result<Args> given = parse(spec_of(command_), words);
  if (!given.ok()) return std::move(given).error().within(flag);
  if (given->has_operand_[0])
    return invalid_argument_error("{}: '{}' is not a flag", flag, given->operands_[0]);
  Args merged = *this;
  for (const auto& [name, value] : given->values_) {
    if (std::find(allowed.begin(), allowed.end(), name) == allowed.end())
      return invalid_argument_error("{}: {} is the same for both settings; it can hold {}", flag,
                                    name, fmt::join(allowed, ", "));
    merged.values_.insert_or_assign(name, value);
  }
  return merged;
}

Status Args::require_operands() const {
  const CommandSpec& spec = spec_of(command_);
  for (size_t i = 0; i < 2; ++i) {
    const OperandSpec& operand = spec.operands[i];
    if (operand.name.empty() || !operand.required || (has_operand_[i] && !operands_[i].empty()))
      continue;
    return invalid_argument_error("wader {} needs {}: {}", spec.name, operand.name, operand.help);
  }
  return {};
}

bool Args::has(std::string_view flag) const {
  const auto specs = flag_specs();
  CHECK(std::any_of(specs.begin(), specs.end(), [&](const FlagSpec& spec) {
    return spec.name == flag && spec.belongs_to(command_);
  }));
  return values_.contains(flag);
}

std::string Args::text(std::string_view flag, std::string_view fallback) const {
  return has(flag) ? values_.find(flag)->second : std::string(fallback);
}

Result<uint64_t> Args::whole(std::string_view flag, uint64_t min, uint64_t max,
                             uint64_t fallback) const {
  if (!has(flag)) return fallback;
  const std::string& given = values_.find(flag)->second;
  uint64_t value = 0;
  const char* const end = given.data() + given.size();
  const auto [stop, code] = std::from_chars(given.data(), end, value);
  if (given.empty() || stop != end || code != std::errc{} || value < min || value > max) {
    return invalid_argument_error("{} must be a whole number from {} to {}, not '{}'", flag, min,
                                  max, given);
  }
  return value;
}

Result<double> Args::number(std::string_view flag, double fallback) const {
  if (!has(flag)) return fallback;
  const std::string& given = values_.find(flag)->second;
  double value = 0;
  const char* const end = given.data() + given.size();
  const auto [stop, code] = std::from_chars(given.data(), end, value);
  // from_chars reads "nan" and "inf" as well; no flag wants them.
  if (given.empty() || stop != end || code != std::errc{} || !(value - value == 0)) {
    return invalid_argument_error("{} must be a number, not '{}'", flag, given);
  }
  return value;
}

Result<uint64_t> Args::bytes(std::string_view flag, uint64_t fallback) const {
  if (!has(flag)) return fallback;
  const std::string& given = values_.find(flag)->second;
  if (given == "auto") return uint64_t{0};
  Result<uint64_t> value = parse_bytes(given);
  if (value.ok() && *value > 0) return value;
  return invalid_argument_error("{} must be a size such as 4GiB or 512MiB, or auto, not '{}'", flag,
                                given);
}

}  // namespace wader
