#include "install/models.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>

#include "base/ascii.h"
#include "base/error.h"
#include "container/container.h"
#include "container/journal.h"
#include "container/manifest.h"
#include "experts/usage_file.h"
#include "install/fetch_window.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".wader";

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

bool directory_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool entry_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

uint64_t disk_bytes(const fs::path& directory) {
  uint64_t blocks = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    struct stat status = {};
    if (lstat(it->path().c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
      blocks += static_cast<uint64_t>(status.st_blocks);
    }
  }
  return blocks * 512;  // st_blocks counts 512-byte units whatever the file system
}

// Empty where it is not there.
std::string text_of(const Json& object, std::string_view key) {
  auto text = json_string(object, key);
  return text.ok() ? std::move(text).value() : std::string();
}

// What an unfinished install would be called with again. The experts' format is named where both
// their parts have it.
void take_origin(const Json& origin, InstalledModel& model) {
  constexpr std::string_view kHub = "hub:";  // hub:ORG/NAME@COMMIT
  model.source = text_of(origin, "source");
  if (model.source.starts_with(kHub))
    model.source = model.source.substr(kHub.size(), model.source.find('@') - kHub.size());
  model.trunk_format = text_of(origin, "trunk");
  if (const auto layers = json_uint(origin, "layers", 0, UINT32_MAX); layers.ok())
    model.layers = static_cast<uint32_t>(*layers);
  const auto experts = json_member(origin, "experts");
  if (!experts.ok() || !(*experts)->is_object()) return;
  if (std::string format = text_of(**experts, "gate_up"); format == text_of(**experts, "down"))
    model.expert_format = std::move(format);
}

// A manifest of ours, of whatever version and however damaged, names its format; a journal of ours
// begins as every journal does. Other programs have files of these names too.
bool is_our_text(const fs::path& file) {
  auto text = read_text_file(file, kMaxManifestBytes);
  if (!text.ok()) return entry_exists(file) && text.error().code != ErrorCode::not_found;
  if (file.filename() == kJournalFile) return text->empty() || is_journal_text(*text);
  const auto json = parse_json(*text, kManifestFile);
  return !json.ok() || (json_has(*json, "format") && (*json)["format"] == "wader");
}

Error not_installed(std::string_view model, const fs::path& directory) {
  std::string names;
  for (const InstalledModel& installed : list_models(directory)) {
    if (installed.state != InstalledModel::State::complete) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", installed.name);
  }
  return not_found_error(
      "no model '{}'\n{}\ninstall one with: wader install CHECKPOINT_DIRECTORY", model,
      names.empty() ? fmt::format("nothing is installed in {}", directory.string())
                    : fmt::format("installed in {}: {}", directory.string(), names));
}

// A file that is being written carries ".tmp", or ".PID.tmp" (io/file.h, write_file_atomically).
std::string_view without_temporary_suffix(std::string_view name) {
  if (!name.ends_with(".tmp")) return name;
  name.remove_suffix(4);
  const size_t dot = name.rfind('.');
  if (dot != name.npos && dot + 1 < name.size() &&
      name.find_first_not_of("0123456789", dot + 1) == name.npos)
    name = name.substr(0, dot);
  return name;
}

// Names at the top of a container, finished or not.
bool belongs_to_container(std::string_view name) {
  name = without_temporary_suffix(name);
  static constexpr std::array<std::string_view, 16> kNames = {kManifestFile,
                                                              kTrunkFile,
                                                              "digests.bin",
                                                              "experts",
                                                              "tokenizer.json",
                                                              "tokenizer_config.json",
                                                              "config.json",
                                                              "generation_config.json",
                                                              "chat_template.jinja",
                                                              "LICENSE",
                                                              kRangeFile,
                                                              kFetchFile,
                                                              kJournalFile,
                                                              kReadRatesFile,
                                                              kUsageFile,
                                                              kSourceFile};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

// Of removals that were killed or failed half-way; those of others that are at work end the same.
void remove_leftovers(const fs::path& directory) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.') && name.find(".wader.removing-") != name.npos)
      found.push_back(entry.path());
  }
  for (const fs::path& path : found) fs::remove_all(path, ignored);
}

