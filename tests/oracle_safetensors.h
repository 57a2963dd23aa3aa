// The safetensors file format for tests: a length, a JSON header, the tensors' bytes. Files are
// read whole and trusted: this is the tests' own reader, apart from the one that they test.
//
// Failures are thrown as std::runtime_error or nlohmann-json's exceptions. Free functions without
// state: any thread. Format: https://github.com/huggingface/safetensors#format
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace wader::testing {

struct RawTensor {
  std::string dtype;  // as the file spells it: BF16, F32, U8, I32
  std::vector<size_t> shape;
  std::vector<uint8_t> bytes;  // little-endian, row-major
};
using RawTensors = std::map<std::string, RawTensor>;

RawTensors read_safetensors(const std::filesystem::path& path);
void write_safetensors(const std::filesystem::path& path, const RawTensors& tensors);

// The elements as numbers; every dtype above is exact in double.
std::vector<double> values_of(const RawTensor& tensor);

}  // namespace wader::testing
