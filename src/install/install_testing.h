// For tests: a container's tensors as values, and sources of any shape in a file of random bits.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/sanitized_testing.h"
#include "checkpoint/bound_checkpoint.h"
#include "checkpoint/raw_testing.h"
#include "checkpoint/source_testing.h"
#include "container/container_testing.h"
#include "tensor/float_formats.h"
#include "tensor/matrix.h"

namespace wader::testing {

// small_config() and small_tensors() with random values of a model's size; scales around 1.
inline RawTensors random_tensors(uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.05f);
  RawTensors out;
  for (const TestTensor& tensor : small_tensors()) {
    std::string bytes(tensor.bytes(), '\0');
    if (tensor.dtype == "BF16") {
      for (size_t i = 0; i < bytes.size(); i += 2) {
        const uint16_t bits = f32_to_bf16(normal(random));
        std::memcpy(bytes.data() + i, &bits, 2);
      }
    } else {
      const bool scales = tensor.name.ends_with("_scales");
      for (char& c : bytes) c = static_cast<char>(scales ? 120 + random() % 15 : random() % 256);
    }
    out[tensor.name] = {tensor.dtype, tensor.shape, std::move(bytes)};
  }
  return out;
}

// The released name of a canonical trunk tensor of GPT-OSS, restated here.
inline std::string released_name(std::string name) {
  if (name == "embed") return "model.embed_tokens.weight";
  if (name == "head") return "lm_head.weight";
  if (name == "final_norm") return "model.norm.weight";
  const size_t at = name.find('.', 7) + 1;  // after "layers.N."
  std::string layer = "model." + name.substr(0, at), rest = name.substr(at);
  if (rest == "mixer_norm") return layer + "input_layernorm.weight";
  if (rest == "ffn_norm") return layer + "post_attention_layernorm.weight";
  if (rest == "attn.sinks") return layer + "self_attn.sinks";
  if (rest.starts_with("router.")) return layer + "mlp." + rest;
  return layer + "self_attn." + rest.substr(5, 1) + "_proj" + rest.substr(6);  // attn.q.weight
}

// The released name of an expert section: gate_up.blocks → …experts.gate_up_proj_blocks.
inline std::string released_section(uint32_t layer, const std::string& section) {
  const size_t dot = section.find('.');
  return "model.layers." + std::to_string(layer) + ".mlp.experts." + section.substr(0, dot) +
         "_proj_" + section.substr(dot + 1);
}

inline std::vector<float> matrix_values(const MatrixFormat& format, uint64_t rows, uint64_t cols,
                                        const char* codes, const char* scales, const char* biases) {
  const auto bytes = [](const char* from) { return reinterpret_cast<const std::byte*>(from); };
  const MatrixView view{format,
                        static_cast<uint32_t>(rows),
                        static_cast<uint32_t>(cols),
                        bytes(codes),
                        bytes(scales),
                        bytes(biases)};
  std::vector<float> out(rows * cols);
  for (uint32_t row = 0; row < rows; ++row) dequantise_row(view, row, out.data() + row * cols);
  return out;
}

// A container's tensors in f32, from its files.
class StoredValues {
 public:
  explicit StoredValues(const Container& container)
      : container_(container), trunk_(read_bytes(container.directory() / "trunk.bin")) {}

  std::vector<float> trunk(const TrunkTensor& t) const {
    const RowBytes row = row_bytes(t.format, t.cols()).value();
    const char* codes = trunk_.data() + t.offset_bytes;
    const char* scales = codes + t.rows() * row.codes;
    return matrix_values(t.format, t.rows(), t.cols(), codes, scales,
                         scales + t.rows() * row.scales);
  }

  std::vector<float> expert(uint32_t layer, uint32_t expert, ExpertMatrix matrix) {
    const ExpertLayout& layout = container_.manifest().experts;
    const MatrixPlanes& at = layout.planes(matrix);
    const MatrixShape shape = expert_matrix_shape(container_.spec(), matrix);
    const char* record = record_of(layer, expert);
    return matrix_values(layout.format.of(matrix), shape.rows, shape.cols, record + at.codes,
                         record + at.scales, record + at.biases);
  }

