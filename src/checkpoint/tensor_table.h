// TensorTable: the tensors of a source by released name, and what they are once the planes that
// belong together are joined:
//   X                                     plain f32, f16 or bf16 values
//   Y_blocks u8 (…, cols/32, 16), Y_scales u8 (…, cols/32)             MXFP4, as GPT-OSS has it
//   Y.weight u32 (…, cols · bits / 32), Y.scales and Y.biases (…, cols / group)   MLX's affine
//   Y.weight u32 (…, cols / 8), Y.scales u8 (…, cols / 32)                        MLX's mxfp4
// Which bits and group an MLX tensor has is in the config (mlx.h), and the shapes must say the
// same.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/mlx.h"
#include "checkpoint/safetensors.h"

namespace wader {

// One matrix, or a stack of matrices: values (…, cols), rows one after the other.
struct StoredTensor {
  std::vector<uint64_t> shape = {};
  MatrixFormat format = {};
  SourcePlane codes = {}, scales = {}, biases = {};
  bool paired_scales = false;

  uint64_t cols() const { return shape.back(); }
};

// Rows [first, first + rows) of all the rows of `tensor` as canonical rows to, to + step, ….
SourceRows source_rows(const StoredTensor& tensor, uint64_t first, uint64_t rows, uint64_t to,
                       uint64_t step);

class TensorTable {
 public:
  TensorTable() = default;
  explicit TensorTable(MlxQuantisation quantisation) : quantisation_(std::move(quantisation)) {}

  // corrupt when the name is there already.
  Status add(SafetensorsTensor tensor, uint32_t file);

  bool has(std::string_view name) const { return find(name) != nullptr; }
  // Null when there is none.
  const SafetensorsTensor* find(std::string_view name) const;

  // The tensor with values of `shape`; it and its planes then count as used. `name` is that of the
  // codes: X, Y_blocks or Y.weight. not_found when it is missing, corrupt when shape or dtype
  // differ.
  Result<StoredTensor> take(const std::string& name, const std::vector<uint64_t>& shape);

  // The first name, in order of name, that nobody took and that is not skippable.
  std::optional<std::string> unused(const std::function<bool(std::string_view)>& skippable) const;

 private:
  struct Entry {
    SafetensorsTensor tensor;
    uint32_t file;
    bool used = false;
  };

  Result<Entry*> take_plane(const std::string& name, const std::vector<uint64_t>& shape,
                            std::initializer_list<DType> dtypes);
  Result<StoredTensor> take_mxfp4(const std::string& stem, const std::vector<uint64_t>& shape);
  Result<StoredTensor> take_mlx(const std::string& stem, const std::vector<uint64_t>& shape);

  MlxQuantisation quantisation_;
  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace wader
