#include "checkpoint/qpack.h"

#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "checkpoint/bind.h"
#include "checkpoint/hf_checkpoint.h"
#include "checkpoint/index.h"
#include "checkpoint/json_events.h"
#include "checkpoint/qpack_layout.h"
#include "checkpoint/small_files.h"
#include "checkpoint/source_tree.h"
#include "io/file.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxJsonBytes = 4 * kMiB;  // a line a file; released ones have under 20 KiB

Result<std::string> read_json_file(const fs::path& directory, std::string_view name) {
  RETURN_IF_ERROR(check_stays_inside(directory, name));
  return read_text_file(directory / name, kMaxJsonBytes);
}

Status check_listed_files(const fs::path& directory, const QpackManifest& manifest) {
  for (const auto& [name, bytes] : manifest.files) {
    if (Status inside = check_stays_inside(directory, name); !inside.ok()) {
      if (inside.error().code == ErrorCode::not_found)
        return not_found_error("manifest.json lists {}, which is not there", in_quotes(name));
      return inside;
    }
    std::error_code error;
    const uint64_t found = fs::file_size(directory / name, error);
    if (error) return errno_error(error.value(), (directory / name).string());
    if (found != bytes)
      return corrupt_error("{} has {} bytes, manifest.json says {}: an incomplete copy?",
                           in_quotes(name), found, bytes);
  }
  return {};
}

Status check_counts(const ArchitectureSpec& spec, const QpackLayout& layout) {
  if (layout.experts != spec.experts || layout.layers != spec.layer_count())
    return corrupt_error("layout.json has {} experts and {} layers, config.json {} and {}",
                         layout.experts, layout.layers, spec.experts, spec.layer_count());
  for (uint32_t n = 0; n < spec.layer_count(); ++n) {
    if (layout.linear_layers[n] != (spec.layers[n].mixer == LayerKind::delta_net))
      return corrupt_error("layout.json and config.json disagree on the kind of layer {}", n);
    if (spec.layers[n].ffn == FfnKind::dense)
      return unsupported_error("layer {} has no experts; .qpack packs those of every layer", n);
  }
  return {};
}

// One of the layout's matrices as the first expert of a layer has it. Bits and group follow from
// the shapes, since config.json gives the columns; the manifest must say the same.
class SectionReader {
 public:
  SectionReader(const QpackManifest& manifest, const QpackLayout& layout)
      : manifest_(manifest), layout_(layout) {}

  Result<StoredTensor> matrix(const std::string& projection, uint64_t rows, uint64_t cols,
                              uint32_t file) const {
    ASSIGN_OR_RETURN(const QpackSection* weight, section(projection + ".weight"));
    if (weight->dtype != DType::u32) {
      if (!is_plain_float(weight->dtype) || weight->rows != rows || weight->cols != cols)
        return wrong(*weight, rows, cols);
      return StoredTensor{{rows, cols}, weight->dtype, plane(*weight, file)};
    }
    ASSIGN_OR_RETURN(const QpackSection* scales, section(projection + ".scales"));
    ASSIGN_OR_RETURN(const QpackSection* biases, section(projection + ".biases"));
    for (const QpackSection* part : {weight, scales, biases})
      if (part->rows != rows) return wrong(*part, rows, cols);
    if (scales->dtype != DType::bf16 && scales->dtype != DType::f16)
      return wrong(*scales, rows, cols);
    ASSIGN_OR_RETURN(const MatrixFormat format, affine_format(*weight, *scales, cols));
    const auto row = row_bytes(format, cols);
    if (!row || weight->cols != row->codes / 4) return wrong(*weight, rows, cols);
    for (const QpackSection* groups : {scales, biases})
      if (groups->cols != cols / format.group || groups->dtype != format.scales)
        return wrong(*groups, rows, cols);
    return StoredTensor{
        {rows, cols}, format, plane(*weight, file), plane(*scales, file), plane(*biases, file)};
  }

 private:
  Result<const QpackSection*> section(const std::string& name) const {
    const QpackSection* const found = layout_.find(name);
    if (found == nullptr) return not_found_error("layout.json has no section '{}'", name);
    return found;
  }
  static Error wrong(const QpackSection& section, uint64_t rows, uint64_t cols) {
    return corrupt_error("section '{}' is {} [{}, {}], which is no part of a matrix [{}, {}]",
                         section.name, dtype_name(section.dtype), section.rows, section.cols, rows,
                         cols);
  }
  static SourcePlane plane(const QpackSection& section, uint32_t file) {
    return {file, section.offset_bytes, section.cols * dtype_bytes(section.dtype)};
  }

