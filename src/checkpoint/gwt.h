// Godwit's .gwt directories, format version 2: manifest.json, tokenizer.json, trunk.bin (int8 in
// affine groups of 64 with paired scales and zeros, and bf16), experts/layer_NN.bin with expert e
// at e · expertStride (MXFP4, gate and up rows interleaved in both families). There is no
// config.json and no generation_config.json: gwt_manifest.h says what the family's facts stand in
// for. Source: Godwit, Sources/Godwit/{GodwitManifest,ExpertLayout,Installer}.swift.
#pragma once

#include <filesystem>
#include <memory>

#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace wader {

// Every size is checked, of the files against the manifest and of the manifest against itself; the
// format has no checksums. Errors name the directory.
Result<std::unique_ptr<Checkpoint>> open_gwt(const std::filesystem::path& directory);

}  // namespace wader
