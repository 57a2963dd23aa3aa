// The oracle against outputs of the reference implementation (tests/data/README.md), and the
// variants against the oracle: every one computes, and no switch in them is dead.
#include "oracle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "base/sanitized_testing.h"
#include "oracle_safetensors.h"
#include "oracle_variants.h"

namespace wader::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using ::testing::ThrowsMessage;

// golden.json grants 2e-3 to float32 arithmetic. What is left in double is the rounding of the
// reference, which computes in float32.
constexpr double kLogitLimit = 2e-4;
constexpr double kWeightLimit = 1e-4;

using Rows = std::vector<std::vector<double>>;

double largest_difference(const Rows& a, const Rows& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (size_t t = 0; t < a.size(); ++t) {
    if (a[t].size() != b[t].size()) return INFINITY;
    for (size_t i = 0; i < a[t].size(); ++i)
      largest = std::max(largest, std::abs(a[t][i] - b[t][i]));
  }
  return largest;
}

// Pairs of id and weight.
MATCHER(SameExpert, "") {
  const auto& [got, want] = arg;
  return got.first == want.first && std::abs(got.second - want.second) < kWeightLimit;
}

// ---- Fixtures ----

class Fixture : public ::testing::TestWithParam<const char*> {
 protected:
  fs::path directory() const { return fs::path(WADER_SOURCE_DIR "/tests/data") / GetParam(); }

  const RawTensor& golden(const std::string& name) const { return golden_.at(name); }

  std::vector<int32_t> tokens(const std::string& name) const {
    const auto values = values_of(golden(name));
    return {values.begin(), values.end()};
  }

  // The innermost rows of a golden tensor, counted through all outer dims.
  Rows rows(const std::string& name) const {
    const auto values = values_of(golden(name));
    const size_t columns = golden(name).shape.back();
    Rows rows;
    for (size_t i = 0; i < values.size(); i += columns)
      rows.emplace_back(values.begin() + i, values.begin() + i + columns);
    return rows;
  }

  void expect_near(const std::string& name, const Rows& got, double limit = kLogitLimit) {
    const double difference = largest_difference(got, rows(name));
    std::printf("%-24s %.2g\n", name.c_str(), difference);
    EXPECT_LT(difference, limit) << name;
  }

  // Sets of experts of the last positions, and their weights where the golden file has them.
  void expect_same_routing(const std::string& indices, const std::string& weights,
                           const Oracle::Output& out) {
    const size_t last = golden(indices).shape[1];
    const Rows want_ids = rows(indices), want_weights = weights.empty() ? Rows() : rows(weights);
    ASSERT_EQ(want_ids.size(), out.router_ids.size() * last);
    for (size_t r = 0; r < want_ids.size(); ++r) {
      const auto& layer_ids = out.router_ids[r / last];
      const size_t t = layer_ids.size() - last + r % last;
      std::map<int, double> want, got;
      for (size_t j = 0; j < want_ids[r].size(); ++j)
        want[static_cast<int>(want_ids[r][j])] = want_weights.empty() ? 0 : want_weights[r][j];
      for (size_t j = 0; j < layer_ids[t].size(); ++j)
        got[layer_ids[t][j]] = want_weights.empty() ? 0 : out.router_weights[r / last][t][j];
      EXPECT_THAT(got, Pointwise(SameExpert(), want))
          << indices << " layer " << r / last << " position " << t;
    }
  }

  const RawTensors golden_ = read_safetensors(directory() / "golden.safetensors");
  const Oracle oracle_ = Oracle::load(directory());
};

TEST_P(Fixture, ShortPrompt) {
  const auto out = oracle_.forward(tokens("short.input_ids"));
  expect_near("short.logits", out.logits);
  Rows hidden;
  for (const Rows& layer : out.hidden) hidden.insert(hidden.end(), layer.begin(), layer.end());
  expect_near("short.hidden", hidden);
  expect_same_routing("short.router_indices", "short.router_weights", out);
}

TEST_P(Fixture, PromptOneTokenLongerThanAWindow) {
  const auto out = oracle_.forward(tokens("long129.input_ids"), 129 - 8);
  expect_near("long129.logits_last8", out.logits);
  expect_same_routing("long129.router_indices_last8", "", out);
}

TEST_P(Fixture, LongPrompt) {
  if (kSanitized) GTEST_SKIP() << "slow under a sanitizer";
  const auto ids = tokens("long700.input_ids");
  const auto out = oracle_.forward(ids);
  expect_near("long700.logits_last8", {out.logits.end() - 8, out.logits.end()});
  expect_same_routing("long700.router_indices_last8", "", out);

  double log_likelihood = 0;
  for (size_t t = 0; t + 1 < ids.size(); ++t) {
    double sum = 0;
    for (const double logit : out.logits[t]) sum += std::exp(logit);
    log_likelihood += out.logits[t][ids[t + 1]] - std::log(sum);
  }
  std::ifstream file(directory() / "golden.json");
  const double nll = Json::parse(file).at("long700.nll");
  EXPECT_NEAR(-log_likelihood / static_cast<double>(ids.size() - 1), nll, 1e-5);
}

