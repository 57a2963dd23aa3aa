// The oracle's model: what it computes with, in double, whatever the checkpoint calls it.
// oracle_load.cpp makes it, oracle.cpp runs it. Matrices are (out, in). Failures are thrown.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace wader::testing::oracle {

using Vector = std::vector<double>;

struct Matrix {
  size_t rows = 0, columns = 0;
  Vector values;  // row-major

  std::span<const double> row(size_t i) const {
    return std::span(values).subspan(i * columns, columns);
  }
};

struct Linear {
  Matrix weight;
  Vector bias;  // empty: none
};

struct Rope {
  Vector inverse_frequencies;  // of half of the rotated dims
  double magnitude = 1;        // of cos and sin
};

struct Attention {
  size_t heads, kv_heads, head_dim;
  Linear q, k, v, o;
  std::optional<Linear> gate;  // (heads · head_dim, hidden)
  Vector q_norm, k_norm;       // (head_dim), empty: none
  Vector sinks;                // (heads), empty: none
  size_t window;               // keys that a query sees, itself among them; 0: all
};

struct DeltaNet {
  size_t key_heads, value_heads, dk, dv;
  Linear q, k, v, z, b, a, out;  // b and a: (value_heads, hidden)
  Matrix conv;                   // (channels of q|k|v, kernel)
  Vector a_log, dt_bias;         // (value_heads)
  Vector norm;                   // (dv)
};

struct Ffn {
  Linear gate, up, down;
  std::optional<double> limit;  // clamped SwiGLU of GPT-OSS; none: SiLU
};

struct Moe {
  Linear router;
  size_t top_k;
  bool renormalise;
  std::vector<Ffn> experts;
  std::optional<Ffn> shared;
  Linear shared_gate;  // (1, hidden)
};

struct Layer {
  Vector mixer_norm, ffn_norm;
  std::optional<Attention> attention;  // this or
  std::optional<DeltaNet> delta_net;   // that
  std::optional<Moe> moe;              // this or
  std::optional<Ffn> dense;            // that
};

struct Model {
  Matrix embedding, head;  // (vocab, hidden)
  Vector final_norm;
  double norm_eps;
  Rope rope;
  std::vector<Layer> layers;
};

// As Oracle::load().
Model load_model(const std::filesystem::path& checkpoint,
                 const nlohmann::ordered_json& config_patch);

[[noreturn]] inline void fail(const std::string& what) {
  throw std::runtime_error("oracle: " + what);
}

}  // namespace wader::testing::oracle
