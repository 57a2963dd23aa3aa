// y = W x + b over the compute threads: each computes a slice of W's rows for all tokens.
#pragma once

#include "model/forward.h"

namespace wader {

// x (tokens, cols) as the integer products take it, in the workspace until the next call.
inline QuantisedRows quantise_rows(const ModelContext& model, const float* x, uint32_t tokens,
                                   uint32_t cols) {
  const Workspace& s = model.work;
  const size_t width = s.row_width, blocks = width / kActivationBlock;
  auto quantise = [&](ThreadPool::Slice slice) {
    for (auto t = static_cast<size_t>(slice.begin); t < static_cast<size_t>(slice.end); ++t)
      model.kernels.quantise_row(s.x_codes + t * width, s.x_scales + t * blocks,
                                 s.x_sums + t * blocks, s.x_code_sums + t * blocks, x + t * cols,
                                 cols);
  };
  // A row takes under a microsecond, less than waking the threads for a few.
  if (tokens < 8)
    quantise({0, tokens, 0});
  else
    model.threads.parallel_for(tokens, 1, quantise);
  return {s.x_codes, s.x_scales, s.x_sums, s.x_code_sums, width, blocks};
}

// x (tokens, w.cols) → y (tokens, w.rows), both dense. bias (w.rows) or null.
inline void linear(const ModelContext& model, float* y, const float* x, uint32_t tokens,
                   const MatrixView& w, const float* bias) {
  QuantisedRows quantised{};
  const bool integer = model.kernels.quantise_row != nullptr && !is_plain_float(w.format.dtype);
  if (integer) quantised = quantise_rows(model, x, tokens, w.cols);
  // 16 rows of f32 results are one cache line: no two threads write the same one.
  model.threads.parallel_for(w.rows, 16, [&](ThreadPool::Slice slice) {
    model.kernels.matmul({.y = y,
                          .y_stride = w.rows,
                          .x = x,
                          .x_stride = w.cols,
                          .tokens = tokens,
                          .w = w,
                          .bias = bias,
                          .row_begin = static_cast<uint32_t>(slice.begin),
                          .row_end = static_cast<uint32_t>(slice.end),
                          .scratch = model.work.row_scratch + static_cast<size_t>(slice.worker) *
                                                                  model.work.row_scratch_width,
                          .xq = integer ? &quantised : nullptr});
  });
}

}  // namespace wader
