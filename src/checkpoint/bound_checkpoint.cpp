#include "checkpoint/bound_checkpoint.h"

#include <fmt/ranges.h>

#include <utility>

#include "base/error.h"
#include "checkpoint/file_checks.h"
#include "checkpoint/format_join.h"

namespace wader {
namespace {

MatrixFormat join_experts(const BoundTensors& tensors, ExpertMatrix matrix) {
  MatrixFormat format;
  bool first = true;
  for (const auto& layer : tensors.experts)
    for (const TensorSource& source : layer[static_cast<size_t>(matrix)].sources)
      format = std::exchange(first, false) ? source.format : join_formats(format, source.format);
  return format;
}

}  // namespace

TensorSource ExpertSources::of(uint32_t expert) const {
  if (steps.empty()) return sources[expert];
  TensorSource source = sources[0];
  for (size_t i = 0; i < source.pieces.size(); ++i) {
    source.pieces[i].codes.offset_bytes += expert * steps[i].codes;
    source.pieces[i].scales.offset_bytes += expert * steps[i].scales;
    source.pieces[i].biases.offset_bytes += expert * steps[i].biases;
  }
  return source;
}

BoundCheckpoint::BoundCheckpoint(Parts parts) : parts_(std::move(parts)) {
  expert_format_ = {join_experts(parts_.tensors, ExpertMatrix::gate_up),
                    join_experts(parts_.tensors, ExpertMatrix::down)};
}

Result<TensorSource> BoundCheckpoint::trunk_source(const TrunkTensorSpec& tensor) const {
  const auto found = parts_.tensors.trunk.find(tensor.name);
  if (found == parts_.tensors.trunk.end() || found->second.rows != tensor.rows() ||
      found->second.cols != tensor.cols())
    return not_found_error("{}: no tensor for {} [{}]", parts_.directory.string(), tensor.name,
                           fmt::join(tensor.shape, ", "));
  return found->second;
}

Result<TensorSource> BoundCheckpoint::expert_tensor(
    const std::vector<std::array<ExpertSources, 2>>& layers, uint32_t layer, uint32_t expert,
    ExpertMatrix matrix) const {
  const ArchitectureSpec& spec = parts_.spec;
  if (layer < spec.layer_count() && spec.layers[layer].ffn == FfnKind::moe &&
      expert < spec.experts && spec.moe_layers_before(layer) < layers.size())
    return layers[spec.moe_layers_before(layer)][static_cast<size_t>(matrix)].of(expert);
  return not_found_error("{}: layer {} has no {} for expert {}", parts_.directory.string(), layer,
                         matrix == ExpertMatrix::gate_up ? "gate_up" : "down", expert);
}

Result<TensorSource> BoundCheckpoint::expert_source(uint32_t layer, uint32_t expert,
                                                    ExpertMatrix matrix) const {
  return expert_tensor(parts_.tensors.experts, layer, expert, matrix);
}

Result<TensorSource> BoundCheckpoint::expert_bias_source(uint32_t layer, uint32_t expert,
                                                         ExpertMatrix matrix) const {
  return expert_tensor(parts_.tensors.expert_biases, layer, expert, matrix);
}

Result<std::unique_ptr<Checkpoint>> finish_checkpoint(Result<BoundCheckpoint::Parts> parts,
                                                      const std::filesystem::path& directory) {
  if (!parts.ok()) return named_error(std::move(parts).error(), directory.string());
  return std::unique_ptr<Checkpoint>(std::make_unique<BoundCheckpoint>(*std::move(parts)));
}

}  // namespace wader
