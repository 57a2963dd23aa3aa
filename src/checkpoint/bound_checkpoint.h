// BoundCheckpoint: a checkpoint whose canonical tensors have all been found. Every kind of source
// is one of these once it is open; they differ in how it is filled.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace wader {

// Bytes from one expert's rows to the next one's, in each plane.
struct PlaneSteps {
  uint64_t codes = 0, scales = 0, biases = 0;
};

// One matrix (or bias) of all experts of a layer: a source an expert, or the first expert's and,
// for each of its pieces, how far the next expert is.
struct ExpertSources {
  std::vector<TensorSource> sources;
  std::vector<PlaneSteps> steps;  // empty where every expert has a source

  TensorSource of(uint32_t expert) const;
};

struct BoundTensors {
  std::unordered_map<std::string, TensorSource> trunk;  // by canonical name
  // By number of the moe layer; second index ExpertMatrix.
  std::vector<std::array<ExpertSources, 2>> experts;
  std::vector<std::array<ExpertSources, 2>> expert_biases;  // empty unless spec.expert_bias
};

class BoundCheckpoint final : public Checkpoint {
 public:
  struct Parts {
    std::string_view kind;  // static storage
    std::filesystem::path directory;
    ArchitectureSpec spec;
    SourceFiles files;
    BoundTensors tensors;  // every canonical tensor of `spec`
    std::vector<SmallFile> small_files;
  };
  explicit BoundCheckpoint(Parts parts);

  std::string_view kind() const override { return parts_.kind; }
  const std::filesystem::path& directory() const override { return parts_.directory; }
  const ArchitectureSpec& spec() const override { return parts_.spec; }
  const SourceFiles& files() const override { return parts_.files; }
  Result<TensorSource> trunk_source(const TrunkTensorSpec& tensor) const override;
  ExpertFormat expert_format() const override { return expert_format_; }
  Result<TensorSource> expert_source(uint32_t layer, uint32_t expert,
                                     ExpertMatrix matrix) const override;
  Result<TensorSource> expert_bias_source(uint32_t layer, uint32_t expert,
                                          ExpertMatrix matrix) const override;
  std::vector<SmallFile> small_files() const override { return parts_.small_files; }

 private:
  Result<TensorSource> expert_tensor(const std::vector<std::array<ExpertSources, 2>>& layers,
                                     uint32_t layer, uint32_t expert, ExpertMatrix matrix) const;

  Parts parts_;
  ExpertFormat expert_format_;
};

// The checkpoint, or the error with the directory's name in front unless it begins with it already.
Result<std::unique_ptr<Checkpoint>> finish_checkpoint(Result<BoundCheckpoint::Parts> parts,
                                                      const std::filesystem::path& directory);

}  // namespace wader
