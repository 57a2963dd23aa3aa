#include "container/in_place.h"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "container/manifest.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxFiles = 4096;
constexpr uint64_t kMaxFileBytes = 1ull << 62;
constexpr uint64_t kVersion = 1;

Status refuse_unknown_keys(const Json& object, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      return corrupt_error("key '{}' is not known", key);
  return {};
}

// A path below the checkpoint's directory, and one that a terminal can show.
bool is_name_inside(const std::string& name) {
  if (name.empty() || name.size() > 4096 || !is_printable(name)) return false;
  const fs::path path(name);
  if (path.is_absolute()) return false;
  for (const fs::path& part : path)
    if (part == ".." || part == "." || part.empty()) return false;
  return true;
}

Result<SourceFile> file_from_json(const Json& json) {
  SourceFile file;
  ASSIGN_OR_RETURN(file.name, json_string(json, "name"));
  RETURN_IF_ERROR(refuse_unknown_keys(json, {"name", "bytes", "modified_ns", "inode"}));
  if (!is_name_inside(file.name))
    return corrupt_error("a file's name must stay inside the checkpoint's directory");
  ASSIGN_OR_RETURN(file.bytes, json_uint(json, "bytes", 0, kMaxFileBytes));
  ASSIGN_OR_RETURN(file.inode, json_uint(json, "inode", 0, UINT64_MAX));
  ASSIGN_OR_RETURN(const Json* modified, json_member(json, "modified_ns"));
  if (!modified->is_number_integer()) return corrupt_error("key 'modified_ns' must be an integer");
  file.modified_ns = modified->get<int64_t>();
  return file;
}

Result<SourceRun> run_from_json(const Json& json, const std::vector<SourceFile>& files,
                                uint64_t bytes, uint64_t experts) {
  SourceRun run;
  ASSIGN_OR_RETURN(const uint64_t file, json_uint(json, "file", 0, UINT32_MAX));
  RETURN_IF_ERROR(refuse_unknown_keys(json, {"file", "offset", "step"}));
  if (file >= files.size()) return corrupt_error("there is no file {}", file);
  run.file = static_cast<uint32_t>(file);
  ASSIGN_OR_RETURN(run.offset_bytes, json_uint(json, "offset", 0, kMaxFileBytes));
  ASSIGN_OR_RETURN(run.step_bytes, json_uint(json, "step", 0, kMaxFileBytes));
  const auto last = checked_mul(run.step_bytes, experts - 1);
  if (!last || *last > kMaxFileBytes ||
      !in_file(run.offset_bytes + *last, bytes, files[file].bytes))
    return corrupt_error("leads out of {}", files[file].name);
  return run;
}

Result<std::vector<std::vector<SourceRun>>> layers_from_json(const Json& json,
                                                             const std::vector<SourceFile>& files,
                                                             const Manifest& manifest) {
  const auto& sections = manifest.experts.sections;
  if (!json.is_array() || json.size() != manifest.spec.moe_layer_count())
    return corrupt_error("key 'layers' must be an array of {}", manifest.spec.moe_layer_count());
  std::vector<std::vector<SourceRun>> layers;
  for (const Json& layer : json) {
    if (!layer.is_array() || layer.size() != sections.size())
      return corrupt_error("a layer must be an array of {} sections", sections.size());
    std::vector<SourceRun> runs;
    for (size_t i = 0; i < sections.size(); ++i) {
      auto run = run_from_json(layer[i], files, sections[i].bytes, manifest.spec.experts);
      if (!run.ok())
        return std::move(run).error().within(
            fmt::format("layer {} {}", layers.size(), sections[i].name));
      runs.push_back(*run);
    }
    layers.push_back(std::move(runs));
  }
  return layers;
}

Result<InPlaceSource> source_from_json(const Json& json, const Manifest& manifest) {
  InPlaceSource source;
  ASSIGN_OR_RETURN(const uint64_t version, json_uint(json, "wader_source", 1, UINT64_MAX));
  if (version != kVersion)
    return unsupported_error(
        "made by another version of wader; `wader rm` makes room for this one");
  RETURN_IF_ERROR(refuse_unknown_keys(json, {"wader_source", "directory", "files", "layers"}));
  ASSIGN_OR_RETURN(const std::string directory, json_string(json, "directory"));
  source.directory = directory;
  if (!source.directory.is_absolute())
    return corrupt_error("key 'directory' must be an absolute path");
  ASSIGN_OR_RETURN(const Json* files, json_member(json, "files"));
  if (!files->is_array() || files->empty() || files->size() > kMaxFiles)
    return corrupt_error("key 'files' must be an array of 1 to {}", kMaxFiles);
  for (const Json& file : *files) {
    ASSIGN_OR_RETURN(SourceFile one, file_from_json(file));
    source.files.push_back(std::move(one));
  }
  ASSIGN_OR_RETURN(const Json* layers, json_member(json, "layers"));
  ASSIGN_OR_RETURN(source.layers, layers_from_json(*layers, source.files, manifest));
  return source;
}

}  // namespace

std::string in_place_to_text(const InPlaceSource& source) {
  Json files = Json::array();
  for (const SourceFile& file : source.files)
    files.push_back({{"name", file.name},
                     {"bytes", file.bytes},
                     {"modified_ns", file.modified_ns},
                     {"inode", file.inode}});
  Json layers = Json::array();
  for (const std::vector<SourceRun>& runs : source.layers) {
    Json layer = Json::array();
    for (const SourceRun& run : runs)
      layer.push_back({{"file", run.file}, {"offset", run.offset_bytes}, {"step", run.step_bytes}});
    layers.push_back(std::move(layer));
  }
  return seal_json({{"wader_source", kVersion},
                    {"directory", source.directory.string()},
                    {"files", std::move(files)},
                    {"layers", std::move(layers)}},
                   1);
}

Result<InPlaceSource> parse_in_place(std::string_view text, const Manifest& manifest) {
  if (text.size() > kMaxSourceTextBytes)
    return corrupt_error("{}: more than {} bytes", kSourceFile, kMaxSourceTextBytes);
  ASSIGN_OR_RETURN(const Json json, unseal_json(text, kSourceFile));
  auto source = source_from_json(json, manifest);
  if (source.ok()) return source;
  Error error = std::move(source).error();
  if (error.code == ErrorCode::invalid_argument) error.code = ErrorCode::corrupt;
  return std::move(error).within(kSourceFile);
}

Result<SourceFile> look_at_source(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return errno_error(errno, path.string());
  SourceFile file;
  file.bytes = static_cast<uint64_t>(info.st_size);
  file.modified_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  file.inode = info.st_ino;
  return file;
}

Status check_source_files(const InPlaceSource& source) {
  for (const SourceFile& known : source.files) {
    const fs::path path = source.directory / known.name;
    auto now = look_at_source(path);
    if (!now.ok() && now.error().code == ErrorCode::not_found)
      return not_found_error(
          "{} is not there any more, and its experts are used in place: put it back, or give the "
          "checkpoint's directory as MODEL where it is now",
          path.string());
    if (!now.ok())
      return std::move(now).error().within("the checkpoint whose experts are used in place");
    now->name = known.name;
    if (*now != known)
      return corrupt_error(
          "{}: changed since its checksums were taken, it may be another model now; with the "
          "checkpoint's directory as MODEL it is read again",
          path.string());
  }
  return {};
}

}  // namespace wader