bool is_expert_file(std::string_view name) {
  name = without_temporary_suffix(name);
  return name.starts_with("layer-") && name.ends_with(".bin");
}

}  // namespace

Result<fs::path> models_directory() {
  if (const char* home = environment("WADER_HOME")) return fs::path(home);
  if (const char* data = environment("XDG_DATA_HOME")) return fs::path(data) / "wader" / "models";
  if (const char* home = environment("HOME")) {
    return fs::path(home) / ".local" / "share" / "wader" / "models";
  }
  return not_found_error("neither WADER_HOME nor HOME is set: where are the models?");
}

InstalledModel describe_model(const fs::path& path) {
  InstalledModel model;
  model.path = path;
  model.name = path.stem().string();
  model.disk_bytes = disk_bytes(path);
  const auto take = [&](const Manifest& manifest) {
    model.source = manifest.source;
    model.family = manifest.spec.family;
    model.expert_format = expert_format_text(manifest.experts.format);
    model.trunk_format = trunk_format_text(manifest);
    model.layers = manifest.spec.layer_count();
    model.experts = manifest.spec.experts;
  };
  if (entry_exists(path / kJournalFile)) {
    model.state = InstalledModel::State::unfinished;
    if (const auto text = read_text_file(path / kJournalFile, kMaxManifestBytes); text.ok()) {
      if (const auto origin = journal_origin(*text); origin.ok()) take_origin(*origin, model);
    }
    return model;
  }
  Result<Container> container = Container::open(path);
  if (container.ok()) {
    model.state = InstalledModel::State::complete;
    take(container->manifest());
    if (container->in_place()) model.in_place = container->in_place()->directory.string();
    return model;
  }
  model.state = InstalledModel::State::damaged;
  model.problem = container.error().message;
  const Result<Container> kept = Container::open_to_repair(path);
  if (!kept.ok() || !kept->in_place()) return model;
  const Status source = check_source_files(*kept->in_place());
  if (source.ok()) return model;
  take(kept->manifest());
  model.in_place = kept->in_place()->directory.string();
  model.state = InstalledModel::State::stale;
  model.problem =
      directory_exists(kept->in_place()->directory)
          ? source.error().message
          : fmt::format(
                "its checkpoint is not at {} any more: put it back, or use it where it is now and "
                "`wader rm {}`",
                model.in_place, model.name);
  return model;
}

std::vector<InstalledModel> list_models(const fs::path& directory) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with('.') && name.ends_with(kSuffix) && directory_exists(it->path())) {
      paths.push_back(it->path());
    }
  }
  std::vector<InstalledModel> models;
  for (const fs::path& path : paths) models.push_back(describe_model(path));
  std::sort(models.begin(), models.end(),
            [](const InstalledModel& a, const InstalledModel& b) { return a.name < b.name; });
  return models;
}

std::string_view state_name(InstalledModel::State state) {
  switch (state) {
    case InstalledModel::State::complete:
      return "complete";
    case InstalledModel::State::unfinished:
      return "unfinished";
    case InstalledModel::State::damaged:
      return "damaged";
    case InstalledModel::State::stale:
      return "stale";
  }
  UNREACHABLE("no such case");
}

Json installed_model_json(const InstalledModel& model) {
  Json json = {{"name", model.name},
               {"path", model.path.string()},
               {"state", state_name(model.state)},
               {"source", model.source},
               {"family", model.family},
               {"layers", model.layers},
               {"experts", model.experts},
               {"expert_format", model.expert_format},
               {"trunk_format", model.trunk_format},
               {"disk_bytes", model.disk_bytes}};
  if (!model.in_place.empty()) json["in_place"] = model.in_place;
  if (!model.problem.empty()) json["problem"] = model.problem;
  return json;
}

