#include "install/repack.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "tensor/float_formats.h"
#include "tensor/matrix.h"

namespace wader {
namespace {

constexpr size_t kBatchValues = 128 * 1024;  // 0.5 MiB of f32; a longer row is a batch of its own

uint64_t value_count(const TrunkTensorSpec& tensor) {
  uint64_t count = 1;
  for (uint64_t dim : tensor.shape) count *= dim;
  return count;
}

// Values that only make sense together: a row where groups must not be torn, else any number.
uint64_t row_values(const TrunkTensorSpec& tensor, DType dtype) {
  return dtype == DType::affine8 ? tensor.shape[1] : 1;
}

size_t batch_values(const TrunkTensorSpec& tensor, DType dtype) {
  const uint64_t row = row_values(tensor, dtype);
  return std::max<uint64_t>(1, kBatchValues / row) * row;
}

bool all_finite(std::span<const uint16_t> bf16) {
  return std::none_of(bf16.begin(), bf16.end(),
                      [](uint16_t bits) { return (bits & 0x7f80u) == 0x7f80u; });
}

template <typename T>
std::span<const std::byte> first_bytes(const std::vector<T>& values, size_t count) {
  return std::as_bytes(std::span(values).first(count));
}

Error range_error(std::string_view name) {
  return corrupt_error("trunk tensor {} has values that BF16 cannot hold", name);
}

}  // namespace

void Repacker::QuantisationError::add(const float* exact, const float* stored, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const double value = exact[i], difference = value - stored[i];
    signal += value * value;
    noise += difference * difference;
  }
}

Json Repacker::QuantisationError::snr_db() const {
  if (noise == 0) return nullptr;
  return std::round(1000 * std::log10(signal / noise)) / 100;  // two decimals
}

Result<Repacker> Repacker::create(const InstallPlan& plan) {
  Repacker repacker(plan);
  const std::vector<TrunkTensor>& placed = plan.container.manifest.trunk;
  size_t longest = 0;
  for (size_t i = 0; i < placed.size(); ++i)
    longest = std::max(longest, batch_values(plan.trunk[i], placed[i].dtype));
  repacker.raw_.resize(longest * sizeof(float));
  repacker.values_.resize(longest);
  repacker.stored_.resize(longest);
  repacker.codes_.resize(longest);
  repacker.scales_.resize(longest / kAffineGroup + 1);
  repacker.biases_.resize(longest / kAffineGroup + 1);
  repacker.rounded_.resize(longest);
  ASSIGN_OR_RETURN(repacker.record_,
                   AlignedBuffer::allocate(plan.container.manifest.experts.stride_bytes));
  return repacker;
}

Status Repacker::repack_trunk(ContainerWriter& writer, ProgressMeter& meter) {
  RETURN_IF_ERROR(writer.begin_trunk());
  const std::vector<TrunkTensor>& placed = writer.manifest().trunk;
  Json matrices = Json::object();
  double sum = 0;
  int lossy = 0;
  for (size_t i = 0; i < placed.size(); ++i) {
    QuantisationError error;
    RETURN_IF_ERROR(repack_tensor(writer, i, meter, error));
    if (plan_->trunk[i].role != TrunkRole::matrix) continue;
    const Json snr = error.snr_db();
    if (!snr.is_null()) sum += snr.get<double>(), ++lossy;
    matrices[placed[i].name] = {{"source", dtype_name(plan_->trunk_sources[i].dtype)},
                                {"snr_db", snr}};
  }
  RETURN_IF_ERROR(plan_->check_source_unchanged());
  const Json mean = lossy > 0 ? Json(std::round(sum / lossy * 100) / 100) : Json(nullptr);
  return writer.finish_trunk({{"mean_snr_db", mean}, {"matrices", std::move(matrices)}});
}

Status Repacker::repack_tensor(ContainerWriter& writer, size_t index, ProgressMeter& meter,
                               QuantisationError& error) {
  const TrunkTensor& target = writer.manifest().trunk[index];
  const DType source = plan_->trunk_sources[index].dtype;
  const uint64_t count = value_count(plan_->trunk[index]);
  const size_t batch = batch_values(plan_->trunk[index], target.dtype);
  for (uint64_t done = 0; done < count;) {
    const size_t n = std::min<uint64_t>(batch, count - done);
    RETURN_IF_ERROR(read_batch(index, done, n));
    ContainerWriter::TrunkRows rows;
    if (target.dtype == source) {
      rows.codes = first_bytes(raw_, n * dtype_bytes(source));
    } else if (target.dtype == DType::f32) {
      rows.codes = first_bytes(values_, n);
    } else {
      ASSIGN_OR_RETURN(rows, target.dtype == DType::affine8 ? quantise_batch(index, n, error)
                                                            : round_batch(index, n, error));
    }
    RETURN_IF_ERROR(writer.append_trunk(rows));
    RETURN_IF_ERROR(
        meter.advance("trunk", rows.codes.size() + rows.scales.size() + rows.biases.size()));
    done += n;
  }
  return {};
}

