#include "checkpoint/checkpoint.h"

#include <array>
#include <map>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "checkpoint/families.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/index.h"
#include "checkpoint/json_events.h"
#include "checkpoint/safetensors.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

// A released config.json has under 10 KiB. The bound also keeps the search through its keys short.
constexpr uint64_t kMaxConfigBytes = 256 * kKiB;

constexpr std::array<std::string_view, 6> kSmallFiles = {
    "config.json",           "generation_config.json", "tokenizer.json",
    "tokenizer_config.json", "chat_template.jinja",    "LICENSE"};

using TensorMap = std::unordered_map<std::string, TensorRef>;

// What the spec needs under one released name.
struct Need {
  std::vector<uint64_t> shape;
  std::optional<DType> dtype;  // nothing: any of f32, f16, bf16
};

// Tensors that a checkpoint may have and that the forward pass has no part for: the multi-token
// prediction head, the vision tower, tables that follow from the config.
bool is_skippable(std::string_view name) {
  return name.starts_with("mtp.") || name.starts_with("model.visual.") ||
         name.ends_with(".rotary_emb.inv_freq");
}

std::string shape_text(std::string_view dtype, const std::vector<uint64_t>& shape) {
  return fmt::format("{} [{}]", dtype, fmt::join(shape, ", "));
}

std::string need_text(const Need& need) {
  return shape_text(need.dtype ? dtype_name(*need.dtype) : "f32, f16 or bf16", need.shape);
}

// Released name of a canonical trunk tensor; a tied head is the embedding.
std::string trunk_name(const Family& family, bool tied_head, std::string_view canonical) {
  return released_trunk_name(family, tied_head && canonical == "head" ? "embed" : canonical);
}

std::map<std::string, Need> needed_tensors(const Family& family, const HfModel& model) {
  std::map<std::string, Need> needs;
  for (const TrunkTensorSpec& tensor : trunk_tensors(model.spec)) {
    std::string name = trunk_name(family, model.tied_head, tensor.name);
    CHECK(!name.empty());  // the family's table lacks a tensor of its own spec
    needs.emplace(std::move(name), Need{tensor.shape, std::nullopt});
  }
  for (const ExpertSection& section : expert_layout(model.spec).sections) {
    std::vector<uint64_t> shape = {model.spec.experts};
    shape.insert(shape.end(), section.shape.begin(), section.shape.end());
    for (uint32_t layer = 0; layer < model.spec.layer_count(); ++layer) {
      std::string name = released_expert_name(family, layer, section.name);
      CHECK(!name.empty());
      needs.emplace(std::move(name), Need{shape, section.dtype});
    }
  }
  return needs;
}

