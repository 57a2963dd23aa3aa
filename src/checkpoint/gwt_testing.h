// For tests: .gwt directories made from plain GPT-OSS and Qwen3 checkpoints, as Godwit's installer
// writes them.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "checkpoint/mlx_testing.h"

namespace wader::testing {

class GwtWriter {
 public:
  GwtWriter(const std::filesystem::path& from, const std::filesystem::path& to)
      : to_(to),
        raw_(read_raw(from)),
        config_(file_json(from / "config.json")),
        gpt_oss_(config_["model_type"] == "gpt_oss"),
        layers_(config_["num_hidden_layers"].get<uint64_t>()),
        experts_(config_[gpt_oss_ ? "num_local_experts" : "num_experts"].get<uint64_t>()) {
    if (!gpt_oss_) plain_ = plain_values(raw_);
  }

  ValuesByName write() {
    write_trunk();
    write_experts();
    write_bytes(to_ / "manifest.json", manifest().dump());
    return std::move(values_);
  }

 private:
  static uint64_t aligned(uint64_t bytes) { return (bytes + 16383) / 16384 * 16384; }
  uint64_t inner() const {
    return config_[gpt_oss_ ? "intermediate_size" : "moe_intermediate_size"].get<uint64_t>();
  }

  void add_section(const std::string& name, const char* dtype, const std::vector<uint64_t>& shape,
                   const std::string& bytes) {
    trunk_.resize(aligned(trunk_.size()));
    trunk_sections_.push_back({{"name", name},
                               {"offset", trunk_.size()},
                               {"length", bytes.size()},
                               {"dtype", dtype},
                               {"shape", shape}});
    trunk_ += bytes;
  }

  void quantise(const std::string& name, const std::string& released) {
    const RawTensor& tensor = raw_.at(released);
    MlxPlanes planes = mlx_quantise({tensor.shape, raw_values(tensor)}, {8, 64, "BF16"});
    std::string bytes = planes.weight.bytes;  // u8 codes, then (scale, zero) pairs
    for (size_t at = 0; at < planes.scales.bytes.size(); at += 2)
      bytes += planes.scales.bytes.substr(at, 2) + planes.biases.bytes.substr(at, 2);
    add_section(name, "int8-affine64", tensor.shape, bytes);
    values_[released] = {tensor.shape, std::move(planes.values)};
  }

  void copy(const std::string& name, const std::string& released) {
    const auto tensor = raw_.find(released);
    if (tensor == raw_.end()) return;
    add_section(name, "bf16", tensor->second.shape, tensor->second.bytes);
    values_[released] = {tensor->second.shape, raw_values(tensor->second)};
  }

  void write_trunk() {
    quantise("embed", "model.embed_tokens.weight");
    if (raw_.contains("lm_head.weight")) quantise("head", "lm_head.weight");
    for (uint64_t n = 0; n < layers_; ++n) {
      const std::string to = fmt::format("layer{}.", n), from = fmt::format("model.layers.{}.", n);
      for (const std::string part : {"q", "k", "v", "o"}) {
        quantise(to + part + "_proj", from + "self_attn." + part + "_proj.weight");
        copy(to + part + "_bias", from + "self_attn." + part + "_proj.bias");
      }
      copy(to + "input_norm", from + "input_layernorm.weight");
      copy(to + "post_norm", from + "post_attention_layernorm.weight");
      copy(to + "router_w", from + (gpt_oss_ ? "mlp.router.weight" : "mlp.gate.weight"));
      copy(to + "router_b", from + "mlp.router.bias");
      copy(to + "sinks", from + "self_attn.sinks");
      copy(to + "q_norm", from + "self_attn.q_norm.weight");
      copy(to + "k_norm", from + "self_attn.k_norm.weight");
    }
    copy("final_norm", "model.norm.weight");
    write_bytes(to_ / "trunk.bin", trunk_);
  }

