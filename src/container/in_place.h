// Experts in place: a container that leaves the experts' bytes where a checkpoint has them. It has
// source.json instead of experts/; everything else, the manifest and its digest included, is what
// an install of the same checkpoint would write (docs/format.md). Each section of a record is one
// run of bytes of one file, and the next expert's stands a fixed step further on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace wader {

struct Manifest;

constexpr std::string_view kSourceFile = "source.json";
constexpr uint64_t kMaxSourceTextBytes = 16u << 20;

// A file of the checkpoint, and how it looked when its bytes were checked and their digests taken.
struct SourceFile {
  std::string name;  // inside the checkpoint's directory
  uint64_t bytes = 0;
  int64_t modified_ns = 0;
  uint64_t inode = 0;
  bool operator==(const SourceFile&) const = default;
};

// One section of a layer's records: expert e's bytes are at offset_bytes + e · step_bytes.
struct SourceRun {
  uint32_t file = 0;  // index into InPlaceSource::files
  uint64_t offset_bytes = 0, step_bytes = 0;
  bool operator==(const SourceRun&) const = default;
};

struct InPlaceSource {
  std::filesystem::path directory;  // of the checkpoint, absolute
  std::vector<SourceFile> files;    // all of its weight files
  // By moe layer; a run for each section of the record, in the layout's order.
  std::vector<std::vector<SourceRun>> layers;
  bool operator==(const InPlaceSource&) const = default;
};

std::string in_place_to_text(const InPlaceSource& source);
// Takes untrusted text: refuses damage, names that lead out of the directory, and runs that do not
// fit `manifest` or their files.
Result<InPlaceSource> parse_in_place(std::string_view text, const Manifest& manifest);

// Size, time and inode of a file as it is now; `name` is left empty.
Result<SourceFile> look_at_source(const std::filesystem::path& file);
// corrupt, by name, when a file of the checkpoint is gone or is not what it was.
Status check_source_files(const InPlaceSource& source);

}  // namespace wader
