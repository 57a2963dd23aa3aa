// The two JSON files that a .qpack directory adds to an MLX checkpoint, as they are: untrusted,
// each checked in itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"

namespace wader {

struct QpackManifest {
  struct ListedFile {
    std::string name;  // relative, safe
    uint64_t bytes;
  };
  std::vector<ListedFile> files;
  // Of the experts; absent in an unquantised one.
  std::optional<uint64_t> bits, group;
};

// `text` is manifest.json. unsupported for another version.
Result<QpackManifest> parse_qpack_manifest(std::string_view text);

struct QpackSection {
  std::string name;  // "gate_proj.weight": after the last "switch_mlp." of what the file says
  DType dtype;       // u32, bf16, f16 or f32
  uint64_t rows, cols;
  uint64_t offset_bytes, bytes;  // in an expert's record; bytes = rows · cols · size of dtype
};

struct QpackLayout {
  uint64_t experts, layers, stride_bytes;
  std::vector<QpackSection> sections;  // inside the stride, none overlaps another
  std::vector<bool> linear_layers;     // delta_net; `layers` of them

  const QpackSection* find(std::string_view name) const;
};

// `text` is packed_experts/layout.json.
Result<QpackLayout> parse_qpack_layout(std::string_view text);

// "packed_experts/layer_07.bin"
std::string qpack_layer_file(uint64_t layer);

}  // namespace wader
