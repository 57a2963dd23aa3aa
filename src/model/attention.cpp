#include "model/attention.h"

#include <cmath>

#include "model/linear.h"

namespace wader {
namespace {

// Normalises (where the spec does) and rotates q and k by the rows' positions, and stores k and v
// where the state keeps them.
void rotate_and_store(const ModelContext& model, uint32_t layer, std::span<const Row> rows) {
  const ArchitectureSpec& spec = model.spec;
  const AttentionWeights& w = model.weights.layers[layer].attention;
  const Workspace& s = model.work;
  const uint32_t dim = spec.head_dim;
  const auto eps = static_cast<float>(spec.norm_eps);
  model.threads.parallel_for(static_cast<int64_t>(rows.size()), 1, [&](ThreadPool::Slice slice) {
    for (auto t = static_cast<size_t>(slice.begin); t < static_cast<size_t>(slice.end); ++t) {
      const float* cos = s.rope_cos + t * (spec.rotary_dim / 2);
      const float* sin = s.rope_sin + t * (spec.rotary_dim / 2);
      const auto rotate = [&](float* head, const float* norm) {
        if (norm != nullptr) model.kernels.rms_norm(head, head, norm, dim, eps);
        model.kernels.rope(head, cos, sin, spec.rotary_dim);
      };
      for (uint32_t h = 0; h < spec.query_heads; ++h)
        rotate(s.q + t * spec.query_width() + h * dim, w.q_norm);
      const KvView& kv = rows[t].state->kv(layer);
      for (uint32_t h = 0; h < spec.kv_heads; ++h) {
        float* k = s.k + t * spec.kv_width() + h * dim;
        rotate(k, w.k_norm);
        model.kernels.store_kv({.k = kv.k + h * kv.head_bytes,
                                .v = kv.v + h * kv.head_bytes,
                                .head_dim = dim,
                                .capacity = kv.capacity,
                                .position = rows[t].position,
                                .key = k,
                                .value = s.v + t * spec.kv_width() + h * dim});
      }
    }
  });
}

// The query heads of row t that share one KV head.
void attend_group(const ModelContext& model, uint32_t layer, const Row& row, size_t t,
                  uint32_t kv_head, int worker) {
  const ArchitectureSpec& spec = model.spec;
  const LayerWeights& w = model.weights.layers[layer];
  const Workspace& s = model.work;
  const KvView& kv = row.state->kv(layer);
  const uint32_t group = spec.query_heads / spec.kv_heads, head = kv_head * group;
  const bool slides = w.kind.mixer == LayerKind::sliding_attention;
  const size_t at = t * spec.query_width() + static_cast<size_t>(head) * spec.head_dim;
  model.kernels.attend(
      {.out = s.attended + at,
       .q = s.q + at,
       .queries = group,
       .k = kv.k + kv_head * kv.head_bytes,
       .v = kv.v + kv_head * kv.head_bytes,
       .head_dim = spec.head_dim,
       .capacity = kv.capacity,
       // A sliding query sees itself and the window − 1 keys before it.
       .first = slides && row.position >= spec.sliding_window
                    ? row.position - (spec.sliding_window - 1)
                    : 0,
       .last = row.position,
       .scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim)),
       .sinks = w.attention.sinks ? w.attention.sinks + head : nullptr,
       .scratch = s.attend_scratch + static_cast<size_t>(worker) * s.attend_scratch_width});
}

}  // namespace

void attention(const ModelContext& model, uint32_t layer, std::span<const Row> rows) {
  const AttentionWeights& w = model.weights.layers[layer].attention;
  const Workspace& s = model.work;
  const auto tokens = static_cast<uint32_t>(rows.size());
  const int64_t width = model.spec.query_width();

  const Product q{s.q, w.q, w.q_bias}, k{s.k, w.k, w.k_bias}, v{s.v, w.v, w.v_bias};
  if (model.spec.attention_gate)
    linear(model, s.normed, tokens, {q, {s.attention_gate, w.gate}, k, v});
  else
    linear(model, s.normed, tokens, {q, k, v});
  rotate_and_store(model, layer, rows);

  const uint32_t heads = model.spec.kv_heads;
  model.threads.parallel_for(static_cast<int64_t>(tokens) * heads, 1, [&](ThreadPool::Slice slice) {
    for (auto i = static_cast<size_t>(slice.begin); i < static_cast<size_t>(slice.end); ++i)
      attend_group(model, layer, rows[i / heads], i / heads, static_cast<uint32_t>(i % heads),
                   slice.worker);
  });
  if (model.spec.attention_gate) {
    model.threads.parallel_for(tokens, 4, [&](ThreadPool::Slice slice) {
      for (int64_t t = slice.begin; t < slice.end; ++t)
        model.kernels.sigmoid_gate(s.attended + t * width, s.attention_gate + t * width,
                                   static_cast<uint32_t>(width));
    });
  }
  linear(model, s.attended, tokens, {{s.projected, w.o, w.o_bias}});  // (rows, hidden)
}

}  // namespace wader
