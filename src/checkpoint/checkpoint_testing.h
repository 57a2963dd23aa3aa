// For tests: safetensors files and small GPT-OSS checkpoints made in memory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "io/io_testing.h"

namespace wader::testing {

inline std::string u64_le(uint64_t value) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[static_cast<size_t>(i)] = static_cast<char>(value >> (8 * i));
  return bytes;
}

// A safetensors file out of its parts; nothing about them has to be right.
inline std::string safetensors_file(std::string_view header, std::string_view data) {
  return u64_le(header.size()).append(header).append(data);
}

struct TestTensor {
  std::string name;
  std::string dtype;  // U8, BF16 or F32
  std::vector<uint64_t> shape;

  uint64_t bytes() const {
    uint64_t n = dtype == "U8" ? 1 : dtype == "BF16" ? 2 : 4;
    for (const uint64_t dim : shape) n *= dim;
    return n;
  }
};

// A correct file with these tensors. Byte i of the data is i · 7 mod 251, so that offsets show.
inline std::string safetensors_file(const std::vector<TestTensor>& tensors) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  uint64_t offset = 0;
  for (const TestTensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.bytes()}}};
    offset += tensor.bytes();
  }
  std::string data(offset, '\0');
  for (uint64_t i = 0; i < offset; ++i) data[i] = static_cast<char>(i * 7 % 251);
  return safetensors_file(header.dump(), data);
}

// config.json of a GPT-OSS model of about 50 KB: 2 layers, 2 experts of 64 × 32, one used a token.
inline Json small_config() {
  return Json::parse(R"({
    "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "attention_bias": true,
    "head_dim": 16, "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 32,
    "max_position_embeddings": 4096, "num_attention_heads": 4, "num_experts_per_tok": 1,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "num_local_experts": 2,
    "rms_norm_eps": 1e-05, "sliding_window": 128, "vocab_size": 24, "rope_theta": 150000,
    "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "truncate": false, "beta_fast": 32.0,
                     "beta_slow": 1.0, "original_max_position_embeddings": 4096},
    "tie_word_embeddings": false, "quantization_config": {"quant_method": "mxfp4"}})");
}

// The tensors of small_config() as they are released, written out rather than taken from the code
// under test.
inline std::vector<TestTensor> small_tensors() {
  std::vector<TestTensor> out = {{"lm_head.weight", "BF16", {24, 64}},
                                 {"model.embed_tokens.weight", "BF16", {24, 64}},
                                 {"model.norm.weight", "BF16", {64}}};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    const std::string attention = layer + "self_attn.", mlp = layer + "mlp.";
    out.insert(out.end(), {{layer + "input_layernorm.weight", "BF16", {64}},
                           {layer + "post_attention_layernorm.weight", "BF16", {64}},
                           {attention + "q_proj.weight", "BF16", {64, 64}},
                           {attention + "q_proj.bias", "BF16", {64}},
                           {attention + "k_proj.weight", "BF16", {32, 64}},
                           {attention + "k_proj.bias", "BF16", {32}},
                           {attention + "v_proj.weight", "BF16", {32, 64}},
                           {attention + "v_proj.bias", "BF16", {32}},
                           {attention + "o_proj.weight", "BF16", {64, 64}},
                           {attention + "o_proj.bias", "BF16", {64}},
                           {attention + "sinks", "BF16", {4}},
                           {mlp + "router.weight", "BF16", {2, 64}},
                           {mlp + "router.bias", "BF16", {2}},
                           {mlp + "experts.gate_up_proj_blocks", "U8", {2, 64, 2, 16}},
                           {mlp + "experts.gate_up_proj_scales", "U8", {2, 64, 2}},
                           {mlp + "experts.gate_up_proj_bias", "BF16", {2, 64}},
                           {mlp + "experts.down_proj_blocks", "U8", {2, 64, 1, 16}},
                           {mlp + "experts.down_proj_scales", "U8", {2, 64, 1}},
                           {mlp + "experts.down_proj_bias", "BF16", {2, 64}}});
  }
  return out;
}

}  // namespace wader::testing
