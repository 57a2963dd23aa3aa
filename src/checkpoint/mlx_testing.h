// For tests: MLX checkpoints made from plain ones, with the values that they then have.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/raw_testing.h"

namespace wader::testing {

// Values by plain released name: text parts without nesting ("model.layers.0.…"), experts each on
// their own ("mlp.experts.3.gate_proj.weight"), conv1d as (C, K).
struct Values {
  std::vector<uint64_t> shape;
  std::vector<float> values;
};
using ValuesByName = std::map<std::string, Values>;

inline bool ends_with_any(const std::string& name, std::initializer_list<const char*> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](const char* ending) { return name.ends_with(ending); });
}

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// Of a plain Qwen checkpoint, fused experts taken apart; mtp.* and the vision tower left out.
inline ValuesByName plain_values(const RawTensors& tensors) {
  ValuesByName out;
  for (const auto& [released, tensor] : tensors) {
    if (released.starts_with("mtp.") || released.starts_with("model.visual.")) continue;
    const std::string name = replaced(released, "model.language_model.", "model.");
    const std::vector<float> values = raw_values(tensor);
    if (name.ends_with("conv1d.weight")) {
      out[name] = {{tensor.shape[0], tensor.shape[2]}, values};
    } else if (ends_with_any(name, {"experts.gate_up_proj", "experts.down_proj"})) {
      const bool fused = name.ends_with("gate_up_proj");
      const std::string stem = name.substr(0, name.rfind('.') + 1);
      const uint64_t rows = tensor.shape[1] / (fused ? 2 : 1), cols = tensor.shape[2];
      for (uint64_t e = 0; e < tensor.shape[0]; ++e)
        for (uint64_t part = 0; part < (fused ? 2 : 1); ++part) {
          const auto begin = values.begin() + static_cast<std::ptrdiff_t>(
                                                  (e * tensor.shape[1] + part * rows) * cols);
          const char* proj = !fused      ? ".down_proj.weight"
                             : part == 0 ? ".gate_proj.weight"
                                         : ".up_proj.weight";
          out[stem + std::to_string(e) + proj] = {
              {rows, cols}, {begin, begin + static_cast<std::ptrdiff_t>(rows * cols)}};
        }
    } else {
      out[name] = {tensor.shape, values};
    }
  }
  return out;
}

struct MlxFormat {
  uint64_t bits = 4, group = 32;
  std::string scales = "BF16";  // dtype of scales and biases, or "mxfp4"
};

struct MlxPlanes {
  RawTensor weight, scales, biases;  // biases without bytes in mxfp4
  std::vector<float> values;         // what the planes mean
};

// Codes of a row-major (…, cols) matrix by each group's extremes, packed into u32 from the lowest
// bits on.
inline MlxPlanes mlx_quantise(const Values& from, const MlxFormat& format) {
  const uint64_t cols = from.shape.back(), count = from.values.size();
  const auto top = static_cast<float>((1u << format.bits) - 1);
  const bool f16 = format.scales == "F16";
  const auto round = [&](float value) {
    return f16 ? f16_to_f32(f32_to_f16(value)) : bf16_to_f32(f32_to_bf16(value));
  };
  std::vector<float> scales, biases;
  MlxPlanes out;
  out.values.resize(count);
  std::string codes(count * format.bits / 8, '\0');
  const float* const in = from.values.data();
  for (size_t begin = 0; begin < count; begin += format.group) {
    const auto [low, high] = std::minmax_element(in + begin, in + begin + format.group);
    const float bias = round(*low), scale = round((*high - *low) / top);
    scales.push_back(scale), biases.push_back(bias);
    for (size_t i = begin; i < begin + format.group; ++i) {
      const float exact = scale == 0 ? 0 : std::round((in[i] - bias) / scale);
      const auto code = static_cast<unsigned>(exact < 0 ? 0 : exact > top ? top : exact);
      out.values.data()[i] = static_cast<float>(code) * scale + bias;
      const size_t bit = i * format.bits;  // little-endian words: bytes in order
      codes.data()[bit / 8] = static_cast<char>(codes.data()[bit / 8] | code << bit % 8);
    }
  }
  std::vector<uint64_t> shape = from.shape;
  shape.back() = cols * format.bits / 32;
  out.weight = {"U32", shape, std::move(codes)};
  shape.back() = cols / format.group;
  out.scales = raw_tensor(format.scales, shape, scales);
  out.biases = raw_tensor(format.scales, shape, biases);
  return out;
}

