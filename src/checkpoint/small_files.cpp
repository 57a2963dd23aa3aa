#include "checkpoint/small_files.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/json.h"
#include "base/units.h"

namespace wader {

namespace {

// GPT-OSS's tokenizer.json, the largest known, has 28 MB.
constexpr uint64_t kMaxSmallFileBytes = 64 * kMiB;

}  // namespace

Result<std::vector<SmallFile>> find_small_files(const SourceTree& tree) {
  constexpr std::array<std::string_view, 6> kNames = {
      "config.json",           "generation_config.json", "tokenizer.json",
      "tokenizer_config.json", "chat_template.jinja",    "LICENSE"};
  std::vector<SmallFile> files;
  for (const std::string_view name : kNames) {
    if (!tree.has(name)) continue;
    RETURN_IF_ERROR(tree.check(name));
    if (tree.has_folder(name)) continue;
    ASSIGN_OR_RETURN(SmallFile file, tree.small_file(name, kMaxSmallFileBytes));
    files.push_back(std::move(file));
  }
  return files;
}

void add_generation_config(const Family& family, const ArchitectureSpec& spec,
                           std::span<const uint64_t> own, std::vector<SmallFile>& files) {
  constexpr const char* kName = "generation_config.json";
  for (const SmallFile& file : files)
    if (file.name == kName) return;
  std::vector<uint64_t> ids(own.begin(), own.end());
  ids.insert(ids.end(), family.eos.begin(), family.eos.end());
  Json list = Json::array();
  for (const uint64_t id : ids)
    if (id < spec.vocab_rows && std::find(list.begin(), list.end(), id) == list.end())
      list.push_back(id);
  if (list.empty()) return;
  files.push_back({kName, json_text({{"eos_token_id", std::move(list)}}, 2) + "\n"});
}

}  // namespace wader
