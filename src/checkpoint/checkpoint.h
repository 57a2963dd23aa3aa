// Checkpoint: a model as other people release it, seen as the canonical tensors of its spec
// (arch/tensors.h). Opening parses headers only and checks all of them (of zero-centred norms it
// also looks at the values, release_style.h); bytes are read by whoever installs, from the places
// given here.
//
// Kinds: Hugging Face directories (config.json with safetensors, one file or shards with an index;
// plain or quantised by MLX), Swiftlet's .qpack and Godwit's .gwt directories.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arch/spec.h"
#include "arch/tensors.h"
#include "base/result.h"
#include "io/byte_source.h"
#include "tensor/dtype.h"

namespace wader {

// One plane of a run of rows: row r's bytes are at offset_bytes + r · stride_bytes, in one piece.
struct SourcePlane {
  uint32_t file = 0;  // index into Checkpoint::files()
  uint64_t offset_bytes = 0;
  uint64_t stride_bytes = 0;
};

// A run of rows of one released tensor, and which rows of the canonical tensor they are.
struct SourceRows {
  MatrixFormat format;
  SourcePlane codes, scales, biases;  // scales and biases only where the format has them
  // Scales and biases stand as (scale, bias) pairs in the scales plane; `biases` is then unused.
  bool paired_scales = false;
  uint64_t rows = 0;
  uint64_t to_row = 0, to_step = 1;  // source row i is canonical row to_row + i · to_step
};

// Where a canonical tensor comes from. A vector is one row.
struct TensorSource {
  uint64_t rows = 0, cols = 0;
  // The smallest format that holds all pieces without loss: what `auto` stores. f32, f16, bf16,
  // mxfp4 or affine.
  MatrixFormat format;
  std::vector<SourceRows> pieces;  // together every canonical row exactly once
  float add = 0;                   // to every value, in f32: 1 for zero-centred norm weights
};

// A file that a container keeps beside the weights.
struct SmallFile {
  std::string name;
  // Set: the text itself, where the source has no such file and the family's facts make one.
  // Not set: the file directory()/name, byte for byte.
  std::optional<std::string> text = {};
};

using SourceFiles = std::vector<std::unique_ptr<ByteSource>>;

class SourceTree;

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  // `path`: a directory of any kind above, or a .safetensors file with its config.json beside it.
  // Every malformed input is refused by name: bad headers, files outside the directory, tensors
  // missing, doubled, with another shape or dtype than the spec needs, tensors that no part of the
  // spec uses and that are not known to be skippable, config fields that change arithmetic and are
  // not known, sizes that do not add up.
  static Result<std::unique_ptr<Checkpoint>> open(const std::filesystem::path& path);

  // A Hugging Face release or MLX's, wherever its files are. `tree` may go afterwards.
  static Result<std::unique_ptr<Checkpoint>> open(const SourceTree& tree);

  // "Hugging Face", "MLX", "qpack", "gwt": for messages and the manifest's report.
  virtual std::string_view kind() const = 0;
  virtual const std::filesystem::path& directory() const = 0;
  virtual const ArchitectureSpec& spec() const = 0;
  virtual const SourceFiles& files() const = 0;

  // Source of a canonical trunk tensor of this spec, or of one with fewer layers.
  virtual Result<TensorSource> trunk_source(const TrunkTensorSpec& tensor) const = 0;

  // The smallest format that holds every expert of every layer without loss.
  virtual ExpertFormat expert_format() const = 0;
  // `layer` is a moe layer of spec(); expert < spec().experts.
  virtual Result<TensorSource> expert_source(uint32_t layer, uint32_t expert,
                                             ExpertMatrix matrix) const = 0;
  // The linear layer's own bias, in bf16; only where spec().expert_bias. (1, rows of the matrix),
  // or (rows of the matrix, 1) where gate and up have a bias each, whose values alternate.
  virtual Result<TensorSource> expert_bias_source(uint32_t layer, uint32_t expert,
                                                  ExpertMatrix matrix) const = 0;

  // Those of tokenizer.json, tokenizer_config.json, generation_config.json, config.json,
  // chat_template.jinja, LICENSE that the source has or that the family's facts make.
  virtual std::vector<SmallFile> small_files() const = 0;
};

}  // namespace wader