// Values [first, first + count) of the source into raw_ and values_; every one is finite.
Status Repacker::read_batch(size_t index, uint64_t first_value, size_t count) {
  const TensorRef& source = plan_->trunk_sources[index];
  const uint64_t size = dtype_bytes(source.dtype);
  const auto raw = std::span(raw_).first(count * size);
  RETURN_IF_ERROR(plan_->read_source(source.file, source.offset_bytes + first_value * size, raw));
  source_bytes_read_ += raw.size();
  plain_to_f32(source.dtype, raw.data(), count, values_.data());
  for (size_t i = 0; i < count; ++i)
    if (!std::isfinite(values_[i]))
      return corrupt_error("{}: trunk tensor {} has a NaN or an infinity at value {}",
                           plan_->checkpoint.files()[source.file].path(), plan_->trunk[index].name,
                           first_value + i);
  return {};
}

Result<ContainerWriter::TrunkRows> Repacker::quantise_batch(size_t index, size_t count,
                                                            QuantisationError& error) {
  const auto cols = static_cast<uint32_t>(plan_->trunk[index].shape[1]);
  const size_t groups = cols / kAffineGroup, rows = count / cols;
  for (size_t row = 0; row < rows; ++row)
    quantise_affine8_row(values_.data() + row * cols, cols, codes_.data() + row * cols,
                         scales_.data() + row * groups, biases_.data() + row * groups);
  if (!all_finite(std::span(scales_).first(rows * groups)) ||
      !all_finite(std::span(biases_).first(rows * groups)))
    return range_error(plan_->trunk[index].name);
  const ContainerWriter::TrunkRows out{first_bytes(codes_, count),
                                       first_bytes(scales_, rows * groups),
                                       first_bytes(biases_, rows * groups)};
  const MatrixView view{DType::affine8,   static_cast<uint32_t>(rows), cols,
                        out.codes.data(), out.scales.data(),           out.biases.data()};
  for (uint32_t row = 0; row < rows; ++row) {
    dequantise_row(view, row, stored_.data());
    error.add(values_.data() + size_t{row} * cols, stored_.data(), cols);
  }
  // Scale and bias can be finite and 255 · scale + bias still too much.
  if (!std::isfinite(error.noise)) return range_error(plan_->trunk[index].name);
  return out;
}

// f16 or f32 to bf16, for a matrix only: to the nearest, and what that costs goes into the report.
Result<ContainerWriter::TrunkRows> Repacker::round_batch(size_t index, size_t count,
                                                         QuantisationError& error) {
  for (size_t i = 0; i < count; ++i) {
    rounded_[i] = f32_to_bf16(values_[i]);
    stored_[i] = bf16_to_f32(rounded_[i]);
  }
  if (!all_finite(std::span(rounded_).first(count))) return range_error(plan_->trunk[index].name);
  error.add(values_.data(), stored_.data(), count);
  return ContainerWriter::TrunkRows{first_bytes(rounded_, count)};
}

Status Repacker::repack_layer(ContainerWriter& writer, uint32_t layer, ProgressMeter& meter) {
  RETURN_IF_ERROR(writer.begin_layer(layer));
  const ExpertLayout& layout = writer.manifest().experts;
  for (uint32_t expert = 0; expert < writer.manifest().spec.experts; ++expert) {
    for (const ExpertSection& section : layout.sections)
      RETURN_IF_ERROR(read_section(layer, expert, section));
    RETURN_IF_ERROR(writer.append_expert(record_.span().first(layout.stride_bytes)));
    RETURN_IF_ERROR(meter.advance("experts", layout.stride_bytes));
  }
  RETURN_IF_ERROR(plan_->check_source_unchanged());
  return writer.finish_layer();
}

// One section into its place in the record, and what its format forbids.
Status Repacker::read_section(uint32_t layer, uint32_t expert, const ExpertSection& section) {
  ASSIGN_OR_RETURN(const SourceRange source,
                   plan_->checkpoint.expert_source(layer, expert, section));
  CHECK(source.bytes == section.bytes);
  const auto bytes = record_.span().subspan(section.offset_bytes, section.bytes);
  RETURN_IF_ERROR(plan_->read_source(source.file, source.offset_bytes, bytes));
  source_bytes_read_ += section.bytes;
  const auto refuse = [&](std::string_view what, size_t at) {
    return corrupt_error("{}: layer {}, expert {}: {} has {} at element {}",
                         plan_->checkpoint.files()[source.file].path(), layer, expert, section.name,
                         what, at);
  };
  if (section.name.ends_with(".scales")) {
    const void* found = std::memchr(bytes.data(), 255, bytes.size());
    if (found != nullptr)
      return refuse("the E8M0 scale 255, which is NaN,",
                    static_cast<size_t>(static_cast<const std::byte*>(found) - bytes.data()));
  } else if (section.dtype == DType::bf16) {
    for (size_t i = 0; i < bytes.size() / 2; ++i) {
      uint16_t bits;
      std::memcpy(&bits, bytes.data() + 2 * i, sizeof bits);
      if ((bits & 0x7f80u) == 0x7f80u) return refuse("a NaN or an infinity", i);
    }
  }
  return {};
}

}  // namespace wader
