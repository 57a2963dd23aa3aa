// The `usage` file beside a model: how often each of its experts was used in all runs so far, older
// runs fading. A hint for the next run's slots, never needed: who reads it ignores a bad one.
//
// Little-endian: "WADERUS1"; u64 identity of the container; u32 layers, experts; f32 (layers,
// experts) shares of the layer's uses; u64 XXH3-64 of all before it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace wader {

constexpr std::string_view kUsageFile = "usage";

struct UsageIdentity {
  uint64_t model = 0;  // Container::identity()
  uint32_t layers = 0, experts = 0;
};

// Refuses other versions, other containers, damage, and shares that are none.
Result<std::vector<float>> parse_usage(std::string_view bytes, const UsageIdentity& identity,
                                       std::string_view what);
Result<std::vector<float>> read_usage_file(const std::filesystem::path& path,
                                           const UsageIdentity& identity);
// Written aside and renamed: the file is old or new.
Status write_usage_file(const std::filesystem::path& path, const UsageIdentity& identity,
                        std::span<const float> shares);

}  // namespace wader
