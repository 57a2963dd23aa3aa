// y = W x + b over the compute threads, each a slice of the rows of W for all tokens.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "model/forward.h"

namespace wader {

// One matrix and where its product goes: y (tokens, w.rows), dense. bias (w.rows) or null.
struct Product {
  float* y;
  const MatrixView& w;
  const float* bias = nullptr;
};

// Whether the back end multiplies these weights by quantised activations.
inline bool takes_integers(const ModelContext& model, const MatrixFormat& weights) {
  return model.kernels.quantise_row != nullptr && !is_plain_float(weights.dtype);
}

// The blocks of activations that all these weights take; 0 where all multiply f32.
inline uint32_t activation_block_of(const ModelContext& model,
                                    std::initializer_list<MatrixFormat> weights) {
  uint32_t block = 0;
  for (const MatrixFormat& format : weights)
    if (takes_integers(model, format)) block = std::max(block, activation_block(format));
  return block;
}

// x (tokens, cols) as integer products take it, in blocks of so many columns, in the workspace
// until the next call of this or of linear().
QuantisedRows quantise_rows(const ModelContext& model, const float* x, uint32_t tokens,
                            uint32_t cols, uint32_t block);

// The products of one x (tokens, cols), dense, with several matrices: x is quantised once, and the
// threads meet once.
void linear(const ModelContext& model, const float* x, uint32_t tokens,
            std::initializer_list<Product> products);

}  // namespace wader
