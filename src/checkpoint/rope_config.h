// The rotary embedding's settings in config.json: rope_theta and partial_rotary_factor at its top,
// rope_scaling, rope_parameters.
#pragma once

#include "arch/spec.h"
#include "base/result.h"
#include "checkpoint/config_section.h"
#include "checkpoint/families.h"

namespace wader {

// Fills spec.rope and spec.rotary_dim; spec.head_dim is set. Errors name the key.
//
// The settings stand under rope_scaling with rope_theta beside it, or under rope_parameters with
// rope_theta inside; either is read, both must agree. M-RoPE's sections of text positions are all
// equal, which is plain RoPE: they only have to cover the rotated dims. In YaRN, beta_fast and
// beta_slow are 32 and 1 when absent, attention_factor 0.1 · ln(factor) + 1 (as in the reference);
// mscale and mscale_all_dim are refused; for truncate see RopeRule.
Status read_rope(Section& config, const Family& family, ArchitectureSpec& spec);

}  // namespace wader
