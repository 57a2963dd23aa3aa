// The contract of all compute kernels. A back end fills one Kernels table; it is chosen once at
// start.
//
// Kernels are leaf functions: primitive arguments, no allocation, no locks, no threads of their
// own. A row's result depends on that row alone, and its sums run in one fixed order, so batch
// size, thread count and the split of a product into row ranges never change a bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "tensor/matrix.h"

namespace wader {

// y(t, r) = bias[r] + Σ_c x(t, c) · w(r, c) for t in [0, tokens), r in [row_begin, row_end).
struct MatmulArgs {
  float* y;  // (tokens, y_stride)
  size_t y_stride;
  const float* x;  // (tokens, x_stride), w.cols of each used
  size_t x_stride;
  uint32_t tokens;
  MatrixView w;       // (rows, cols)
  const float* bias;  // (rows) or null
  uint32_t row_begin, row_end;
  float* scratch;  // (w.cols), this thread's
};

// One query row and head against the keys [first, last] of its sequence. Position p of a key stands
// at index p % capacity. softmax over the scores, joined in its denominator by the sink when there
// is one.
struct AttendArgs {
  float* out;      // (head_dim)
  const float* q;  // (head_dim), rotated
  const float* k;  // (capacity, head_dim) of the KV head, rotated
  const float* v;  // (capacity, head_dim)
  uint32_t head_dim, capacity;
  uint32_t first, last;  // positions, last − first < capacity
  float scale;
  const float* sink;  // one logit, or null
  float* scores;      // scratch (last − first + 1)
};

struct Kernels {
  std::string_view name;

  void (*matmul)(const MatmulArgs& args);

  // out = x / sqrt(mean(x²) + eps) · weight, all (n).
  void (*rms_norm)(float* out, const float* x, const float* weight, uint32_t n, float eps);

  // Rotates one head in place, halves paired: i with i + dim/2. cos and sin (dim/2).
  void (*rope)(float* head, const float* cos, const float* sin, uint32_t dim);

  void (*attend)(const AttendArgs& args);

  // out(i) = (clamp(up, ±limit) + 1) · g · σ(1.702 g), g = min(gate, limit); gate_up (2n)
  // interleaved, even = gate.
  void (*swiglu_clamped)(float* out, const float* gate_up, uint32_t n, float limit);

  // The k largest of logits (n), ties to the lower index, in falling order; weights = softmax over
  // those k.
  void (*topk_softmax)(uint32_t* ids, float* weights, const float* logits, uint32_t n, uint32_t k);

  // x(i) += scale · y(i).
  void (*add_scaled)(float* x, const float* y, float scale, uint32_t n);
};

// f32 arithmetic on exactly dequantised weights, plain loops: the oracle of every other back end.
extern const Kernels kRefKernels;

// "auto" or a back end's name; invalid_argument names those this machine has.
Result<const Kernels*> select_kernels(std::string_view name);
// All back ends that run here, for tests.
std::span<const Kernels* const> available_kernels();

}  // namespace wader
