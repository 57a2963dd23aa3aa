#include "checkpoint/index.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/ascii.h"
#include "base/error.h"
#include "base/units.h"
#include "checkpoint/json_events.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxIndexBytes = 100 * kMiB;  // 512 experts · 60 layers · 3 tensors: about 12 MB

class IndexReader : public JsonEvents {
 public:
  ShardIndex index;
  bool has_map = false;

  bool start_object(size_t) override {
    if (depth_ == 1 && name_ == "weight_map") {
      if (std::exchange(has_map, true)) return fail(corrupt_error("weight_map occurs twice"));
      in_map_ = true;
    } else if (in_map_) {
      return unexpected();
    }
    return enter();
  }
  bool end_object() override {
    if (depth_ == 2) in_map_ = false;
    --depth_;
    return true;
  }
  bool key(std::string& text) override {
    if (depth_ <= 2) name_ = std::move(text);
    return true;
  }
  bool string(std::string& text) override {
    if (!in_map_) return skip();
    if (const Status status = check_shard_name(text); !status.ok())
      return fail(Error(status.error()).within("weight_map entry " + in_quotes(name_)));
    const auto [file, is_new] =
        number_of_file_.emplace(text, static_cast<uint32_t>(index.files.size()));
    if (is_new) index.files.push_back(text);
    if (index.file_of_tensor.emplace(name_, file->second).second) return true;
    return fail(corrupt_error("weight_map has tensor {} twice", in_quotes(name_)));
  }

  // Everything outside weight_map (metadata, …) is of no use here and only has to be JSON.
  bool null() override { return skip(); }
  bool boolean(bool) override { return skip(); }
  bool number_integer(int64_t) override { return skip(); }
  bool number_unsigned(uint64_t) override { return skip(); }
  bool number_float(double, const std::string&) override { return skip(); }
  bool start_array(size_t) override { return skip() && enter(); }
  bool end_array() override {
    --depth_;
    return true;
  }

 protected:
  bool unexpected() override {
    return fail(in_map_ ? corrupt_error("weight_map entry {} is not a string", in_quotes(name_))
                        : corrupt_error("the index is not a JSON object"));
  }

 private:
  bool skip() {
    if (depth_ == 0 || in_map_) return unexpected();
    if (depth_ == 1 && name_ == "weight_map")
      return fail(corrupt_error("weight_map is not an object"));
    return true;
  }
  bool enter() {
    if (++depth_ <= kMaxJsonDepth) return true;
    return fail(corrupt_error("nested deeper than {} levels", kMaxJsonDepth));
  }

  int depth_ = 0;  // 1: inside the root object
  bool in_map_ = false;
  std::string name_;
  std::unordered_map<std::string, uint32_t> number_of_file_;
};

// Whether `path` is below `directory`; both canonical.
bool is_below(const fs::path& path, const fs::path& directory) {
  const auto [rest, _] =
      std::mismatch(directory.begin(), directory.end(), path.begin(), path.end());
  return rest == directory.end() && path != directory;
}

// Why a directory without weights that we can read might still look like a model to its owner.
std::string explain_missing(const SourceTree& tree) {
  if (tree.has_folder("snapshots"))
    return "; this is the root of a Hugging Face cache entry: give its snapshots/<commit> folder";
  if (!tree.names_ending(".gguf").empty()) return "; GGUF files are not supported yet";
  for (const char* ending : {".bin", ".pt", ".pth"})
    if (!tree.names_ending(ending).empty())
      return fmt::format("; pickled weights (*{}) are not read, only safetensors", ending);
  for (const char* copy : {"original", "metal"})
    if (tree.has_folder(copy))
      return fmt::format(
          "; the {}/ folder is another layout of the model: the files of the "
          "repository's top folder are needed",
          copy);
  return "";
}

Result<ShardSet> shards_of_index(const SourceTree& tree) {
  const std::string where = (tree.directory() / kIndexFile).string();
  RETURN_IF_ERROR(tree.check(kIndexFile));
  ASSIGN_OR_RETURN(const std::string text, tree.read_text(kIndexFile, kMaxIndexBytes));
  auto index = parse_shard_index(text);
  if (!index.ok()) return std::move(index).error().within(where);
  for (const std::string& file : index->files) {
    if (Status status = tree.check(file); !status.ok()) {
      if (!tree.has(file))
        return not_found_error("{} lists {}, which is not there", where, in_quotes(file));
      return std::move(status).error().within(where);
    }
  }
  return ShardSet{tree.directory(), std::move(index->files), std::move(index->file_of_tensor)};
}

