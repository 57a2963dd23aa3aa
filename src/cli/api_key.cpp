#include "cli/api_key.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "cli/console.h"
#include "cli/options.h"
#include "io/file.h"

namespace wader {

Result<std::optional<std::string>> api_key(const Args& args) {
  std::string key;
  if (args.has("--api-key-file")) {
    const std::string file = args.text("--api-key-file");
    auto text = read_text_file(file, 4096);
    if (!text.ok()) return not_usage(std::move(text).error());
    key = std::move(*text);
    while (!key.empty() && std::strchr("\r\n\t ", key.back()) != nullptr) key.pop_back();
    if (key.empty()) return corrupt_error("{} holds no key", file);
    struct stat facts = {};
    if (stat(file.c_str(), &facts) == 0 && (facts.st_mode & S_IROTH) != 0)
      print_note(fmt::format("{} can be read by other users: chmod 600", file));
  } else if (const char* given = std::getenv("WADER_API_KEY")) {
    key = given;
  }
  if (key.empty()) return std::optional<std::string>();
  const bool printable =
      std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (!printable) return corrupt_error("the API key must be printable ASCII without spaces");
  return std::optional(std::move(key));
}

}  // namespace wader