// MXFP4 codes nearest to the values, with the smallest scale that holds the block.
inline MlxPlanes mxfp4_quantise(const Values& from) {
  MlxPlanes out;
  out.values.resize(from.values.size());
  std::string codes(from.values.size() / 2, '\0'), scales;
  for (size_t begin = 0; begin < from.values.size(); begin += 32) {
    float top = 0;
    for (size_t i = 0; i < 32; ++i) top = std::max(top, std::abs(from.values[begin + i]));
    const int exponent = top == 0 ? 0 : static_cast<int>(std::ceil(std::log2(top / 6)));
    scales.push_back(static_cast<char>(exponent + 127));
    const float scale = std::ldexp(1.f, exponent);
    for (size_t i = begin; i < begin + 32; ++i) {
      const float wanted = from.values.data()[i] / scale;
      unsigned best = wanted < 0 ? 8 : 0;
      for (unsigned code = best; code < (wanted < 0 ? 16 : 8); ++code)
        if (std::abs(kE2M1[code] - wanted) < std::abs(kE2M1[best] - wanted)) best = code;
      out.values.data()[i] = kE2M1[best] * scale;
      codes[i / 2] = static_cast<char>(codes[i / 2] | best << (4 * (i % 2)));
    }
  }
  std::vector<uint64_t> shape = from.shape;
  shape.back() = from.shape.back() / 8;
  out.weight = {"U32", shape, std::move(codes)};
  shape.back() = from.shape.back() / 32;
  out.scales = {"U8", shape, std::move(scales)};
  return out;
}

// How a tensor of this plain name is stored; nothing: not quantised. Experts are asked for as
// "model.layers.N.mlp.switch_mlp.gate_proj.weight".
using MlxRule = std::function<std::optional<MlxFormat>(const std::string& name)>;

// 4 bits in groups of 32, routers and shared experts' gates 8 bits in groups of 64.
inline std::optional<MlxFormat> usual_mlx(const std::string& name) {
  if (ends_with_any(name, {"mlp.gate.weight", "shared_expert_gate.weight"}))
    return MlxFormat{8, 64};
  return MlxFormat{};
}

struct MlxOptions {
  MlxRule rule = usual_mlx;
  bool quantised = true;  // false: bf16 throughout, no `quantization`
};

class MlxWriter {
 public:
  MlxWriter(const std::filesystem::path& from, const std::filesystem::path& to,
            const MlxOptions& options)
      : from_(from), to_(to), options_(options), config_(file_json(from / "config.json")) {}

  ValuesByName write() {
    const ValuesByName plain = plain_values(read_raw(from_));
    if (options_.quantised)
      config_["quantization"] = {{"group_size", 32}, {"bits", 4}, {"mode", "affine"}};
    for (const auto& [name, tensor] : plain)
      if (name.find(".mlp.experts.") == std::string::npos)
        add(name, name, tensor);
      else if (name.find(".experts.0.") != std::string::npos)
        add_experts(name, plain);
    if (options_.quantised) config_["quantization_config"] = config_["quantization"];
    write_raw(to_, config_, tensors_);
    const auto generation = from_ / "generation_config.json";
    if (std::filesystem::exists(generation))
      write_bytes(to_ / "generation_config.json", read_bytes(generation));
    return std::move(values_);
  }

 private:
  bool zero_centred(const std::string& name) const {
    return config_["model_type"] != "qwen3_moe" && !name.ends_with("linear_attn.norm.weight") &&
           ends_with_any(name, {"norm.weight"});
  }
  // MLX's name of the tensor in a model that also sees.
  std::string nested(const std::string& name) const {
    return config_.contains("text_config") ? "language_model." + name : name;
  }

  // All experts' tensors that are like `first`, that of expert 0, as one stack.
  void add_experts(const std::string& first, const ValuesByName& plain) {
    Values stack = plain.at(first);
    uint64_t count = 1;
    for (;; ++count) {
      const auto next =
          plain.find(replaced(first, ".experts.0.", ".experts." + std::to_string(count) + "."));
      if (next == plain.end()) break;
      stack.values.insert(stack.values.end(), next->second.values.begin(),
                          next->second.values.end());
    }
    stack.shape.insert(stack.shape.begin(), count);
    const std::string name = replaced(first, ".experts.0.", ".switch_mlp.");
    add(name, name, stack);
    const Values whole = values_.extract(name).mapped();
    const uint64_t each = whole.values.size() / count;
    for (uint64_t e = 0; e < count; ++e) {
      const auto begin = whole.values.begin() + static_cast<std::ptrdiff_t>(e * each);
      values_[replaced(first, ".experts.0.", ".experts." + std::to_string(e) + ".")] = {
          {whole.shape[1], whole.shape[2]}, {begin, begin + static_cast<std::ptrdiff_t>(each)}};
    }
  }

