// Container: a model in our own format, a directory NAME.wader (docs/format.md gives every byte).
// Opening checks the manifest, every file's size and the digests of the small files; trunk tensors
// and expert records are checked against digests.bin when they are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "arch/spec.h"
#include "arch/tensors.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/result.h"
#include "container/in_place.h"
#include "io/file.h"

namespace wader {

constexpr uint64_t kFormatVersion = 3;

struct TrunkTensor {
  std::string name;  // canonical, see arch/tensors.h
  MatrixFormat format;
  std::vector<uint64_t> shape;  // row-major, one or two dims
  uint64_t offset_bytes;        // in trunk.bin, multiple of 64
  uint64_t bytes;

  // A vector is one row.
  uint64_t rows() const { return shape.size() == 1 ? 1 : shape[0]; }
  uint64_t cols() const { return shape.back(); }
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
  uint64_t digest = 0;  // the seal of the text that this was parsed from; 0 before it has one

  uint64_t trunk_bytes() const;   // of trunk.bin
  uint64_t expert_bytes() const;  // of all expert files together
};

// Text of a manifest, with its own digest as last key, and back. The parser takes untrusted text:
// it refuses wrong versions, digests, unknown keys, tensors that are missing, doubled, misshapen,
// overlapping or outside.
std::string manifest_to_text(const Manifest& manifest);
Result<Manifest> parse_manifest(std::string_view text);

// "experts/layer-000.bin": by the layer's own number, so that dense layers leave gaps.
std::string expert_file_name(uint32_t layer);

// A piece of an expert's record: where it stands in a file, and where in the record.
struct RecordPiece {
  uint32_t file;  // index into Container::expert_files()
  uint64_t offset_bytes, bytes;
  uint64_t record_offset_bytes;
};

class Container {
 public:
  // Refuses an install in progress, missing or resized files, small files with a wrong digest, and
  // experts in place of a checkpoint that changed.
  static Result<Container> open(const std::filesystem::path& directory);

  // The same without a look at the files that the manifest lists, but for digests.bin, and at a
  // checkpoint: for whoever verifies and mends them.
  static Result<Container> open_to_repair(const std::filesystem::path& directory);

  const std::filesystem::path& directory() const { return directory_; }
  const Manifest& manifest() const { return manifest_; }
  const ArchitectureSpec& spec() const { return manifest_.spec; }
  // The manifest's own digest, for files that belong to this very container (states, range maps).
  // It covers every digest of small files and of digests.bin, and so every byte of the weights.
  uint64_t identity() const { return manifest_.digest; }

  // Where the experts are when the container has none of its own.
  const std::optional<InPlaceSource>& in_place() const { return in_place_; }
  // The files that hold expert records: one a moe layer, or a checkpoint's weight files.
  std::vector<std::filesystem::path> expert_files() const;
  // An expert's record, whose other bytes are zero. `layer` has routed experts.
  std::vector<RecordPiece> expert_pieces(uint32_t layer, uint32_t expert) const;
  // `layer` has routed experts.
  uint64_t expert_digest(uint32_t layer, uint32_t expert) const;
  uint64_t trunk_digest(size_t tensor_index) const;

  // A small file of the container ("tokenizer.json"), already verified by open. not_found when it
  // has none.
  Result<std::string> read_small_file(const std::string& name) const;
  bool has_file(const std::string& name) const { return manifest_.files.contains(name); }

 private:
  static Result<Container> load(const std::filesystem::path& directory, bool check_sizes);

  std::filesystem::path directory_;
  Manifest manifest_;
  std::optional<InPlaceSource> in_place_;
  std::vector<uint64_t>
      digests_;  // expert records of moe layers, then trunk tensors in manifest order
};

// A part that is not what it was made as.
struct DamagedPart {
  enum class Kind : uint8_t { small_file, trunk_tensor, trunk_padding, expert, surplus } kind;
  std::string file;
  uint32_t layer = 0;              // of an expert
  uint64_t index = 0;              // of the expert or trunk tensor
  uint64_t offset = 0, bytes = 0;  // of padding
};

struct VerifyReport {
  uint64_t bytes = 0;  // read and checked
  std::vector<std::string>
      problems;  // "experts/layer-003.bin: expert 17 does not match its checksum"
  std::vector<DamagedPart> damaged;  // what these problems are about, but for the manifest
};

// Re-reads every byte of the container, by several threads; `progress` is called from any of them,
// one at a time. An error only when it was stopped or could not be read at all; damage is in the
// report.
Result<VerifyReport> verify_container(const Container& container, const ProgressFn& progress);

}  // namespace wader
