// Checkpoint: a model as other people release it — a directory with config.json and safetensors
// (one file, or shards with an index). Opening parses headers only and checks all of them; tensor
// bytes are read by ranges.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

#include "arch/spec.h"
#include "arch/tensors.h"
#include "base/result.h"
#include "io/file.h"
#include "tensor/dtype.h"

namespace wader {

struct TensorRef {
  DType dtype;
  std::vector<uint64_t> shape;
  uint32_t file;          // index into Checkpoint::files()
  uint64_t offset_bytes;  // from the file's start
  uint64_t bytes;
};

// A contiguous piece of a source file.
struct SourceRange {
  uint32_t file;
  uint64_t offset_bytes;
  uint64_t bytes;
};

class Checkpoint {
 public:
  // `path`: a directory, or a .safetensors file with its config.json beside it. Every malformed
  // input is refused by name: bad headers (docs: safetensors format), shards outside the directory,
  // tensors missing, doubled, with another shape or dtype than the spec needs, tensors that no part
  // of the spec uses and that are not known to be skippable, config fields that change arithmetic
  // and are not known.
  static Result<Checkpoint> open(const std::filesystem::path& path);

  const std::filesystem::path& directory() const { return directory_; }
  const ArchitectureSpec& spec() const { return spec_; }
  const std::vector<File>& files() const { return files_; }

  // Source of a canonical trunk tensor (arch/tensors.h). dtype is f32, f16 or bf16.
  Result<TensorRef> trunk_source(const TrunkTensorSpec& tensor) const;
  // Where the bytes of one section of one expert stand, byte for byte as the record wants them.
  Result<SourceRange> expert_source(uint32_t layer, uint32_t expert,
                                    const ExpertSection& section) const;

  // Small files beside the weights that a container keeps as released: those of tokenizer.json,
  // tokenizer_config.json, generation_config.json, config.json, chat_template.jinja, LICENSE that
  // exist.
  std::vector<std::string> small_files() const;

 private:
  std::filesystem::path directory_;
  ArchitectureSpec spec_;
  std::vector<File> files_;
  std::unordered_map<std::string, TensorRef> tensors_;  // by released name
  bool tied_head_ = false;                              // the head is the embedding
};

}  // namespace wader
