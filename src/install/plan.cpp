#include "install/plan.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "container/manifest.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kBlockBytes = 4096;

Result<SourceStamp> stamp_of(const File& file) {
  struct stat info {};
  if (::fstat(file.fd(), &info) != 0) return errno_error(errno, file.path());
  return SourceStamp{static_cast<uint64_t>(info.st_size),
                     int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

Status check_unchanged(const File& file, const SourceStamp& stamp) {
  ASSIGN_OR_RETURN(const SourceStamp now, stamp_of(file));
  if (now != stamp) return corrupt_error("{} changed while it was being installed", file.path());
  return {};
}

// A name that any terminal can show.
std::string printable(std::string text) {
  // Through JSON, which makes U+FFFD of bytes that are not UTF-8: the manifest will hold the same
  // text.
  text = Json::parse(json_text(Json(text))).get<std::string>();
  if (!is_printable(text))
    for (char& c : text)
      if (static_cast<uint8_t>(c) < 0x20 || static_cast<uint8_t>(c) >= 0x7f) c = '?';
  return text.substr(0, 255);
}

// Repository and commit when the directory is a snapshot of the hub's local cache,
// …/models--ORG--NAME/snapshots/COMMIT; else the directory's own name and "local".
void name_source(const fs::path& directory, Manifest& manifest) {
  manifest.source = printable(directory.filename().string());
  manifest.revision = "local";
  constexpr std::string_view kPrefix = "models--";
  const std::string repository = directory.parent_path().parent_path().filename().string();
  if (directory.parent_path().filename() != "snapshots" || !repository.starts_with(kPrefix)) return;
  manifest.revision = manifest.source;
  manifest.source = printable(repository.substr(kPrefix.size()));
  if (const size_t at = manifest.source.find("--"); at != std::string::npos)
    manifest.source.replace(at, 2, "/");
}

// The format of a trunk tensor in the container. Only a matrix is ever rounded; f16 has no place in
// a container, and f32 holds each of its values.
DType trunk_format(const TrunkTensorSpec& tensor, DType source, DType wanted) {
  if (tensor.role == TrunkRole::exact) return source == DType::bf16 ? DType::bf16 : DType::f32;
  return trunk_dtype_allowed(tensor, wanted) ? wanted : DType::bf16;
}

Status plan_trunk(DType wanted, InstallPlan& plan) {
  Manifest& manifest = plan.container.manifest;
  plan.trunk = trunk_tensors(manifest.spec);
  std::vector<DType> dtypes;
  for (const TrunkTensorSpec& tensor : plan.trunk) {
    ASSIGN_OR_RETURN(TensorRef source, plan.checkpoint.trunk_source(tensor));
    if (source.dtype != DType::bf16 && source.dtype != DType::f16 && source.dtype != DType::f32)
      return unsupported_error("{} is {}; a trunk tensor must be bf16, f16 or f32", tensor.name,
                               dtype_name(source.dtype));
    CHECK(source.shape == tensor.shape);
    dtypes.push_back(trunk_format(tensor, source.dtype, wanted));
    plan.trunk_sources.push_back(std::move(source));
  }
  manifest.trunk = place_trunk(manifest.spec, dtypes);
  return {};
}

Status plan_small_files(InstallPlan& plan) {
  for (const std::string& name : plan.checkpoint.small_files()) {
    CHECK(is_small_file_name(name));
    ASSIGN_OR_RETURN(File file, File::open(plan.checkpoint.directory() / name, File::Mode::read));
    ASSIGN_OR_RETURN(const SourceStamp stamp, stamp_of(file));
    if (stamp.bytes > kMaxSmallFileBytes)
      return corrupt_error("{}: {}, and a file of this kind has at most {}", file.path(),
                           format_bytes(stamp.bytes), format_bytes(kMaxSmallFileBytes));
    plan.container.manifest.files.emplace(name, FileRecord{stamp.bytes, ""});
    plan.small_files.push_back({name, std::move(file), stamp});
  }
  return {};
}

Json stamp_to_json(const File& file, const SourceStamp& stamp) {
  return {{"name", fs::path(file.path()).filename().string()},
          {"bytes", stamp.bytes},
          {"modified_ns", stamp.modified_ns}};
}

// All that decides the container's bytes. Another value here means that finished pieces do not fit.
Json origin_of(const InstallPlan& plan, const fs::path& source, DType trunk) {
  Json files = Json::array();
  for (size_t i = 0; i < plan.stamps.size(); ++i)
    files.push_back(stamp_to_json(plan.checkpoint.files()[i], plan.stamps[i]));
  for (const InstallPlan::SmallFile& small : plan.small_files)
    files.push_back(stamp_to_json(small.file, small.stamp));
  const std::string spec = json_text(spec_to_json(plan.container.manifest.spec));
  return {{"source", source.string()},
          {"source_files", std::move(files)},
          {"trunk", dtype_name(trunk)},
          {"layers", plan.container.manifest.spec.layer_count()},
          {"spec", digest_to_hex(xxh3_64(spec))}};
}

}  // namespace

Result<InstallPlan> make_install_plan(const InstallOptions& options) {
  if (options.trunk != DType::affine8 && options.trunk != DType::bf16)
    return invalid_argument_error("the trunk can be affine8 or bf16, not {}",
                                  dtype_name(options.trunk));
  InstallPlan plan;
  ASSIGN_OR_RETURN(plan.checkpoint, Checkpoint::open(options.source));

  Manifest& manifest = plan.container.manifest;
  manifest.spec = plan.checkpoint.spec();
  if (options.layers > manifest.spec.layer_count())
    return invalid_argument_error("{} layers were asked for, the model has {}", options.layers,
                                  manifest.spec.layer_count());
  if (options.layers > 0) manifest.spec.layers.resize(options.layers);
  RETURN_IF_ERROR(validate_spec(manifest.spec));
  manifest.experts = expert_layout(manifest.spec);

  std::error_code error;
  const fs::path directory = fs::weakly_canonical(plan.checkpoint.directory(), error);
  if (error) return errno_error(error.value(), plan.checkpoint.directory().string());
  name_source(directory, manifest);
  for (const File& file : plan.checkpoint.files()) {
    ASSIGN_OR_RETURN(const SourceStamp stamp, stamp_of(file));
    plan.stamps.push_back(stamp);
  }
  RETURN_IF_ERROR(plan_trunk(options.trunk, plan));
  manifest.files = weight_files(manifest);
  RETURN_IF_ERROR(plan_small_files(plan));
  plan.container.origin = origin_of(plan, directory, options.trunk);
  return plan;
}

Status InstallPlan::check_source_unchanged() const {
  for (size_t i = 0; i < stamps.size(); ++i)
    RETURN_IF_ERROR(check_unchanged(checkpoint.files()[i], stamps[i]));
  for (const SmallFile& small : small_files)
    RETURN_IF_ERROR(check_unchanged(small.file, small.stamp));
  return {};
}

Status InstallPlan::read_source(uint32_t file, uint64_t offset_bytes,
                                std::span<std::byte> into) const {
  CHECK(file < stamps.size());
  Status read = checkpoint.files()[file].read_at(offset_bytes, into);
  if (!read.ok()) RETURN_IF_ERROR(check_unchanged(checkpoint.files()[file], stamps[file]));
  return read;
}

uint64_t InstallPlan::disk_bytes() const {
  uint64_t bytes = 2 * kBlockBytes;  // the directory and experts/
  for (const auto& [name, record] : container.manifest.files)
    bytes += align_up(record.bytes, kBlockBytes);
  // Manifest: its digests and report are still to come. Journal: 19 bytes a digest, a line a file.
  const uint64_t files = container.manifest.files.size();
  const uint64_t manifest =
      manifest_to_text(container.manifest).size() + 64 * files + 128 * trunk.size();
  const uint64_t journal = json_text(container.origin).size() + 256 * files +
                           19 * digest_count(container.manifest) + 128 * trunk.size();
  return bytes + align_up(manifest, kBlockBytes) + align_up(journal, kBlockBytes);
}

}  // namespace wader
