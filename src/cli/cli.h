// The program: picks the command, prints its error, returns the exit status.
#pragma once

#include <string>
#include <vector>

namespace wader {

// `words`: the command line without the program's name. Prints; never throws.
int run_cli(const std::vector<std::string>& words);

}  // namespace wader
