// SafetensorsWriter: a safetensors file whose tensors are written in any order and in pieces, so
// that a writer of logits holds one row and not all of them. The file appears under its name when
// it is finished, never before.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/file.h"
#include "tensor/dtype.h"

namespace wader {

struct SafetensorsOutput {
  std::string name;
  DType dtype;  // f32, f16, bf16, u8, u32, i32 or i64
  std::vector<uint64_t> shape;
};

class SafetensorsWriter {
 public:
  // Writes the header of PATH.PID.tmp and reserves its blocks: a full disk shows here. The tensors'
  // bytes are zero until written. Names are distinct. over_budget when the sizes do not fit into 63
  // bits.
  static Result<SafetensorsWriter> create(const std::filesystem::path& path,
                                          const std::vector<SafetensorsOutput>& tensors);
  SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;
  ~SafetensorsWriter();  // removes the temporary file unless finish() succeeded

  // Writes `bytes` of tensor `name` from byte `offset_bytes` of it; inside the tensor.
  Status write(const std::string& name, uint64_t offset_bytes, std::span<const std::byte> bytes);
  // Syncs and renames. Nothing may follow.
  Status finish();

 private:
  struct Place {
    uint64_t offset_bytes, bytes;  // in the file
  };
  SafetensorsWriter() = default;

  File file_;
  std::filesystem::path path_, temporary_;
  std::map<std::string, Place> places_;
};

}  // namespace wader
