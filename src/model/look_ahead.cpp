#include "model/look_ahead.h"

#include <algorithm>

#include "model/linear.h"
#include "model/moe.h"
#include "model/norm.h"

namespace wader {
namespace {

// From this many tokens on most experts of a layer are wanted by some, and predicting is as good as
// knowing.
constexpr uint32_t kManyRows = 16;

// Distinct ids into work.predicted: for one row in the router's order, for more by expert.
std::span<const uint32_t> distinct_predictions(const ModelContext& model, uint32_t rows) {
  const uint32_t k = model.spec.experts_per_token;
  Workspace& s = model.work;
  if (rows == 1) return {s.predicted_ids, k};
  std::fill_n(s.predicted_marks, model.spec.experts, uint8_t{0});
  for (uint32_t a = 0; a < rows * k; ++a) s.predicted_marks[s.predicted_ids[a]] = 1;
  uint32_t count = 0;
  for (uint32_t e = 0; e < model.spec.experts; ++e)
    if (s.predicted_marks[e] != 0) s.predicted[count++] = e;
  return {s.predicted, count};
}

}  // namespace

void look_ahead(const ModelContext& model, uint32_t layer, uint32_t rows) {
  const uint32_t next = layer + 1;
  if (!model.lookahead || next >= model.spec.layer_count() ||
      model.spec.layers[next].ffn != FfnKind::moe)
    return;
  const LayerWeights& w = model.weights.layers[next];
  Workspace& s = model.work;
  norm_rows(model, s.projected, s.x, w.ffn_norm, rows);
  linear(model, s.projected, rows, {{s.router_logits, w.router, w.router_bias}});
  choose_experts(model, s.predicted_ids, s.predicted_weights, rows);
  model.experts.predict(next, distinct_predictions(model, rows),
                        rows >= kManyRows ? Experts::Certainty::sure : Experts::Certainty::likely);
}

}  // namespace wader
