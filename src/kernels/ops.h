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

// Activations as the integer products take them: int8 codes in blocks of 32 or 64 columns, one f32
// scale a block.
constexpr uint32_t kActivationBlock = 32;
constexpr uint32_t kWideBlock = 64;

// The block that weights of a quantised format ask for: 64 columns where 64 or more share a scale,
// so that a term of the sum is as wide as theirs.
constexpr uint32_t activation_block(const MatrixFormat& weights) {
  return weights.group >= kWideBlock ? kWideBlock : kActivationBlock;
}

// Rows of activations from Kernels::quantise_row, x ≈ code · scale. The 32 columns from 32 b of row
// t on stand at t · codes_stride + 32 b, their scale (that of the block that they are in) and code
// sum at t · blocks_stride + b; the sum of a block of 64 from 64 b on at t · blocks_stride + b.
struct QuantisedRows {
  const int8_t* codes;       // −127 … 127
  const float* scales;       // max|x| / 127; 0 for a block of zeros, NaN for one that is not finite
  const float* sums;         // blocks of 64 only: scale · Σ codes
  const int32_t* code_sums;  // Σ codes of 32
  size_t codes_stride, blocks_stride;
};

// The arithmetic of integer products, the same bits in every back end that has them. Block b is
// activation_block() columns, ws and xs its weight and activation scales in f32 (mxfp4 counts in
// halves: codes 2 · E2M1 in −12 … 12, ws = E8M0 / 2):
//   i_b = Σ code_w · code_x, exact in int32 (at most 64 · 255 · 127 < 2^24, so exact in f32 too)
//   lane l of 16, over its blocks b = l, l + 16, l + 32 …, from +0:
//     lane = fma(float(i_b), ws_b · xs_b, lane), and then for affine formats
//     lane = fma(bias_b, xs_b · float(Σ code_x), lane)
//   y = tree(lanes) + bias_r, + 0 without one; the tree adds lane l + 8 to l, then l + 4 to l,
//   l + 2, l + 1.
// Every operation rounds once to f32. A block that is not there changes nothing but the sign of a
// zero, which the last addition takes away. With blocks as lanes (one row at a time, as decode
// reads memory) a row needs one fma for 16 blocks; with rows as lanes (prefill) the sixteen are
// summed one after the other.

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
  float*
      scratch;  // (matmul_scratch_floats(w.cols, tokens)), this thread's, best aligned to 64 bytes
  // x quantised, or null: in blocks of 64 where w asks for them (activation_block), else in either.
  // With it and quantised weights a back end that has quantise_row multiplies integers and does not
  // look at x; all else is f32.
  const QuantisedRows* xq = nullptr;
};

// Room for 32 weight rows unpacked to a byte a code, with an f32 scale and bias a block; or for the
// codes of six tokens, each padded to 1024 columns, or to 512 with 64 int32 for each 512.
constexpr size_t unpacked_floats(uint32_t cols) {
  return (size_t{cols} + 63) / 64 * 64 * 10 + 1536;
}
// Behind it up to so many tokens laid out for tiles: a byte a code, a scale for every 32 columns or
// a scale and a sum for every 64, and 64 sums of parts (32 rows, 2).
constexpr uint32_t kPackedTokens = 128;
// Of a call with at most so many tokens.
constexpr size_t matmul_scratch_floats(uint32_t cols, uint32_t tokens) {
  const size_t packed = (tokens < kPackedTokens ? size_t{tokens} + 15 : kPackedTokens) / 16 * 16;
  return unpacked_floats(cols) + packed * (64 + (size_t{cols} + 63) / 64 * 64 * 9 / 32);
}

// Keys and values of one layer and KV head, elements of Kernels::kv_dtype. Position p stands at
// index p % capacity. Sixteen consecutive keys stand side by side for each dimension, so that
// scores of sixteen need no sum over lanes: k (capacity/16, head_dim, 16), v (capacity, head_dim).
constexpr uint32_t kKeyTile = 16;
// The softmax runs over blocks of positions at multiples of this, which divides every capacity.
constexpr uint32_t kAttentionBlock = 64;

// One row's query heads that share a KV head, against the keys [first, last] of its sequence.
// Online softmax (Milakov & Gimelshein 2018, arXiv:1805.02867), for each query by itself: with
// scores s = scale · q·k, m = sink or −∞, l = 1 or 0, block after block:
//   m' = max(m, block's s); p = e^(s − m'); l = l · e^(m − m') + Σ p; out = out · e^(m − m') + Σ p
//   v
// and out / l at the end. Bits depend on the query, its positions and its keys alone.
struct AttendArgs {
  float* out;      // (queries, head_dim)
  const float* q;  // (queries, head_dim), rotated
  uint32_t queries;
  const std::byte* k;
  const std::byte* v;
  uint32_t head_dim, capacity;
  uint32_t first, last;  // positions, last − first < capacity
  float scale;
  const float* sinks;  // (queries) logits that take their share and add no value; or null
  float* scratch;      // (attend_scratch_floats(queries))
};
// m and l of each query.
constexpr size_t attend_scratch_floats(uint32_t queries) {
  return 2 * size_t{queries};
}

// One position's key and value of a KV head take their place.
struct StoreKvArgs {
  std::byte* k;
  std::byte* v;
  uint32_t head_dim, capacity, position;
  const float* key;    // (head_dim), rotated
  const float* value;  // (head_dim)
};

