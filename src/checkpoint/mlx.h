// The `quantization` object of an MLX config.json: which tensors are stored in which format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/json.h"
#include "base/result.h"
#include "tensor/dtype.h"

namespace wader {

// Settings of one tensor, or of all that have none of their own. Nothing is judged yet: a
// checkpoint may have 6-bit vision tensors that nobody reads.
struct MlxSettings {
  uint64_t bits = 0, group = 0;
  std::string mode = "affine";
  bool quantised = true;

  bool operator==(const MlxSettings&) const = default;
};

struct MlxQuantisation {
  bool present = false;  // an MLX quantised checkpoint
  MlxSettings usual;
  std::unordered_map<std::string, MlxSettings> of_tensor;  // by text_name() without ".weight"

  bool operator==(const MlxQuantisation&) const = default;

  // Format of the matrix whose planes are stem.weight, stem.scales, …: affine4 or affine8 with
  // groups of 32, 64 or 128, or mxfp4. `scales` is the scales' dtype. unsupported for any other
  // setting, corrupt when the config says that the tensor is not quantised.
  Result<MatrixFormat> format(std::string_view stem, DType scales) const;
};

// `json` is the object, untrusted: {group_size, bits, mode, NAME: false | {group_size, bits,
// mode}}.
Result<MlxQuantisation> mlx_quantisation(const Json& json);

}  // namespace wader
