// config.json, as Hugging Face transformers and MLX write it → ArchitectureSpec. A key that could
// change the arithmetic is either understood or refused by name; nothing of the kind is guessed or
// ignored.
#pragma once

#include <cstdint>
#include <vector>

#include "arch/spec.h"
#include "base/json.h"
#include "base/result.h"
#include "checkpoint/families.h"
#include "checkpoint/mlx.h"

namespace wader {

struct HfModel {
  ArchitectureSpec spec;  // validated
  const Family* family;   // never null
  MlxQuantisation quantisation;
  std::vector<uint64_t> eos;  // eos_token_id, for sources without a generation_config.json
};

// `config` is the parsed file, untrusted. unsupported for a family, a key or a value that this
// version cannot do, invalid_argument for values that make no sense. Errors name the key.
//
// A model that also sees nests its text part under text_config; the vision part is not read. For
// keys that may be absent the reference's default counts, by family where it differs
// (families.h); the rotary embedding is read by rope_config.h.
Result<HfModel> model_from_hf_config(const Json& config);

}  // namespace wader
