// The true dimensions of released models (their config.json files), for containers of random
// weights. Sources: huggingface.co/openai/gpt-oss-20b and -120b, Qwen/Qwen3-30B-A3B,
// Qwen/Qwen3-Next-80B-A3B-Instruct, Qwen/Qwen3.5-35B-A3B (3.6 has the same).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "arch/spec.h"

namespace wader::bench {

// Nothing for an unknown name.
std::optional<ArchitectureSpec> released_shape(std::string_view name);
std::string released_shape_names();  // "gpt-oss-20b, …": for messages

}  // namespace wader::bench
