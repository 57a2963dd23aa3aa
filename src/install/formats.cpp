#include "install/formats.h"

#include "base/error.h"

namespace wader {
namespace {

MatrixFormat quantised(DType dtype, uint64_t cols) {
  for (const uint16_t group : {kAffineGroup, uint16_t{32}})
    if (cols % group == 0) return {dtype, group};
  return DType::bf16;
}

// Of a matrix with `cols` columns; bf16 where they allow nothing else.
MatrixFormat choose(const MatrixFormat& source, uint64_t cols, std::optional<DType> wanted,
                    DType usual) {
  if (!wanted) return is_plain_float(source.dtype) ? quantised(usual, cols) : source;
  if (*wanted == source.dtype) return source;
  if (!is_affine(*wanted)) return *wanted;
  // A 4-bit code is an 8-bit code.
  if (source.dtype == DType::affine4) return {DType::affine8, source.group, source.scales};
  return quantised(*wanted, cols);
}

}  // namespace

Result<ExpertFormat> choose_expert_format(const ArchitectureSpec& spec, const ExpertFormat& source,
                                          std::optional<DType> wanted) {
  if (wanted && *wanted != DType::mxfp4 && *wanted != DType::bf16 && !is_affine(*wanted))
    return invalid_argument_error("experts can be mxfp4, affine4, affine8 or bf16, not {}",
                                  dtype_name(*wanted));
  const auto choose_matrix = [&](ExpertMatrix matrix) {
    return choose(source.of(matrix), expert_matrix_shape(spec, matrix).cols, wanted,
                  DType::affine4);
  };
  const ExpertFormat format{choose_matrix(ExpertMatrix::gate_up),
                            choose_matrix(ExpertMatrix::down)};
  for (const ExpertMatrix matrix : {ExpertMatrix::gate_up, ExpertMatrix::down}) {
    const uint32_t cols = expert_matrix_shape(spec, matrix).cols;
    if (wanted && (format.of(matrix).dtype != *wanted || !row_bytes(format.of(matrix), cols)))
      return invalid_argument_error(
          "this model's experts have matrices with {} columns, which {} cannot store: it takes "
          "whole groups of 32; choose auto or bf16",
          cols, dtype_name(*wanted));
  }
  RETURN_IF_ERROR(check_expert_format(spec, format));
  return format;
}

Result<MatrixFormat> choose_trunk_format(const TrunkTensorSpec& tensor, const TensorSource& source,
                                         std::optional<DType> wanted) {
  if (wanted && *wanted != DType::affine8 && *wanted != DType::bf16)
    return invalid_argument_error("the trunk can be affine8 or bf16, not {}", dtype_name(*wanted));
  const bool bf16 = source.format.dtype == DType::bf16 && source.add == 0;
  if (tensor.role == TrunkRole::exact) return MatrixFormat(bf16 ? DType::bf16 : DType::f32);
  const MatrixFormat held = source.add == 0 ? source.format : MatrixFormat(DType::f32);
  return choose(held, tensor.cols(), wanted, DType::affine8);
}

}  // namespace wader
