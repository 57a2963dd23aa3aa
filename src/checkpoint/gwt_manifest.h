// manifest.json of a Godwit .gwt directory: untrusted, checked in itself and turned into a spec.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arch/spec.h"
#include "base/result.h"
#include "checkpoint/families.h"

namespace wader {

struct GwtSpan {
  uint64_t offset_bytes, bytes;
};

struct GwtTensor {
  bool quantised;  // "int8-affine64", else "bf16"
  std::vector<uint64_t> shape;
  GwtSpan span;  // in trunk.bin; bytes are those that shape and dtype take
};

struct GwtManifest {
  ArchitectureSpec spec;                                // validated
  const Family* family;                                 // never null
  TensorNames names;                                    // of the trunk tensors
  std::map<std::string, GwtTensor, std::less<>> trunk;  // none overlaps another
  uint64_t trunk_bytes;                                 // end of the last
  uint64_t stride_bytes;                                // of one expert in a layer's file
  // In an expert's record, of exactly the bytes that the spec's matrices take, none overlaps
  // another. Biases only where spec.expert_bias.
  GwtSpan gate_up_blocks, gate_up_scales, down_blocks, down_scales;
  std::optional<GwtSpan> gate_up_bias, down_bias;
};

// `text` is the file. unsupported for another version or family, for parts that no family has, and
// for an install of some layers only. Dims come from the shapes of the tensors; what the manifest's
// own `spec` says must agree with them. What it does not have is the family's: the YaRN settings of
// GPT-OSS (truncate false), the maximal context, top-k, window and constants where they are absent.
Result<GwtManifest> parse_gwt_manifest(std::string_view text);

// "experts/layer_07.bin"
std::string gwt_layer_file(uint32_t layer);

}  // namespace wader