// The largest logit after the prompt and after each token of the continuation is the next of its
// tokens: by induction, greedy decoding gives the continuation.
TEST_P(Fixture, GreedyContinuation) {
  const auto prompt = tokens("greedy.prompt");
  auto continuation = tokens("greedy.continuation");
  ASSERT_EQ(continuation.size(), 64u);
  if (kSanitized) continuation.resize(24);
  auto ids = prompt;
  ids.insert(ids.end(), continuation.begin(), continuation.end() - 1);
  std::vector<int32_t> chosen;
  for (const auto& logits : oracle_.forward(ids, prompt.size() - 1).logits)
    chosen.push_back(
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  EXPECT_EQ(chosen, continuation);
}

// The state of DeltaNet over thousands of tokens, in seconds: few of these layers attend to all.
// The other families would take a minute.
class HybridFixture : public Fixture {};

TEST_P(HybridFixture, FarPosition) {
  if (kSanitized) GTEST_SKIP() << "slow under a sanitizer";
  expect_near("far.logits_last2", oracle_.forward(tokens("far.input_ids"), 5000 - 2).logits);
}

std::string test_name(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::erase_if(name, [](char c) { return !std::isalnum(c); });
  return name;
}

INSTANTIATE_TEST_SUITE_P(Oracle, Fixture,
                         ::testing::Values("tiny-gpt-oss", "tiny-qwen3-moe", "tiny-qwen3-next",
                                           "tiny-qwen3.5-moe"),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Oracle, HybridFixture,
                         ::testing::Values("tiny-qwen3-next", "tiny-qwen3.5-moe"), test_name);

// ---- Variants ----

// Every variant, written once a process.
class Variants : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string pattern = fs::temp_directory_path() / "wader-oracle-";
    pattern.append(6, 'X');
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    for (const Variant& variant : all_variants()) write_checkpoint(variant, root_);
  }
  static void TearDownTestSuite() { fs::remove_all(root_); }

  // The logits of 40 tokens, with `patch` merged into the text model's part of config.json.
  static Rows logits(const std::string& name, const std::string& patch = "{}") {
    std::ifstream file(root_ / name / "config.json");
    Json config_patch = Json::parse(patch);
    if (Json::parse(file).contains("text_config")) config_patch = {{"text_config", config_patch}};
    std::vector<int32_t> tokens(40);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i * 7 % 251);
    return Oracle::load(root_ / name, config_patch).forward(tokens).logits;
  }

  static std::string text_of(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(root_ / path, std::ios::binary).rdbuf();
    return text.str();
  }

  static inline fs::path root_;
};

TEST_F(Variants, AllComputeLogitsThatSpreadAsThoseOfTheFixtures) {
  for (const Variant& variant : all_variants()) {
    SCOPED_TRACE(variant.name);
    double squares = 0, count = 0;
    for (const auto& row : logits(variant.name)) {
      for (const double logit : row) {
        ASSERT_TRUE(std::isfinite(logit));
        squares += logit * logit;
        count += 1;
      }
    }
    EXPECT_NEAR(std::sqrt(squares / count), 1.3, 0.1);
  }
}

TEST_F(Variants, AreSmallAndTheSameEveryTime) {
  const auto again = root_ / "again";
  for (const Variant& variant : all_variants()) {
    const auto second = write_checkpoint(variant, again);
    uint64_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(second)) {
      const auto name = entry.path().filename();
      EXPECT_EQ(text_of(fs::path(variant.name) / name), text_of("again" / (variant.name / name)));
      bytes += entry.file_size();
    }
    EXPECT_LE(bytes, 2u << 20) << variant.name;
    if (kSanitized) break;
  }
}

TEST_F(Variants, NoSwitchIsDead) {
  const std::pair<const char*, const char*> switches[] = {
      {"gpt-oss-short-window", R"({"sliding_window": 21})"},
      {"gpt-oss-short-window", R"({"rope_scaling": {"factor": 16.0}})"},
      {"gpt-oss-short-window", R"({"rope_scaling": {"beta_fast": 16.0}})"},
      {"gpt-oss-short-window", R"({"rope_scaling": null})"},
      {"gpt-oss-short-window", R"({"num_experts_per_tok": 3})"},
      {"gpt-oss-rope-parameters", R"({"swiglu_limit": 7.0})"},
      {"gpt-oss-rope-parameters", R"({"layer_types": null})"},
      {"qwen3-moe-renormalised", R"({"norm_topk_prob": false})"},
      {"qwen3-moe-renormalised", R"({"rope_theta": 10000.0})"},
      {"qwen3-moe-renormalised", R"({"partial_rotary_factor": 0.5})"},
      {"qwen3-moe-renormalised", R"({"rms_norm_eps": 0.01})"},
      {"qwen3-next-interval-2", R"({"norm_topk_prob": false})"},
      {"qwen3-next-interval-2", R"({"partial_rotary_factor": 0.5})"},
      {"qwen3-next-half-rotary", R"({"partial_rotary_factor": 1.0})"},
      {"qwen3.5-moe-full-rotary", R"({"rope_parameters": {"partial_rotary_factor": 0.25}})"},
      {"qwen3.5-moe-narrow-keys", R"({"rope_parameters": {"rope_theta": 10000}})"},
  };
  for (const auto& [name, patch] : switches)
    EXPECT_GT(largest_difference(logits(name), logits(name, patch)), 0.01) << name << patch;
}