  void add(const std::string& name, const std::string& plain_name, Values tensor) {
    const std::string released = nested(name);
    const bool matrix = tensor.shape.size() > 1 && !name.ends_with("conv1d.weight");
    const auto format = options_.quantised && matrix ? options_.rule(name) : std::nullopt;
    // MLX leaves alone what has no whole groups, without a word in the config.
    const bool whole = format && tensor.shape.back() % format->group == 0;
    if (!format || !whole) {
      if (zero_centred(name))
        for (float& value : tensor.values) value += 1;
      RawTensor raw = raw_tensor("BF16", tensor.shape, tensor.values);
      if (name.ends_with("conv1d.weight")) raw.shape.push_back(1);  // (C, K, 1)
      values_[plain_name] = {tensor.shape, raw_values(raw)};
      tensors_[released] = std::move(raw);
      if (options_.quantised && matrix && !format) override(released, false);
      return;
    }
    MlxPlanes planes =
        format->scales == "mxfp4" ? mxfp4_quantise(tensor) : mlx_quantise(tensor, *format);
    const std::string stem = released.substr(0, released.rfind('.'));
    tensors_[released] = std::move(planes.weight);
    tensors_[stem + ".scales"] = std::move(planes.scales);
    if (!planes.biases.bytes.empty()) tensors_[stem + ".biases"] = std::move(planes.biases);
    values_[plain_name] = {tensor.shape, std::move(planes.values)};
    if (format->scales == "mxfp4")
      override(released, {{"group_size", 32}, {"bits", 4}, {"mode", "mxfp4"}});
    else if (format->bits != 4 || format->group != 32)
      override(released, {{"group_size", format->group}, {"bits", format->bits}});
  }

  void override(const std::string& released, Json settings) {
    config_["quantization"][released.substr(0, released.rfind('.'))] = std::move(settings);
  }

  std::filesystem::path from_, to_;
  MlxOptions options_;
  Json config_;
  RawTensors tensors_;
  ValuesByName values_;
};

// The plain Qwen checkpoint `from` (of any layout) as MLX would convert it, into `to`. Returns the
// values by plain name as they are stored: dequantised, norms with their 1 added.
inline ValuesByName write_mlx(const std::filesystem::path& from, const std::filesystem::path& to,
                              const MlxOptions& options = {}) {
  return MlxWriter(from, to, options).write();
}

// A plain GPT-OSS checkpoint as mlx-lm converts it: experts keep their MXFP4 codes with gate and up
// apart, all other matrices become 8-bit in groups of 64. Returns the values of the trunk.
inline ValuesByName write_mlx_gpt_oss(const std::filesystem::path& from,
                                      const std::filesystem::path& to) {
  Json config = file_json(from / "config.json");
  config.erase("quantization_config");
  config["quantization"] = {{"group_size", 64}, {"bits", 8}};
  RawTensors tensors;
  ValuesByName values;
  // Every other run of `bytes` bytes, from the first or second on.
  const auto half = [](const std::string& all, uint64_t bytes, uint64_t which) {
    std::string out;
    for (uint64_t at = which * bytes; at < all.size(); at += 2 * bytes)
      out += all.substr(at, bytes);
    return out;
  };
  for (const auto& [name, tensor] : read_raw(from)) {
    const bool blocks = name.ends_with("_blocks"), scales = name.ends_with("_scales");
    if (name.find(".mlp.experts.") != std::string::npos) {
      std::vector<uint64_t> shape = tensor.shape;
      if (blocks) shape = {shape[0], shape[1], shape[2] * 4};  // 16 bytes are 4 words
      const std::string part = blocks ? "weight" : scales ? "scales" : "bias";
      const std::string stem =
          name.substr(0, name.rfind("_proj") - (name.find("gate_up") != std::string::npos ? 7 : 4));
      const auto add = [&](const std::string& projection, std::string bytes) {
        tensors[stem + projection + "." + part] = {blocks   ? "U32"
                                                   : scales ? "U8"
                                                            : "BF16",
                                                   shape, std::move(bytes)};
        config["quantization"][stem + projection] = {
            {"group_size", 32}, {"bits", 4}, {"mode", "mxfp4"}};
      };
      if (name.find("gate_up") == std::string::npos) {
        add("down_proj", tensor.bytes);
      } else {
        const uint64_t row = tensor.bytes.size() / (shape[0] * shape[1]);
        shape[1] /= 2;
        add("gate_proj", half(tensor.bytes, row, 0));
        add("up_proj", half(tensor.bytes, row, 1));
      }
    } else if (tensor.shape.size() == 2) {
      MlxPlanes planes = mlx_quantise({tensor.shape, raw_values(tensor)}, {8, 64, "BF16"});
      const std::string stem = name.substr(0, name.rfind('.'));
      tensors[stem + ".weight"] = std::move(planes.weight);
      tensors[stem + ".scales"] = std::move(planes.scales);
      tensors[stem + ".biases"] = std::move(planes.biases);
      values[name] = {tensor.shape, std::move(planes.values)};
    } else {
      values[name] = {tensor.shape, raw_values(tensor)};
      tensors[name] = tensor;
    }
  }
  write_raw(to, config, tensors);
  return values;
}

}  // namespace wader::testing
