#include "oracle_safetensors.h"

#include <bit>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace wader::testing {
namespace {

static_assert(std::endian::native == std::endian::little);

template <typename T>
T element(const RawTensor& tensor, size_t index) {
  T value;
  std::memcpy(&value, tensor.bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

size_t element_bytes(const std::string& dtype) {
  if (dtype == "U8") return 1;
  if (dtype == "BF16") return 2;
  if (dtype == "F32" || dtype == "I32") return 4;
  throw std::runtime_error("safetensors: unknown dtype " + dtype);
}

double value_at(const RawTensor& tensor, size_t index) {
  if (tensor.dtype == "U8") return tensor.bytes[index];
  if (tensor.dtype == "I32") return element<int32_t>(tensor, index);
  if (tensor.dtype == "F32") return element<float>(tensor, index);
  return std::bit_cast<float>(uint32_t{element<uint16_t>(tensor, index)} << 16);  // bf16
}

}  // namespace

RawTensors read_safetensors(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  file.exceptions(std::ios::failbit | std::ios::badbit | std::ios::eofbit);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
  std::string text(header_bytes, ' ');
  file.read(text.data(), static_cast<std::streamsize>(header_bytes));

  RawTensors tensors;
  const auto header = nlohmann::json::parse(text);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    RawTensor& tensor = tensors[name];
    tensor.dtype = entry.at("dtype");
    tensor.shape = entry.at("shape").get<std::vector<size_t>>();
    const auto [begin, end] = entry.at("data_offsets").get<std::pair<uint64_t, uint64_t>>();
    size_t bytes = element_bytes(tensor.dtype);
    for (const size_t extent : tensor.shape) bytes *= extent;
    if (end - begin != bytes) throw std::runtime_error("safetensors: size of " + name);
    tensor.bytes.resize(bytes);
    file.seekg(static_cast<std::streamoff>(sizeof(header_bytes) + header_bytes + begin));
    file.read(reinterpret_cast<char*>(tensor.bytes.data()), static_cast<std::streamsize>(bytes));
  }
  return tensors;
}

void write_safetensors(const std::filesystem::path& path, const RawTensors& tensors) {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  uint64_t offset_bytes = 0;
  for (const auto& [name, tensor] : tensors) {
    const uint64_t end_bytes = offset_bytes + tensor.bytes.size();
    header[name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}};
    header[name]["data_offsets"] = {offset_bytes, end_bytes};
    offset_bytes = end_bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begins at a multiple of 8
  const uint64_t header_bytes = text.size();

  std::ofstream file(path, std::ios::binary);
  file.exceptions(std::ios::failbit | std::ios::badbit);
  file.write(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
  file << text;
  for (const auto& [name, tensor] : tensors)
    file.write(reinterpret_cast<const char*>(tensor.bytes.data()),
               static_cast<std::streamsize>(tensor.bytes.size()));
}

std::vector<double> values_of(const RawTensor& tensor) {
  std::vector<double> values(tensor.bytes.size() / element_bytes(tensor.dtype));
  for (size_t i = 0; i < values.size(); ++i) values[i] = value_at(tensor, i);
  return values;
}

}  // namespace wader::testing
