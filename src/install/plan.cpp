#include "install/plan.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "container/manifest.h"
#include "install/fetch_window.h"
#include "install/formats.h"
#include "install/hub_tree.h"
#include "install/in_place.h"
#include "install/proof_plan.h"
#include "install/read_order.h"
#include "install/source_order.h"
#include "install/source_reader.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kBlockBytes = 4096;
constexpr uint64_t kMinWindowBytes = 64 * kMiB, kMaxAheadBytes = 320 * kMiB;
// For digests at most a sixteenth of the container is added to the disk's peak, or so much.
constexpr uint64_t kProofBytes = 512 * kMiB, kProofPart = 16;

Status check_unchanged(const ByteSource& file, const SourceStamp& stamp) {
  ASSIGN_OR_RETURN(const SourceStamp now, file.stamp());
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

// What a Checkpoint promises about its sources; the rest of the install relies on it.
void check_source(const TensorSource& source, uint64_t rows, uint64_t cols) {
  CHECK(source.rows == rows && source.cols == cols);
  uint64_t covered = 0;
  for (const SourceRows& piece : source.pieces) {
    CHECK(row_bytes(piece.format, cols) && piece.rows > 0 && piece.to_step > 0);
    CHECK(piece.to_row < rows && (rows - 1 - piece.to_row) / piece.to_step >= piece.rows - 1);
    covered += piece.rows;
  }
  CHECK(covered == rows);
}

Status plan_trunk(std::optional<DType> wanted, InstallPlan& plan) {
  Manifest& manifest = plan.container.manifest;
  plan.trunk = trunk_tensors(manifest.spec);
  std::vector<MatrixFormat> formats;
  std::map<std::string, uint64_t> source_formats;
  for (const TrunkTensorSpec& tensor : plan.trunk) {
    ASSIGN_OR_RETURN(TensorSource source, plan.checkpoint->trunk_source(tensor));
    check_source(source, tensor.rows(), tensor.cols());
    ASSIGN_OR_RETURN(const MatrixFormat format, choose_trunk_format(tensor, source, wanted));
    formats.push_back(format);
    if (tensor.role == TrunkRole::matrix)
      source_formats[format_name(source.format)] += source.rows * source.cols;
    plan.trunk_sources.push_back(std::move(source));
  }
  manifest.trunk = place_trunk(manifest.spec, formats);
  plan.trunk_source_text = formats_by_size(source_formats);
  return {};
}

Status plan_experts(std::optional<DType> wanted, InstallPlan& plan) {
  Manifest& manifest = plan.container.manifest;
  ASSIGN_OR_RETURN(const ExpertFormat format,
                   choose_expert_format(manifest.spec, plan.checkpoint->expert_format(), wanted));
  manifest.experts = expert_layout(manifest.spec, format);
  for (uint32_t layer = 0; layer < manifest.spec.layer_count(); ++layer) {
    if (!has_experts(manifest.spec, layer)) continue;
    for (uint32_t expert = 0; expert < manifest.spec.experts; ++expert) {
      ASSIGN_OR_RETURN(const auto parts, plan.expert_parts(layer, expert));
      uint64_t bytes = 0;
      for (const InstallPlan::ExpertPart& part : parts) bytes += source_bytes(part.source);
      plan.expert_source_bytes = std::max(plan.expert_source_bytes, bytes);
    }
  }
  return {};
}

Result<InstallPlan::PlannedFile> plan_small_file(const Checkpoint& checkpoint, SmallFile small) {
  CHECK(is_small_file_name(small.name));
  InstallPlan::PlannedFile planned{std::move(small.name), std::move(small.text), {}, {}};
  if (planned.text) {
    planned.stamp.bytes = planned.text->size();
  } else {
    ASSIGN_OR_RETURN(planned.file,
                     File::open(checkpoint.directory() / planned.name, File::Mode::read));
    ASSIGN_OR_RETURN(planned.stamp, planned.file.stamp());
  }
  if (planned.stamp.bytes > kMaxSmallFileBytes)
    return corrupt_error("{}: {}, and a file of this kind has at most {}",
                         (checkpoint.directory() / planned.name).string(),
                         format_bytes(planned.stamp.bytes), format_bytes(kMaxSmallFileBytes));
  return planned;
}

Status plan_small_files(InstallPlan& plan) {
  for (SmallFile& small : plan.checkpoint->small_files()) {
    ASSIGN_OR_RETURN(InstallPlan::PlannedFile planned,
                     plan_small_file(*plan.checkpoint, std::move(small)));
    plan.container.manifest.files.emplace(planned.name, FileRecord{planned.stamp.bytes, ""});
    plan.small_files.push_back(std::move(planned));
  }
  return {};
}

Json stamp_to_json(const ByteSource& file, const SourceStamp& stamp) {
  Json json = {{"name", fs::path(file.path()).filename().string()}, {"bytes", stamp.bytes}};
  if (stamp.tag.empty())
    json["modified_ns"] = stamp.modified_ns;
  else
    json["tag"] = stamp.tag;
  return json;
}

// All that decides the container's bytes. Another value here means that finished pieces do not fit.
Json origin_of(const InstallPlan& plan, const std::string& source) {
  const Manifest& manifest = plan.container.manifest;
  Json files = Json::array();
  for (size_t i = 0; i < plan.stamps.size(); ++i)
    files.push_back(stamp_to_json(*plan.checkpoint->files()[i], plan.stamps[i]));
  for (const InstallPlan::PlannedFile& small : plan.small_files)
    files.push_back(small.text ? Json({{"name", small.name},
                                       {"bytes", small.text->size()},
                                       {"digest", digest_to_hex(xxh3_64(*small.text))}})
                               : stamp_to_json(small.file, small.stamp));
  std::string trunk;
  for (const TrunkTensor& tensor : manifest.trunk) trunk += format_name(tensor.format) + "\n";
  const std::string spec = json_text(spec_to_json(manifest.spec));
  Json origin = {{"format_version", kFormatVersion},
                 {"source", source},
                 {"source_files", std::move(files)},
                 {"experts",
                  {{"gate_up", format_name(manifest.experts.format.gate_up)},
                   {"down", format_name(manifest.experts.format.down)}}},
                 {"trunk", trunk_format_text(manifest)},
                 {"trunk_formats", digest_to_hex(xxh3_64(trunk))},
                 {"layers", manifest.spec.layer_count()},
                 {"spec", digest_to_hex(xxh3_64(spec))}};
  if (plan.container.in_place) origin["in_place"] = true;
  return origin;
}

// As for an install from its beginning, so that the window is as large in every run.
Status plan_hub_proofs(InstallPlan& plan) {
  ASSIGN_OR_RETURN(FetchPlan reads, plan_reads(plan, nullptr));
  const std::vector<uint32_t> file_of = repository_files(plan);
  std::vector<ProofFile> files;
  for (uint32_t i = 0; i < file_of.size(); ++i) {
    const HubFile& facts = plan.hub->client().files()[file_of[i]];
    if (!facts.sha256.empty())
      files.push_back({i, facts.bytes, plan.hub->hashed_bytes(file_of[i])});
  }
  uint64_t container_bytes = 0;
  for (const auto& [name, record] : plan.container.manifest.files) container_bytes += record.bytes;
  const ProofPlan proofs =
      plan_proofs(reads, files, {}, std::max(kProofBytes, container_bytes / kProofPart));
  plan.provable_files = proofs.files.size();
  // An eighth more: places of all sizes come and go, and leave holes.
  plan.proof_bytes = align_up(proofs.held_bytes + proofs.held_bytes / 8, kBlockBytes);
  return {};
}

}  // namespace

