// For tests: safetensors files as the format defines them, read and written without the code under
// test, and the values in them.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "checkpoint/checkpoint_testing.h"
#include "tensor/float_formats.h"

namespace wader::testing {

struct RawTensor {
  std::string dtype;  // U8, U32, BF16, F16, F32
  std::vector<uint64_t> shape;
  std::string bytes;
};
using RawTensors = std::map<std::string, RawTensor>;

inline Json file_json(const std::filesystem::path& path) {
  return Json::parse(read_bytes(path));
}

// All tensors of the model*.safetensors of a checkpoint, by released name.
inline RawTensors read_raw(const std::filesystem::path& directory) {
  RawTensors tensors;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".safetensors") || !name.starts_with("model")) continue;
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

inline std::string raw_file(const RawTensors& tensors) {
  Json header = Json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const uint64_t begin = data.size();
    data += tensor.bytes;
    header[name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  return safetensors_file(header.dump(), data);
}

// config.json and model.safetensors.
inline void write_raw(const std::filesystem::path& directory, const Json& config,
                      const RawTensors& tensors) {
  write_bytes(directory / "config.json", config.dump());
  write_bytes(directory / "model.safetensors", raw_file(tensors));
}

inline std::vector<float> raw_values(const RawTensor& tensor) {
  const bool wide = tensor.dtype == "F32", f16 = tensor.dtype == "F16";
  EXPECT_TRUE(wide || f16 || tensor.dtype == "BF16") << tensor.dtype;
  std::vector<float> values(tensor.bytes.size() / (wide ? 4 : 2));
  float* const out = values.data();
  if (wide) std::memcpy(out, tensor.bytes.data(), tensor.bytes.size());
  for (size_t i = 0; !wide && i < tensor.bytes.size() / 2; ++i) {
    uint16_t bits;
    std::memcpy(&bits, tensor.bytes.data() + 2 * i, 2);
    out[i] = f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
  return values;
}

// Rounds to `dtype`.
inline RawTensor raw_tensor(const std::string& dtype, std::vector<uint64_t> shape,
                            const std::vector<float>& values) {
  const bool wide = dtype == "F32", f16 = dtype == "F16";
  const size_t size = wide ? 4 : 2, count = values.size();
  RawTensor tensor{dtype, std::move(shape), std::string(count * size, '\0')};
  const float* const from = values.data();
  char* const out = tensor.bytes.data();
  for (size_t i = 0; i < count; ++i) {
    const uint16_t bits = f16 ? f32_to_f16(from[i]) : f32_to_bf16(from[i]);
    std::memcpy(out + i * size, wide ? static_cast<const void*>(from + i) : &bits, size);
  }
  return tensor;
}

// The folder of a fixture with reference outputs.
inline std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(WADER_SOURCE_DIR) / "tests/data" / name;
}

}  // namespace wader::testing
