// MODEL as a checkpoint: what wader keeps to use its experts where they are.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/result.h"

namespace wader {

// A directory as Hugging Face releases a model: config.json and safetensors, and no container.
bool is_checkpoint(const std::filesystem::path& path);

// Where the container is, or would be, that has `checkpoint`'s trunk and digests:
// NAME-in-place-HASH.wader in the models directory, by the checkpoint's resolved path.
Result<std::filesystem::path> in_place_path(const std::filesystem::path& checkpoint);

// The same, made with progress on standard error where it is not there or not finished, and anew
// where the checkpoint's files are not what they were. What keeps a checkpoint from being used in
// place is an error that says so.
Result<std::filesystem::path> in_place_container(const std::filesystem::path& checkpoint);

// The container that MODEL means: resolve_model(), and of a checkpoint in_place_container(), for
// which no thread may run yet.
Result<std::filesystem::path> container_of(std::string_view model);

}  // namespace wader
