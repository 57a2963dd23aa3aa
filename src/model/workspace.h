// Workspace: every buffer a pass needs, taken once. Shapes are for at most `rows` rows.
#pragma once

#include <cstdint>
#include <vector>

#include "arch/spec.h"
#include "base/result.h"
#include "io/aligned_buffer.h"
#include "kernels/ops.h"

namespace wader {

// Rows whose logits are computed together: the head is read once for all of them.
constexpr uint32_t kLogitsBlock = 4;

// Rows of activations as integer products take them; `width` codes are room for the widest.
struct QuantisedBuffer {
  int8_t* codes = nullptr;
  float* scales = nullptr;
  float* sums = nullptr;
  int32_t* code_sums = nullptr;
  size_t width = 0;  // whole cache lines of codes

  size_t blocks() const { return width / kActivationBlock; }
  QuantisedRows from_row(size_t row) const {
    return {codes + row * width,
            scales + row * blocks(),
            sums + row * blocks(),
            code_sums + row * blocks(),
            width,
            blocks()};
  }
  // x (n) to a row's columns from `column` on, both whole blocks of `block` columns.
  void quantise(const Kernels& kernels, size_t row, size_t column, const float* x, uint32_t n,
                uint32_t block) const {
    const size_t of_row = row * blocks(), at = of_row + column / kActivationBlock;
    kernels.quantise_row(codes + row * width + column, scales + at,
                         sums + of_row + column / kWideBlock, code_sums + at, x, n, block);
  }
};

struct Workspace {
  // rows: the largest pass; threads: compute threads.
  static Result<Workspace> create(const ArchitectureSpec& spec, uint32_t rows, uint32_t threads);
  static uint64_t bytes(const ArchitectureSpec& spec, uint32_t rows, uint32_t threads);

  uint32_t rows = 0;
  float* x = nullptr;                  // (rows, hidden), the residual stream
  float* normed = nullptr;             // (rows, hidden)
  float* q = nullptr;                  // (rows, query_width)
  float* attention_gate = nullptr;     // (rows, query_width)
  float* k = nullptr;                  // (rows, kv_width)
  float* v = nullptr;                  // (rows, kv_width)
  float* attended = nullptr;           // (rows, query_width)
  float* projected = nullptr;          // (rows, hidden)
  float* rope_cos = nullptr;           // (rows, rotary_dim/2)
  float* rope_sin = nullptr;           // (rows, rotary_dim/2)
  float* delta_qkv = nullptr;          // (rows, conv_width), before the convolution
  float* delta_conv = nullptr;         // (rows, conv_width), after it
  float* delta_z = nullptr;            // (rows, value_width)
  float* delta_beta = nullptr;         // (rows, value_heads)
  float* delta_g = nullptr;            // (rows, value_heads), log decay
  float* delta_y = nullptr;            // (rows, value_width)
  float* router_logits = nullptr;      // (rows, experts)
  float* router_weights = nullptr;     // (rows, k)
  uint32_t* router_ids = nullptr;      // (rows, k)
  float* predicted_weights = nullptr;  // (rows, k)
  uint32_t* predicted_ids = nullptr;   // (rows, k)
  uint32_t* predicted = nullptr;       // (experts), distinct
  uint8_t* predicted_marks = nullptr;  // (experts)
  float* ffn_x = nullptr;              // (ffn_rows, hidden), rows of experts gathered, as f32 …
  QuantisedBuffer ffn_x_codes;         // (ffn_rows), … or quantised
  float* ffn_gate_up = nullptr;        // (ffn_rows, 2 · widest inner)
  float* ffn_act = nullptr;            // (ffn_rows, widest inner)
  QuantisedBuffer ffn_act_codes;       // (ffn_rows), quantised
  float* ffn_y = nullptr;              // (rows, hidden), of the shared expert or a dense layer
  float* expert_out = nullptr;         // (rows · k, hidden), in the order of `group`
  float* shared_gate = nullptr;        // (rows)
  float* logits = nullptr;             // (kLogitsBlock, vocab_rows)
  uint32_t* distinct = nullptr;        // (experts), ids of a pass in disk order
  uint32_t* distinct_rows = nullptr;   // (experts), of each distinct id
  uint32_t* group_start = nullptr;     // (experts + 1), by expert: where its assignments begin
  uint32_t* group = nullptr;           // (rows · k), assignments row · k + j, grouped by expert
  uint32_t* place = nullptr;           // (rows · k), where each assignment stands in `group`
  float* row_scratch = nullptr;        // (threads, row_scratch_width), matmul's
  float* attend_scratch = nullptr;     // (threads, attend_scratch_width)
  float* bias_scratch = nullptr;       // (threads, bias_scratch_width), an expert's biases widened
  QuantisedBuffer x_codes;             // (rows), the input of one linear
  uint32_t row_width = 0;              // the widest input of a linear, padded to whole cache lines
  uint32_t row_scratch_width = 0, attend_scratch_width = 0, bias_scratch_width = 0;
  uint32_t ffn_rows = 0;  // of experts computed together: at least one row's, and one expert's

  float* matmul_scratch(int worker) const {
    return row_scratch + static_cast<size_t>(worker) * row_scratch_width;
  }

 private:
  AlignedBuffer memory_;
};

}  // namespace wader
