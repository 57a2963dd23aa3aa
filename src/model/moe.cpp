#include "model/moe.h"

#include <algorithm>
#include <cstring>

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

// y = W_d swiglu(W_gu x + b_gu) + b_d for the rows that chose this expert.
void run_expert(const ModelContext& model, std::span<const std::byte> record,
                std::span<const uint32_t> assignments) {
  const ArchitectureSpec& spec = model.spec;
  Workspace& s = model.work;
  const ExpertWeights w = bind_expert(spec, model.layout, record);
  const auto tokens = static_cast<uint32_t>(assignments.size());
  const uint32_t hidden = spec.hidden, inner = spec.expert_inner;

  const float* gate_up_bias = nullptr;
  const float* down_bias = nullptr;
  if (spec.expert_bias) {
    plain_to_f32(DType::bf16, w.gate_up_bias, 2 * inner, s.expert_bias);
    plain_to_f32(DType::bf16, w.down_bias, hidden, s.expert_bias + 2 * inner);
    gate_up_bias = s.expert_bias;
    down_bias = s.expert_bias + 2 * inner;
  }
  for (uint32_t i = 0; i < tokens; ++i)
    std::memcpy(s.expert_x + static_cast<size_t>(i) * hidden,
                s.normed + static_cast<size_t>(assignments[i] / spec.experts_per_token) * hidden,
                hidden * sizeof(float));

  linear(model, s.expert_gate_up, s.expert_x, tokens, w.gate_up,
         gate_up_bias);  // (tokens, 2 · inner)
  model.threads.parallel_for(tokens, 1, [&](ThreadPool::Slice slice) {
    for (int64_t i = slice.begin; i < slice.end; ++i)
      model.kernels.swiglu_clamped(s.expert_act + i * inner, s.expert_gate_up + i * 2 * inner,
                                   inner, static_cast<float>(spec.swiglu_limit));
  });
  linear(model, s.expert_y, s.expert_act, tokens, w.down, down_bias);  // (tokens, hidden)

  for (uint32_t i = 0; i < tokens; ++i)
    std::memcpy(s.expert_out + static_cast<size_t>(assignments[i]) * hidden,
                s.expert_y + static_cast<size_t>(i) * hidden, hidden * sizeof(float));
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
    model.kernels.topk_softmax(s.router_ids + t * spec.experts_per_token,
                               s.router_weights + t * spec.experts_per_token,
                               s.router_logits + static_cast<size_t>(t) * spec.experts,
                               spec.experts, spec.experts_per_token);
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
  return {};
}

}  // namespace wader
