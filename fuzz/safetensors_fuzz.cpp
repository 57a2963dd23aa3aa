// A safetensors file → its tensors. What is accepted must tile the file exactly.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/check.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wader;
  const auto file = std::as_bytes(std::span(data, size));
  if (size < kSafetensorsPrefixBytes) return 0;
  const auto header_bytes =
      safetensors_header_bytes(file.first<kSafetensorsPrefixBytes>(), file.size());
  if (!header_bytes.ok()) return 0;
  const std::string_view header(reinterpret_cast<const char*>(data) + kSafetensorsPrefixBytes,
                                *header_bytes);
  const auto tensors = parse_safetensors_header(header, file.size());
  if (!tensors.ok()) return 0;
  uint64_t at = kSafetensorsPrefixBytes + *header_bytes;
  for (const SafetensorsTensor& tensor : *tensors) {
    CHECK(tensor.offset_bytes == at);
    at += tensor.bytes;
  }
  CHECK(at == file.size());
  return 0;
}
