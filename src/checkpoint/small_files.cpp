#include "checkpoint/small_files.h"

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>

#include "base/json.h"
#include "checkpoint/index.h"

namespace wader {

Result<std::vector<SmallFile>> find_small_files(const std::filesystem::path& directory) {
  namespace fs = std::filesystem;
  constexpr std::array<std::string_view, 6> kNames = {
      "config.json",           "generation_config.json", "tokenizer.json",
      "tokenizer_config.json", "chat_template.jinja",    "LICENSE"};
  std::vector<SmallFile> files;
  std::error_code error;
  for (const std::string_view name : kNames) {
    if (!fs::exists(fs::symlink_status(directory / name, error))) continue;
    RETURN_IF_ERROR(check_stays_inside(directory, name));
    if (fs::is_regular_file(directory / name, error)) files.push_back({std::string(name)});
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
