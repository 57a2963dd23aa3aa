#include "checkpoint/bind.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/error.h"
#include "checkpoint/format_join.h"
#include "checkpoint/json_events.h"

namespace wader {
namespace {

TensorSource empty_source(uint64_t rows, uint64_t cols) {
  TensorSource source;
  source.rows = rows;
  source.cols = cols;
  return source;
}

// Adds rows of `tensor` to `source`.
void append_rows(const StoredTensor& tensor, const std::vector<RowRun>& runs,
                 TensorSource& source) {
  source.format =
      source.pieces.empty() ? tensor.format : join_formats(source.format, tensor.format);
  for (const RowRun& run : runs)
    source.pieces.push_back(source_rows(tensor, run.from, run.rows, run.to, run.step));
}

std::vector<uint64_t> released_shape(const TrunkTensorSpec& tensor, const ReleasedTensor& table,
                                     const ArchitectureSpec& spec, const ReleaseStyle& style) {
  if (tensor.shape.size() == 1) return tensor.shape;
  if (!table.depthwise) return {released_rows(table.order, spec, tensor.rows()), tensor.cols()};
  if (style.conv_channels_last) return {tensor.rows(), tensor.cols(), 1};
  return {tensor.rows(), 1, tensor.cols()};
}

Result<TensorSource> bind_tensor(const TrunkTensorSpec& tensor, const ArchitectureSpec& spec,
                                 const TensorNames& names, const ReleaseStyle& style,
                                 const TakeTensor& take) {
  TensorSource source = empty_source(tensor.rows(), tensor.cols());
  const std::vector<TensorPart> parts = tensor_parts(names, tensor.name);
  CHECK(!parts.empty());  // the family's table lacks a tensor of its own spec
  for (const auto& [released, table] : parts) {
    ASSIGN_OR_RETURN(StoredTensor stored,
                     take(released, released_shape(tensor, *table, spec, style)));
    if (table->depthwise) {  // the same bytes as rows of K
      if (style.conv_channels_last) stored.codes.stride_bytes *= tensor.cols();
      stored.shape = tensor.shape;
    }
    append_rows(stored, row_runs(table->order, spec, source.rows), source);
    if (table->zero_centred && !style.norms_have_one) source.add = 1;
  }
  return source;
}

class ExpertBinder {
 public:
  ExpertBinder(const ArchitectureSpec& spec, const Family& family, TensorTable& table)
      : spec_(spec), family_(family), table_(table) {}

  // The way in which the experts of `layer` are there, as far as they are, so that what is missing
  // has a name like its neighbours'; the family's first where there is nothing.
  const ExpertNames& names_of(uint32_t layer) const {
    const ExpertNames* best = &family_.experts[0];
    std::ptrdiff_t most = 0;
    for (const ExpertNames& names : family_.experts) {
      const auto found =
          std::count_if(names.weights.begin(), names.weights.end(), [&](const ExpertPart& part) {
            return table_.has(expert_name(family_.names, layer, part.released, 0));
          });
      if (found > most) best = &names, most = found;
    }
    return *best;
  }

  Result<ExpertSources> bind(uint32_t layer, std::span<const ExpertPart> parts, ExpertMatrix matrix,
                             bool bias) {
    const MatrixShape shape = expert_matrix_shape(spec_, matrix);
    ExpertSources experts;
    for (const ExpertPart& part : parts) {
      if (part.matrix != matrix) continue;
      if (is_stack(part))
        RETURN_IF_ERROR(bind_stack(layer, part, shape, bias, experts));
      else
        RETURN_IF_ERROR(bind_each(layer, part, shape, experts));
    }
    return experts;
  }

