// Help texts and docs/cli.md, rendered from the tables of flags.h.
#pragma once

#include <string>

#include "cli/flags.h"

namespace wader {

std::string version_text();                          // "wader 0.1.0\n"
std::string overview_help();                         // `wader --help`
std::string group_help(std::string_view group);      // `wader bench --help`
std::string command_help(const CommandSpec& spec);   // `wader COMMAND --help`
std::string command_usage(const CommandSpec& spec);  // "wader rm NAME [flags]"
std::string cli_markdown();                          // docs/cli.md, whole

}  // namespace wader