// Gated DeltaNet (Yang et al. 2024, arXiv:2412.06464) runs in blocks of this many positions, at
// multiples of it: the state matrix S stands still inside a block, what the block's rows add to it
// is kept beside it as (key, delta) pairs, and folded in when the next block begins. Row i of a
// block, with G_i = g_0 + … + g_i the log decay since the block's start:
//   δ_i = β_i (v_i − e^{G_i} Sᵀk_i − Σ_{j<i} e^{G_i − G_j} (k_j·k_i) δ_j)
//   y_i = e^{G_i} Sᵀq_i + Σ_{j≤i} e^{G_i − G_j} (k_j·q_i) δ_j
//   S ← e^{G_last} S + Σ_j e^{G_last − G_j} k_j δ_jᵀ
// This is the chunked form, computed the same way whether a row comes alone (decode) or with others
// (prefill): its bits depend on its position only. It reads S once for many rows, and writes it
// once a block instead of once a token.
constexpr uint32_t kDeltaBlock = 32;
// G is kept in double: after strong decays its f32 differences would lose the weak ones. g is
// clamped here, where e^g is 0 in f32, so that a block's sum stays far inside double's precision.
constexpr float kDeltaStrongestDecay = -104.0f;

// One value head over consecutive rows of one block.
struct DeltaBlockArgs {
  uint32_t key_dim, value_dim;
  uint32_t begin, end;      // the rows' places in the block, begin < end <= kDeltaBlock
  const float* state;       // S (key_dim, value_dim), as it was before the block
  const float* keys;        // (kDeltaBlock, key_dim), normalised; rows before `end` are there
  const double* log_decay;  // G (kDeltaBlock); rows before `end` are there
  float* deltas;   // (kDeltaBlock, value_dim); rows before `begin` are there, [begin, end) come out
  const float* q;  // row `begin`'s (key_dim), normalised and scaled; the next is q_stride on
  size_t q_stride;
  const float* v;  // (value_dim) each
  size_t v_stride;
  const float* beta;  // one each
  size_t beta_stride;
  float* y;  // (value_dim) each, comes out
  size_t y_stride;
};

// The fold at a block's end, of one value head.
struct DeltaFoldArgs {
  uint32_t key_dim, value_dim;
  float* state;             // (key_dim, value_dim), changed in place
  const float* keys;        // (kDeltaBlock, key_dim)
  const double* log_decay;  // (kDeltaBlock)
  const float* deltas;      // (kDeltaBlock, value_dim)
};

struct Kernels {
  std::string_view name;
  void (*matmul)(const MatmulArgs& args);
  // x (n) → codes (n), scales and code_sums (n/32), and with blocks of 64 sums (n/64); block is 32
  // or 64, n a multiple of it. The code is x / scale rounded to nearest even. A block whose scale
  // would be denormal becomes zeros. Null: this back end multiplies in f32 only.
  void (*quantise_row)(int8_t* codes, float* scales, float* sums, int32_t* code_sums,
                       const float* x, uint32_t n, uint32_t block);
  // out = x / sqrt(mean(x²) + eps) · weight, all (n). out may be x.
  void (*rms_norm)(float* out, const float* x, const float* weight, uint32_t n, float eps);
  // x = x / sqrt(Σ x² + eps) · scale, (n).
  void (*l2_norm)(float* x, uint32_t n, float eps, float scale);
  // Rotates the first `dim` of one head in place, halves paired: i with i + dim/2. cos and sin
  // (dim/2).
  void (*rope)(float* head, const float* cos, const float* sin, uint32_t dim);
  // f32 or f16, of keys and values. To f16: nearest even, ±65504 beyond, NaN stays.
  DType kv_dtype;
  void (*store_kv)(const StoreKvArgs& args);
  void (*attend)(const AttendArgs& args);
  // Both take gate_up (2n) interleaved, even = gate, and give out (n).
  // silu(gate) · up.
  void (*swiglu)(float* out, const float* gate_up, uint32_t n);
  // (clamp(up, ±limit) + 1) · g · σ(1.702 g), g = min(gate, limit).
  void (*swiglu_clamped)(float* out, const float* gate_up, uint32_t n, float limit);
  // The k largest of logits (n), ties to the lower index, in falling order; weights = softmax over
  // those k.
  void (*topk_softmax)(uint32_t* ids, float* weights, const float* logits, uint32_t n, uint32_t k);
  // The same ids; weights = their share of the softmax over all n, divided by the sum of the k
  // shares when `renormalise`.
  void (*softmax_topk)(uint32_t* ids, float* weights, const float* logits, uint32_t n, uint32_t k,
                       bool renormalise);
  // x(i) += scale · y(i).
  void (*add_scaled)(float* x, const float* y, float scale, uint32_t n);
  // x(i) *= σ(gate(i)); x(i) *= silu(gate(i)).
  void (*sigmoid_gate)(float* x, const float* gate, uint32_t n);
  void (*silu_gate)(float* x, const float* gate, uint32_t n);
  // out(c) = silu(Σ_k taps(c, k) · rows[k](c)) for c in [begin, end): `kernel` rows, oldest first;
  // taps (channels, kernel).
  void (*conv_silu)(float* out, const float* const* rows, const float* taps, uint32_t kernel,
                    uint32_t begin, uint32_t end);
  void (*delta_block)(const DeltaBlockArgs& args);
  void (*delta_fold)(const DeltaFoldArgs& args);
};

// f32 arithmetic on exactly dequantised weights, plain loops: the oracle of every other back end.
extern const Kernels kRefKernels;

// "auto" or a back end's name; invalid_argument names those this machine has.
Result<const Kernels*> select_kernels(std::string_view name);
// All back ends that run here, for tests.
std::span<const Kernels* const> available_kernels();

}  // namespace wader
