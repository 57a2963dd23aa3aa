// Small random checkpoints in the released layouts, in which one setting after the other departs
// from that of the fixtures: what the engine must get right although no released model has it yet.
//
// Weights are bf16 of seeded integer noise (no libm but for A_log and dt_bias), scaled so that
// logits spread by about 1.3 and routers choose with clear margins. A checkpoint is below 2 MB: a
// vocabulary of 256 or 320, config.json, generation_config.json, one safetensors file or two shards
// with an index; no tokenizer. Failures are thrown.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace wader::testing {

struct Variant {
  std::string name;
  nlohmann::ordered_json config;  // config.json
  uint32_t seed = 1;
  bool sharded = false;                // two files and an index
  bool float32_state_weights = false;  // A_log and linear_attn.norm as F32, not BF16
  double conv_deviation = 0.5;         // of the weights of conv1d
};

std::vector<Variant> all_variants();

// Writes `variant` to PARENT/NAME, which must not exist, and returns that directory. The same
// variant has the same bytes.
std::filesystem::path write_checkpoint(const Variant& variant, const std::filesystem::path& parent);

// config.json with `patch` merged into what describes the text model: the whole, or text_config.
nlohmann::ordered_json patched(nlohmann::ordered_json config, const nlohmann::ordered_json& patch);

}  // namespace wader::testing
