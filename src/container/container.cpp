#include "container/container.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "container/digest_file.h"
#include "container/manifest.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

// What stands at `path`, links followed; not_found for nothing at all.
Result<fs::file_type> type_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none) return errno_error(error.value(), path.string());
  return status.type();
}

// An unfinished install is told apart from a broken container: the user can simply continue it.
Status refuse_unfinished(const fs::path& directory) {
  ASSIGN_OR_RETURN(const fs::file_type journal, type_of(directory / kJournalFile));
  if (journal == fs::file_type::not_found) return {};
  return not_found_error(
      "install of {} was not finished; run `wader install SOURCE -o {}` again to continue",
      directory.filename().string(), directory.string());
}

Status check_size(const fs::path& directory, const std::string& name, uint64_t bytes) {
  const fs::path path = directory / name;
  ASSIGN_OR_RETURN(const fs::file_type type, type_of(path));
  if (type == fs::file_type::not_found)
    return corrupt_error("{}: missing from the container", path.string());
  ASSIGN_OR_RETURN(const File file, File::open(path, File::Mode::read));
  ASSIGN_OR_RETURN(const uint64_t actual, file.size());
  if (actual != bytes)
    return corrupt_error("{}: has {} bytes, the manifest says {}", path.string(), actual, bytes);
  return {};
}

// Nothing where the experts are the container's own.
Result<std::optional<InPlaceSource>> read_in_place(const fs::path& directory,
                                                   const Manifest& manifest) {
  ASSIGN_OR_RETURN(const fs::file_type type, type_of(directory / kSourceFile));
  if (type == fs::file_type::not_found) return std::optional<InPlaceSource>();
  ASSIGN_OR_RETURN(const std::string text,
                   read_text_file(directory / kSourceFile, kMaxSourceTextBytes));
  auto source = parse_in_place(text, manifest);
  if (!source.ok()) return std::move(source).error().within(directory.string());
  return std::optional(std::move(*source));
}

Result<std::vector<uint64_t>> read_digests(const fs::path& directory, const Manifest& manifest) {
  ASSIGN_OR_RETURN(const File file, File::open(directory / kDigestsFile, File::Mode::read));
  std::vector<uint64_t> digests(digest_count(manifest));
  const auto bytes = std::as_writable_bytes(std::span(digests));
  RETURN_IF_ERROR(file.read_at(0, bytes));
  if (digest_to_hex(xxh3_64(bytes)) != manifest.files.at(std::string(kDigestsFile)).digest)
    return corrupt_error("{}: does not match its checksum", file.path());
  return digests;
}

}  // namespace

Result<Container> Container::load(const fs::path& directory, bool check_sizes) {
  Container container;
  container.directory_ = directory.has_filename() ? directory : directory.parent_path();
  const fs::path& where = container.directory_;
  ASSIGN_OR_RETURN(const fs::file_type type, type_of(where));
  if (type == fs::file_type::not_found)
    return not_found_error("{}: no such container", where.string());
  if (type != fs::file_type::directory)
    return invalid_argument_error("{}: a container is a directory, this is not one",
                                  where.string());
  RETURN_IF_ERROR(refuse_unfinished(where));
  ASSIGN_OR_RETURN(const fs::file_type manifest_type, type_of(where / kManifestFile));
  if (manifest_type == fs::file_type::not_found)
    return not_found_error("{}: not a container, it has no {}", where.string(), kManifestFile);

  ASSIGN_OR_RETURN(const std::string text,
                   read_text_file(where / kManifestFile, kMaxManifestBytes));
  auto manifest = parse_manifest(text);
  if (!manifest.ok()) return std::move(manifest).error().within(where.string());
  container.manifest_ = std::move(*manifest);
  ASSIGN_OR_RETURN(container.in_place_, read_in_place(where, container.manifest_));
  for (const auto& [name, record] : container.manifest_.files)
    if (check_sizes && !(container.in_place_ && is_expert_file_name(name)))
      RETURN_IF_ERROR(check_size(where, name, record.bytes));
  ASSIGN_OR_RETURN(container.digests_, read_digests(where, container.manifest_));
  return container;
}

Result<Container> Container::open_to_repair(const fs::path& directory) {
  return load(directory, false);
}

Result<Container> Container::open(const fs::path& directory) {
  ASSIGN_OR_RETURN(Container container, load(directory, true));
  const fs::path& where = container.directory_;
  if (container.in_place_)
    if (Status same = check_source_files(*container.in_place_); !same.ok())
      return std::move(same).error().within(where.string());
  for (const auto& [name, record] : container.manifest_.files) {
    if (record.digest.empty() || name == kDigestsFile) continue;
    ASSIGN_OR_RETURN(const uint64_t digest, digest_file(where / name));
    if (digest_to_hex(digest) != record.digest)
      return corrupt_error("{}: does not match its checksum", (where / name).string());
  }
  return container;
}

std::vector<fs::path> Container::expert_files() const {
  std::vector<fs::path> files;
  if (in_place_) {
    for (const SourceFile& file : in_place_->files)
      files.push_back(in_place_->directory / file.name);
    return files;
  }
  for (uint32_t layer = 0; layer < spec().layer_count(); ++layer)
    if (has_experts(spec(), layer)) files.push_back(directory_ / expert_file_name(layer));
  return files;
}

std::vector<RecordPiece> Container::expert_pieces(uint32_t layer, uint32_t expert) const {
  CHECK(has_experts(spec(), layer) && expert < spec().experts);
  const uint32_t moe_layer = spec().moe_layers_before(layer);
  const uint64_t stride = manifest_.experts.stride_bytes;
  if (!in_place_) return {{moe_layer, expert * stride, stride, 0}};
  std::vector<RecordPiece> pieces;
  const std::vector<SourceRun>& runs = in_place_->layers[moe_layer];
  for (size_t i = 0; i < runs.size(); ++i) {
    const ExpertSection& section = manifest_.experts.sections[i];
    pieces.push_back({runs[i].file, runs[i].offset_bytes + expert * runs[i].step_bytes,
                      section.bytes, section.offset_bytes});
  }
  return pieces;
}

uint64_t Container::expert_digest(uint32_t layer, uint32_t expert) const {
  CHECK(has_experts(spec(), layer) && expert < spec().experts);
  return digests_[uint64_t{spec().moe_layers_before(layer)} * spec().experts + expert];
}

uint64_t Container::trunk_digest(size_t tensor_index) const {
  CHECK(tensor_index < manifest_.trunk.size());
  return digests_[uint64_t{spec().moe_layer_count()} * spec().experts + tensor_index];
}

Result<std::string> Container::read_small_file(const std::string& name) const {
  const auto record = manifest_.files.find(name);
  if (record == manifest_.files.end() || !is_small_file_name(name))
    return not_found_error("{}: has no {}", directory_.string(), name);
  ASSIGN_OR_RETURN(std::string text, read_text_file(directory_ / name, kMaxSmallFileBytes));
  // Again, because the file may have changed since open looked at it.
  if (digest_to_hex(xxh3_64(text)) != record->second.digest)
    return corrupt_error("{}: does not match its checksum", (directory_ / name).string());
  return text;
}

}  // namespace wader
