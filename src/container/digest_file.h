// XXH3-64 of a whole file, read through a buffer of 256 KiB whatever its size.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/result.h"

namespace wader {

Result<uint64_t> digest_file(const std::filesystem::path& path);

}  // namespace wader
