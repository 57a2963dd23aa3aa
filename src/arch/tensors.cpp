#include "arch/tensors.h"

#include <utility>

#include "base/check.h"
#include "base/units.h"

namespace wader {

std::vector<TrunkTensorSpec> trunk_tensors(const ArchitectureSpec& spec) {
  std::vector<TrunkTensorSpec> out;
  const auto matrix = [&](std::string name, uint64_t rows, uint64_t cols) {
    out.push_back({std::move(name), {rows, cols}, TrunkRole::matrix});
  };
  const auto exact = [&](std::string name, std::vector<uint64_t> shape) {
    out.push_back({std::move(name), std::move(shape), TrunkRole::exact});
  };
  const auto projection = [&](const std::string& name, uint64_t rows, uint64_t cols) {
    matrix(name + ".weight", rows, cols);
    if (spec.attention_bias) exact(name + ".bias", {rows});
  };

  matrix("embed", spec.vocab_rows, spec.hidden);
  for (uint32_t n = 0; n < spec.layer_count(); ++n) {
    const std::string layer = "layers." + std::to_string(n) + ".";
    exact(layer + "attn_norm", {spec.hidden});
    projection(layer + "attn.q", spec.query_width(), spec.hidden);
    projection(layer + "attn.k", spec.kv_width(), spec.hidden);
    projection(layer + "attn.v", spec.kv_width(), spec.hidden);
    if (spec.attention_sinks) exact(layer + "attn.sinks", {spec.query_heads});
    projection(layer + "attn.o", spec.hidden, spec.query_width());
    exact(layer + "ffn_norm", {spec.hidden});
    exact(layer + "router.weight", {spec.experts, spec.hidden});
    if (spec.router_bias) exact(layer + "router.bias", {spec.experts});
  }
  exact("final_norm", {spec.hidden});
  matrix("head", spec.vocab_rows, spec.hidden);
  return out;
}

const ExpertSection& ExpertLayout::section(std::string_view name) const {
  for (const ExpertSection& section : sections)
    if (section.name == name) return section;
  UNREACHABLE("expert layout has no such section");
}

ExpertLayout expert_layout(const ArchitectureSpec& spec) {
  ExpertLayout layout{};
  const auto add = [&](std::string name, DType dtype, std::vector<uint64_t> shape) {
    uint64_t bytes = dtype_bytes(dtype);
    for (uint64_t dim : shape) bytes *= dim;
    const uint64_t offset = align_up(layout.payload_bytes, kSectionAlignment);
    layout.sections.push_back({std::move(name), dtype, std::move(shape), offset, bytes});
    layout.payload_bytes = offset + bytes;
  };
  const uint64_t inner = spec.expert_inner, hidden = spec.hidden;
  add("gate_up.blocks", DType::u8, {2 * inner, hidden / kMxfp4Block, kMxfp4Block / 2});
  add("gate_up.scales", DType::u8, {2 * inner, hidden / kMxfp4Block});
  if (spec.expert_bias) add("gate_up.bias", DType::bf16, {2 * inner});
  add("down.blocks", DType::u8, {hidden, inner / kMxfp4Block, kMxfp4Block / 2});
  add("down.scales", DType::u8, {hidden, inner / kMxfp4Block});
  if (spec.expert_bias) add("down.bias", DType::bf16, {hidden});
  layout.stride_bytes = align_up(layout.payload_bytes, kRecordAlignment);
  return layout;
}

}  // namespace wader
