// Hugging Face checkpoints: config.json with safetensors files, plain or as MLX quantises them.
#pragma once

#include <filesystem>
#include <memory>

#include "base/result.h"
#include "checkpoint/bound_checkpoint.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/release_style.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/source_tree.h"
#include "checkpoint/tensor_table.h"

namespace wader {

// `path` as in Checkpoint::open. Errors name the directory.
Result<std::unique_ptr<Checkpoint>> open_hf_checkpoint(const std::filesystem::path& path);

// The same for a release whose files are not a local directory.
Result<std::unique_ptr<Checkpoint>> open_hf_checkpoint(const SourceTree& tree);

// The parts that other kinds share. config.json of `tree`:
Result<HfModel> read_hf_config(const SourceTree& tree);
// The tensors of each file, by text_name(); corrupt when two have the same.
Result<TensorTable> tensor_table(const HfModel& model,
                                 std::vector<std::vector<SafetensorsTensor>> headers);
// Binds the trunk and checks its norms.
Status bind_hf_trunk(const HfModel& model, const ReleaseStyle& style, TensorTable& table,
                     BoundCheckpoint::Parts& parts);
// After binding: every tensor has a part in the model or is known to be skippable.
Status check_all_used(const ArchitectureSpec& spec, const TensorTable& table);

}  // namespace wader