Result<fs::path> resolve_model(std::string_view model) {
  ASSIGN_OR_RETURN(const fs::path directory, models_directory());
  const fs::path path(model);
  if (model.find('/') != model.npos || model == "." || model == "..") {
    if (directory_exists(path)) return path;
    return not_installed(model, directory);
  }
  if (valid_model_name(model)) {
    const std::string name(model.ends_with(kSuffix) ? model.substr(0, model.size() - kSuffix.size())
                                                    : model);
    const fs::path installed = directory / (name + std::string(kSuffix));
    if (directory_exists(installed)) return installed;
  }
  if (!model.empty() && directory_exists(path)) return path;
  return not_installed(model, directory);
}

bool valid_model_name(std::string_view name) {
  const auto good = [](char c) {
    return is_ascii_alnum(c) || c == '.' || c == '_' || c == '-' || c == '+';
  };
  return !name.empty() && name.size() <= 128 && name[0] != '.' && name[0] != '-' &&
         std::all_of(name.begin(), name.end(), good);
}

std::string model_name_from(const fs::path& source) {
  std::error_code ignored;
  // Not resolved: who gives a link's name wants that name.
  fs::path whole = fs::absolute(source, ignored).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  if (whole.extension() == ".safetensors") whole = whole.parent_path();
  std::string name = whole.filename().string().substr(0, 128);
  for (char& c : name) {
    if (!valid_model_name(std::string("x") + c)) c = '-';
  }
  while (name.starts_with('.') || name.starts_with('-')) name.erase(0, 1);
  return name.empty() ? "model" : name;
}

Status check_removable(const fs::path& container) {
  std::error_code error;
  if (fs::is_symlink(container, error)) {
    return unsupported_error("{} is a symbolic link: delete it, or what it points to, yourself",
                             container.string());
  }
  bool ours = false;
  for (fs::directory_iterator it(container, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    ours = ours || ((name == kManifestFile || name == kJournalFile) && is_our_text(it->path()));
    const bool plain = name == "experts" ? it->symlink_status().type() == fs::file_type::directory
                                         : it->symlink_status().type() == fs::file_type::regular;
    if (!belongs_to_container(name) || !plain) {
      return unsupported_error(
          "{} holds '{}', which is no part of a container: nothing was deleted", container.string(),
          name);
    }
  }
  if (error) return errno_error(error.value(), container.string());
  if (!ours) {
    return unsupported_error(
        "{} is neither a container nor an unfinished install: nothing was deleted",
        container.string());
  }
  const fs::path experts = container / "experts";
  if (!entry_exists(experts)) return {};
  for (fs::directory_iterator it(experts, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!is_expert_file(name) || it->symlink_status().type() != fs::file_type::regular) {
      return unsupported_error(
          "{} holds '{}', which is no part of a container: nothing was deleted", experts.string(),
          name);
    }
  }
  if (error) return errno_error(error.value(), experts.string());
  return {};
}

Status remove_model(const fs::path& container) {
  RETURN_IF_ERROR(check_removable(container));
  std::error_code error;
  const fs::path whole = fs::canonical(container, error);  // "DIR/." and trailing slashes too
  if (error) return errno_error(error.value(), container.string());
  ASSIGN_OR_RETURN(const File held, hold_unfinished(whole));
  static std::atomic<uint32_t> removals = 0;  // one that failed half-way keeps its name
  const fs::path hidden =
      whole.parent_path() /
      fmt::format(".{}.removing-{}-{}", whole.filename().string(), getpid(), ++removals);
  remove_leftovers(whole.parent_path());
  fs::rename(whole, hidden, error);
  if (error) return errno_error(error.value(), whole.string());
  fs::remove_all(hidden, error);
  if (error) return errno_error(error.value(), hidden.string());
  return {};
}

}  // namespace wader
