#include "model/moe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "model/ffn.h"
#include "model/linear.h"

namespace wader {
namespace {

// Experts whose products run together: enough that meeting threads cost nothing beside them, few
// enough that reads of the next ones go on.
constexpr size_t kExpertsTogether = 16;

// Sorts the assignments (row · k + j) by expert: distinct ids in disk order, where each one's rows
// stand, and where each assignment went.
std::span<const uint32_t> group_by_expert(const ArchitectureSpec& spec, Workspace& s,
                                          uint32_t rows) {
  const uint32_t assignments = rows * spec.experts_per_token;
  std::fill_n(s.group_start, spec.experts + 1, 0u);
  for (uint32_t a = 0; a < assignments; ++a) ++s.group_start[s.router_ids[a] + 1];
  uint32_t distinct = 0;
  for (uint32_t e = 0; e < spec.experts; ++e) {
    if (s.group_start[e + 1] > 0) {
      s.distinct_rows[distinct] = s.group_start[e + 1];
      s.distinct[distinct++] = e;
    }
    s.group_start[e + 1] += s.group_start[e];
  }
  // Filling moves each start to its own end, which is the next one's start; it is moved back after.
  for (uint32_t a = 0; a < assignments; ++a) {
    s.place[a] = s.group_start[s.router_ids[a]]++;
    s.group[s.place[a]] = a;
  }
  for (uint32_t e = spec.experts; e > 0; --e) s.group_start[e] = s.group_start[e - 1];
  s.group_start[0] = 0;
  return {s.distinct, distinct};
}

// Resident experts whose rows together fit the workspace.
class Batch {
 public:
  explicit Batch(const ModelContext& model) : model_(model) {}

  bool fits(uint32_t expert) const {
    return count_ < kExpertsTogether && rows_ + rows_of(expert) <= model_.work.ffn_rows;
  }
  void add(Experts::Lease lease, uint32_t expert) {
    const Workspace& s = model_.work;
    const uint32_t start = s.group_start[expert];
    jobs_[count_] = {.w = bind_expert(model_.spec, model_.layout, lease.record()),
                     .rows = rows_of(expert),
                     .picks = s.group + start,
                     .picks_per_row = model_.spec.experts_per_token,
                     .y = s.expert_out + static_cast<size_t>(start) * model_.spec.hidden};
    rows_ += jobs_[count_].rows;
    leases_[count_++] = std::move(lease);
  }
  std::span<const FfnJob> jobs() const { return {jobs_.data(), count_}; }

 private:
  uint32_t rows_of(uint32_t expert) const {
    return model_.work.group_start[expert + 1] - model_.work.group_start[expert];
  }

  const ModelContext& model_;
  std::array<std::optional<Experts::Lease>, kExpertsTogether> leases_;
  std::array<FfnJob, kExpertsTogether> jobs_{};
  size_t count_ = 0;
  uint32_t rows_ = 0;
};

// work.expert_out, in the order of work.group. What is resident is computed together, then what has
// landed meanwhile, and so on.
Status run_distinct_experts(const ModelContext& model, const FfnInput& input,
                            std::span<const uint32_t> distinct) {
  for (;;) {
    ASSIGN_OR_RETURN(std::optional<Experts::Lease> lease, model.experts.next());
    if (!lease) return {};
    while (lease) {
      Batch batch(model);
      do {
        const uint32_t expert = distinct[lease->index()];
        batch.add(std::move(*lease), expert);
        lease = model.experts.next_resident();
      } while (lease && batch.fits(distinct[lease->index()]));
      feed_forward(model, input, batch.jobs());
    }
  }
}

void shared_expert(const ModelContext& model, const LayerWeights& w, const FfnInput& input,
                   uint32_t rows) {
  const FfnJob job{
      .w = w.shared, .rows = rows, .picks = nullptr, .picks_per_row = 1, .y = model.work.ffn_y};
  feed_forward(model, input, {&job, 1});
}

// x += Σ_j weight_j · expert_j in router order, + σ(gate) · shared expert.
void combine(const ModelContext& model, size_t t) {
  const ArchitectureSpec& spec = model.spec;
  const Workspace& s = model.work;
  float* const x = s.x + t * spec.hidden;
  for (uint32_t j = 0; j < spec.experts_per_token; ++j) {
    const size_t assignment = t * spec.experts_per_token + j;
    model.kernels.add_scaled(x, s.expert_out + size_t{s.place[assignment]} * spec.hidden,
                             s.router_weights[assignment], spec.hidden);
  }
  if (spec.shared_inner > 0)
    model.kernels.add_scaled(x, s.ffn_y + t * spec.hidden,
                             1.0f / (1.0f + std::exp(-s.shared_gate[t])), spec.hidden);
}

}  // namespace

void choose_experts(const ModelContext& model, uint32_t* ids, float* weights, uint32_t rows) {
  const ArchitectureSpec& spec = model.spec;
  const uint32_t n = spec.experts, k = spec.experts_per_token;
  const float* const logits = model.work.router_logits;
  model.threads.parallel_for(rows, 4, [&](ThreadPool::Slice slice) {
    for (int64_t t = slice.begin; t < slice.end; ++t) {
      if (spec.router == RouterRule::topk_then_softmax)
        model.kernels.topk_softmax(ids + t * k, weights + t * k, logits + t * n, n, k);
      else
        model.kernels.softmax_topk(ids + t * k, weights + t * k, logits + t * n, n, k,
                                   spec.router == RouterRule::softmax_then_topk_renormalised);
    }
  });
}

void route(const ModelContext& model, uint32_t layer, uint32_t rows) {
  const LayerWeights& w = model.weights.layers[layer];
  Workspace& s = model.work;
  linear(model, s.normed, rows, {{s.router_logits, w.router, w.router_bias}});  // (rows, experts)
  choose_experts(model, s.router_ids, s.router_weights, rows);
}

void fetch_experts(const ModelContext& model, uint32_t layer, uint32_t rows) {
  const std::span<const uint32_t> distinct = group_by_expert(model.spec, model.work, rows);
  model.experts.begin(layer, distinct, {model.work.distinct_rows, distinct.size()});
}

Status moe(const ModelContext& model, uint32_t layer, uint32_t rows) {
  const ArchitectureSpec& spec = model.spec;
  const LayerWeights& w = model.weights.layers[layer];
  Workspace& s = model.work;
  const std::span<const uint32_t> distinct = model.experts.ids();
  const bool shared = spec.shared_inner > 0;
  if (shared) linear(model, s.normed, rows, {{s.shared_gate, w.shared_gate}});  // (rows, 1)
  const MatrixFormat of_experts = model.layout.format.of(ExpertMatrix::gate_up);
  const FfnInput input = ffn_input(
      model, rows,
      activation_block_of(model, {of_experts, shared ? w.shared.gate_up.format : of_experts}));
  // The shared expert fills the time of the first reads.
  if (shared) shared_expert(model, w, input, rows);
  const Status status = run_distinct_experts(model, input, distinct);
  model.experts.end();
  RETURN_IF_ERROR(status);
  model.threads.parallel_for(rows, 4, [&](ThreadPool::Slice slice) {
    for (int64_t t = slice.begin; t < slice.end; ++t) combine(model, static_cast<size_t>(t));
  });
  return {};
}

}  // namespace wader
