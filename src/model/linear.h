// y = W x + b over the compute threads: each computes a slice of W's rows for all tokens.
#pragma once

#include "model/forward.h"

namespace wader {

// x (tokens, w.cols) → y (tokens, w.rows), both dense. bias (w.rows) or null.
inline void linear(const ModelContext& model, float* y, const float* x, uint32_t tokens,
                   const MatrixView& w, const float* bias) {
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
                          .scratch = model.work.row_scratch +
                                     static_cast<size_t>(slice.worker) * model.work.row_width});
  });
}

}  // namespace wader
