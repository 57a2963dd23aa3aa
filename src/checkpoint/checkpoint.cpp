#include "checkpoint/checkpoint.h"

#include <system_error>

#include "base/error.h"
#include "base/json.h"
#include "base/units.h"
#include "checkpoint/gwt.h"
#include "checkpoint/hf_checkpoint.h"
#include "checkpoint/qpack.h"
#include "io/file.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxManifestBytes = 4 * kMiB;

enum class Kind { hugging_face, qpack, gwt };

// By manifest.json; a directory with one that we don't know, as our own containers are, is left to
// the rules of Hugging Face's.
Kind kind_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path / "manifest.json", error)) return Kind::hugging_face;
  const auto text = read_text_file(path / "manifest.json", kMaxManifestBytes);
  if (!text.ok()) return Kind::hugging_face;
  const auto json = parse_json(*text, "manifest.json");
  if (!json.ok() || !json->is_object()) return Kind::hugging_face;
  if (const auto magic = json_string(*json, "magic"); magic.ok() && *magic == "QPACK")
    return Kind::qpack;
  return json_has(*json, "trunkSections") && json_has(*json, "expertSections") ? Kind::gwt
                                                                               : Kind::hugging_face;
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const fs::path& path) {
  switch (kind_of(path)) {
    case Kind::qpack:
      return open_qpack(path);
    case Kind::gwt:
      return open_gwt(path);
    case Kind::hugging_face:
      break;
  }
  // Both write their manifest last.
  const std::string name =
      path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
  std::error_code error;
  if ((name.ends_with(".qpack") || name.ends_with(".gwt")) && fs::is_directory(path, error))
    return not_found_error("{} has no manifest.json that could be read: an interrupted install?",
                           path.string());
  return open_hf_checkpoint(path);
}

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const SourceTree& tree) {
  return open_hf_checkpoint(tree);
}

}  // namespace wader