  // The six sections of an expert, gate and up interleaved in both families.
  std::vector<std::pair<std::string, std::string>> sections_of(uint64_t layer, uint64_t expert) {
    const std::string stem = fmt::format("model.layers.{}.mlp.experts.", layer);
    if (gpt_oss_) {
      std::vector<std::pair<std::string, std::string>> out;
      for (const std::string name : {"gate_up_blocks", "gate_up_scales", "down_blocks",
                                     "down_scales", "gate_up_bias", "down_bias"}) {
        const std::string& all =
            raw_.at(stem + replaced(replaced(name, "up_", "up_proj_"), "down_", "down_proj_"))
                .bytes;
        const uint64_t bytes = all.size() / experts_;
        out.emplace_back(name, all.substr(expert * bytes, bytes));
      }
      return out;
    }
    const std::string own = stem + std::to_string(expert) + ".";
    const auto encode = [&](const std::string& projection) {
      const std::string name = own + projection + ".weight";
      MlxPlanes planes = mxfp4_quantise(plain_.at(name));
      values_[name] = {plain_.at(name).shape, planes.values};
      return planes;
    };
    const MlxPlanes gate = encode("gate_proj"), up = encode("up_proj"), down = encode("down_proj");
    const auto interleave = [&](const std::string& a, const std::string& b) {
      std::string out;
      const uint64_t row = a.size() / inner();
      for (uint64_t at = 0; at < a.size(); at += row) out += a.substr(at, row) + b.substr(at, row);
      return out;
    };
    const uint64_t hidden = config_["hidden_size"].get<uint64_t>();
    return {{"gate_up_blocks", interleave(gate.weight.bytes, up.weight.bytes)},
            {"gate_up_scales", interleave(gate.scales.bytes, up.scales.bytes)},
            {"down_blocks", down.weight.bytes},
            {"down_scales", down.scales.bytes},
            {"gate_up_bias", std::string(4 * inner(), '\0')},  // zeros, always there
            {"down_bias", std::string(2 * hidden, '\0')}};
  }

  void write_experts() {
    for (uint64_t layer = 0; layer < layers_; ++layer) {
      std::string file;
      for (uint64_t expert = 0; expert < experts_; ++expert) {
        const uint64_t start = file.size();
        for (const auto& [name, bytes] : sections_of(layer, expert)) {
          file.resize(aligned(file.size()));
          expert_sections_[name] = {{"offset", file.size() - start}, {"length", bytes.size()}};
          file += bytes;
        }
        file.resize(aligned(file.size()));
        stride_ = file.size() - start;
      }
      write_bytes(to_ / fmt::format("experts/layer_{:02}.bin", layer), file);
    }
  }

  Json manifest() const {
    Json layers = Json::array();
    for (uint64_t n = 0; n < layers_; ++n)
      layers.push_back({{"attention", gpt_oss_ && n % 2 == 0 ? "sliding" : "full"},
                        {"window", gpt_oss_ ? 128 : 0},
                        {"routedExpertCount", experts_},
                        {"expertsPerToken", config_["num_experts_per_tok"]},
                        {"hasSharedExpert", false}});
    return {{"formatVersion", 2},
            {"model", "tiny"},
            {"revision", "main"},
            {"spec",
             {{"name", "tiny"},
              {"hiddenSize", config_["hidden_size"]},
              {"intermediateSize", inner()},
              {"attentionHeads", config_["num_attention_heads"]},
              {"keyValueHeads", config_["num_key_value_heads"]},
              {"headDimension", config_["head_dim"]},
              {"vocabularySize", config_["vocab_size"]},
              {"ropeTheta", config_["rope_theta"]},
              {"rmsNormEpsilon", static_cast<float>(config_["rms_norm_eps"].get<double>())},
              {"activation", gpt_oss_ ? "gptOssClampedGLU" : "silu"},
              {"tiedEmbedding", !raw_.contains("lm_head.weight")},
              {"attentionSinks", gpt_oss_},
              {"attentionBias", gpt_oss_},
              {"expertBias", gpt_oss_},
              {"routerBias", gpt_oss_},
              {"activationLimit", 7},
              {"activationAlpha", 1.7020000219345093},
              {"queryKeyNorm", !gpt_oss_},
              {"naming", {{"embedding", "model.embed_tokens.weight"}}},
              {"layers", layers}}},
            {"layerCount", layers_},
            {"expertCount", experts_},
            {"expertStride", stride_},
            {"expertSections", expert_sections_},
            {"trunkSections", trunk_sections_},
            {"bytesWritten", trunk_.size()}};
  }

  std::filesystem::path to_;
  RawTensors raw_;
  Json config_;
  bool gpt_oss_;
  uint64_t layers_, experts_;
  ValuesByName plain_, values_;
  std::string trunk_;
  Json trunk_sections_ = Json::array(), expert_sections_ = Json::object();
  uint64_t stride_ = 0;
};

// `from`: a plain gpt_oss or qwen3_moe checkpoint. Returns the values as they are stored, by plain
// released name; GPT-OSS's experts, which are copied, are not among them.
inline ValuesByName write_gwt(const std::filesystem::path& from, const std::filesystem::path& to) {
  return GwtWriter(from, to).write();
}

}  // namespace wader::testing
