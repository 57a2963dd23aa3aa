// For tests: what the canonical tensors must be, by index arithmetic on the plain released values,
// without the code under test.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <vector>

#include "arch/tensors.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/mlx_testing.h"
#include "checkpoint/source_testing.h"

namespace wader::testing {

class ExpectedQwen {
 public:
  // `released`: by plain name. `norms_have_one` as in ReleaseStyle.
  ExpectedQwen(const ArchitectureSpec& spec, const ValuesByName& released, bool norms_have_one)
      : spec_(spec), released_(released), norms_have_one_(norms_have_one) {}

  std::vector<float> trunk(const TrunkTensorSpec& tensor) const {
    if (tensor.name == "embed") return values("model.embed_tokens.weight");
    if (tensor.name == "head") return values("lm_head.weight");
    if (tensor.name == "final_norm") return norm("model.norm.weight");
    const size_t dot = tensor.name.find('.', 7);
    const std::string layer = "model." + tensor.name.substr(0, dot + 1),
                      part = tensor.name.substr(dot + 1);
    if (part == "mixer_norm") return norm(layer + "input_layernorm.weight");
    if (part == "ffn_norm") return norm(layer + "post_attention_layernorm.weight");
    if (part.starts_with("attn.")) return attention(layer + "self_attn.", part.substr(5));
    if (part.starts_with("delta.")) return delta(layer + "linear_attn.", part.substr(6));
    const std::string mlp = layer + "mlp.";
    if (part == "router.weight") return values(mlp + "gate.weight");
    if (part == "shared.gate.weight") return values(mlp + "shared_expert_gate.weight");
    const std::string ffn = mlp + (part.starts_with("shared.") ? "shared_expert." : "");
    if (part.ends_with(".down.weight")) return values(ffn + "down_proj.weight");
    EXPECT_TRUE(part.ends_with(".gate_up.weight")) << part;
    return gate_up(ffn);
  }

  std::vector<float> expert(uint32_t layer, uint32_t expert, ExpertMatrix matrix) const {
    const std::string stem =
        "model.layers." + std::to_string(layer) + ".mlp.experts." + std::to_string(expert) + ".";
    return matrix == ExpertMatrix::down ? values(stem + "down_proj.weight") : gate_up(stem);
  }

  const std::vector<float>& values(const std::string& name) const {
    const auto found = released_.find(name);
    if (found != released_.end()) return found->second.values;
    ADD_FAILURE() << name;
    static const std::vector<float> nothing;
    return nothing;
  }

 private:
  std::vector<float> norm(const std::string& name) const {
    std::vector<float> out = values(name);
    const bool add = spec_.attention_gate && !norms_have_one_;  // the hybrids' are zero-centred
    for (float& value : out) value += add ? 1.f : 0.f;
    return out;
  }

  // Rows [begin, begin + count) of a matrix with hidden columns.
  void append(const std::string& name, uint64_t begin, uint64_t count,
              std::vector<float>& out) const {
    const std::vector<float>& from = values(name);
    const uint64_t cols = spec_.hidden;
    ASSERT_LE((begin + count) * cols, from.size()) << name;
    out.insert(out.end(), from.begin() + static_cast<std::ptrdiff_t>(begin * cols),
               from.begin() + static_cast<std::ptrdiff_t>((begin + count) * cols));
  }

  std::vector<float> gate_up(const std::string& stem) const {
    const std::vector<float>&gate = values(stem + "gate_proj.weight"),
          &up = values(stem + "up_proj.weight");
    std::vector<float> out;
    for (size_t row = 0; row < gate.size() / spec_.hidden; ++row) {
      append(stem + "gate_proj.weight", row, 1, out);
      append(stem + "up_proj.weight", row, 1, out);
    }
    EXPECT_EQ(out.size(), gate.size() + up.size());
    return out;
  }