TEST_F(Variants, AbsentMeansWhatTheFamilySays) {
  const std::pair<const char*, const char*> same[] = {
      {"qwen3-moe-not-renormalised", R"({"norm_topk_prob": null})"},
      {"qwen3-next-interval-2", R"({"norm_topk_prob": null})"},
      {"qwen3-next-interval-2", R"({"partial_rotary_factor": null})"},
      {"qwen3-next-interval-2", R"({"layer_types": ["linear_attention", "full_attention",
                                                    "linear_attention", "full_attention"]})"},
      {"qwen3.5-moe-narrow-keys", R"({"rope_parameters": {"mrope_section": null}})"},
      {"gpt-oss-short-window", R"({"layer_types": null})"},
      {"gpt-oss-short-window", R"({"attention_bias": null})"},
  };
  for (const auto& [name, patch] : same)
    EXPECT_EQ(logits(name), logits(name, patch)) << name << patch;
}

// Three checkpoints with the same weights.
TEST_F(Variants, RenormalisationIsTheConfigsAlone) {
  const auto weights = [](const char* name) {
    return text_of(fs::path(name) / "model.safetensors");
  };
  EXPECT_EQ(weights("qwen3-moe-renormalised"), weights("qwen3-moe-not-renormalised"));
  EXPECT_EQ(weights("qwen3-moe-renormalised"), weights("qwen3-moe-renormalised-absent"));
  const Rows no = logits("qwen3-moe-not-renormalised");
  EXPECT_GT(largest_difference(logits("qwen3-moe-renormalised"), no), 0.01);
  EXPECT_EQ(logits("qwen3-moe-renormalised-absent"), no);
}

TEST_F(Variants, DenseLayersHaveNoRouter) {
  const std::vector<int32_t> tokens = {3, 1, 4};
  const auto sparse_layers = [&](const char* name) {
    std::vector<size_t> layers;
    const auto ids = Oracle::load(root_ / name).forward(tokens).router_ids;
    for (size_t i = 0; i < ids.size(); ++i)
      if (!ids[i].empty()) layers.push_back(i);
    return layers;
  };
  using Layers = std::vector<size_t>;
  EXPECT_EQ(sparse_layers("qwen3-moe-first-layer-dense"), (Layers{1, 2}));
  EXPECT_EQ(sparse_layers("qwen3-moe-sparse-step"), (Layers{1}));
  EXPECT_EQ(sparse_layers("qwen3-next-dense-layer"), (Layers{0, 2, 3}));
}

TEST_F(Variants, WhatIsUnknownIsNotGuessed) {
  const auto expect_refusal = [](const char* name, const char* patch, const char* message) {
    EXPECT_THAT([&] { logits(name, patch); },
                ThrowsMessage<std::runtime_error>(HasSubstr(message)));
  };
  expect_refusal("qwen3-moe-renormalised", R"({"model_type": "mixtral"})", "model_type mixtral");
  expect_refusal("qwen3-moe-renormalised", R"({"hidden_act": "gelu"})", "hidden_act");
  expect_refusal("qwen3-moe-renormalised", R"({"use_sliding_window": true})", "sliding_window");
  expect_refusal("qwen3-moe-renormalised",
                 R"({"layer_types": ["full_attention", "chunked", "full_attention"]})", "chunked");
  expect_refusal("qwen3-moe-renormalised",
                 R"({"rope_scaling": {"rope_type": "linear", "factor": 2}})", "rope_type linear");
  expect_refusal("gpt-oss-short-window", R"({"rope_scaling": {"truncate": null}})", "rounded");
  expect_refusal("gpt-oss-short-window", R"({"rope_scaling": {"mscale": 1}})", "mscale");
  // Tensors and config do not fit.
  expect_refusal("qwen3-moe-renormalised", R"({"tie_word_embeddings": true})", "lm_head");
  expect_refusal("qwen3-moe-attention-bias", R"({"attention_bias": false})", "k_proj.bias");
  expect_refusal("qwen3-moe-renormalised", R"({"attention_bias": true})", "q_proj.bias");
  expect_refusal("qwen3-moe-renormalised", R"({"num_experts": 11})", "shape");
  expect_refusal("qwen3-next-interval-2", R"({"full_attention_interval": 3})", "linear_attn");
}

}  // namespace
}  // namespace wader::testing
