#include "synth.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/units.h"
#include "container/manifest.h"
#include "container/progress_meter.h"
#include "container/writer.h"
#include "tensor/float_formats.h"
#include "tensor/matrix.h"

namespace wader::bench {
namespace {

constexpr size_t kPoolBytes = 16 * kMiB;
constexpr size_t kBatchBytes = kMiB;

// Root mean square of the values that random codes stand for, at scale 1.
constexpr double kE2M1Rms = 2.9262;            // of the sixteen E2M1 codes
constexpr double kAffine4Rms = 4.6098;         // of code − 7.5
constexpr double kAffine8Rms = 73.9;           // of code − 127.5
constexpr double kSqrt3 = 1.7320508075688772;  // half width of a uniform distribution of rms 1

// Random bytes and bf16 values, made once; every use starts somewhere else in them.
class Noise {
 public:
  explicit Noise(uint64_t seed) : rng_(seed), bytes_(kPoolBytes) {
    for (size_t i = 0; i < kPoolBytes; i += sizeof(uint64_t)) {
      const uint64_t word = rng_();
      std::memcpy(&bytes_[i], &word, sizeof word);
    }
  }
  void codes(std::span<std::byte> into) { copy(bytes_, into); }
  // Uniform bf16 values of the given root mean square.
  void bf16(std::span<std::byte> into, double rms) {
    std::vector<std::byte>& pool = bf16_[rms];
    if (pool.empty()) {
      pool.resize(kPoolBytes / 4);
      std::uniform_real_distribution<float> uniform(-1, 1);
      for (size_t i = 0; i < pool.size(); i += 2) {
        const uint16_t bits = f32_to_bf16(uniform(rng_) * static_cast<float>(rms * kSqrt3));
        std::memcpy(&pool[i], &bits, sizeof bits);
      }
    }
    copy(pool, into);
  }
  double normal() { return normal_(rng_); }
  double uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(rng_);
  }

 private:
  void copy(const std::vector<std::byte>& pool, std::span<std::byte> into) {
    while (!into.empty()) {
      const size_t from = rng_() % (pool.size() / 64) * 64;
      const size_t n = std::min(into.size(), pool.size() - from);
      std::memcpy(into.data(), pool.data() + from, n);
      into = into.subspan(n);
    }
  }

  std::mt19937_64 rng_;
  std::normal_distribution<double> normal_;
  std::vector<std::byte> bytes_;
  std::map<double, std::vector<std::byte>> bf16_;  // by rms
};

void fill_u16(std::span<std::byte> plane, uint16_t value) {
  for (size_t i = 0; i + 1 < plane.size(); i += 2) std::memcpy(&plane[i], &value, sizeof value);
}

// Planes of rows with values of the given root mean square.
void fill_matrix(Noise& noise, const MatrixFormat& format, double rms, std::span<std::byte> codes,
                 std::span<std::byte> scales, std::span<std::byte> biases) {
  if (format.dtype == DType::bf16) return noise.bf16(codes, rms);
  noise.codes(codes);
  if (format.dtype == DType::mxfp4) {
    const auto exponent = std::lround(std::log2(rms / kE2M1Rms));
    std::fill(scales.begin(), scales.end(), static_cast<std::byte>(127 + exponent));
    return;
  }
  CHECK(is_affine(format.dtype) && format.scales == DType::bf16);
  const bool four = format.dtype == DType::affine4;
  const auto scale = static_cast<float>(rms / (four ? kAffine4Rms : kAffine8Rms));
  fill_u16(scales, f32_to_bf16(scale));
  fill_u16(biases, f32_to_bf16(scale * (four ? -7.5f : -127.5f)));
}

// Values of a trunk tensor that is kept exact, in f32.
std::vector<float> exact_values(Noise& noise, const SynthOptions& options,
                                const TrunkTensorSpec& tensor) {
  const auto ends = [&](std::string_view what) { return tensor.name.ends_with(what); };
  const double by_columns = 1 / std::sqrt(static_cast<double>(tensor.cols()));
  std::vector<float> values(tensor.rows() * tensor.cols());
  for (size_t i = 0; i < values.size(); ++i) {
    double value = 0.02 * noise.normal();  // biases, sinks
    if (ends("norm")) value = 1;
    if (ends("a_log")) value = std::log(noise.uniform(1, 16));
    // softplus⁻¹ of a step between 0.001 and 0.1, as the released models start from.
    if (ends("dt_bias")) value = std::log(std::expm1(std::exp(noise.uniform(-6.9, -2.3))));
    if (tensor.shape.size() == 2) value = by_columns * noise.normal();
    if (ends("router.bias")) value = options.skew * noise.normal();
    values[i] = static_cast<float>(value);
  }
  if (ends("router.weight") && !options.spec.router_bias)
    for (uint64_t row = 0; row < tensor.rows(); ++row) {
      const auto scale = static_cast<float>(std::exp(options.skew * noise.normal()));
      for (uint64_t c = 0; c < tensor.cols(); ++c) values[row * tensor.cols() + c] *= scale;
    }
  return values;
}

Status write_matrix(ContainerWriter& writer, Noise& noise, const TrunkTensor& tensor,
                    ProgressMeter& meter) {
  const uint64_t rows = tensor.shape[0], cols = tensor.shape[1];
  const RowBytes row = *row_bytes(tensor.format, cols);
  const uint64_t batch = std::max<uint64_t>(1, kBatchBytes / row.total());
  // The embedding is what a token starts from: of size 1, as the norms leave it.
  const double rms = tensor.name == "embed" ? 1.0 : 1 / std::sqrt(static_cast<double>(cols));
  std::vector<std::byte> buffer(batch * row.total());
  for (uint64_t done = 0; done < rows; done += batch) {
    const uint64_t n = std::min(batch, rows - done);
    const std::span<std::byte> all(buffer);
    const auto codes = all.first(n * row.codes);
    const auto scales = all.subspan(codes.size(), n * row.scales);
    const auto biases = all.subspan(codes.size() + scales.size(), n * row.biases);
    fill_matrix(noise, tensor.format, rms, codes, scales, biases);
    RETURN_IF_ERROR(writer.append_trunk({codes, scales, biases}));
    RETURN_IF_ERROR(meter.advance("trunk", n * row.total()));
  }
  return {};
}

Status write_trunk(ContainerWriter& writer, Noise& noise, const SynthOptions& options,
                   ProgressMeter& meter) {
  RETURN_IF_ERROR(writer.begin_trunk());
  const std::vector<TrunkTensorSpec> specs = trunk_tensors(options.spec);
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].role == TrunkRole::matrix) {
      RETURN_IF_ERROR(write_matrix(writer, noise, writer.manifest().trunk[i], meter));
      continue;
    }
    const std::vector<float> values = exact_values(noise, options, specs[i]);
    RETURN_IF_ERROR(writer.append_trunk({std::as_bytes(std::span(values))}));
  }
  return writer.finish_trunk(Json::object());
}

