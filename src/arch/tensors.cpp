#include "arch/tensors.h"

#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/units.h"

namespace wader {
namespace {

// Collects the tensors of one spec in file order.
class TrunkList {
 public:
  explicit TrunkList(const ArchitectureSpec& spec) : spec_(spec) {}

  void matrix(std::string name, uint64_t rows, uint64_t cols) {
    out_.push_back({std::move(name), {rows, cols}, TrunkRole::matrix});
  }
  void exact(std::string name, std::vector<uint64_t> shape) {
    out_.push_back({std::move(name), std::move(shape), TrunkRole::exact});
  }
  void attention(const std::string& layer) {
    const uint64_t hidden = spec_.hidden, width = spec_.query_width();
    projection(layer + "attn.q", width, hidden);
    if (spec_.attention_gate) matrix(layer + "attn.gate.weight", width, hidden);
    projection(layer + "attn.k", spec_.kv_width(), hidden);
    projection(layer + "attn.v", spec_.kv_width(), hidden);
    if (spec_.qk_norm) {
      exact(layer + "attn.q_norm", {spec_.head_dim});
      exact(layer + "attn.k_norm", {spec_.head_dim});
    }
    if (spec_.attention_sinks) exact(layer + "attn.sinks", {spec_.query_heads});
    projection(layer + "attn.o", hidden, width);
  }
  void delta_net(const std::string& layer) {
    const DeltaNetSpec& delta = spec_.delta;
    matrix(layer + "delta.qkv.weight", delta.conv_width(), spec_.hidden);
    exact(layer + "delta.conv", {delta.conv_width(), delta.conv_kernel});
    matrix(layer + "delta.z.weight", delta.value_width(), spec_.hidden);
    exact(layer + "delta.b.weight", {delta.value_heads, spec_.hidden});
    exact(layer + "delta.a.weight", {delta.value_heads, spec_.hidden});
    exact(layer + "delta.a_log", {delta.value_heads});
    exact(layer + "delta.dt_bias", {delta.value_heads});
    exact(layer + "delta.norm", {delta.value_dim});
    matrix(layer + "delta.out.weight", spec_.hidden, delta.value_width());
  }
  void moe(const std::string& layer) {
    exact(layer + "router.weight", {spec_.experts, spec_.hidden});
    if (spec_.router_bias) exact(layer + "router.bias", {spec_.experts});
    if (spec_.shared_inner == 0) return;
    feed_forward(layer + "shared", spec_.shared_inner);
    exact(layer + "shared.gate.weight", {1, spec_.hidden});
  }
  void feed_forward(const std::string& name, uint64_t inner) {
    matrix(name + ".gate_up.weight", 2 * inner, spec_.hidden);
    matrix(name + ".down.weight", spec_.hidden, inner);
  }
  std::vector<TrunkTensorSpec> take() { return std::move(out_); }

 private:
  void projection(const std::string& name, uint64_t rows, uint64_t cols) {
    matrix(name + ".weight", rows, cols);
    if (spec_.attention_bias) exact(name + ".bias", {rows});
  }

  const ArchitectureSpec& spec_;
  std::vector<TrunkTensorSpec> out_;
};

}  // namespace

std::vector<TrunkTensorSpec> trunk_tensors(const ArchitectureSpec& spec) {
  TrunkList list(spec);
  list.matrix("embed", spec.vocab_rows, spec.hidden);
  for (uint32_t n = 0; n < spec.layer_count(); ++n) {
    const std::string layer = "layers." + std::to_string(n) + ".";
    list.exact(layer + "mixer_norm", {spec.hidden});
    if (spec.layers[n].mixer == LayerKind::delta_net)
      list.delta_net(layer);
    else
      list.attention(layer);
    list.exact(layer + "ffn_norm", {spec.hidden});
    if (spec.layers[n].ffn == FfnKind::moe)
      list.moe(layer);
    else
      list.feed_forward(layer + "dense", spec.dense_inner);
  }
  list.exact("final_norm", {spec.hidden});
  if (!spec.tied_head) list.matrix("head", spec.vocab_rows, spec.hidden);
  return list.take();
}

MatrixShape expert_matrix_shape(const ArchitectureSpec& spec, ExpertMatrix matrix) {
  return matrix == ExpertMatrix::gate_up ? MatrixShape{2 * spec.expert_inner, spec.hidden}
                                         : MatrixShape{spec.hidden, spec.expert_inner};
}

Status check_expert_format(const ArchitectureSpec& spec, const ExpertFormat& format) {
  for (const ExpertMatrix matrix : {ExpertMatrix::gate_up, ExpertMatrix::down}) {
    const MatrixFormat& wanted = format.of(matrix);
    const uint32_t cols = expert_matrix_shape(spec, matrix).cols;
    if (wanted.dtype != DType::mxfp4 && wanted.dtype != DType::bf16 && !is_affine(wanted.dtype))
      return invalid_argument_error("experts cannot be stored as {}", format_name(wanted));
    if (!row_bytes(wanted, cols))
      return invalid_argument_error(
          "an expert's matrix with {} columns cannot be stored as {}: that takes whole groups of "
          "{}",
          cols, format_name(wanted), is_affine(wanted.dtype) ? wanted.group : kMxfp4Block);
  }
  return {};
}

ExpertLayout expert_layout(const ArchitectureSpec& spec, const ExpertFormat& format) {
  CHECK(check_expert_format(spec, format).ok());
  ExpertLayout layout{};
  layout.format = format;
  const auto add = [&](std::string name, DType dtype, std::vector<uint64_t> shape) {
    uint64_t bytes = dtype_bytes(dtype);
    for (uint64_t dim : shape) bytes *= dim;
    const uint64_t offset = align_up(layout.payload_bytes, kSectionAlignment);
    layout.sections.push_back({std::move(name), dtype, std::move(shape), offset, bytes});
    layout.payload_bytes = offset + bytes;
    return offset;
  };
  for (const ExpertMatrix matrix : {ExpertMatrix::gate_up, ExpertMatrix::down}) {
    const bool first = matrix == ExpertMatrix::gate_up;
    const std::string name = first ? "gate_up" : "down";
    MatrixPlanes& planes = first ? layout.gate_up : layout.down;
    const MatrixFormat& f = format.of(matrix);
    const MatrixShape shape = expert_matrix_shape(spec, matrix);
    const uint64_t rows = shape.rows, cols = shape.cols;
    if (f.dtype == DType::mxfp4) {
      planes.codes = add(name + ".blocks", DType::u8, {rows, cols / kMxfp4Block, kMxfp4Block / 2});
      planes.scales = add(name + ".scales", DType::u8, {rows, cols / kMxfp4Block});
    } else if (is_affine(f.dtype)) {
      planes.codes =
          add(name + ".codes", DType::u8, {rows, f.dtype == DType::affine4 ? cols / 2 : cols});
      planes.scales = add(name + ".scales", f.scales, {rows, cols / f.group});
      planes.biases = add(name + ".group_biases", f.scales, {rows, cols / f.group});
    } else {
      planes.codes = add(name + ".weight", f.dtype, {rows, cols});
    }
    if (spec.expert_bias) planes.linear_bias = add(name + ".bias", DType::bf16, {rows});
  }
  layout.stride_bytes = align_up(layout.payload_bytes, kRecordAlignment);
  return layout;
}

}  // namespace wader
