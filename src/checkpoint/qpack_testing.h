// For tests: .qpack directories made from MLX checkpoints, as Swiftlet's repacker writes them.
#pragma once

#include <fmt/format.h>

#include <string>

#include "checkpoint/raw_testing.h"

namespace wader::testing {

// `from`: what write_mlx made. The trunk keeps its names, the experts their bytes.
inline void write_qpack(const std::filesystem::path& from, const std::filesystem::path& to) {
  RawTensors trunk = read_raw(from);
  const Json config = file_json(from / "config.json");
  const Json& text = config.contains("text_config") ? config["text_config"] : config;
  const std::string prefix = config.contains("text_config") ? "language_model." : "";
  const auto layers = text["num_hidden_layers"].get<uint64_t>(),
             experts = text["num_experts"].get<uint64_t>();
  const auto released = [&](uint64_t layer, const std::string& section) {
    return fmt::format("{}model.layers.{}.mlp.switch_mlp.{}", prefix, layer, section);
  };

  Json sections = Json::array();
  uint64_t payload = 0;
  for (const std::string projection : {"gate_proj", "up_proj", "down_proj"})
    for (const std::string part : {"weight", "scales", "biases"}) {
      const auto tensor = trunk.find(released(0, projection + "." + part));
      if (tensor == trunk.end()) continue;
      const uint64_t bytes = tensor->second.bytes.size() / experts;
      sections.push_back({{"name", projection + "." + part},
                          {"dtype", tensor->second.dtype},
                          {"shape", {tensor->second.shape[1], tensor->second.shape[2]}},
                          {"offset", payload},
                          {"size", bytes}});
      payload += bytes;
    }
  const uint64_t stride = (payload + 16383) / 16384 * 16384;

  Json files = Json::object(), linear = Json::array();
  const auto write = [&](const std::string& name, const std::string& bytes) {
    write_bytes(to / name, bytes);
    files[name] = bytes.size();
  };
  for (uint64_t layer = 0; layer < layers; ++layer) {
    std::string blob(stride * experts, '\0');
    for (const Json& section : sections) {
      const std::string name = released(layer, section["name"]);
      const RawTensor tensor = trunk.extract(name).mapped();
      const auto bytes = section["size"].get<uint64_t>();
      for (uint64_t e = 0; e < experts; ++e)
        blob.replace(e * stride + section["offset"].get<uint64_t>(), bytes, tensor.bytes, e * bytes,
                     bytes);
    }
    write(fmt::format("packed_experts/layer_{:02}.bin", layer), blob);
    linear.push_back(
        trunk.contains(fmt::format("{}model.layers.{}.linear_attn.A_log", prefix, layer)));
  }
  write("packed_experts/layout.json", Json{{"expertCount", experts},
                                           {"expertStride", stride},
                                           {"layerCount", layers},
                                           {"linearLayers", linear},
                                           {"sections", sections}}
                                          .dump());
  write("model.safetensors", raw_file(trunk));
  write("config.json", config.dump());
  Json manifest = {{"magic", "QPACK"},
                   {"version", 1},
                   {"modelName", text["model_type"]},
                   {"sourceCheckpoint", "tiny"},
                   {"files", files}};
  if (config.contains("quantization")) {
    manifest["quantBits"] = config["quantization"]["bits"];
    manifest["quantGroupSize"] = config["quantization"]["group_size"];
  }
  write_bytes(to / "manifest.json", manifest.dump());
}

}  // namespace wader::testing
