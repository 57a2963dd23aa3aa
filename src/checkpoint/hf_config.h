// config.json, as Hugging Face transformers writes it → ArchitectureSpec. A key that could change
// the arithmetic is either understood or refused by name; nothing of the kind is guessed or
// ignored.
#pragma once

#include "arch/spec.h"
#include "base/json.h"
#include "base/result.h"

namespace wader {

struct HfModel {
  ArchitectureSpec spec;  // validated
  bool tied_head;         // tie_word_embeddings: the embedding is also the head
};

// `config` is the parsed file, untrusted. unsupported for a family, a key or a value that this
// version cannot do, invalid_argument for values that make no sense. Errors name the key.
//
// Rotary embedding: the settings stand under rope_scaling with rope_theta beside it, or under
// rope_parameters with rope_theta inside; either is read, neither is refused, both must agree. In
// YaRN
// - truncate must be there. The reference rounds the correction range when it is absent, every
// released
//   GPT-OSS says false, and the difference shows only at a distance: a config that lost the key
//   would give a model that is wrong in silence.
// - beta_fast and beta_slow are 32 and 1 when absent, attention_factor 0.1 · ln(factor) + 1 (as in
// the
//   reference). mscale and mscale_all_dim are refused.
Result<HfModel> model_from_hf_config(const Json& config);

}  // namespace wader
