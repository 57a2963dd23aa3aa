#include "checkpoint/source_tree.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "checkpoint/index.h"
#include "io/file.h"

namespace wader {

namespace fs = std::filesystem;

bool DirectoryTree::has(std::string_view name) const {
  std::error_code error;
  return fs::exists(fs::symlink_status(directory_ / name, error));
}

bool DirectoryTree::has_folder(std::string_view name) const {
  std::error_code error;
  return fs::is_directory(directory_ / name, error);
}

// An unreadable directory has none.
std::vector<std::string> DirectoryTree::names_ending(std::string_view ending) const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory_, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (name.ends_with(ending)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

Status DirectoryTree::check(std::string_view name) const {
  return check_stays_inside(directory_, name);
}

Result<std::unique_ptr<ByteSource>> DirectoryTree::open(std::string_view name) const {
  ASSIGN_OR_RETURN(File file, File::open(directory_ / name, File::Mode::read));
  return std::unique_ptr<ByteSource>(std::make_unique<File>(std::move(file)));
}

Result<std::string> DirectoryTree::read_text(std::string_view name, uint64_t max_bytes) const {
  return read_text_file(directory_ / name, max_bytes);
}

Result<SmallFile> DirectoryTree::small_file(std::string_view name, uint64_t) const {
  return SmallFile{std::string(name)};
}

}  // namespace wader
