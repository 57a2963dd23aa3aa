// The canonical tensors of a spec: what a container holds, under which name and in which shape.
// checkpoint/ maps them to released names, container/ stores them, model/ binds them. Families'
// own conventions end at checkpoint/: here every norm weight is what the normalised value is
// multiplied with (a zero-centred 1 + w is summed), and gate and up rows are always interleaved.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arch/spec.h"
#include "tensor/dtype.h"

namespace wader {

enum class TrunkRole : uint8_t {
  matrix,  // may be quantised: projections, embedding, head, shared expert
  exact,   // kept as released: norms, biases, sinks, routers, gates, decay parameters
};

struct TrunkTensorSpec {
  std::string name;             // "embed", "head", "final_norm", "layers.3.attn.q.weight", …
  std::vector<uint64_t> shape;  // row-major, (out, in) for matrices
  TrunkRole role;

  uint64_t rows() const { return shape.size() == 1 ? 1 : shape[0]; }
  uint64_t cols() const { return shape.back(); }
};

// In file order: embed, then each layer's in the order they are used, final_norm, head (unless
// tied). Only what the spec has. Layer N, each name after "layers.N.":
//   mixer_norm (hidden)
//   attention: attn.{q,gate,k,v}.weight, attn.{q,k,v}.bias, attn.{q,k}_norm (head_dim),
//     attn.sinks (query_heads), attn.o.{weight,bias}
//   delta_net: delta.qkv.weight (conv_width, hidden), all of q, then k, then v · delta.conv
//     (conv_width, conv_kernel) · delta.z.weight (value_width, hidden) · delta.{b,a}.weight
//     (value_heads, hidden) · delta.{a_log,dt_bias} (value_heads) · delta.norm (value_dim) ·
//     delta.out.weight (hidden, value_width)
//   ffn_norm (hidden)
//   moe: router.{weight,bias} · shared.gate_up.weight (2 · shared_inner, hidden) ·
//     shared.down.weight (hidden, shared_inner) · shared.gate.weight (1, hidden)
//   dense: dense.gate_up.weight (2 · dense_inner, hidden) · dense.down.weight (hidden, dense_inner)
std::vector<TrunkTensorSpec> trunk_tensors(const ArchitectureSpec& spec);

enum class ExpertMatrix : uint8_t { gate_up, down };

// How the experts' two matrices are stored; the same in every layer.
struct ExpertFormat {
  MatrixFormat gate_up, down;
  const MatrixFormat& of(ExpertMatrix matrix) const {
    return matrix == ExpertMatrix::gate_up ? gate_up : down;
  }
  bool operator==(const ExpertFormat&) const = default;
};

// Shape of one expert's matrix: gate_up (2 · expert_inner, hidden), down (hidden, expert_inner).
struct MatrixShape {
  uint32_t rows, cols;
};
MatrixShape expert_matrix_shape(const ArchitectureSpec& spec, ExpertMatrix matrix);
// mxfp4, affine4, affine8 or bf16, and columns in whole blocks or groups.
Status check_expert_format(const ArchitectureSpec& spec, const ExpertFormat& format);

// One section of an expert's record. Shapes are without the expert axis.
struct ExpertSection {
  // gate_up or down, then: .blocks and .scales (mxfp4) · .codes, .scales and .group_biases
  // (affine) · .weight (bf16) · .bias, the linear layer's own
  std::string name;
  DType dtype;  // of the section's elements: u8 codes, bf16 or f16 scales
  std::vector<uint64_t> shape;
  uint64_t offset_bytes;  // from the record's start, 64-byte aligned
  uint64_t bytes;

  bool operator==(const ExpertSection&) const = default;
};

// Where one matrix's planes and its bias stand in a record, from the record's start. 0 where it has
// no such plane (codes can be at 0).
struct MatrixPlanes {
  uint64_t codes = 0, scales = 0, biases = 0;
  std::optional<uint64_t> linear_bias = {};
  bool operator==(const MatrixPlanes&) const = default;
};

struct ExpertLayout {
  ExpertFormat format;
  std::vector<ExpertSection> sections;
  MatrixPlanes gate_up, down;
  uint64_t payload_bytes = 0;  // end of the last section
  uint64_t stride_bytes = 0;   // payload rounded up to kRecordAlignment; padding is zero

  const MatrixPlanes& planes(ExpertMatrix matrix) const {
    return matrix == ExpertMatrix::gate_up ? gate_up : down;
  }
  bool operator==(const ExpertLayout&) const = default;
};

constexpr uint64_t kSectionAlignment = 64;
constexpr uint64_t kRecordAlignment = 4096;  // one expert is one aligned O_DIRECT read

// Rows of gate_up are interleaved: even gate, odd up. CHECKs check_expert_format.
ExpertLayout expert_layout(const ArchitectureSpec& spec, const ExpertFormat& format);

}  // namespace wader