  std::vector<float> expert_bias(uint32_t layer, uint32_t expert, ExpertMatrix matrix) {
    const uint64_t rows = expert_matrix_shape(container_.spec(), matrix).rows;
    const auto at = container_.manifest().experts.planes(matrix).linear_bias;
    return matrix_values(DType::bf16, 1, rows, record_of(layer, expert) + at.value(), nullptr,
                         nullptr);
  }

 private:
  const char* record_of(uint32_t layer, uint32_t expert) {
    if (layers_.empty() || layer_ != layer)
      layers_ = read_bytes(container_.directory() / expert_file_name(layer));
    layer_ = layer;
    return layers_.data() + expert * container_.manifest().experts.stride_bytes;
  }

  const Container& container_;
  std::string trunk_, layers_;
  uint32_t layer_ = 0;
};

inline double snr_db(const std::vector<float>& exact, const std::vector<float>& stored) {
  double signal = 0, noise = 0;
  EXPECT_EQ(exact.size(), stored.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    const double difference = double{exact[i]} - stored[i];
    signal += double{exact[i]} * exact[i];
    noise += difference * difference;
  }
  return noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / noise);
}

// A file of planes of random bits that mean finite values, and the sources that stand in it.
class SourceBuilder {
 public:
  explicit SourceBuilder(uint32_t seed) : random_(seed) {}

  // A source in one piece or several, some with rows apart, steps, pairs; each piece in one of
  // `formats`. `joined` is what holds all of them.
  TensorSource add(uint64_t rows, uint64_t cols, const std::vector<MatrixFormat>& formats,
                   const MatrixFormat& joined) {
    TensorSource source{rows, cols, joined, {}, 0};
    const uint64_t steps = rows > 3 ? 1 + random_() % 3 : 1;
    for (uint64_t from = 0; from < steps; ++from) {
      uint64_t left = (rows - from + steps - 1) / steps, to = from;
      while (left > 0) {
        const uint64_t n = random_() % 3 == 0 ? left : 1 + random_() % left;
        source.pieces.push_back(piece(formats[random_() % formats.size()], n, cols));
        source.pieces.back().to_row = to;
        source.pieces.back().to_step = steps;
        to += n * steps;
        left -= n;
      }
    }
    return source;
  }

  const std::string& bytes() const { return bytes_; }

 private:
  SourceRows piece(const MatrixFormat& format, uint64_t rows, uint64_t cols) {
    const RowBytes row = row_bytes(format, cols).value();
    SourceRows out;
    out.format = format;
    out.rows = rows;
    out.paired_scales = is_affine(format.dtype) && random_() % 3 == 0;
    const DType plain = is_plain_float(format.dtype) ? format.dtype : DType::u8;
    out.codes = plane(rows, row.codes, plain);
    const DType scales = format.dtype == DType::mxfp4 ? DType::mxfp4 : format.scales;
    if (row.scales > 0) out.scales = plane(rows, row.scales * (out.paired_scales ? 2 : 1), scales);
    if (row.biases > 0 && !out.paired_scales) out.biases = plane(rows, row.biases, scales);
    return out;
  }

  SourcePlane plane(uint64_t rows, uint64_t row, DType dtype) {
    if (random_() % 2 == 0) bytes_.append(random_() % 5, '\xee');
    const uint64_t apart = random_() % 4 == 0 ? 1 + random_() % 7 : 0;
    const SourcePlane out{0, bytes_.size(), row + apart};
    for (uint64_t r = 0; r < rows; ++r) {
      for (uint64_t at = 0; at < row;) at += append_value(dtype);
      bytes_.append(apart, '\xee');
    }
    return out;
  }

  uint64_t append_value(DType dtype) {
    const float value = normal_(random_);
    const auto append = [&](const auto& bits) {
      bytes_.append(reinterpret_cast<const char*>(&bits), sizeof bits);
      return sizeof bits;
    };
    if (dtype == DType::f32) return append(value);
    if (dtype == DType::bf16) return append(f32_to_bf16(value));
    if (dtype == DType::f16) return append(f32_to_f16(value));
    if (dtype == DType::mxfp4) return append(static_cast<uint8_t>(118 + random_() % 5));
    return append(static_cast<uint8_t>(random_() % 256));
  }

  std::mt19937 random_;
  std::normal_distribution<float> normal_{0, 0.05f};
  std::string bytes_;
};

}  // namespace wader::testing
