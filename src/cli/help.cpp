#include "cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "cli/text.h"

namespace wader {
namespace {

constexpr size_t kWidth = 96, kIndent = 2, kMinHelpColumn = 14, kMaxHelpColumn = 30;
constexpr std::array kGroups = {FlagGroup::command, FlagGroup::sampling, FlagGroup::engine,
                                FlagGroup::general};

std::vector<std::string> paragraphs(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find('\n'));
    out.emplace_back(one);
    text.remove_prefix(std::min(text.size(), one.size() + 1));
  }
  return out;
}

std::string short_form(const FlagSpec& flag) {
  if (flag.name == "--output") return "-o, ";
  if (flag.name == "--help") return "-h, ";
  if (flag.name == "--yes") return "-y, ";
  return "";
}

std::string left_side(const FlagSpec& flag) {
  return fmt::format("{}{}{}{}", short_form(flag), flag.name, flag.value.empty() ? "" : " ",
                     flag.value);
}

std::string right_side(const FlagSpec& flag) {
  if (flag.fallback.empty()) return std::string(flag.help);
  return fmt::format("{} [{}]", flag.help, flag.fallback);
}

using Row = std::pair<std::string, std::string>;

std::string two_columns(const std::vector<Row>& rows) {
  size_t column = kMinHelpColumn;
  for (const auto& [left, right] : rows) column = std::max(column, columns_of(left) + 2);
  column = std::min(column, kMaxHelpColumn);
  std::string out;
  const std::string margin(kIndent, ' '), blank(column, ' ');
  for (const auto& [left, right] : rows) {
    const bool own_line = columns_of(left) + 2 > column;
    out += margin + (own_line ? left + "\n" + margin + blank : pad_to(left, column));
    const auto lines = wrap(right, kWidth - kIndent - column);
    for (size_t i = 0; i < lines.size(); ++i) {
      out += (i > 0 ? margin + blank : std::string()) + lines[i] + "\n";
    }
  }
  return out;
}

std::vector<const FlagSpec*> flags_of(Command command, FlagGroup group) {
  std::vector<const FlagSpec*> out;
  for (const FlagSpec& flag : flag_specs()) {
    if (flag.group == group && flag.belongs_to(command)) out.push_back(&flag);
  }
  return out;
}

std::string markdown_cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string markdown_flags(const std::vector<const FlagSpec*>& flags) {
  std::string out = "| flag | default | meaning |\n|---|---|---|\n";
  for (const FlagSpec* flag : flags) {
    out += fmt::format("| `{}` | {} | {} |\n", left_side(*flag), markdown_cell(flag->fallback),
                       markdown_cell(flag->help));
  }
  return out;
}

std::string markdown_command(const CommandSpec& spec) {
  std::string out = fmt::format("## wader {}\n\n    {}\n\n", spec.name, command_usage(spec));
  for (const std::string& paragraph : paragraphs(spec.details)) {
    for (const std::string& line : wrap(paragraph, 110)) out += line + "\n";
    out += "\n";
  }
  for (const OperandSpec& operand : spec.operands) {
    if (!operand.name.empty()) out += fmt::format("- `{}`: {}\n", operand.name, operand.help);
  }
  if (!spec.operands[0].name.empty()) out += "\n";
  auto own = flags_of(spec.id, FlagGroup::command);
  for (const FlagSpec* flag : flags_of(spec.id, FlagGroup::general)) own.push_back(flag);
  out += markdown_flags(own);
  std::string shared;
  for (const FlagGroup group : {FlagGroup::sampling, FlagGroup::engine}) {
    if (flags_of(spec.id, group).empty()) continue;
    shared += shared.empty() ? "" : " and ";
    shared += group == FlagGroup::sampling ? "[sampling flags](#sampling-flags)"
                                           : "[engine flags](#engine-flags)";
  }
  if (!shared.empty()) out += fmt::format("\nAlso the {}.\n", shared);
  return out + "\n";
}

