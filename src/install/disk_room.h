// Whether a container may stand where it is to be, and finds room on its disk.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/result.h"
#include "install/plan.h"

namespace wader {

// invalid_argument where the source lies in what is about to be written, or the destination in a
// container. A container inside the checkpoint's directory is fine: a checkpoint is read by name.
Status check_apart(const std::filesystem::path& source, const std::filesystem::path& destination);

// Disk blocks that files of this container hold already: a resumed install needs that much less.
uint64_t held_bytes(const std::filesystem::path& destination, const InstallPlan& plan);
// Of the disk on which `destination` is or would be.
Result<uint64_t> free_bytes_of(const std::filesystem::path& destination);
// over_budget, with both numbers, when what is still needed is not free.
Status check_disk(const std::filesystem::path& destination, const InstallPlan& plan);

}  // namespace wader