  std::vector<float> attention(const std::string& stem, const std::string& part) const {
    if (part == "q_norm" || part == "k_norm") return norm(stem + part + ".weight");
    if (!spec_.attention_gate || (part != "q.weight" && part != "gate.weight"))
      return values(stem + part.substr(0, 1) + "_proj" + part.substr(1));
    std::vector<float> out;
    for (uint64_t head = 0; head < spec_.query_heads; ++head)
      append(stem + "q_proj.weight", (2 * head + (part == "q.weight" ? 0 : 1)) * spec_.head_dim,
             spec_.head_dim, out);
    return out;
  }

  std::vector<float> delta(const std::string& stem, const std::string& part) const {
    if (part == "conv") return values(stem + "conv1d.weight");
    if (part == "a_log") return values(stem + "A_log");
    if (part == "dt_bias") return values(stem + "dt_bias");
    if (part == "norm") return values(stem + "norm.weight");
    if (part == "out.weight") return values(stem + "out_proj.weight");
    if (released_.contains(stem + "in_proj_qkv.weight"))  // flat
      return values(stem + "in_proj_" + part);
    const DeltaNetSpec& d = spec_.delta;
    const uint64_t each = d.value_heads / d.key_heads, v_rows = each * d.value_dim,
                   group = 2 * d.key_dim + 2 * v_rows;
    std::vector<float> out;
    const auto blocks = [&](const char* name, uint64_t rows_of_group, uint64_t skip,
                            uint64_t rows) {
      for (uint64_t head = 0; head < d.key_heads; ++head)
        append(stem + name, head * rows_of_group + skip, rows, out);
    };
    if (part == "qkv.weight") {
      blocks("in_proj_qkvz.weight", group, 0, d.key_dim);
      blocks("in_proj_qkvz.weight", group, d.key_dim, d.key_dim);
      blocks("in_proj_qkvz.weight", group, 2 * d.key_dim, v_rows);
    } else if (part == "z.weight") {
      blocks("in_proj_qkvz.weight", group, 2 * d.key_dim + v_rows, v_rows);
    } else {
      blocks("in_proj_ba.weight", 2 * each, part == "b.weight" ? 0 : each, each);
    }
    return out;
  }

  const ArchitectureSpec& spec_;
  const ValuesByName& released_;
  bool norms_have_one_;
};

inline void expect_same(const std::vector<float>& values, const std::vector<float>& expected,
                        const std::string& name) {
  ASSERT_EQ(values.size(), expected.size()) << name;
  if (std::memcmp(values.data(), expected.data(), values.size() * sizeof(float)) == 0) return;
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(values[i], expected[i]) << name << " at value " << i;
}

// Every trunk tensor and `every`-th expert of `checkpoint` against `expected`, to the bit.
inline void expect_values(const Checkpoint& checkpoint, const ExpectedQwen& expected,
                          uint32_t every = 1) {
  for (const TrunkTensorSpec& tensor : trunk_tensors(checkpoint.spec())) {
    const auto source = checkpoint.trunk_source(tensor);
    ASSERT_TRUE(source.ok()) << source.error().message;
    expect_same(materialise(checkpoint, *source), expected.trunk(tensor), tensor.name);
  }
  const ArchitectureSpec& spec = checkpoint.spec();
  for (uint32_t layer = 0; layer < spec.layer_count(); ++layer) {
    if (spec.layers[layer].ffn != FfnKind::moe) continue;
    for (uint32_t expert = 0; expert < spec.experts; expert += every)
      for (const ExpertMatrix matrix : {ExpertMatrix::gate_up, ExpertMatrix::down}) {
        const auto source = checkpoint.expert_source(layer, expert, matrix);
        ASSERT_TRUE(source.ok()) << source.error().message;
        expect_same(materialise(checkpoint, *source), expected.expert(layer, expert, matrix),
                    fmt::format("expert {} of layer {}", expert, layer));
      }
  }
}

}  // namespace wader::testing
