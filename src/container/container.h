// Container: a model in our own format, a directory NAME.wader (docs/format.md gives every byte).
// Opening checks the manifest, every file's size and the digests of the small files; trunk tensors
// and expert records are checked against digests.bin when they are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "arch/spec.h"
#include "arch/tensors.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/result.h"
#include "io/file.h"

namespace wader {

constexpr uint64_t kFormatVersion = 1;

struct TrunkTensor {
  std::string name;             // canonical, see arch/tensors.h
  DType dtype;                  // bf16, f32 or affine8
  std::vector<uint64_t> shape;  // row-major
  uint64_t offset_bytes;        // in trunk.bin, multiple of 64
  uint64_t bytes;
};

struct FileRecord {
  uint64_t bytes;
  std::string
      digest;  // XXH3-64 in hex; empty for trunk.bin and the expert files, which digests.bin covers
};

// manifest.json, parsed and checked against its own spec.
struct Manifest {
  std::string source;    // repository id or the checkpoint directory's name
  std::string revision;  // commit, or "local"
  ArchitectureSpec spec;
  std::vector<TrunkTensor> trunk;
  ExpertLayout experts;
  std::map<std::string, FileRecord> files;  // every file but manifest.json, by relative name
  Json report;  // free-form facts of the install (sizes, SNR); never read back by the engine

  uint64_t trunk_bytes() const;   // of trunk.bin
  uint64_t expert_bytes() const;  // of all expert files together
};

// Text of a manifest, with its own digest as last key, and back. The parser takes untrusted text:
// it refuses wrong versions, digests, unknown keys, tensors that are missing, doubled, misshapen,
// overlapping or outside.
std::string manifest_to_text(const Manifest& manifest);
Result<Manifest> parse_manifest(std::string_view text);

std::string expert_file_name(uint32_t layer);  // "experts/layer-000.bin"

class Container {
 public:
  // Refuses an install in progress, missing or resized files, and small files with a wrong digest.
  static Result<Container> open(const std::filesystem::path& directory);

  const std::filesystem::path& directory() const { return directory_; }
  const Manifest& manifest() const { return manifest_; }
  const ArchitectureSpec& spec() const { return manifest_.spec; }

  uint64_t expert_digest(uint32_t layer, uint32_t expert) const;
  uint64_t trunk_digest(size_t tensor_index) const;

  // A small file of the container ("tokenizer.json"), already verified by open. not_found when it
  // has none.
  Result<std::string> read_small_file(const std::string& name) const;
  bool has_file(const std::string& name) const { return manifest_.files.contains(name); }

 private:
  std::filesystem::path directory_;
  Manifest manifest_;
  std::vector<uint64_t>
      digests_;  // layer-major expert records, then trunk tensors in manifest order
};

struct VerifyReport {
  uint64_t bytes = 0;  // read and checked
  std::vector<std::string>
      problems;  // "experts/layer-003.bin: expert 17 does not match its checksum"
};

// Re-reads every byte of the container. An error only when it was stopped or could not be read at
// all; damage is in the report.
Result<VerifyReport> verify_container(const Container& container, const ProgressFn& progress);

}  // namespace wader