Result<InstallPlan> make_install_plan(const InstallOptions& options) {
  if (options.hub) {
    ASSIGN_OR_RETURN(auto checkpoint, Checkpoint::open(HubTree(options.hub, options.destination)));
    return make_install_plan(std::move(checkpoint), options);
  }
  ASSIGN_OR_RETURN(auto checkpoint, Checkpoint::open(options.source));
  return make_install_plan(std::move(checkpoint), options);
}

Result<InstallPlan> make_install_plan(std::unique_ptr<Checkpoint> checkpoint,
                                      const InstallOptions& options) {
  InstallPlan plan;
  plan.checkpoint = std::move(checkpoint);
  plan.hub = options.hub;

  Manifest& manifest = plan.container.manifest;
  manifest.spec = plan.checkpoint->spec();
  if (options.layers > manifest.spec.layer_count())
    return invalid_argument_error("{} layers were asked for, the model has {}", options.layers,
                                  manifest.spec.layer_count());
  if (options.layers > 0)
    manifest.spec.layers.erase(manifest.spec.layers.begin() + options.layers,
                               manifest.spec.layers.end());
  RETURN_IF_ERROR(validate_spec(manifest.spec));

  std::string source;
  if (plan.hub) {
    manifest.source = plan.hub->client().repository();
    manifest.revision = plan.hub->client().commit();
    source = fmt::format("hub:{}@{}", manifest.source, manifest.revision);
    plan.container.scratch_files = {std::string(kFetchFile)};
  } else {
    std::error_code error;
    const fs::path directory = fs::weakly_canonical(plan.checkpoint->directory(), error);
    if (error) return errno_error(error.value(), plan.checkpoint->directory().string());
    name_source(directory, manifest);
    source = directory.string();
  }
  for (const auto& file : plan.checkpoint->files()) {
    ASSIGN_OR_RETURN(SourceStamp stamp, file->stamp());
    plan.stamps.push_back(std::move(stamp));
  }
  std::optional<DType> experts = options.experts;
  // What is used in place is used as it is: nothing is quantised.
  if (const ExpertFormat own = plan.checkpoint->expert_format();
      options.in_place && !experts && own == ExpertFormat{DType::bf16, DType::bf16})
    experts = DType::bf16;
  RETURN_IF_ERROR(plan_experts(experts, plan));
  RETURN_IF_ERROR(plan_trunk(options.trunk, plan));
  RETURN_IF_ERROR(order_by_source(plan));
  manifest.files = weight_files(manifest);
  RETURN_IF_ERROR(plan_small_files(plan));
  if (options.in_place) {
    ASSIGN_OR_RETURN(plan.container.in_place, find_in_place(plan));
  }
  plan.container.origin = origin_of(plan, source);
  if (plan.hub) RETURN_IF_ERROR(plan_hub_proofs(plan));
  return plan;
}

