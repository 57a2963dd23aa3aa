#include "model/ffn.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "model/linear.h"

namespace wader {
namespace {

// A block of rows of gate_up makes whole blocks of quantised activations; one of down a few cache
// lines.
constexpr uint32_t kGateUpRows = 2 * kWideBlock, kDownRows = 32;

QuantisedRows from_row(const QuantisedRows& q, size_t row) {
  return {q.codes + row * q.codes_stride,
          q.scales + row * q.blocks_stride,
          q.sums + row * q.blocks_stride,
          q.code_sums + row * q.blocks_stride,
          q.codes_stride,
          q.blocks_stride};
}

// Where a job's input rows stand: one row, or rows in order, where they are.
FfnInput input_of(const ModelContext& model, const FfnInput& input, const FfnJob& job,
                  size_t first) {
  const size_t hidden = model.spec.hidden;
  if (job.picks == nullptr) return {input.x, input.xq};
  if (job.rows == 1) {
    const size_t row = job.picks[0] / job.picks_per_row;
    return {input.x + row * hidden, input.xq.codes ? from_row(input.xq, row) : QuantisedRows{}};
  }
  return {model.work.ffn_x + first * hidden, model.work.ffn_x_codes.from_row(first)};
}

void gather_row(const ModelContext& model, const FfnInput& input, bool integers, size_t from,
                size_t to) {
  const Workspace& s = model.work;
  const size_t hidden = model.spec.hidden, blocks = hidden / kActivationBlock;
  if (!integers) {
    std::memcpy(s.ffn_x + to * hidden, input.x + from * hidden, hidden * sizeof(float));
    return;
  }
  const QuantisedRows row = from_row(input.xq, from);
  const QuantisedBuffer& x = s.ffn_x_codes;
  const size_t at = to * x.blocks();
  std::memcpy(x.codes + to * x.width, row.codes, hidden);
  std::memcpy(x.scales + at, row.scales, blocks * sizeof(float));
  std::memcpy(x.sums + at, row.sums, hidden / kWideBlock * sizeof(float));
  std::memcpy(x.code_sums + at, row.code_sums, blocks * sizeof(int32_t));
}

void gather(const ModelContext& model, const FfnInput& input, std::span<const FfnJob> jobs) {
  int64_t rows = 0;
  for (const FfnJob& job : jobs) rows += job.rows;
  model.threads.parallel_for(rows, 16, [&](ThreadPool::Slice slice) {
    int64_t first = 0;
    for (const FfnJob& job : jobs) {
      const bool gathered = job.picks != nullptr && job.rows > 1;
      const int64_t begin = std::max(slice.begin, first);
      const int64_t end = std::min(slice.end, first + job.rows);
      for (int64_t i = begin; gathered && i < end; ++i)
        gather_row(model, input, takes_integers(model, job.w.gate_up.format),
                   job.picks[i - first] / job.picks_per_row, static_cast<size_t>(i));
      first += job.rows;
    }
  });
}

// Rows [begin, end) of w times `rows` rows of x. bias: bf16 (w.rows) or null.
void multiply(const ModelContext& model, int worker, float* y, const FfnInput& x, uint32_t rows,
              const MatrixView& w, const std::byte* bias, uint32_t begin, uint32_t end) {
  float* widened = nullptr;
  if (bias != nullptr) {
    widened = model.work.bias_scratch + static_cast<size_t>(worker) * model.work.bias_scratch_width;
    plain_to_f32(DType::bf16, bias + size_t{begin} * 2, end - begin, widened + begin);
  }
  model.kernels.matmul({.y = y,
                        .y_stride = w.rows,
                        .x = x.x,
                        .x_stride = w.cols,
                        .tokens = rows,
                        .w = w,
                        .bias = widened,
                        .row_begin = begin,
                        .row_end = end,
                        .scratch = model.work.matmul_scratch(worker),
                        .xq = takes_integers(model, w.format) ? &x.xq : nullptr});
}

// Columns [begin, end) of gate_up, finished for all rows of a job, become activations.
void activate(const ModelContext& model, const FfnJob& job, size_t first, uint32_t begin,
              uint32_t end) {
  const Workspace& s = model.work;
  const size_t inner = job.w.down.cols, from = begin / 2;
  const uint32_t count = (end - begin) / 2;
  const auto limit = static_cast<float>(model.spec.swiglu_limit);
  for (size_t t = first; t < first + job.rows; ++t) {
    float* act = s.ffn_act + t * inner + from;
    const float* gate_up = s.ffn_gate_up + t * 2 * inner + begin;
    if (model.spec.activation == Activation::swiglu)
      model.kernels.swiglu(act, gate_up, count);
    else
      model.kernels.swiglu_clamped(act, gate_up, count, limit);
    if (const uint32_t block = activation_block_of(model, {job.w.down.format}))
      s.ffn_act_codes.quantise(model.kernels, t, from, act, count, block);
  }
}

// Calls fn(job, its first row, row_begin, row_end) for every part of the jobs' matrices that falls
// into blocks [begin, end) of `rows_together` rows, counted through all jobs.
template <typename Fn>
void for_each_part(std::span<const FfnJob> jobs, MatrixView FfnWeights::*which,
                   uint32_t rows_together, ThreadPool::Slice slice, Fn&& fn) {
  int64_t block = 0;
  size_t first = 0;
  for (const FfnJob& job : jobs) {
    const uint32_t rows = (job.w.*which).rows;
    const int64_t blocks = (rows + rows_together - 1) / rows_together;
    const int64_t begin = std::max<int64_t>(slice.begin - block, 0);
    const int64_t end = std::min(slice.end - block, blocks);
    if (begin < end)
      fn(job, first, static_cast<uint32_t>(begin) * rows_together,
         std::min(static_cast<uint32_t>(end) * rows_together, rows));
    block += blocks;
    first += job.rows;
  }
}

int64_t count_blocks(std::span<const FfnJob> jobs, MatrixView FfnWeights::*which,
                     uint32_t rows_together) {
  int64_t blocks = 0;
  for (const FfnJob& job : jobs)
    blocks += ((job.w.*which).rows + rows_together - 1) / rows_together;
  return blocks;
}

}  // namespace

FfnInput ffn_input(const ModelContext& model, uint32_t rows, uint32_t block) {
  FfnInput input{model.work.normed};
  if (block > 0) input.xq = quantise_rows(model, input.x, rows, model.spec.hidden, block);
  return input;
}

void feed_forward(const ModelContext& model, const FfnInput& input, std::span<const FfnJob> jobs) {
  const Workspace& s = model.work;
  gather(model, input, jobs);

  const int64_t gate_up_blocks = count_blocks(jobs, &FfnWeights::gate_up, kGateUpRows);
  model.threads.parallel_for(gate_up_blocks, 1, [&](ThreadPool::Slice slice) {
    for_each_part(jobs, &FfnWeights::gate_up, kGateUpRows, slice,
                  [&](const FfnJob& job, size_t first, uint32_t begin, uint32_t end) {
                    const size_t width = job.w.gate_up.rows;
                    multiply(model, slice.worker, s.ffn_gate_up + first * width,
                             input_of(model, input, job, first), job.rows, job.w.gate_up,
                             job.w.gate_up_bias, begin, end);
                    activate(model, job, first, begin, end);
                  });
  });

  const int64_t down_blocks = count_blocks(jobs, &FfnWeights::down, kDownRows);
  model.threads.parallel_for(down_blocks, 1, [&](ThreadPool::Slice slice) {
    for_each_part(jobs, &FfnWeights::down, kDownRows, slice,
                  [&](const FfnJob& job, size_t first, uint32_t begin, uint32_t end) {
                    const FfnInput act = {s.ffn_act + first * job.w.down.cols,
                                          s.ffn_act_codes.from_row(first)};
                    multiply(model, slice.worker, job.y, act, job.rows, job.w.down, job.w.down_bias,
                             begin, end);
                  });
  });
}

}  // namespace wader
