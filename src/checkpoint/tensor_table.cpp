#include "checkpoint/tensor_table.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "checkpoint/json_events.h"

namespace wader {
namespace {

std::string shape_text(std::string_view dtype, const std::vector<uint64_t>& shape) {
  return fmt::format("{} [{}]", dtype, fmt::join(shape, ", "));
}

// "f32, f16 or bf16"
std::string dtypes_text(std::initializer_list<DType> dtypes) {
  std::string text;
  size_t left = dtypes.size();
  for (const DType dtype : dtypes) {
    text += dtype_name(dtype);
    if (--left > 0) text += left == 1 ? " or " : ", ";
  }
  return text;
}

std::vector<uint64_t> with_cols(std::vector<uint64_t> shape, uint64_t cols) {
  shape.back() = cols;
  return shape;
}

// "Y" of "Y_blocks" or "Y.weight"; nothing when `name` does not end like that.
std::string stem_of(std::string_view name, std::string_view ending) {
  if (!name.ends_with(ending)) return {};
  name.remove_suffix(ending.size());
  return std::string(name);
}

}  // namespace

SourceRows source_rows(const StoredTensor& tensor, uint64_t first, uint64_t rows, uint64_t to,
                       uint64_t step) {
  const auto from = [&](SourcePlane plane) {
    plane.offset_bytes += first * plane.stride_bytes;
    return plane;
  };
  return {.format = tensor.format,
          .codes = from(tensor.codes),
          .scales = from(tensor.scales),
          .biases = from(tensor.biases),
          .paired_scales = tensor.paired_scales,
          .rows = rows,
          .to_row = to,
          .to_step = step};
}

Status TensorTable::add(SafetensorsTensor tensor, uint32_t file) {
  std::string name = tensor.name;
  const auto [entry, is_new] = entries_.emplace(std::move(name), Entry{std::move(tensor), file});
  if (is_new) return {};
  return corrupt_error("tensor {} is there twice", in_quotes(entry->first));
}

const SafetensorsTensor* TensorTable::find(std::string_view name) const {
  const auto entry = entries_.find(std::string(name));
  return entry == entries_.end() ? nullptr : &entry->second.tensor;
}

Result<TensorTable::Entry*> TensorTable::take_plane(const std::string& name,
                                                    const std::vector<uint64_t>& shape,
                                                    std::initializer_list<DType> dtypes) {
  const auto found = entries_.find(name);
  if (found == entries_.end())
    return not_found_error("tensor {} ({}) is missing", in_quotes(name),
                           shape_text(dtypes_text(dtypes), shape));
  const SafetensorsTensor& tensor = found->second.tensor;
  const bool dtype_fits =
      tensor.dtype && std::find(dtypes.begin(), dtypes.end(), *tensor.dtype) != dtypes.end();
  if (tensor.shape != shape || !dtype_fits)
    return corrupt_error("tensor {} is {}, config.json needs {}", in_quotes(name),
                         shape_text(tensor.format_dtype, tensor.shape),
                         shape_text(dtypes_text(dtypes), shape));
  found->second.used = true;
  return &found->second;
}

Result<StoredTensor> TensorTable::take(const std::string& name,
                                       const std::vector<uint64_t>& shape) {
  if (const std::string stem = stem_of(name, "_blocks"); !stem.empty())
    return take_mxfp4(stem, shape);
  const std::string stem = shape.size() > 1 ? stem_of(name, ".weight") : "";  // vectors are plain
  if (!stem.empty() && has(stem + ".scales")) return take_mlx(stem, shape);
  ASSIGN_OR_RETURN(const Entry* entry,
                   take_plane(name, shape, {DType::f32, DType::f16, DType::bf16}));
  const DType dtype = *entry->tensor.dtype;
  return StoredTensor{
      shape, dtype, {entry->file, entry->tensor.offset_bytes, shape.back() * dtype_bytes(dtype)}};
}

Result<StoredTensor> TensorTable::take_mxfp4(const std::string& stem,
                                             const std::vector<uint64_t>& shape) {
  const uint64_t blocks = shape.back() / kMxfp4Block;
  if (shape.back() % kMxfp4Block != 0)
    return unsupported_error("tensor {} has {} columns; MXFP4 takes whole blocks of 32",
                             in_quotes(stem), shape.back());
  auto codes_shape = with_cols(shape, blocks);
  codes_shape.push_back(kMxfp4Block / 2);
  ASSIGN_OR_RETURN(const Entry* codes, take_plane(stem + "_blocks", codes_shape, {DType::u8}));
  ASSIGN_OR_RETURN(const Entry* scales,
                   take_plane(stem + "_scales", with_cols(shape, blocks), {DType::u8}));
  return StoredTensor{shape,
                      DType::mxfp4,
                      {codes->file, codes->tensor.offset_bytes, shape.back() / 2},
                      {scales->file, scales->tensor.offset_bytes, blocks}};
}

Result<StoredTensor> TensorTable::take_mlx(const std::string& stem,
                                           const std::vector<uint64_t>& shape) {
  const SafetensorsTensor* const scales_tensor = find(stem + ".scales");
  ASSIGN_OR_RETURN(const MatrixFormat format,
                   quantisation_.format(stem, scales_tensor->dtype.value_or(DType::f32)));
  const auto row = row_bytes(format, shape.back());
  const bool affine = is_affine(format.dtype);
  const uint64_t group = affine ? format.group : kMxfp4Block;
  if (!row)
    return corrupt_error("tensor {} has {} columns, which are no whole groups of {}",
                         in_quotes(stem), shape.back(), group);
  // Codes are packed into u32, the first in the lowest bits: in little-endian bytes, our order.
  ASSIGN_OR_RETURN(const Entry* codes,
                   take_plane(stem + ".weight", with_cols(shape, row->codes / 4), {DType::u32}));
  const auto groups = with_cols(shape, shape.back() / group);
  StoredTensor out{shape, format, {codes->file, codes->tensor.offset_bytes, row->codes}};
  if (!affine) {
    ASSIGN_OR_RETURN(const Entry* scales, take_plane(stem + ".scales", groups, {DType::u8}));
    out.scales = {scales->file, scales->tensor.offset_bytes, row->scales};
    return out;
  }
  ASSIGN_OR_RETURN(const Entry* scales,
                   take_plane(stem + ".scales", groups, {DType::bf16, DType::f16}));
  ASSIGN_OR_RETURN(const Entry* biases, take_plane(stem + ".biases", groups, {format.scales}));
  out.scales = {scales->file, scales->tensor.offset_bytes, row->scales};
  out.biases = {biases->file, biases->tensor.offset_bytes, row->biases};
  return out;
}

std::optional<std::string> TensorTable::unused(
    const std::function<bool(std::string_view)>& skippable) const {
  const std::string* first = nullptr;
  for (const auto& [name, entry] : entries_)
    if (!entry.used && !skippable(name) && (first == nullptr || name < *first)) first = &name;
  return first == nullptr ? std::nullopt : std::optional(*first);
}

}  // namespace wader
