#include "checkpoint/hf_checkpoint.h"

#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "checkpoint/bind.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/index.h"
#include "checkpoint/json_events.h"
#include "checkpoint/small_files.h"
#include "checkpoint/text_name.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

// A released config.json has under 10 KiB, one with MLX settings of every tensor a few hundred.
constexpr uint64_t kMaxConfigBytes = 1 * kMiB;

using Headers = std::vector<std::vector<SafetensorsTensor>>;  // of each file

// Every tensor of every shard against the index (when there is one).
Status check_against_index(const ShardSet& shards, const Headers& headers) {
  std::unordered_map<std::string_view, uint32_t> seen;
  for (uint32_t file = 0; file < headers.size(); ++file) {
    for (const SafetensorsTensor& tensor : headers[file]) {
      const auto [earlier, is_new] = seen.emplace(tensor.name, file);
      if (!is_new)
        return corrupt_error("tensor {} is in {} and in {}", in_quotes(tensor.name),
                             shards.files[earlier->second], shards.files[file]);
      if (shards.file_of_tensor.empty()) continue;
      const auto listed = shards.file_of_tensor.find(tensor.name);
      if (listed == shards.file_of_tensor.end())
        return corrupt_error("{} has tensor {}, which {} does not list", shards.files[file],
                             in_quotes(tensor.name), kIndexFile);
      if (listed->second != file)
        return corrupt_error("{} has tensor {}, which {} lists in {}", shards.files[file],
                             in_quotes(tensor.name), kIndexFile, shards.files[listed->second]);
    }
  }
  const std::string* absent =
      nullptr;  // the first by name, so that a message does not depend on hashing
  for (const auto& [name, file] : shards.file_of_tensor)
    if (!seen.contains(name) && (absent == nullptr || name < *absent)) absent = &name;
  if (absent != nullptr)
    return corrupt_error("{} lists tensor {} in {}, which does not have it", kIndexFile,
                         in_quotes(*absent), shards.files[shards.file_of_tensor.at(*absent)]);
  return {};
}

Result<BoundCheckpoint::Parts> open_shards(const SourceTree& tree, const ShardSet& shards) {
  BoundCheckpoint::Parts parts;
  parts.directory = tree.directory();
  ASSIGN_OR_RETURN(parts.small_files, find_small_files(tree));
  ASSIGN_OR_RETURN(const HfModel model, read_hf_config(tree));
  parts.spec = model.spec;
  Headers headers;
  tree.will_read_headers(shards.files);
  for (const std::string& name : shards.files) {
    ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> file, tree.open(name));
    ASSIGN_OR_RETURN(auto header, read_safetensors_header(*file));
    headers.push_back(std::move(header));
    parts.files.push_back(std::move(file));
  }
  RETURN_IF_ERROR(check_against_index(shards, headers));
  ASSIGN_OR_RETURN(TensorTable table, tensor_table(model, std::move(headers)));
  ASSIGN_OR_RETURN(const ReleaseStyle style, find_release_style(parts.spec, *model.family,
                                                                model.quantisation.present, table));
  parts.kind = style.mlx ? "MLX" : "Hugging Face";
  add_generation_config(*model.family, parts.spec, model.eos, parts.small_files);
  RETURN_IF_ERROR(bind_hf_trunk(model, style, table, parts));
  RETURN_IF_ERROR(bind_experts(parts.spec, *model.family, table, parts.tensors));
  RETURN_IF_ERROR(check_all_used(parts.spec, table));
  return parts;
}

}  // namespace

Result<HfModel> read_hf_config(const SourceTree& tree) {
  if (!tree.has("config.json")) return not_found_error("there is no config.json");
  ASSIGN_OR_RETURN(const std::string text, tree.read_text("config.json", kMaxConfigBytes));
  ASSIGN_OR_RETURN(const Json json, parse_json(text, "config.json"));
  return model_from_hf_config(json);
}

Result<TensorTable> tensor_table(const HfModel& model, Headers headers) {
  TensorTable table(model.quantisation);
  for (uint32_t file = 0; file < headers.size(); ++file) {
    for (SafetensorsTensor& tensor : headers[file]) {
      tensor.name = text_name(tensor.name);
      RETURN_IF_ERROR(table.add(std::move(tensor), file));
    }
  }
  return table;
}

Status bind_hf_trunk(const HfModel& model, const ReleaseStyle& style, TensorTable& table,
                     BoundCheckpoint::Parts& parts) {
  ASSIGN_OR_RETURN(parts.tensors.trunk,
                   bind_trunk(model.spec, model.family->names, style,
                              [&](const std::string& name, const std::vector<uint64_t>& shape) {
                                return table.take(name, shape);
                              }));
  return check_norms(model.spec, *model.family, style, parts.tensors.trunk, parts.files);
}

Status check_all_used(const ArchitectureSpec& spec, const TensorTable& table) {
  // A tied model may carry its head a second time; the reference does not read it either.
  const std::optional<std::string> unused = table.unused([&](std::string_view name) {
    return is_skippable(name) || (spec.tied_head && name.starts_with("lm_head."));
  });
  if (!unused) return {};
  return unsupported_error(
      "tensor {} has no part in a {} model with this config.json; going on without it would "
      "compute something else",
      in_quotes(*unused), spec.family);
}

Result<std::unique_ptr<Checkpoint>> open_hf_checkpoint(const fs::path& path) {
  ASSIGN_OR_RETURN(const ShardSet shards, find_shards(path));
  return finish_checkpoint(open_shards(DirectoryTree(shards.directory), shards), shards.directory);
}

Result<std::unique_ptr<Checkpoint>> open_hf_checkpoint(const SourceTree& tree) {
  ASSIGN_OR_RETURN(const ShardSet shards, find_shards(tree));
  return finish_checkpoint(open_shards(tree, shards), tree.directory());
}

}  // namespace wader
