// Writes a GPT-OSS container as its maker would release it: config.json and safetensors, MXFP4
// experts in stacks and all else in bf16. What using a checkpoint in place costs can then be
// measured without the checkpoint (docs/results-inplace.md).
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/result.h"
#include "container/container.h"

namespace wader::bench {

// One file a layer, and one for the rest. Needs a spec with GPT-OSS's parts, mxfp4 experts and a
// bf16 trunk; exact tensors are rounded to bf16. Returns the bytes of the weight files. Memory: one
// tensor, or one expert's section.
Result<uint64_t> write_release(const Container& container, const std::filesystem::path& directory);

}  // namespace wader::bench
