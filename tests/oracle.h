// Oracle: the forward pass of a released checkpoint as the papers write it, in double precision,
// one token after the other. It shares no line with src/, so a fault there cannot be a fault here;
// tests/data/ holds outputs of the reference implementation, which prove it in its turn.
//
// Families: gpt_oss, qwen3_moe, qwen3_next, qwen3_5_moe, from config.json and safetensors files.
// What it does not know it does not guess: unknown settings and tensors that are missing, left over
// or of another shape are thrown as std::runtime_error. Settings that are absent have the values
// that Hugging Face transformers 5.17 gives them. Checkpoints are trusted otherwise.
//
// A loaded Oracle is constant: forward() may run in several threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

namespace wader::testing {

namespace oracle {
struct Model;
}

class Oracle {
 public:
  // `config_patch` is merged into config.json (RFC 7396: null removes a key) before it is read.
  static Oracle load(const std::filesystem::path& checkpoint,
                     const nlohmann::ordered_json& config_patch = nlohmann::ordered_json::object());

  struct Output {
    // [t - first_logits][vocab]
    std::vector<std::vector<double>> logits;
    // [layer][t][k], the largest weight first; [layer] is empty where the layer is dense.
    std::vector<std::vector<std::vector<int>>> router_ids;
    std::vector<std::vector<std::vector<double>>> router_weights;
    // [layer][t]: by how much the last logit that was chosen exceeds the first that was not. Where
    // it is as small as the rounding of another implementation, that may choose otherwise.
    std::vector<std::vector<double>> router_margins;
    // [layer + 1][t][hidden]: the embedding, then each layer's output; of the last layer's, the
    // final norm.
    std::vector<std::vector<std::vector<double>>> hidden;
  };
  // All positions from 0; logits from position `first_logits` on.
  Output forward(std::span<const int32_t> tokens, size_t first_logits = 0) const;

 private:
  explicit Oracle(std::shared_ptr<const oracle::Model> model) : model_(std::move(model)) {}
  std::shared_ptr<const oracle::Model> model_;
};

}  // namespace wader::testing
