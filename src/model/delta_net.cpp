#include "model/delta_net.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "model/linear.h"

namespace wader {
namespace {

constexpr float kL2Eps = 1e-6f;  // of the reference; beside the sum of squares

// Consecutive rows of one sequence.
struct Run {
  SequenceState* state;
  uint32_t first_row, rows, position;  // in the pass; of its first row
};

// log(1 + e^x) as the reference computes it: x itself beyond 20.
float softplus(float x) {
  return x > 20.0f ? x : std::log1p(std::exp(x));
}

// work.delta_beta and delta_g hold b and a; they become β = σ(b) and the log decay
// g = −e^A_log · softplus(a + dt_bias).
void gates(const ModelContext& model, const DeltaNetWeights& w, uint32_t rows) {
  const Workspace& s = model.work;
  const uint32_t heads = model.spec.delta.value_heads;
  model.threads.parallel_for(rows, 4, [&](ThreadPool::Slice slice) {
    for (int64_t t = slice.begin; t < slice.end; ++t)
      for (uint32_t h = 0; h < heads; ++h) {
        float& beta = s.delta_beta[t * heads + h];
        float& g = s.delta_g[t * heads + h];
        beta = 1.0f / (1.0f + std::exp(-beta));
        g = std::max(-std::exp(w.a_log[h]) * softplus(g + w.dt_bias[h]), kDeltaStrongestDecay);
      }
  });
}

// Convolves channels [begin, end) of a run: work.delta_qkv → work.delta_conv.
void convolve(const ModelContext& model, const DeltaNetWeights& w, const DeltaView& memory,
              const Run& run, uint32_t begin, uint32_t end) {
  const DeltaNetSpec& spec = model.spec.delta;
  const uint32_t width = spec.conv_width(), history = spec.conv_kernel - 1;
  const float* now = model.work.delta_qkv + static_cast<size_t>(run.first_row) * width;
  float* out = model.work.delta_conv + static_cast<size_t>(run.first_row) * width;
  CHECK(spec.conv_kernel <= kMaxConvKernel);
  std::array<const float*, kMaxConvKernel> taps_rows;
  for (uint32_t t = 0; t < run.rows; ++t) {
    for (uint32_t k = 0; k < spec.conv_kernel; ++k)
      taps_rows[k] = t + k < history ? memory.conv + static_cast<size_t>(t + k) * width
                                     : now + static_cast<size_t>(t + k - history) * width;
    model.kernels.conv_silu(out + static_cast<size_t>(t) * width, taps_rows.data(), w.conv,
                            spec.conv_kernel, begin, end);
  }
}

// The run's last conv_kernel − 1 inputs take the place of the remembered ones.
void remember_inputs(const DeltaNetSpec& spec, const Workspace& s, const DeltaView& memory,
                     const Run& run) {
  const size_t width = spec.conv_width(), history = spec.conv_kernel - 1;
  const float* now = s.delta_qkv + run.first_row * width;
  const size_t kept = run.rows < history ? history - run.rows : 0;
  std::memmove(memory.conv, memory.conv + (history - kept) * width, kept * width * sizeof(float));
  std::memcpy(memory.conv + kept * width, now + (run.rows - (history - kept)) * width,
              (history - kept) * width * sizeof(float));
}

// One key head and its value heads over the rows of a run, block by block.
void run_key_head(const ModelContext& model, const DeltaView& memory, const Run& run,
                  uint32_t key_head) {
  const DeltaNetSpec& d = model.spec.delta;
  const Workspace& s = model.work;
  const size_t width = d.conv_width(), state_values = size_t{d.key_dim} * d.value_dim;
  const uint32_t repeat = d.value_heads / d.key_heads;
  float* const keys = memory.keys + static_cast<size_t>(key_head) * kDeltaBlock * d.key_dim;

  for (uint32_t done = 0, count; done < run.rows; done += count) {
    const uint32_t place = (run.position + done) % kDeltaBlock;
    const bool folds = place == 0 && run.position + done > 0;
    count = std::min(run.rows - done, kDeltaBlock - place);
    const size_t row = run.first_row + done;
    const auto state_of = [&](uint32_t h) { return memory.state + h * state_values; };
    const auto decay_of = [&](uint32_t h) { return memory.log_decay + h * kDeltaBlock; };
    const auto deltas_of = [&](uint32_t h) {
      return memory.deltas + static_cast<size_t>(h) * kDeltaBlock * d.value_dim;
    };
    for (uint32_t h = key_head * repeat; folds && h < (key_head + 1) * repeat; ++h)
      model.kernels.delta_fold(
          {d.key_dim, d.value_dim, state_of(h), keys, decay_of(h), deltas_of(h)});

    for (uint32_t i = 0; i < count; ++i) {
      float* q = s.delta_conv + (row + i) * width + key_head * d.key_dim;
      float* k = q + d.key_width();
      model.kernels.l2_norm(q, d.key_dim, kL2Eps, 1.0f / std::sqrt(static_cast<float>(d.key_dim)));
      model.kernels.l2_norm(k, d.key_dim, kL2Eps, 1.0f);
      std::memcpy(keys + size_t{place + i} * d.key_dim, k, d.key_dim * sizeof(float));
    }
    for (uint32_t h = key_head * repeat; h < (key_head + 1) * repeat; ++h) {
      double* decay = decay_of(h);
      for (uint32_t i = 0; i < count; ++i)
        decay[place + i] = (place + i == 0 ? 0.0 : decay[place + i - 1]) +
                           s.delta_g[(row + i) * d.value_heads + h];
      model.kernels.delta_block(
          {.key_dim = d.key_dim,
           .value_dim = d.value_dim,
           .begin = place,
           .end = place + count,
           .state = state_of(h),
           .keys = keys,
           .log_decay = decay,
           .deltas = deltas_of(h),
           .q = s.delta_conv + row * width + key_head * d.key_dim,
           .q_stride = width,
           .v = s.delta_conv + row * width + 2 * d.key_width() + size_t{h} * d.value_dim,
           .v_stride = width,
           .beta = s.delta_beta + row * d.value_heads + h,
           .beta_stride = d.value_heads,
           .y = s.delta_y + row * d.value_width() + size_t{h} * d.value_dim,
           .y_stride = d.value_width()});
    }
  }
}

void run_sequence(const ModelContext& model, uint32_t layer, const Run& run) {
  const DeltaNetSpec& d = model.spec.delta;
  const DeltaNetWeights& w = model.weights.layers[layer].delta;
  const DeltaView& memory = run.state->delta(layer);
  // 16 channels are one cache line: no two threads write the same one.
  model.threads.parallel_for(d.conv_width(), 16, [&](ThreadPool::Slice slice) {
    convolve(model, w, memory, run, static_cast<uint32_t>(slice.begin),
             static_cast<uint32_t>(slice.end));
  });
  remember_inputs(d, model.work, memory, run);
  model.threads.parallel_for(d.key_heads, 1, [&](ThreadPool::Slice slice) {
    for (int64_t head = slice.begin; head < slice.end; ++head)
      run_key_head(model, memory, run, static_cast<uint32_t>(head));
  });
}

}  // namespace

void delta_net(const ModelContext& model, uint32_t layer, std::span<const Row> rows) {
  const DeltaNetSpec& d = model.spec.delta;
  const DeltaNetWeights& w = model.weights.layers[layer].delta;
  const Workspace& s = model.work;
  const auto count = static_cast<uint32_t>(rows.size());

  linear(model, s.normed, count,
         {{s.delta_qkv, w.qkv}, {s.delta_z, w.z}, {s.delta_beta, w.b}, {s.delta_g, w.a}});
  gates(model, w, count);
  for (uint32_t begin = 0, end; begin < count; begin = end) {
    for (end = begin + 1; end < count && rows[end].state == rows[begin].state;) ++end;
    run_sequence(model, layer, {rows[begin].state, begin, end - begin, rows[begin].position});
  }

  const auto eps = static_cast<float>(model.spec.norm_eps);
  model.threads.parallel_for(
      static_cast<int64_t>(count) * d.value_heads, 1, [&](ThreadPool::Slice slice) {
        for (int64_t i = slice.begin; i < slice.end; ++i) {
          float* y = s.delta_y + i * d.value_dim;
          model.kernels.rms_norm(y, y, w.norm, d.value_dim, eps);
          model.kernels.silu_gate(y, s.delta_z + i * d.value_dim, d.value_dim);
        }
      });
  linear(model, s.delta_y, count, {{s.projected, w.out}});  // (rows, hidden)
}

}  // namespace wader
