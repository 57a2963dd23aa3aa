// For tests: safetensors files as the format defines them, read and written without the code under
// test, and random GPT-OSS checkpoints of any small size.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/checkpoint_testing.h"
#include "container/container_testing.h"
#include "tensor/dtype.h"
#include "tensor/float_formats.h"

namespace wader::testing {

struct ReleasedTensor {
  std::string dtype;  // U8, BF16, F16, F32
  std::vector<uint64_t> shape;
  std::string bytes;
};
using ReleasedTensors = std::map<std::string, ReleasedTensor>;

// All tensors of all *.safetensors of a checkpoint, by released name.
inline ReleasedTensors read_released(const std::filesystem::path& directory) {
  ReleasedTensors tensors;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".safetensors") || name.starts_with("golden")) continue;
    const std::string file = read_bytes(entry.path());
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, file.data(), 8);
    const Json header = Json::parse(file.substr(8, header_bytes));
    for (const auto& [key, value] : header.items()) {
      if (key == "__metadata__") continue;
      const auto begin = value["data_offsets"][0].get<uint64_t>(),
                 end = value["data_offsets"][1].get<uint64_t>();
      tensors[key] = {value["dtype"], value["shape"],
                      file.substr(8 + header_bytes + begin, end - begin)};
    }
  }
  return tensors;
}

inline void write_released(const std::filesystem::path& directory, const Json& config,
                           const ReleasedTensors& tensors) {
  Json header = Json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const uint64_t begin = data.size();
    data += tensor.bytes;
    header[name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  write_bytes(directory / "config.json", config.dump());
  write_bytes(directory / "model.safetensors", safetensors_file(header.dump(), data));
}

// small_config() and small_tensors() with random values of a model's size; scales around 1.
inline ReleasedTensors random_tensors(uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.05f);
  ReleasedTensors out;
  for (const TestTensor& tensor : small_tensors()) {
    std::string bytes(tensor.bytes(), '\0');
    if (tensor.dtype == "BF16") {
      for (size_t i = 0; i < bytes.size(); i += 2) {
        const uint16_t bits = f32_to_bf16(normal(random));
        std::memcpy(bytes.data() + i, &bits, 2);
      }
    } else {
      const bool scales = tensor.name.ends_with("_scales");
      for (char& c : bytes) c = static_cast<char>(scales ? 120 + random() % 15 : random() % 256);
    }
    out[tensor.name] = {tensor.dtype, tensor.shape, std::move(bytes)};
  }
  return out;
}

inline std::vector<float> to_floats(const ReleasedTensor& tensor) {
  const size_t size = tensor.dtype == "F32" ? 4 : 2;
  std::vector<float> values(tensor.bytes.size() / size);
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits = 0;
    if (size == 2) std::memcpy(&bits, tensor.bytes.data() + 2 * i, 2);
    if (tensor.dtype == "F32") std::memcpy(&values[i], tensor.bytes.data() + 4 * i, 4);
    if (tensor.dtype == "F16") values[i] = f16_to_f32(bits);
    if (tensor.dtype == "BF16") values[i] = bf16_to_f32(bits);
  }
  return values;
}

inline ReleasedTensor from_floats(const std::string& dtype, std::vector<uint64_t> shape,
                                  const std::vector<float>& values) {
  ReleasedTensor tensor{dtype, std::move(shape), {}};
  for (float value : values) {
    const uint16_t bits = dtype == "F16" ? f32_to_f16(value) : f32_to_bf16(value);
    if (dtype == "F32")
      tensor.bytes.append(reinterpret_cast<const char*>(&value), 4);
    else
      tensor.bytes.append(reinterpret_cast<const char*>(&bits), 2);
  }
  return tensor;
}

// The released name of a canonical trunk tensor, restated here.
inline std::string released_name(std::string name) {
  if (name == "embed") return "model.embed_tokens.weight";
  if (name == "head") return "lm_head.weight";
  if (name == "final_norm") return "model.norm.weight";
  const size_t at = name.find('.', 7) + 1;  // after "layers.N."
  std::string layer = "model." + name.substr(0, at), rest = name.substr(at);
  if (rest == "attn_norm") return layer + "input_layernorm.weight";
  if (rest == "ffn_norm") return layer + "post_attention_layernorm.weight";
  if (rest == "attn.sinks") return layer + "self_attn.sinks";
  if (rest.starts_with("router.")) return layer + "mlp." + rest;
  return layer + "self_attn." + rest.substr(5, 1) + "_proj" + rest.substr(6);  // attn.q.weight
}

// The released name of an expert section: gate_up.blocks → …experts.gate_up_proj_blocks.
inline std::string released_section(uint32_t layer, const std::string& section) {
  const size_t dot = section.find('.');
  return "model.layers." + std::to_string(layer) + ".mlp.experts." + section.substr(0, dot) +
         "_proj_" + section.substr(dot + 1);
}

}  // namespace wader::testing
