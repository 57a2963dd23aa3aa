#include "model/moe.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/ffn.h"
#include "model/linear.h"

namespace wader {
namespace {

// Sorts the (row, place) assignments by expert: distinct ids in disk order, and where each one's
// rows stand.
std::span<const uint32_t> group_by_expert(const ArchitectureSpec& spec, Workspace& s,
                                          uint32_t rows) {
  const uint32_t assignments = rows * spec.experts_per_token;
  std::fill_n(s.group_start, spec.experts + 1, 0u);
  for (uint32_t a = 0; a < assignments; ++a) ++s.group_start[s.router_ids[a] + 1];
  uint32_t distinct = 0;
  for (uint32_t e = 0; e < spec.experts; ++e) {
    if (s.group_start[e + 1] > 0) s.distinct[distinct++] = e;
    s.group_start[e + 1] += s.group_start[e];
  }
  // Filling moves each start to its own end, which is the next one's start; it is moved back after.
  for (uint32_t a = 0; a < assignments; ++a) s.group[s.group_start[s.router_ids[a]]++] = a;
  for (uint32_t e = spec.experts; e > 0; --e) s.group_start[e] = s.group_start[e - 1];
  s.group_start[0] = 0;
  return {s.distinct, distinct};
}

// One expert over the rows that chose it; its outputs go to their places in expert_out.
void run_expert(const ModelContext& model, std::span<const std::byte> record,
                std::span<const uint32_t> assignments) {
  const ArchitectureSpec& spec = model.spec;
  const Workspace& s = model.work;
  FfnWeights w = bind_expert(spec, model.layout, record);
  const auto tokens = static_cast<uint32_t>(assignments.size());
  const size_t hidden = spec.hidden;
  if (spec.expert_bias) {
    float* const down_bias = s.expert_bias + 2 * size_t{spec.expert_inner};
    plain_to_f32(DType::bf16, record.data() + *model.layout.gate_up.linear_bias, w.gate_up.rows,
                 s.expert_bias);
    plain_to_f32(DType::bf16, record.data() + *model.layout.down.linear_bias, hidden, down_bias);
    w.gate_up_bias = s.expert_bias;
    w.down_bias = down_bias;
  }
  for (uint32_t i = 0; i < tokens; ++i)
    std::memcpy(s.expert_x + i * hidden,
                s.normed + assignments[i] / spec.experts_per_token * hidden,
                hidden * sizeof(float));
  feed_forward(model, w, s.ffn_y, s.expert_x, tokens);
  for (uint32_t i = 0; i < tokens; ++i)
    std::memcpy(s.expert_out + assignments[i] * hidden, s.ffn_y + i * hidden,
                hidden * sizeof(float));
}

void add_shared_expert(const ModelContext& model, uint32_t layer, uint32_t rows) {
  const LayerWeights& w = model.weights.layers[layer];
  const Workspace& s = model.work;
  linear(model, s.shared_gate, s.normed, rows, w.shared_gate, nullptr);  // (rows, 1)
  feed_forward(model, w.shared, s.ffn_y, s.normed, rows);                // (rows, hidden)
  for (uint32_t t = 0; t < rows; ++t) {
    const size_t at = static_cast<size_t>(t) * model.spec.hidden;
    model.kernels.add_scaled(s.x + at, s.ffn_y + at, 1.0f / (1.0f + std::exp(-s.shared_gate[t])),
                             model.spec.hidden);
  }
}

void choose_experts(const ArchitectureSpec& spec, const Kernels& kernels, uint32_t* ids,
                    float* weights, const float* logits) {
  const uint32_t n = spec.experts, k = spec.experts_per_token;
  if (spec.router == RouterRule::topk_then_softmax)
    kernels.topk_softmax(ids, weights, logits, n, k);
  else
    kernels.softmax_topk(ids, weights, logits, n, k,
                         spec.router == RouterRule::softmax_then_topk_renormalised);
}

Status run_distinct_experts(const ModelContext& model, uint32_t layer,
                            std::span<const uint32_t> distinct) {
  const Workspace& s = model.work;
  model.experts.begin(layer, distinct);
  Status status;
  for (;;) {
    auto lease = model.experts.next();
    if (!lease.ok()) {
      status = std::move(lease).error();
      break;
    }
    if (!lease->has_value()) break;
    const uint32_t expert = distinct[(*lease)->index()];
    const uint32_t start = s.group_start[expert];
    run_expert(model, (*lease)->record(), {s.group + start, s.group_start[expert + 1] - start});
  }
  model.experts.end();
  return status;
}

}  // namespace

void route(const ModelContext& model, uint32_t layer, uint32_t rows) {
  const ArchitectureSpec& spec = model.spec;
  const LayerWeights& w = model.weights.layers[layer];
  Workspace& s = model.work;
  linear(model, s.router_logits, s.normed, rows, w.router, w.router_bias);  // (rows, experts)
  for (uint32_t t = 0; t < rows; ++t)
    choose_experts(spec, model.kernels, s.router_ids + t * spec.experts_per_token,
                   s.router_weights + t * spec.experts_per_token,
                   s.router_logits + static_cast<size_t>(t) * spec.experts);
}

Status moe(const ModelContext& model, uint32_t layer, uint32_t rows) {
  const ArchitectureSpec& spec = model.spec;
  Workspace& s = model.work;
  RETURN_IF_ERROR(run_distinct_experts(model, layer, group_by_expert(spec, s, rows)));
  for (uint32_t t = 0; t < rows; ++t) {
    float* x = s.x + static_cast<size_t>(t) * spec.hidden;
    for (uint32_t j = 0; j < spec.experts_per_token; ++j) {
      const size_t assignment = static_cast<size_t>(t) * spec.experts_per_token + j;
      model.kernels.add_scaled(x, s.expert_out + assignment * spec.hidden,
                               s.router_weights[assignment], spec.hidden);
    }
  }
  if (spec.shared_inner > 0) add_shared_expert(model, layer, rows);
  return {};
}

}  // namespace wader