// Every tensor of every shard against the index (when there is one).
Status check_against_index(const ShardSet& shards,
                           const std::vector<std::vector<SafetensorsTensor>>& headers) {
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

Result<TensorRef> check_tensor(const SafetensorsTensor& tensor, const Need& need, uint32_t file) {
  const bool plain =
      tensor.dtype == DType::f32 || tensor.dtype == DType::f16 || tensor.dtype == DType::bf16;
  const bool dtype_fits = need.dtype ? tensor.dtype == need.dtype : plain;
  if (tensor.shape != need.shape || !dtype_fits)
    return corrupt_error("tensor {} is {}, config.json needs {}", in_quotes(tensor.name),
                         shape_text(tensor.format_dtype, tensor.shape), need_text(need));
  return TensorRef{*tensor.dtype, tensor.shape, file, tensor.offset_bytes, tensor.bytes};
}

// The needed tensors by released name; anything else there must be skippable.
Result<TensorMap> bind_tensors(const std::map<std::string, Need>& needs, bool tied_head,
                               const Family& family,
                               const std::vector<std::vector<SafetensorsTensor>>& headers) {
  TensorMap tensors;
  // A tied model may carry its head a second time; the reference does not read it either.
  const std::string unread_head = tied_head ? released_trunk_name(family, "head") : "";
  for (uint32_t file = 0; file < headers.size(); ++file) {
    for (const SafetensorsTensor& tensor : headers[file]) {
      const auto need = needs.find(tensor.name);
      if (need != needs.end()) {
        ASSIGN_OR_RETURN(TensorRef ref, check_tensor(tensor, need->second, file));
        tensors.emplace(tensor.name, std::move(ref));
      } else if (!is_skippable(tensor.name) && tensor.name != unread_head) {
        return unsupported_error(
            "tensor {} has no part in a {} model with this config.json; going on without it would "
            "compute something else",
            in_quotes(tensor.name), family.model_type);
      }
    }
  }
  for (const auto& [name, need] : needs)
    if (!tensors.contains(name))
      return not_found_error("tensor '{}' ({}) is missing", name, need_text(need));
  return tensors;
}

Result<HfModel> read_config(const fs::path& directory) {
  std::error_code error;
  if (!fs::exists(directory / "config.json", error))
    return not_found_error("there is no config.json");
  ASSIGN_OR_RETURN(const std::string text,
                   read_text_file(directory / "config.json", kMaxConfigBytes));
  ASSIGN_OR_RETURN(const Json json, parse_json(text, "config.json"));
  return model_from_hf_config(json);
}

// Small files are copied into containers: none may be a link that leads elsewhere.
Status check_small_files(const fs::path& directory) {
  std::error_code error;
  for (const std::string_view name : kSmallFiles)
    if (fs::exists(fs::symlink_status(directory / name, error)))
      RETURN_IF_ERROR(check_stays_inside(directory, name));
  return {};
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const fs::path& path) {
  ASSIGN_OR_RETURN(const ShardSet shards, find_shards(path));
  Checkpoint checkpoint;
  checkpoint.directory_ = shards.directory;
  const auto named = [&](Error error) {
    return std::move(error).within(shards.directory.string());
  };
  RETURN_IF_ERROR(check_small_files(shards.directory));
  auto model = read_config(shards.directory);
  if (!model.ok()) return named(std::move(model).error());
  const Family* const family = find_family(model->spec.family);
  CHECK(family != nullptr);
  checkpoint.spec_ = model->spec;
  checkpoint.tied_head_ = model->tied_head;

  std::vector<std::vector<SafetensorsTensor>> headers;
  for (const std::string& name : shards.files) {
    ASSIGN_OR_RETURN(File file, File::open(shards.directory / name, File::Mode::read));
    ASSIGN_OR_RETURN(auto header, read_safetensors_header(file));
    headers.push_back(std::move(header));
    checkpoint.files_.push_back(std::move(file));
  }
  if (Status status = check_against_index(shards, headers); !status.ok())
    return named(std::move(status).error());
  auto tensors = bind_tensors(needed_tensors(*family, *model), model->tied_head, *family, headers);
  if (!tensors.ok()) return named(std::move(tensors).error());
  checkpoint.tensors_ = *std::move(tensors);
  return checkpoint;
}

Result<TensorRef> Checkpoint::trunk_source(const TrunkTensorSpec& tensor) const {
  const Family* const family = find_family(spec_.family);
  CHECK(family != nullptr);
  const auto found = tensors_.find(trunk_name(*family, tied_head_, tensor.name));
  if (found == tensors_.end() || found->second.shape != tensor.shape)
    return not_found_error("{}: no tensor for {} [{}]", directory_.string(), tensor.name,
                           fmt::join(tensor.shape, ", "));
  return found->second;
}

Result<SourceRange> Checkpoint::expert_source(uint32_t layer, uint32_t expert,
                                              const ExpertSection& section) const {
  const Family* const family = find_family(spec_.family);
  CHECK(family != nullptr);
  const auto found = tensors_.find(released_expert_name(*family, layer, section.name));
  // Shapes were checked by open: the expert axis is first, so that an expert's bytes are
  // contiguous.
  if (found == tensors_.end() || expert >= spec_.experts ||
      found->second.bytes != section.bytes * spec_.experts)
    return not_found_error("{}: no {} for expert {} of layer {}", directory_.string(), section.name,
                           expert, layer);
  return SourceRange{found->second.file, found->second.offset_bytes + expert * section.bytes,
                     section.bytes};
}

std::vector<std::string> Checkpoint::small_files() const {
  std::vector<std::string> names;
  std::error_code error;
  for (const std::string_view name : kSmallFiles)
    if (fs::is_regular_file(directory_ / name, error)) names.emplace_back(name);
  return names;
}

}  // namespace wader