void fill_expert(Noise& noise, const SynthOptions& options, const ExpertLayout& layout,
                 std::span<std::byte> record) {
  for (const ExpertMatrix which : {ExpertMatrix::gate_up, ExpertMatrix::down}) {
    const MatrixShape shape = expert_matrix_shape(options.spec, which);
    const MatrixFormat& format = layout.format.of(which);
    const MatrixPlanes& planes = layout.planes(which);
    const RowBytes row = *row_bytes(format, shape.cols);
    fill_matrix(noise, format, 1 / std::sqrt(static_cast<double>(shape.cols)),
                record.subspan(planes.codes, row.codes * shape.rows),
                record.subspan(planes.scales, row.scales * shape.rows),
                record.subspan(planes.biases, row.biases * shape.rows));
    if (planes.linear_bias) noise.bf16(record.subspan(*planes.linear_bias, 2 * shape.rows), 0.02);
  }
}

Status write_experts(ContainerWriter& writer, Noise& noise, const SynthOptions& options,
                     ProgressMeter& meter) {
  const ExpertLayout& layout = writer.manifest().experts;
  std::vector<std::byte> record(layout.stride_bytes);
  for (uint32_t layer = 0; layer < options.spec.layer_count(); ++layer) {
    if (options.spec.layers[layer].ffn != FfnKind::moe) continue;
    RETURN_IF_ERROR(writer.begin_layer(layer));
    for (uint32_t expert = 0; expert < options.spec.experts; ++expert) {
      fill_expert(noise, options, layout, record);
      RETURN_IF_ERROR(writer.append_expert(record));
      RETURN_IF_ERROR(meter.advance("experts", record.size()));
    }
    RETURN_IF_ERROR(writer.finish_layer(Json::object()));
  }
  return {};
}

ContainerPlan plan_of(const SynthOptions& options) {
  ContainerPlan plan;
  Manifest& manifest = plan.manifest;
  manifest.source = "synthetic";
  manifest.revision = "seed " + std::to_string(options.seed);
  manifest.spec = options.spec;
  std::vector<MatrixFormat> formats;
  for (const TrunkTensorSpec& tensor : trunk_tensors(options.spec)) {
    if (tensor.role == TrunkRole::exact)
      formats.emplace_back(DType::f32);
    else
      formats.push_back(trunk_format_allowed(tensor, options.trunk) ? options.trunk
                                                                    : MatrixFormat(DType::bf16));
  }
  manifest.trunk = place_trunk(options.spec, formats);
  manifest.experts = expert_layout(options.spec, options.experts);
  manifest.files = weight_files(manifest);
  plan.origin = {{"synthetic", options.seed}, {"skew", options.skew}};
  return plan;
}

}  // namespace

ExpertFormat usual_expert_format(const ArchitectureSpec& spec) {
  const MatrixFormat format(spec.expert_bias ? DType::mxfp4 : DType::affine4);
  return {format, format};
}

Result<uint64_t> write_synthetic_container(const SynthOptions& options,
                                           const ProgressFn& progress) {
  RETURN_IF_ERROR(validate_spec(options.spec));
  RETURN_IF_ERROR(check_expert_format(options.spec, options.experts));
  if (!std::isfinite(options.skew) || options.skew < 0 || options.skew > 10)
    return invalid_argument_error("--skew {} is not a number from 0 to 10", options.skew);
  ASSIGN_OR_RETURN(ContainerWriter writer,
                   ContainerWriter::open(options.destination, plan_of(options)));
  ProgressMeter meter(progress, writer.manifest().trunk_bytes() + writer.manifest().expert_bytes(),
                      "stopped");
  Noise noise(options.seed);
  RETURN_IF_ERROR(write_trunk(writer, noise, options, meter));
  RETURN_IF_ERROR(write_experts(writer, noise, options, meter));
  return writer.finish({{"synthetic", true}, {"skew", options.skew}});
}

}  // namespace wader::bench
