#include "checkpoint/gwt.h"

#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "checkpoint/bind.h"
#include "checkpoint/gwt_manifest.h"
#include "checkpoint/index.h"
#include "checkpoint/json_events.h"
#include "checkpoint/small_files.h"
#include "checkpoint/source_tree.h"
#include "io/file.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxManifestBytes = 4 * kMiB;  // GPT-OSS-120B's has about 100 KiB

constexpr uint32_t kTrunkFile = 0;  // number in Parts::files

Result<File> open_checked(const fs::path& directory, const std::string& name, uint64_t bytes,
                          bool exactly) {
  RETURN_IF_ERROR(check_stays_inside(directory, name));
  ASSIGN_OR_RETURN(File file, File::open(directory / name, File::Mode::read));
  ASSIGN_OR_RETURN(const uint64_t found, file.size());
  if (found < bytes || (exactly && found != bytes))
    return corrupt_error("{} has {} bytes, manifest.json's sections take {}: an incomplete copy?",
                         name, found, bytes);
  return file;
}

// The trunk's tensors by Godwit's names, each with the shape that the spec gives it.
class GwtTrunk {
 public:
  explicit GwtTrunk(const GwtManifest& manifest) : manifest_(manifest) {}

  Result<StoredTensor> take(const std::string& name, const std::vector<uint64_t>& shape) {
    const auto found = manifest_.trunk.find(name);
    if (found == manifest_.trunk.end())
      return not_found_error("trunk section '{}' [{}] is missing", name, fmt::join(shape, ", "));
    const GwtTensor& tensor = found->second;
    if (tensor.shape != shape)
      return corrupt_error("trunk section '{}' is [{}], the spec needs [{}]", name,
                           fmt::join(tensor.shape, ", "), fmt::join(shape, ", "));
    used_.insert(name);
    const uint64_t cols = shape.back(), offset = tensor.span.offset_bytes;
    if (!tensor.quantised) return StoredTensor{shape, DType::bf16, {kTrunkFile, offset, 2 * cols}};
    // Codes of all rows, then of each row a pair for each group: w = code · scale + zero.
    const SourcePlane codes{kTrunkFile, offset, cols};
    const SourcePlane pairs{kTrunkFile, offset + shape[0] * cols, cols / kAffineGroup * 4};
    return StoredTensor{shape, DType::affine8, codes, pairs, {}, true};
  }

  Status check_all_used() const {
    for (const auto& [name, tensor] : manifest_.trunk)
      if (!used_.contains(name))
        return unsupported_error("trunk section {} has no part in a {} model", in_quotes(name),
                                 manifest_.spec.family);
    return {};
  }

 private:
  const GwtManifest& manifest_;
  std::set<std::string> used_;
};

Status bind_layer(const GwtManifest& manifest, uint32_t file, BoundTensors& tensors) {
  const ArchitectureSpec& spec = manifest.spec;
  const uint64_t stride = manifest.stride_bytes;
  auto& weights = tensors.experts.emplace_back();
  for (const auto& [matrix, blocks, scales] :
       {std::tuple(ExpertMatrix::gate_up, manifest.gate_up_blocks, manifest.gate_up_scales),
        std::tuple(ExpertMatrix::down, manifest.down_blocks, manifest.down_scales)}) {
    const uint64_t rows = expert_matrix_shape(spec, matrix).rows,
                   cols = expert_matrix_shape(spec, matrix).cols;
    const StoredTensor stored{{rows, cols},
                              DType::mxfp4,
                              {file, blocks.offset_bytes, cols / 2},
                              {file, scales.offset_bytes, cols / kMxfp4Block}};
    append_experts(stored, {stride, stride, 0}, RowOrder::same, spec, rows, cols,
                   weights[static_cast<size_t>(matrix)]);
  }
  if (!spec.expert_bias) return {};
  auto& biases = tensors.expert_biases.emplace_back();
  for (const auto& [matrix, span] : {std::pair(ExpertMatrix::gate_up, *manifest.gate_up_bias),
                                     std::pair(ExpertMatrix::down, *manifest.down_bias)}) {
    const uint64_t cols = expert_matrix_shape(spec, matrix).rows;
    const StoredTensor stored{{1, cols}, DType::bf16, {file, span.offset_bytes, 2 * cols}};
    append_experts(stored, {stride, 0, 0}, RowOrder::same, spec, 1, cols,
                   biases[static_cast<size_t>(matrix)]);
  }
  return {};
}

Result<BoundCheckpoint::Parts> open_parts(const fs::path& directory) {
  BoundCheckpoint::Parts parts;
  parts.kind = "gwt";
  parts.directory = directory;
  RETURN_IF_ERROR(check_stays_inside(directory, "manifest.json"));
  ASSIGN_OR_RETURN(const std::string text,
                   read_text_file(directory / "manifest.json", kMaxManifestBytes));
  ASSIGN_OR_RETURN(const GwtManifest manifest, parse_gwt_manifest(text));
  parts.spec = manifest.spec;
  ASSIGN_OR_RETURN(parts.small_files, find_small_files(DirectoryTree(directory)));
  add_generation_config(*manifest.family, parts.spec, {}, parts.small_files);

  ASSIGN_OR_RETURN(File trunk_file,
                   open_checked(directory, "trunk.bin", manifest.trunk_bytes, false));
  parts.files.push_back(std::make_unique<File>(std::move(trunk_file)));
  GwtTrunk trunk(manifest);
  ASSIGN_OR_RETURN(parts.tensors.trunk,
                   bind_trunk(parts.spec, manifest.names, {},
                              [&](const std::string& name, const std::vector<uint64_t>& shape) {
                                return trunk.take(name, shape);
                              }));
  RETURN_IF_ERROR(trunk.check_all_used());
  for (uint32_t layer = 0; layer < parts.spec.layer_count(); ++layer) {
    ASSIGN_OR_RETURN(File file, open_checked(directory, gwt_layer_file(layer),
                                             manifest.stride_bytes * parts.spec.experts, true));
    const auto number = static_cast<uint32_t>(parts.files.size());
    parts.files.push_back(std::make_unique<File>(std::move(file)));
    RETURN_IF_ERROR(bind_layer(manifest, number, parts.tensors));
  }
  return parts;
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> open_gwt(const fs::path& directory) {
  return finish_checkpoint(open_parts(directory), directory);
}

}  // namespace wader
