// The rules of the house, as functions of a source tree: which folder may include which, what
// library code may not call, how long a file may be. house_test.cpp runs them on this tree, and on
// small broken ones.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace wader::house {

// "src/io/file.cpp:12: what is wrong"; empty means that the rule holds.
using Findings = std::vector<std::string>;

// The source as the compiler sees it: comments, and the insides of string and character literals,
// become spaces; lines keep their numbers and columns.
std::string code_only(std::string_view source);

// Folder → rank, from the table of docs/architecture.md. Ranks compare as text of equal length: "1
// " < "1b" < "2 ".
std::map<std::string, std::string> parse_ranks(std::string_view architecture_md);

// Folder → folders that its library is linked with, from wader_folder(NAME DEPS …) of
// CMakeLists.txt.
std::map<std::string, std::set<std::string>> parse_links(std::string_view cmakelists);

// Every folder of src/ has a rank; includes and links point to lower ranks only; what is included
// is linked.
Findings check_layers(const std::filesystem::path& root);

// Outside src/cli, tests and base/check.cpp: no printing, no exit, no abort.
Findings check_library_calls(const std::filesystem::path& root);

// All C++ files: no tabs, no lines over 110 columns (but for an address), at most 600 lines unless
// `long_files` has the path with a reason; headers of src/ open with a comment, then #pragma once.
Findings check_layout(const std::filesystem::path& root,
                      const std::map<std::string, std::string>& long_files);

// Headers of src/: no two types of one name in the same namespace. Each would be fine where it is
// included, but a program with both has one destructor for the two.
Findings check_type_names(const std::filesystem::path& root);

// All text of the project: no notes of unfinished work.
Findings check_unfinished(const std::filesystem::path& root);

// Relative links of README.md, CONTRIBUTING.md and docs/*.md lead to files that exist.
Findings check_links(const std::filesystem::path& root);

}  // namespace wader::house
