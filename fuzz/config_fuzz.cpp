// The two JSON files of a checkpoint: config.json → spec, and model.safetensors.index.json →
// shards.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "arch/tensors.h"
#include "base/check.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/index.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wader;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto index = parse_shard_index(text); index.ok()) {
    for (const auto& name : index->files) CHECK(check_shard_name(name).ok());
    for (const auto& entry : index->file_of_tensor) CHECK(entry.second < index->files.size());
  }
  const auto json = parse_json(text, "config.json");
  if (!json.ok()) return 0;
  const auto model = model_from_hf_config(*json);
  if (!model.ok()) return 0;
  // An accepted spec is one that a container can keep, and every tensor of it has a released name.
  CHECK(spec_from_json(spec_to_json(model->spec)).ok());
  ArchitectureSpec spec = model->spec;
  if (spec.layers.size() > 8) spec.layers.erase(spec.layers.begin() + 8, spec.layers.end());
  for (const TrunkTensorSpec& tensor : trunk_tensors(spec))
    CHECK(!tensor_parts(model->family->names, tensor.name).empty());
  return 0;
}
