// For tests: Qwen checkpoints of a few KB with random values, as each family is released.
#pragma once

#include <fmt/format.h>

#include <random>
#include <string>
#include <vector>

#include "checkpoint/raw_testing.h"

namespace wader::testing {

// qwen3_moe: 2 layers of full attention; qwen3_next and qwen3_5_moe: one of DeltaNet, one of full
// attention. hidden 128, 4 experts of 64 (4 × 32 blocks, 2 × 64 groups), vocabulary 96.
inline Json small_qwen_config(const std::string& model_type) {
  Json config = {{"model_type", model_type},
                 {"hidden_act", "silu"},
                 {"hidden_size", 128},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 32},
                 {"num_hidden_layers", 2},
                 {"num_experts", 4},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 64},
                 {"max_position_embeddings", 512},
                 {"rms_norm_eps", 1e-6},
                 {"rope_theta", 1e6},
                 {"vocab_size", 96},
                 {"tie_word_embeddings", false}};
  if (model_type == "qwen3_moe") {
    config["norm_topk_prob"] = true;
    config["rope_scaling"] = nullptr;
    return config;
  }
  config.update(Json{{"full_attention_interval", 2},
                     {"linear_conv_kernel_dim", 4},
                     {"linear_key_head_dim", 16},
                     {"linear_num_key_heads", 2},
                     {"linear_num_value_heads", 4},
                     {"linear_value_head_dim", 8},
                     {"partial_rotary_factor", 0.25},
                     {"shared_expert_intermediate_size", 64}});
  if (model_type == "qwen3_next") return config;
  config["model_type"] = "qwen3_5_moe_text";
  return {
      {"model_type", "qwen3_5_moe"}, {"text_config", config}, {"vision_config", {{"depth", 1}}}};
}

class SmallQwenTensors {
 public:
  explicit SmallQwenTensors(const Json& config, uint32_t seed)
      : nested_(config.contains("text_config")),
        config_(nested_ ? config["text_config"] : config),
        random_(seed) {}

  RawTensors make() {
    add("model.embed_tokens.weight", {96, 128});
    if (!config_["tie_word_embeddings"].get<bool>()) add("lm_head.weight", {96, 128});
    add("model.norm.weight", {128});
    const bool hybrid = config_["model_type"] != "qwen3_moe";
    for (uint64_t n = 0; n < 2; ++n) {
      const std::string layer = fmt::format("model.layers.{}.", n);
      add(layer + "input_layernorm.weight", {128});
      add(layer + "post_attention_layernorm.weight", {128});
      if (hybrid && n == 0)
        delta_net(layer + "linear_attn.");
      else
        attention(layer + "self_attn.", hybrid);
      ffn(layer + "mlp.", hybrid);
    }
    return std::move(tensors_);
  }

 private:
  void attention(const std::string& stem, bool gated) {
    add(stem + "q_proj.weight", {gated ? 256u : 128u, 128});
    add(stem + "k_proj.weight", {64, 128});
    add(stem + "v_proj.weight", {64, 128});
    add(stem + "o_proj.weight", {128, 128});
    add(stem + "q_norm.weight", {32});
    add(stem + "k_norm.weight", {32});
  }
  void delta_net(const std::string& stem) {
    if (nested_ || config_["model_type"] == "qwen3_5_moe_text") {
      add(stem + "in_proj_qkv.weight", {96, 128});
      add(stem + "in_proj_z.weight", {32, 128});
      add(stem + "in_proj_b.weight", {4, 128});
      add(stem + "in_proj_a.weight", {4, 128});
    } else {
      add(stem + "in_proj_qkvz.weight", {128, 128});
      add(stem + "in_proj_ba.weight", {8, 128});
    }
    add(stem + "conv1d.weight", {96, 1, 4});
    add(stem + "A_log", {4});
    add(stem + "dt_bias", {4});
    add(stem + "norm.weight", {8});
    add(stem + "out_proj.weight", {128, 32});
  }
  void ffn(const std::string& stem, bool shared) {
    add(stem + "gate.weight", {4, 128});
    if (nested_) {
      add(stem + "experts.gate_up_proj", {4, 128, 128});
      add(stem + "experts.down_proj", {4, 128, 64});
    } else {
      for (int e = 0; e < 4; ++e) projections(fmt::format("{}experts.{}.", stem, e));
    }
    if (!shared) return;
    projections(stem + "shared_expert.");
    add(stem + "shared_expert_gate.weight", {1, 128});
  }
  void projections(const std::string& stem) {
    add(stem + "gate_proj.weight", {64, 128});
    add(stem + "up_proj.weight", {64, 128});
    add(stem + "down_proj.weight", {128, 64});
  }
  void add(std::string name, const std::vector<uint64_t>& shape) {
    std::normal_distribution<float> normal(0, 0.1f);
    uint64_t count = 1;
    for (const uint64_t dim : shape) count *= dim;
    std::vector<float> values(count);
    for (float& value : values) value = normal(random_);
    if (nested_ && name.starts_with("model.")) name.insert(6, "language_model.");
    tensors_[name] = raw_tensor("BF16", shape, values);
  }

  bool nested_;
  Json config_;
  std::mt19937 random_;
  RawTensors tensors_;
};

inline RawTensors small_qwen_tensors(const Json& config, uint32_t seed = 1) {
  return SmallQwenTensors(config, seed).make();
}

}  // namespace wader::testing
