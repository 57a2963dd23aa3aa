#include "model/workspace.h"

#include <algorithm>

#include "base/units.h"
#include "kernels/ops.h"

namespace wader {
namespace {

constexpr uint64_t kAlign = 64;  // one cache line, one AVX-512 vector

// Places one buffer after the other; with base null it only counts.
struct Placer {
  std::byte* base;
  uint64_t used = 0;
  template <typename T>
  void operator()(T*& field, uint64_t count) {
    if (base != nullptr) field = reinterpret_cast<T*>(base + used);
    used = align_up(used + count * sizeof(T), kAlign);
  }
  void quantised(QuantisedBuffer& buffer, uint64_t rows, uint32_t width) {
    buffer.width = width;
    (*this)(buffer.codes, rows * width);
    (*this)(buffer.scales, rows * buffer.blocks());
    (*this)(buffer.sums, rows * buffer.blocks());
    (*this)(buffer.code_sums, rows * buffer.blocks());
  }
};

uint64_t place_all(Workspace& w, const ArchitectureSpec& spec, uint64_t rows, uint64_t threads,
                   std::byte* base) {
  Placer place{base};
  const DeltaNetSpec& delta = spec.delta;
  const uint64_t hidden = spec.hidden, k = spec.experts_per_token, query = spec.query_width();
  const uint64_t inner = std::max({spec.expert_inner, spec.shared_inner, spec.dense_inner});
  const uint64_t ffn_rows = std::max(rows, k);
  w.rows = static_cast<uint32_t>(rows);
  w.ffn_rows = static_cast<uint32_t>(ffn_rows);
  w.row_width = static_cast<uint32_t>(
      align_up(std::max({hidden, inner, query, uint64_t{delta.value_width()}}), 64));
  w.row_scratch_width =
      static_cast<uint32_t>(matmul_scratch_floats(w.row_width, static_cast<uint32_t>(rows)));
  w.attend_scratch_width = static_cast<uint32_t>(
      align_up(attend_scratch_floats(spec.query_heads / std::max(spec.kv_heads, 1u)), 16));
  w.bias_scratch_width =
      spec.expert_bias ? static_cast<uint32_t>(align_up(std::max(2 * inner, hidden), 16)) : 0;
  place(w.x, rows * hidden);
  place(w.normed, rows * hidden);
  place(w.q, rows * query);
  place(w.attention_gate, spec.attention_gate ? rows * query : 0);
  place(w.k, rows * spec.kv_width());
  place(w.v, rows * spec.kv_width());
  place(w.attended, rows * query);
  place(w.projected, rows * hidden);
  place(w.rope_cos, rows * spec.rotary_dim / 2);
  place(w.rope_sin, rows * spec.rotary_dim / 2);
  place(w.delta_qkv, rows * delta.conv_width());
  place(w.delta_conv, rows * delta.conv_width());
  place(w.delta_z, rows * delta.value_width());
  place(w.delta_beta, rows * delta.value_heads);
  place(w.delta_g, rows * delta.value_heads);
  place(w.delta_y, rows * delta.value_width());
  place(w.router_logits, rows * spec.experts);
  place(w.router_weights, rows * k);
  place(w.router_ids, rows * k);
  place(w.predicted_weights, rows * k);
  place(w.predicted_ids, rows * k);
  place(w.predicted, spec.experts);
  place(w.predicted_marks, spec.experts);
  place(w.ffn_x, ffn_rows * hidden);
  place.quantised(w.ffn_x_codes, ffn_rows, w.row_width);
  place(w.ffn_gate_up, ffn_rows * 2 * inner);
  place(w.ffn_act, ffn_rows * inner);
  place.quantised(w.ffn_act_codes, ffn_rows, w.row_width);
  place(w.ffn_y, rows * hidden);
  place(w.expert_out, rows * k * hidden);
  place(w.shared_gate, rows);
  place(w.logits, kLogitsBlock * uint64_t{spec.vocab_rows});
  place(w.distinct, spec.experts);
  place(w.distinct_rows, spec.experts);
  place(w.group_start, spec.experts + 1);
  place(w.group, rows * k);
  place(w.place, rows * k);
  place(w.row_scratch, threads * w.row_scratch_width);
  place.quantised(w.x_codes, rows, w.row_width);
  place(w.attend_scratch, threads * w.attend_scratch_width);
  place(w.bias_scratch, threads * w.bias_scratch_width);
  return place.used;
}

}  // namespace

uint64_t Workspace::bytes(const ArchitectureSpec& spec, uint32_t rows, uint32_t threads) {
  Workspace counted;
  return place_all(counted, spec, rows, threads, nullptr);
}

Result<Workspace> Workspace::create(const ArchitectureSpec& spec, uint32_t rows, uint32_t threads) {
  Workspace workspace;
  ASSIGN_OR_RETURN(workspace.memory_, AlignedBuffer::allocate(bytes(spec, rows, threads)));
  place_all(workspace, spec, rows, threads, workspace.memory_.data());
  return workspace;
}

}  // namespace wader