 private:
  Status bind_stack(uint32_t layer, const ExpertPart& part, MatrixShape shape, bool bias,
                    ExpertSources& experts) {
    const std::string name = expert_name(family_.names, layer, part.released, 0);
    std::vector<uint64_t> released = {spec_.experts, released_rows(part.order, spec_, shape.rows)};
    if (!bias) released.push_back(shape.cols);
    ASSIGN_OR_RETURN(StoredTensor stored, table_.take(name, released));
    // A record keeps the linear layers' biases as bf16; others would have to be rounded.
    if (bias && stored.format != DType::bf16)
      return corrupt_error("tensor {} is {} [{}], config.json needs bf16", in_quotes(name),
                           table_.find(name)->format_dtype, fmt::join(released, ", "));
    MatrixShape one = bias ? MatrixShape{1, shape.rows} : shape;
    if (bias && part.order != RowOrder::same) {  // gate's and up's alternate: a column of values
      one = {shape.rows, 1};
      stored.shape.push_back(1);
      stored.codes.stride_bytes = dtype_bytes(stored.format.dtype);
    }
    const uint64_t step = released_rows(part.order, spec_, one.rows);
    append_experts(stored,
                   {step * stored.codes.stride_bytes, step * stored.scales.stride_bytes,
                    step * stored.biases.stride_bytes},
                   part.order, spec_, one.rows, one.cols, experts);
    return {};
  }

  Status bind_each(uint32_t layer, const ExpertPart& part, MatrixShape shape,
                   ExpertSources& experts) {
    const std::vector<uint64_t> released = {released_rows(part.order, spec_, shape.rows),
                                            shape.cols};
    const std::vector<RowRun> runs = row_runs(part.order, spec_, shape.rows);
    for (uint32_t expert = 0; expert < spec_.experts; ++expert) {
      const std::string name = expert_name(family_.names, layer, part.released, expert);
      ASSIGN_OR_RETURN(const StoredTensor stored, table_.take(name, released));
      if (experts.sources.size() == expert)
        experts.sources.push_back(empty_source(shape.rows, shape.cols));
      append_rows(stored, runs, experts.sources[expert]);
    }
    return {};
  }

  const ArchitectureSpec& spec_;
  const Family& family_;
  TensorTable& table_;
};

}  // namespace

void append_experts(const StoredTensor& stored, const PlaneSteps& step, RowOrder order,
                    const ArchitectureSpec& spec, uint64_t rows, uint64_t cols,
                    ExpertSources& experts) {
  if (experts.sources.empty()) experts.sources.push_back(empty_source(rows, cols));
  append_rows(stored, row_runs(order, spec, rows), experts.sources[0]);
  experts.steps.resize(experts.sources[0].pieces.size(), step);
}

Result<std::unordered_map<std::string, TensorSource>> bind_trunk(const ArchitectureSpec& spec,
                                                                 const TensorNames& names,
                                                                 const ReleaseStyle& style,
                                                                 const TakeTensor& take) {
  std::unordered_map<std::string, TensorSource> trunk;
  for (const TrunkTensorSpec& tensor : trunk_tensors(spec)) {
    ASSIGN_OR_RETURN(TensorSource source, bind_tensor(tensor, spec, names, style, take));
    trunk.emplace(tensor.name, std::move(source));
  }
  return trunk;
}

Status bind_experts(const ArchitectureSpec& spec, const Family& family, TensorTable& table,
                    BoundTensors& tensors) {
  ExpertBinder binder(spec, family, table);
  for (uint32_t layer = 0; layer < spec.layer_count(); ++layer) {
    if (spec.layers[layer].ffn != FfnKind::moe) continue;
    const ExpertNames& names = binder.names_of(layer);
    auto& weights = tensors.experts.emplace_back();
    for (const ExpertMatrix matrix : {ExpertMatrix::gate_up, ExpertMatrix::down}) {
      ASSIGN_OR_RETURN(weights[static_cast<size_t>(matrix)],
                       binder.bind(layer, names.weights, matrix, false));
    }
    if (!spec.expert_bias) continue;
    auto& biases = tensors.expert_biases.emplace_back();
    for (const ExpertMatrix matrix : {ExpertMatrix::gate_up, ExpertMatrix::down}) {
      ASSIGN_OR_RETURN(biases[static_cast<size_t>(matrix)],
                       binder.bind(layer, names.biases, matrix, true));
    }
  }
  return {};
}

}  // namespace wader
