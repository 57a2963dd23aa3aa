#include "checkpoint/release_style.h"

#include <cstddef>
#include <optional>

#include "base/error.h"
#include "tensor/matrix.h"

namespace wader {
namespace {

// Whether conv1d is (C, K, 1): by the first delta_net layer, and all others must be like it.
// Nothing where no layer has one; a shape that is neither is left to binding, which refuses it.
Result<std::optional<bool>> conv_channels_last(const ArchitectureSpec& spec, const Family& family,
                                               const TensorTable& table) {
  std::optional<bool> last;
  for (uint32_t n = 0; n < spec.layer_count(); ++n) {
    if (spec.layers[n].mixer != LayerKind::delta_net) continue;
    for (const TensorPart& part :
         tensor_parts(family.names, fmt::format("layers.{}.delta.conv", n))) {
      const SafetensorsTensor* const conv = table.find(part.released);
      if (conv == nullptr || conv->shape.size() != 3) continue;
      const bool is_last = conv->shape[2] == 1;  // kernels have 2 taps or more
      if (last && *last != is_last)
        return corrupt_error("tensor '{}' is [{}], other layers' are transposed", part.released,
                             fmt::join(conv->shape, ", "));
      last = is_last;
    }
  }
  return last;
}

bool has_mlx_experts(const ArchitectureSpec& spec, const Family& family, const TensorTable& table) {
  for (const ExpertNames& names : family.experts)
    for (uint32_t n = 0; names.mlx && n < spec.layer_count(); ++n)
      if (table.has(expert_name(family.names, n, names.weights[0].released, 0))) return true;
  return false;
}

struct NormValues {
  uint64_t count = 0, not_positive = 0;
  double sum = 0;

  Status add(const TensorSource& norm, const SourceFiles& files) {
    const SourceRows& row = norm.pieces.at(0);
    std::vector<std::byte> bytes(norm.cols * dtype_bytes(row.format.dtype));
    std::vector<float> values(norm.cols);
    RETURN_IF_ERROR(files.at(row.codes.file)->read_at(row.codes.offset_bytes, bytes));
    plain_to_f32(row.format.dtype, bytes.data(), values.size(), values.data());
    count += values.size();
    for (const float value : values) {
      not_positive += value <= 0 ? 1 : 0;
      sum += value;
    }
    return {};
  }
};

}  // namespace

Result<ReleaseStyle> find_release_style(const ArchitectureSpec& spec, const Family& family,
                                        bool quantised, const TensorTable& table) {
  ReleaseStyle style;
  style.mlx = quantised || has_mlx_experts(spec, family, table);
  ASSIGN_OR_RETURN(const std::optional<bool> conv, conv_channels_last(spec, family, table));
  style.conv_channels_last = conv.value_or(false);
  style.norms_have_one = style.mlx || style.conv_channels_last;
  if (style.mlx && conv && !*conv)
    return unsupported_error(
        "the experts are as MLX writes them and conv1d is as released: whether 1 was added to the "
        "norm weights cannot be told");
  return style;
}

Status check_norms(const ArchitectureSpec& spec, const Family& family, const ReleaseStyle& style,
                   const std::unordered_map<std::string, TensorSource>& trunk,
                   const SourceFiles& files) {
  NormValues norms;
  for (const TrunkTensorSpec& tensor : trunk_tensors(spec)) {
    if (tensor.shape.size() != 1) continue;
    for (const TensorPart& part : tensor_parts(family.names, tensor.name))
      if (part.table->zero_centred) RETURN_IF_ERROR(norms.add(trunk.at(tensor.name), files));
  }
  if (norms.count == 0) return {};
  const auto count = static_cast<double>(norms.count);
  const double share = static_cast<double>(norms.not_positive) / count, mean = norms.sum / count;
  if (!style.norms_have_one && share < 0.001 && mean >= 0.5)
    return unsupported_error(
        "the norm weights look as if 1 had been added already (mean {:.2f}), but the files are "
        "laid out as the original release, whose weights are around 0",
        mean);
  if (style.norms_have_one && share > 0.1)
    return unsupported_error(
        "the norm weights look as released, without the 1 (mean {:.2f}), but the files are laid "
        "out as MLX writes them, which adds it",
        mean);
  return {};
}

}  // namespace wader