Result<std::vector<InstallPlan::ExpertPart>> InstallPlan::expert_parts(uint32_t layer,
                                                                       uint32_t expert) const {
  const ArchitectureSpec& spec = container.manifest.spec;
  std::vector<ExpertPart> parts;
  for (const ExpertMatrix matrix : {ExpertMatrix::gate_up, ExpertMatrix::down}) {
    const MatrixShape shape = expert_matrix_shape(spec, matrix);
    ASSIGN_OR_RETURN(TensorSource weight, checkpoint->expert_source(layer, expert, matrix));
    check_source(weight, shape.rows, shape.cols);
    parts.push_back({matrix, false, std::move(weight)});
    if (!spec.expert_bias) continue;
    ASSIGN_OR_RETURN(TensorSource bias, checkpoint->expert_bias_source(layer, expert, matrix));
    check_source(bias, bias.rows == 1 ? 1 : shape.rows, bias.rows == 1 ? shape.rows : 1);
    parts.push_back({matrix, true, std::move(bias)});
  }
  return parts;
}

Status InstallPlan::check_source_unchanged() const {
  for (size_t i = 0; i < stamps.size(); ++i)
    RETURN_IF_ERROR(check_unchanged(*checkpoint->files()[i], stamps[i]));
  for (const PlannedFile& small : small_files)
    if (!small.text) RETURN_IF_ERROR(check_unchanged(small.file, small.stamp));
  return {};
}

Status InstallPlan::read_source(uint32_t file, uint64_t offset_bytes,
                                std::span<std::byte> into) const {
  CHECK(file < stamps.size());
  Status read = checkpoint->files()[file]->read_at(offset_bytes, into);
  if (!read.ok()) RETURN_IF_ERROR(check_unchanged(*checkpoint->files()[file], stamps[file]));
  return read;
}

size_t InstallPlan::source_position() const {
  return hub ? hub->position() : 0;
}

void InstallPlan::source_kept(size_t position) const {
  if (hub) hub->release(position);
}

uint64_t InstallPlan::window_bytes() const {
  if (!hub) return 0;
  // An expert that is being stored, the next one, and what all connections are at.
  const uint64_t needed =
      2 * expert_source_bytes + 16 * kMiB + hub->client().settings().connections * kMaxChunkBytes;
  return std::max(std::min(needed, kMaxAheadBytes) + proof_bytes, kMinWindowBytes);
}

uint64_t InstallPlan::disk_bytes() const {
  uint64_t bytes = 2 * kBlockBytes;  // the directory and experts/
  for (const auto& [name, record] : container.manifest.files)
    if (!container.in_place || !is_expert_file_name(name))
      bytes += align_up(record.bytes, kBlockBytes);
  if (container.in_place)
    bytes += align_up(in_place_to_text(*container.in_place).size(), kBlockBytes);
  // Manifest: its digests and report are still to come, at most so many bytes a trunk tensor and a
  // layer. Journal: 19 bytes a digest, a line a file, and the same report.
  const uint64_t files = container.manifest.files.size();
  const uint64_t report =
      512 + 160 * trunk.size() + 288 * container.manifest.spec.moe_layer_count();
  const uint64_t manifest = manifest_to_text(container.manifest).size() + 64 * files + report;
  // … and a line of 512 bytes every 4 MiB for what is known of unfinished files, with its digests.
  const uint64_t parts = 512 * (bytes / (4 * kMiB) + files) + report;
  const uint64_t journal = json_text(container.origin).size() + 256 * files + parts +
                           2 * 19 * digest_count(container.manifest) + report;
  return bytes + align_up(manifest, kBlockBytes) + align_up(journal, kBlockBytes) +
         (hub ? window_bytes() + kMiB : 0);
}

}  // namespace wader
