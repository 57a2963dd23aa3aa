#include "measure/active_work.h"

#include <algorithm>

#include "kernels/ops.h"

namespace wader {
namespace {

// Keys and values of the positions that a query at `position` sees, itself among them.
uint64_t attention_bytes(const ArchitectureSpec& spec, LayerKind kind, uint64_t position,
                         DType kv_dtype) {
  uint64_t seen = position + 1;
  if (kind == LayerKind::sliding_attention) seen = std::min<uint64_t>(seen, spec.sliding_window);
  return seen * 2 * spec.kv_width() * dtype_bytes(kv_dtype);
}

// The state matrix, the convolution's last inputs, and the (key, delta) pairs of the positions
// before this one in its block, of which there are half a block's on average.
uint64_t delta_bytes(const DeltaNetSpec& delta) {
  const uint64_t state = uint64_t{delta.value_heads} * delta.key_dim * delta.value_dim;
  const uint64_t conv = uint64_t{delta.conv_kernel - 1} * delta.conv_width();
  const uint64_t pairs = kDeltaBlock / 2 * (uint64_t{delta.key_width()} + delta.value_width());
  return (state + conv + pairs) * sizeof(float);
}

}  // namespace

ActiveBytes active_bytes(const Manifest& manifest, uint64_t position, DType kv_dtype) {
  const ArchitectureSpec& spec = manifest.spec;
  ActiveBytes out;
  for (const TrunkTensor& tensor : manifest.trunk)
    if (tensor.name != "embed" || spec.tied_head) out.trunk += tensor.bytes;
  out.experts =
      uint64_t{spec.moe_layer_count()} * spec.experts_per_token * manifest.experts.payload_bytes;
  for (const LayerSpec& layer : spec.layers)
    out.state += layer.mixer == LayerKind::delta_net
                     ? delta_bytes(spec.delta)
                     : attention_bytes(spec, layer.mixer, position, kv_dtype);
  return out;
}

double matrix_operations(const ArchitectureSpec& spec, uint64_t tokens) {
  double weights = 0;  // that each token is multiplied with
  for (const TrunkTensorSpec& tensor : trunk_tensors(spec))
    if (tensor.shape.size() == 2 && tensor.name != "embed" && tensor.name != "head")
      weights += static_cast<double>(tensor.rows()) * static_cast<double>(tensor.cols());
  double expert = 0;
  for (const ExpertMatrix which : {ExpertMatrix::gate_up, ExpertMatrix::down}) {
    const MatrixShape shape = expert_matrix_shape(spec, which);
    expert += static_cast<double>(shape.rows) * shape.cols;
  }
  weights += expert * spec.experts_per_token * spec.moe_layer_count();
  const double head = static_cast<double>(spec.vocab_rows) * spec.hidden;
  return 2 * (weights * static_cast<double>(tokens) + head);
}

}  // namespace wader
