// Which files a checkpoint consists of: model.safetensors.index.json, or the one safetensors file
// there is. Names in an index are untrusted: all are checked before any file is opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "checkpoint/source_tree.h"

namespace wader {

inline constexpr const char* kIndexFile = "model.safetensors.index.json";

// weight_map of an index.
struct ShardIndex {
  std::vector<std::string> files;  // relative to the index, in order of mention
  std::unordered_map<std::string, uint32_t> file_of_tensor;  // released name → index into files
};

struct ShardSet {
  std::filesystem::path directory;
  std::vector<std::string> files;  // relative to directory; each exists and stays in it
  // Empty where there is no index: the tensors are then those that the one file has.
  std::unordered_map<std::string, uint32_t> file_of_tensor;
};

// Parses untrusted text. Refuses a tensor named twice and every name that check_shard_name refuses.
Result<ShardIndex> parse_shard_index(std::string_view text);

// A relative path of plain components: no "..", no absolute path, no backslash, no control
// characters, at most 255 bytes. A sub-folder is fine.
Status check_relative_name(std::string_view name);
// The same, to a .safetensors file.
Status check_shard_name(std::string_view name);

// not_found when directory/name is not there, invalid_argument when a symbolic link in it leads out
// of `directory`. One way out is known and allowed: in a Hugging Face cache,
// snapshots/<commit>/<name> leads to a file of the blobs folder beside snapshots.
Status check_stays_inside(const std::filesystem::path& directory, std::string_view name);

// `path`: a checkpoint directory or one .safetensors file. An index wins over other files beside
// it, as repositories keep further copies there. not_found says what was looked for and what was
// there instead.
Result<ShardSet> find_shards(const std::filesystem::path& path);
Result<ShardSet> find_shards(const SourceTree& tree);

}  // namespace wader
