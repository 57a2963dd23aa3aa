// The canonical tensors of a spec: what a container holds, under which name and in which shape.
// checkpoint/ maps them to released names, container/ stores them, model/ binds them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "arch/spec.h"
#include "tensor/dtype.h"

namespace wader {

enum class TrunkRole : uint8_t {
  matrix,  // may be quantised: projections, embedding, head
  exact,   // kept as released: norms, biases, sinks, routers
};

struct TrunkTensorSpec {
  std::string name;             // "embed", "head", "final_norm", "layers.3.attn.q.weight", …
  std::vector<uint64_t> shape;  // row-major, (out, in) for matrices
  TrunkRole role;
};

// In file order: embed, then each layer's in the order they are used, final_norm, head.
// Per layer N: layers.N.attn_norm · attn.{q,k,v}.{weight,bias} · attn.sinks · attn.o.{weight,bias}
// · ffn_norm · router.{weight,bias}. Biases and sinks only where the spec has them.
std::vector<TrunkTensorSpec> trunk_tensors(const ArchitectureSpec& spec);

// One section of an expert's record. Shapes are without the expert axis.
struct ExpertSection {
  std::string
      name;     // gate_up.blocks, gate_up.scales, gate_up.bias, down.blocks, down.scales, down.bias
  DType dtype;  // u8 for MXFP4 blocks and scales, bf16 for biases
  std::vector<uint64_t> shape;
  uint64_t offset_bytes;  // from the record's start, 64-byte aligned
  uint64_t bytes;

  bool operator==(const ExpertSection&) const = default;
};

struct ExpertLayout {
  std::vector<ExpertSection> sections;
  uint64_t payload_bytes;  // end of the last section
  uint64_t stride_bytes;   // payload rounded up to kRecordAlignment; padding is zero

  bool operator==(const ExpertLayout&) const = default;
  const ExpertSection& section(std::string_view name) const;  // CHECKs that it exists
};

constexpr uint64_t kSectionAlignment = 64;
constexpr uint64_t kRecordAlignment = 4096;  // one expert is one aligned O_DIRECT read

// MXFP4 experts as GPT-OSS releases them: gate_up rows interleaved (even gate, odd up).
ExpertLayout expert_layout(const ArchitectureSpec& spec);

}  // namespace wader