// "org/name", as the hub writes it.
bool looks_like_hub_id(std::string_view text) {
  const auto plain = [](char c) { return is_ascii_alnum(c) || c == '-' || c == '_' || c == '.'; };
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos || text.starts_with('.')) return false;
  const std::string_view name = text.substr(slash + 1);
  return slash > 0 && !name.empty() && std::all_of(name.begin(), name.end(), plain) &&
         std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(slash), plain);
}

}  // namespace

Result<ShardIndex> parse_shard_index(std::string_view text) {
  IndexReader reader;
  RETURN_IF_ERROR(reader.parse(text));
  if (!reader.has_map) return corrupt_error("there is no weight_map");
  if (reader.index.files.empty()) return corrupt_error("weight_map is empty");
  return std::move(reader.index);
}

Status check_relative_name(std::string_view name) {
  const auto refuse = [&](std::string_view why) {
    return invalid_argument_error("file name {} {}", in_quotes(name), why);
  };
  if (name.empty()) return refuse("is empty");
  if (name.size() > 255) return refuse(fmt::format("has {} bytes; 255 is the most", name.size()));
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return refuse("has a control character");
    if (c == '\\') return refuse("has a backslash");
  }
  if (name.front() == '/') return refuse("is an absolute path");
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..")
      return refuse("may only name a file inside the checkpoint");
    begin = end + 1;
  }
  return {};
}

Status check_shard_name(std::string_view name) {
  RETURN_IF_ERROR(check_relative_name(name));
  if (name.ends_with(".safetensors")) return {};
  return invalid_argument_error("file name {} is not a .safetensors file", in_quotes(name));
}

Status check_stays_inside(const fs::path& directory, std::string_view name) {
  std::error_code error;
  const fs::path base = fs::canonical(directory, error);
  if (error) return errno_error(error.value(), directory.string());
  const fs::path target = fs::canonical(base / name, error);
  if (error) {
    const int number = error.value();
    const fs::path leads_to = fs::read_symlink(base / name, error);
    if (error) return errno_error(number, (directory / name).string());
    return not_found_error("{} is a link to {}, which cannot be reached ({}): get the file again",
                           (directory / name).string(), in_quotes(leads_to.string()),
                           std::generic_category().message(number));
  }
  if (is_below(target, base)) return {};
  const bool cached = base.parent_path().filename() == "snapshots" &&
                      target.parent_path() == base.parent_path().parent_path() / "blobs";
  if (cached) return {};
  return invalid_argument_error(
      "{} is a link to {}, outside the checkpoint: put the file itself there, or give the "
      "directory "
      "that it is in",
      (directory / name).string(), in_quotes(target.string()));
}

Result<ShardSet> find_shards(const SourceTree& tree) {
  if (tree.has(kIndexFile)) return shards_of_index(tree);
  std::vector<std::string> files = tree.names_ending(".safetensors");
  if (std::binary_search(files.begin(), files.end(), "model.safetensors"))
    files = {"model.safetensors"};
  if (files.empty())
    return not_found_error("{} has no model.safetensors.index.json and no *.safetensors file{}",
                           tree.directory().string(), explain_missing(tree));
  if (files.size() > 1)
    return not_found_error(
        "{} has {} *.safetensors files but no {} that says which belong together",
        tree.directory().string(), files.size(), kIndexFile);
  RETURN_IF_ERROR(tree.check(files[0]));
  return ShardSet{tree.directory(), std::move(files), {}};
}

Result<ShardSet> find_shards(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    if (looks_like_hub_id(path.string()))
      return not_found_error(
          "{} is not a file or directory; installing from the hub comes in a later version",
          path.string());
    return not_found_error("{} is not a file or directory", path.string());
  }
  if (fs::is_directory(status)) return find_shards(DirectoryTree(path));
  const std::string name = path.filename().string();
  if (!fs::is_regular_file(status) || !name.ends_with(".safetensors"))
    return invalid_argument_error("{} is neither a directory nor a .safetensors file",
                                  path.string());
  const fs::path directory = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (fs::exists(directory / kIndexFile, error))
    return invalid_argument_error(
        "{} is one file of a checkpoint with an index; give its directory, {}", path.string(),
        directory.string());
  RETURN_IF_ERROR(check_stays_inside(directory, name));
  return ShardSet{directory, {name}, {}};
}

}  // namespace wader
