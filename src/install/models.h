// Installed models: where they are, which one a name means, and how one is deleted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace wader {

// $WADER_HOME, or $XDG_DATA_HOME/wader/models, or ~/.local/share/wader/models. It need not exist.
Result<std::filesystem::path> models_directory();

struct InstalledModel {
  // stale: in place, and its checkpoint has gone or changed
  enum class State : uint8_t { complete, unfinished, damaged, stale };
  std::string name;  // without ".wader"
  std::filesystem::path path;
  State state;
  std::string problem;   // why it is damaged or stale
  std::string source;    // what it was installed from: ORG/NAME, or a directory's name or path
  std::string in_place;  // the checkpoint's directory, where the experts are there
  std::string family;    // empty when the manifest cannot tell, as the formats then are
  std::string expert_format, trunk_format;  // "affine4", "affine8 + bf16"
  uint32_t layers = 0, experts = 0;
  uint64_t disk_bytes = 0;  // blocks in use
};

// The container at `path`, whether it is one or not.
InstalledModel describe_model(const std::filesystem::path& path);

std::string_view state_name(InstalledModel::State state);  // "complete"
// As `wader list --json` and /wader/models show it.
Json installed_model_json(const InstalledModel& model);

// Every NAME.wader in `directory`, sorted by name. A directory that is not there holds none.
std::vector<InstalledModel> list_models(const std::filesystem::path& directory);

// The container that MODEL means: a text with a slash is a path; otherwise an installed NAME (or
// NAME.wader), else a path in the current directory. not_found lists what is installed and how to
// install.
Result<std::filesystem::path> resolve_model(std::string_view model);

// A name that can stand for a model: letters, digits and ._-+, not starting with a dot or dash, up
// to 128 bytes.
bool valid_model_name(std::string_view name);
// Name for a checkpoint's path: the directory's (or file's) own name with other characters
// replaced.
std::string model_name_from(const std::filesystem::path& source);

// Refuses what is not a container or an unfinished install: every entry must be a file that those
// have.
Status check_removable(const std::filesystem::path& container);
// Renames to a hidden name first, so that a killed removal leaves nothing that looks installed.
Status remove_model(const std::filesystem::path& container);

}  // namespace wader
