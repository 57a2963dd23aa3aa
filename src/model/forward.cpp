#include "model/forward.h"

#include <chrono>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "model/attention.h"
#include "model/delta_net.h"
#include "model/ffn.h"
#include "model/linear.h"
#include "model/look_ahead.h"
#include "model/moe.h"
#include "model/norm.h"

namespace wader {
namespace {

// Gives the time since the last call to one phase: a clock read costs some 25 ns, three a layer.
class PhaseClock {
 public:
  explicit PhaseClock(PassSeconds* seconds) : seconds_(seconds), last_(Clock::now()) {}
  void end(double PassSeconds::*phase) {
    const Clock::time_point now = Clock::now();
    if (seconds_ != nullptr) seconds_->*phase += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

 private:
  using Clock = std::chrono::steady_clock;
  PassSeconds* seconds_;
  Clock::time_point last_;
};

void embed(const ModelContext& model, std::span<const Row> rows) {
  for (size_t t = 0; t < rows.size(); ++t) {
    CHECK(rows[t].token >= 0 && static_cast<uint32_t>(rows[t].token) < model.spec.vocab_rows);
    dequantise_row(model.weights.embed, static_cast<uint32_t>(rows[t].token),
                   model.work.x + t * model.spec.hidden);
  }
}

void add_rows(const ModelContext& model, float* x, const float* y, uint32_t rows) {
  const uint32_t hidden = model.spec.hidden;
  model.threads.parallel_for(rows, 4, [&](ThreadPool::Slice slice) {
    for (int64_t t = slice.begin; t < slice.end; ++t)
      model.kernels.add_scaled(x + t * hidden, y + t * hidden, 1.0f, hidden);
  });
}

// Calls fn(state, rows of it) for each sequence of the batch.
template <typename Fn>
void for_each_sequence(std::span<const Row> rows, Fn&& fn) {
  for (size_t begin = 0, end; begin < rows.size(); begin = end) {
    for (end = begin + 1; end < rows.size() && rows[end].state == rows[begin].state; ++end)
      CHECK(rows[end].position == rows[end - 1].position + 1);
    CHECK(rows[begin].position == rows[begin].state->length());
    fn(*rows[begin].state, static_cast<uint32_t>(end - begin));
  }
}

Status check_logits(std::span<const float> logits, uint32_t position) {
  for (size_t i = 0; i < logits.size(); ++i)
    if (!std::isfinite(logits[i]))
      return corrupt_error(
          "the logit of token {} at position {} is not a finite number; run `wader verify`", i,
          position);
  return {};
}

Status emit_logits(const ModelContext& model, std::span<const Row> rows,
                   const LogitsFn& on_logits) {
  Workspace& s = model.work;
  const uint32_t vocab = model.spec.vocab_rows;
  for (size_t begin = 0, end; begin < rows.size(); begin = end) {
    end = begin + 1;
    if (!rows[begin].wants_logits) continue;
    while (end < rows.size() && end - begin < kLogitsBlock && rows[end].wants_logits) ++end;
    linear(model, s.normed + begin * model.spec.hidden, static_cast<uint32_t>(end - begin),
           {{s.logits, model.weights.head}});  // (end − begin, vocab_rows)
    for (size_t t = begin; t < end; ++t) {
      const std::span<const float> logits(s.logits + (t - begin) * vocab, vocab);
      RETURN_IF_ERROR(check_logits(logits, rows[t].position));
      on_logits(t, logits);
    }
  }
  return {};
}

}  // namespace

Status forward(const ModelContext& model, std::span<const Row> rows, const LogitsFn& on_logits,
               const ForwardObserver* observer) {
  Workspace& s = model.work;
  const auto count = static_cast<uint32_t>(rows.size());
  CHECK(count >= 1 && count <= s.rows);
  const size_t hidden_values = static_cast<size_t>(count) * model.spec.hidden;
  const auto observe_hidden = [&](uint32_t stage, const float* x) {
    if (observer && observer->on_hidden) observer->on_hidden(stage, {x, hidden_values});
  };
  const auto observe_router = [&](uint32_t layer) {
    const size_t assignments = static_cast<size_t>(count) * model.spec.experts_per_token;
    if (observer && observer->on_router)
      observer->on_router(layer, {s.router_ids, assignments}, {s.router_weights, assignments});
  };
  for_each_sequence(rows, [](SequenceState& state, uint32_t n) { state.reserve(n); });

  embed(model, rows);
  for (size_t t = 0; t < rows.size(); ++t)
    model.rope.at(rows[t].position, s.rope_cos + t * model.spec.rotary_dim / 2,
                  s.rope_sin + t * model.spec.rotary_dim / 2);
  observe_hidden(0, s.x);

  PhaseClock clock(model.seconds);
  for (uint32_t layer = 0; layer < model.spec.layer_count(); ++layer) {
    const LayerWeights& w = model.weights.layers[layer];
    norm_rows(model, s.normed, s.x, w.mixer_norm, count);
    if (w.kind.mixer == LayerKind::delta_net)
      delta_net(model, layer, rows);
    else
      attention(model, layer, rows);
    add_rows(model, s.x, s.projected, count);
    clock.end(&PassSeconds::mixer);

    norm_rows(model, s.normed, s.x, w.ffn_norm, count);
    if (w.kind.ffn == FfnKind::dense) {
      const FfnJob job{
          .w = w.dense, .rows = count, .picks = nullptr, .picks_per_row = 1, .y = s.ffn_y};
      const uint32_t block = activation_block_of(model, {w.dense.gate_up.format});
      feed_forward(model, ffn_input(model, count, block), {&job, 1});
      add_rows(model, s.x, s.ffn_y, count);
    } else {
      route(model, layer, count);
      observe_router(layer);
      fetch_experts(model, layer, count);
      clock.end(&PassSeconds::router);
      look_ahead(model, layer, count);
      clock.end(&PassSeconds::lookahead);
      RETURN_IF_ERROR(moe(model, layer, count));
    }
    clock.end(&PassSeconds::experts);
    observe_hidden(layer + 1, s.x);
  }

  norm_rows(model, s.normed, s.x, model.weights.final_norm, count);
  observe_hidden(model.spec.layer_count() + 1, s.normed);
  RETURN_IF_ERROR(emit_logits(model, rows, on_logits));
  clock.end(&PassSeconds::head);
  for_each_sequence(rows, [](SequenceState& state, uint32_t n) { state.advance(n); });
  return {};
}

}  // namespace wader
