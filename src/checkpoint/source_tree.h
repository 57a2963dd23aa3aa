// SourceTree: the files of a release by name, wherever they are: a local directory here, a
// repository of the hub in install/. Names are relative to its top and untrusted; each is checked
// (checkpoint/index.h) before anything is opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "io/byte_source.h"

namespace wader {

class SourceTree {
 public:
  virtual ~SourceTree() = default;

  // What messages call it; of a local one its path.
  virtual const std::filesystem::path& directory() const = 0;
  // Whether an entry has this name, also one that may not be opened.
  virtual bool has(std::string_view name) const = 0;
  virtual bool has_folder(std::string_view name) const = 0;
  // Names with this ending among the entries of the top, sorted.
  virtual std::vector<std::string> names_ending(std::string_view ending) const = 0;
  // not_found when there is no such file, invalid_argument when it is not one of this tree.
  virtual Status check(std::string_view name) const = 0;
  // The rest is for names that passed check().
  virtual Result<std::unique_ptr<ByteSource>> open(std::string_view name) const = 0;
  virtual Result<std::string> read_text(std::string_view name, uint64_t max_bytes) const = 0;
  // A hint that the headers of these safetensors files are read next.
  virtual void will_read_headers(std::span<const std::string> /*names*/) const {}
  // For a container to keep: with its text where it is not a file that can be copied.
  virtual Result<SmallFile> small_file(std::string_view name, uint64_t max_bytes) const = 0;
};

// A local directory. Links that lead out of it are refused (check_stays_inside).
class DirectoryTree final : public SourceTree {
 public:
  explicit DirectoryTree(std::filesystem::path directory) : directory_(std::move(directory)) {}

  const std::filesystem::path& directory() const override { return directory_; }
  bool has(std::string_view name) const override;
  bool has_folder(std::string_view name) const override;
  std::vector<std::string> names_ending(std::string_view ending) const override;
  Status check(std::string_view name) const override;
  Result<std::unique_ptr<ByteSource>> open(std::string_view name) const override;
  Result<std::string> read_text(std::string_view name, uint64_t max_bytes) const override;
  Result<SmallFile> small_file(std::string_view name, uint64_t max_bytes) const override;

 private:
  std::filesystem::path directory_;
};

}  // namespace wader