  Result<MatrixFormat> affine_format(const QpackSection& weight, const QpackSection& scales,
                                     uint64_t cols) const {
    MlxQuantisation implied;  // judged by the same rules as MLX's own settings
    implied.present = true;
    implied.usual.bits = weight.cols * 32 / cols;  // both under 2^50, see parse_qpack_layout
    implied.usual.group = scales.cols == 0 ? 0 : cols / scales.cols;
    if (manifest_.bits.value_or(implied.usual.bits) != implied.usual.bits ||
        manifest_.group.value_or(implied.usual.group) != implied.usual.group)
      return corrupt_error(
          "manifest.json says {} bits in groups of {}, but section '{}' has {} bits in groups of "
          "{}",
          manifest_.bits.value_or(implied.usual.bits),
          manifest_.group.value_or(implied.usual.group), weight.name, implied.usual.bits,
          implied.usual.group);
    return implied.format(weight.name, scales.dtype);
  }

  const QpackManifest& manifest_;
  const QpackLayout& layout_;
};

// Opens every layer's file and binds its experts.
Status bind_packed_experts(const QpackManifest& manifest, const QpackLayout& layout,
                           BoundCheckpoint::Parts& parts) {
  const SectionReader reader(manifest, layout);
  const uint64_t inner = parts.spec.expert_inner, hidden = parts.spec.hidden;
  for (uint32_t layer = 0; layer < parts.spec.layer_count(); ++layer) {
    const std::string name = qpack_layer_file(layer);
    RETURN_IF_ERROR(check_stays_inside(parts.directory, name));
    ASSIGN_OR_RETURN(File file, File::open(parts.directory / name, File::Mode::read));
    ASSIGN_OR_RETURN(const uint64_t bytes, file.size());
    if (bytes != layout.stride_bytes * layout.experts)
      return corrupt_error("{} has {} bytes; {} experts of {} bytes make {}", name, bytes,
                           layout.experts, layout.stride_bytes,
                           layout.stride_bytes * layout.experts);
    const auto number = static_cast<uint32_t>(parts.files.size());
    parts.files.push_back(std::make_unique<File>(std::move(file)));
    ASSIGN_OR_RETURN(const StoredTensor gate, reader.matrix("gate_proj", inner, hidden, number));
    ASSIGN_OR_RETURN(const StoredTensor up, reader.matrix("up_proj", inner, hidden, number));
    ASSIGN_OR_RETURN(const StoredTensor down, reader.matrix("down_proj", hidden, inner, number));
    const PlaneSteps step{layout.stride_bytes, layout.stride_bytes, layout.stride_bytes};
    auto& [gate_up_sources, down_sources] = parts.tensors.experts.emplace_back();
    append_experts(gate, step, RowOrder::even, parts.spec, 2 * inner, hidden, gate_up_sources);
    append_experts(up, step, RowOrder::odd, parts.spec, 2 * inner, hidden, gate_up_sources);
    append_experts(down, step, RowOrder::same, parts.spec, hidden, inner, down_sources);
  }
  return {};
}

Result<BoundCheckpoint::Parts> open_parts(const fs::path& directory) {
  BoundCheckpoint::Parts parts;
  parts.kind = "qpack";
  parts.directory = directory;
  ASSIGN_OR_RETURN(const std::string manifest_text, read_json_file(directory, "manifest.json"));
  ASSIGN_OR_RETURN(const QpackManifest manifest, parse_qpack_manifest(manifest_text));
  RETURN_IF_ERROR(check_listed_files(directory, manifest));
  ASSIGN_OR_RETURN(const std::string layout_text,
                   read_json_file(directory, "packed_experts/layout.json"));
  ASSIGN_OR_RETURN(const QpackLayout layout, parse_qpack_layout(layout_text));
  ASSIGN_OR_RETURN(parts.small_files, find_small_files(DirectoryTree(directory)));
  ASSIGN_OR_RETURN(const HfModel model, read_hf_config(DirectoryTree(directory)));
  parts.spec = model.spec;
  if (parts.spec.expert_bias)
    return unsupported_error(
        "a {} model has biases in its experts, for which .qpack has no section", parts.spec.family);
  RETURN_IF_ERROR(check_counts(parts.spec, layout));
  add_generation_config(*model.family, parts.spec, model.eos, parts.small_files);

  RETURN_IF_ERROR(check_stays_inside(directory, "model.safetensors"));
  ASSIGN_OR_RETURN(File trunk, File::open(directory / "model.safetensors", File::Mode::read));
  ASSIGN_OR_RETURN(auto header, read_safetensors_header(trunk));
  parts.files.push_back(std::make_unique<File>(std::move(trunk)));
  ASSIGN_OR_RETURN(TensorTable table, tensor_table(model, {std::move(header)}));
  // Swiftlet packs nothing but what MLX's converter wrote, quantised or not.
  ASSIGN_OR_RETURN(const ReleaseStyle style,
                   find_release_style(parts.spec, *model.family, true, table));
  RETURN_IF_ERROR(bind_hf_trunk(model, style, table, parts));
  RETURN_IF_ERROR(bind_packed_experts(manifest, layout, parts));
  RETURN_IF_ERROR(check_all_used(parts.spec, table));
  return parts;
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> open_qpack(const fs::path& directory) {
  return finish_checkpoint(open_parts(directory), directory);
}

}  // namespace wader
