// Swiftlet's .qpack directories, version 1: an MLX checkpoint whose experts are repacked. The trunk
// is an ordinary model.safetensors with config.json; packed_experts/layer_NN.bin holds expert e at
// e · expertStride, in sections that packed_experts/layout.json lists (gate_proj, up_proj and
// down_proj × weight, scales, biases, one after the other). manifest.json has every file's size.
// Source: https://github.com/leonickson1/Swiftlet, Sources/SwiftletCore/Qpack.swift.
#pragma once

#include <filesystem>
#include <memory>

#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace wader {

// Every size is checked: of the files against the manifest, of the sections against config.json and
// against the stride. Errors name the directory.
Result<std::unique_ptr<Checkpoint>> open_qpack(const std::filesystem::path& directory);

}  // namespace wader
