#include "model/linear.h"

#include <algorithm>

#include "base/check.h"

namespace wader {
namespace {

// 16 f32 results are one cache line, which no two threads should write; prefill unpacks 32 rows
// together.
constexpr uint32_t kRowsTogether = 32;

uint32_t blocks_of(const Product& product) {
  return (product.w.rows + kRowsTogether - 1) / kRowsTogether;
}

}  // namespace

QuantisedRows quantise_rows(const ModelContext& model, const float* x, uint32_t tokens,
                            uint32_t cols, uint32_t block) {
  const QuantisedBuffer& to = model.work.x_codes;
  model.threads.parallel_for(tokens, 4, [&](ThreadPool::Slice slice) {
    for (auto t = static_cast<size_t>(slice.begin); t < static_cast<size_t>(slice.end); ++t)
      to.quantise(model.kernels, t, 0, x + t * cols, cols, block);
  });
  return to.from_row(0);
}

void linear(const ModelContext& model, const float* x, uint32_t tokens,
            std::initializer_list<Product> products) {
  const uint32_t cols = products.begin()->w.cols;
  uint32_t blocks = 0, activations = 0;
  for (const Product& product : products) {
    CHECK(product.w.cols == cols);
    blocks += blocks_of(product);
    activations = std::max(activations, activation_block_of(model, {product.w.format}));
  }
  QuantisedRows quantised{};
  if (activations > 0) quantised = quantise_rows(model, x, tokens, cols, activations);

  model.threads.parallel_for(blocks, 1, [&](ThreadPool::Slice slice) {
    uint32_t first = 0;  // block of the product
    for (const Product& product : products) {
      const uint32_t count = blocks_of(product);
      const auto begin = static_cast<uint32_t>(std::max<int64_t>(slice.begin, first)) - first;
      const auto end = static_cast<uint32_t>(std::clamp<int64_t>(slice.end - first, 0, count));
      first += count;
      if (begin >= end) continue;
      model.kernels.matmul({.y = product.y,
                            .y_stride = product.w.rows,
                            .x = x,
                            .x_stride = cols,
                            .tokens = tokens,
                            .w = product.w,
                            .bias = product.bias,
                            .row_begin = begin * kRowsTogether,
                            .row_end = std::min(end * kRowsTogether, product.w.rows),
                            .scratch = model.work.matmul_scratch(slice.worker),
                            .xq = takes_integers(model, product.w.format) ? &quantised : nullptr});
    }
  });
}

}  // namespace wader