std::string markdown_shared(FlagGroup group, std::string_view title) {
  std::vector<const FlagSpec*> flags;
  for (const FlagSpec& flag : flag_specs()) {
    if (flag.group == group) flags.push_back(&flag);
  }
  std::string commands;
  for (const CommandSpec& spec : command_specs()) {
    if (flags_of(spec.id, group).empty()) continue;
    commands += fmt::format("{}`{}`", commands.empty() ? "" : ", ", spec.name);
  }
  return fmt::format("## {}\n\nOf {}.\n\n{}\n", title, commands, markdown_flags(flags));
}

}  // namespace

std::string version_text() {
  return "wader 0.1.0\n";
}

std::string command_usage(const CommandSpec& spec) {
  std::string usage = fmt::format("wader {}", spec.name);
  for (const OperandSpec& operand : spec.operands) {
    if (operand.name.empty()) continue;
    usage +=
        operand.required ? fmt::format(" {}", operand.name) : fmt::format(" [{}]", operand.name);
  }
  return usage + " [flags]";
}

std::string overview_help() {
  std::string out =
      "wader runs mixture-of-experts models that are larger than memory: the experts stream from "
      "disk.\n\n"
      "Usage: wader COMMAND [operands] [flags]\n\nCommands:\n";
  std::vector<Row> rows;
  for (const CommandSpec& spec : command_specs()) rows.emplace_back(spec.name, spec.summary);
  out += two_columns(rows);
  out += "\n`wader COMMAND --help` explains a command; `wader --version` names the version.\n";
  return out;
}

std::string group_help(std::string_view group) {
  std::vector<Row> rows;
  for (const CommandSpec& spec : command_specs())
    if (spec.name.starts_with(fmt::format("{} ", group)))
      rows.emplace_back(spec.name, spec.summary);
  return fmt::format(
      "Usage: wader {} COMMAND [operands] [flags]\n\nCommands:\n{}\n"
      "`wader {} COMMAND --help` explains a command.\n",
      group, two_columns(rows), group);
}

std::string command_help(const CommandSpec& spec) {
  std::string out = fmt::format("Usage: {}\n\n", command_usage(spec));
  for (const std::string& paragraph : paragraphs(spec.details)) {
    for (const std::string& line : wrap(paragraph, kWidth)) out += line + "\n";
  }
  std::vector<Row> operands;
  for (const OperandSpec& operand : spec.operands) {
    if (!operand.name.empty()) operands.emplace_back(operand.name, operand.help);
  }
  if (!operands.empty()) out.append("\n").append(two_columns(operands));
  for (const FlagGroup group : kGroups) {
    std::vector<Row> rows;
    for (const FlagSpec* flag : flags_of(spec.id, group)) {
      rows.emplace_back(left_side(*flag), right_side(*flag));
    }
    if (!rows.empty()) out += fmt::format("\n{}:\n{}", group_title(group), two_columns(rows));
  }
  return out;
}

std::string cli_markdown() {
  std::string out =
      "# Command line\n\n"
      "<!-- Written from src/cli/flags.cpp; the test `Help.DocsAreCurrent` says how to write it "
      "again. -->\n\n"
      "Exit status: 0 on success, 1 on a failure that standard error names, 2 on wrong usage.\n"
      "`MODEL` is a container's path, the name of an installed model, or a released checkpoint's "
      "directory, which is used in place. Models are installed into\n"
      "`$WADER_HOME`, or `$XDG_DATA_HOME/wader/models`, or `~/.local/share/wader/models`.\n"
      "Sizes are bytes, or `512MiB`, `4GiB`, `1.5G` (binary) or `4GB` (decimal).\n"
      "Colours appear on a terminal only, and not when `NO_COLOR` is set.\n\n"
      "| command | does |\n|---|---|\n";
  for (const CommandSpec& spec : command_specs()) {
    std::string anchor(spec.name);
    std::replace(anchor.begin(), anchor.end(), ' ', '-');
    out += fmt::format("| [`{}`](#wader-{}) | {} |\n", spec.name, anchor, spec.summary);
  }
  out += "\n";
  for (const CommandSpec& spec : command_specs()) out += markdown_command(spec);
  out += markdown_shared(FlagGroup::sampling, "Sampling flags");
  out += markdown_shared(FlagGroup::engine, "Engine flags");
  out.pop_back();
  return out;
}

}  // namespace wader
