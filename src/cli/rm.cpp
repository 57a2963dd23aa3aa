#include <fmt/format.h>
#include <unistd.h>

#include <iostream>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/in_place.h"
#include "cli/text.h"
#include "install/models.h"

namespace wader {
namespace {

// A damaged container is listed too, so it must be reachable by name as well: no check of the
// contents here.
Result<bool> confirmed(const std::filesystem::path& path, const Args& args) {
  if (args.has("--yes")) return true;
  if (!input_is_terminal()) {
    return invalid_argument_error("wader rm asks before it deletes; without a terminal, add --yes");
  }
  print(terminal_safe(fmt::format("delete {}? [y/N] ", path.string())));
  flush_output();
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

}  // namespace

Result<int> run_rm(const Args& args) {
  ASSIGN_OR_RETURN(const std::filesystem::path path, resolve_model(args.operand(0)));
  if (is_checkpoint(path)) {
    ASSIGN_OR_RETURN(const std::filesystem::path kept, in_place_path(path));
    std::error_code ignored;
    return unsupported_error("{} is a checkpoint, which wader never deletes; nothing was deleted{}",
                             path.string(),
                             std::filesystem::exists(kept, ignored)
                                 ? fmt::format("\nwhat wader keeps to use it in place: wader rm {}",
                                               kept.stem().string())
                                 : std::string());
  }
  RETURN_IF_ERROR(check_removable(path));
  ASSIGN_OR_RETURN(const bool go, confirmed(path, args));
  if (!go) return cancelled_error("nothing was deleted");
  RETURN_IF_ERROR(remove_model(path));
  print(terminal_safe(fmt::format("deleted {}\n", path.string())));
  return 0;
}

}  // namespace wader
