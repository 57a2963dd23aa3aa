// The safetensors format: u64 little-endian N, N bytes of JSON header, then the tensors' bytes
// without a gap. Only headers are read here. Every rule of the format is checked, so that what
// comes out can be used without another look: each tensor lies in its file, none overlaps another,
// no byte is left over.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/byte_source.h"
#include "tensor/dtype.h"

namespace wader {

struct SafetensorsTensor {
  std::string name;
  std::string_view format_dtype;  // as the format spells it: "BF16", "F8_E4M3"; static storage
  std::optional<DType> dtype;     // nothing where we have no such type; F8_E8M0 (scales) is u8
  std::vector<uint64_t> shape;
  uint64_t offset_bytes;  // from the file's start
  uint64_t bytes;
};

constexpr uint64_t kSafetensorsPrefixBytes = 8;               // the u64
constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // the format's own limit
constexpr uint64_t kMaxSafetensorsTensors = 1'000'000;  // bounds what a header can make us hold

// N, checked against the file's size: corrupt unless 2 <= N <= 100 MB and 8 + N <= file_bytes.
Result<uint64_t> safetensors_header_bytes(
    std::span<const std::byte, kSafetensorsPrefixBytes> prefix, uint64_t file_bytes);

// The tensors of a header in the order of their bytes. `header` is untrusted JSON text, 8 + its
// length at most file_bytes. unsupported for a dtype the format does not know, corrupt for all
// other faults. Memory is a small multiple of the header, time n log n.
Result<std::vector<SafetensorsTensor>> parse_safetensors_header(std::string_view header,
                                                                uint64_t file_bytes);

// Reads 8 + N bytes of `file`. Errors name the file.
Result<std::vector<SafetensorsTensor>> read_safetensors_header(const ByteSource& file);

}  // namespace wader
