#include "cli/golden.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "checkpoint/safetensors_writer.h"
#include "engine/engine_testing.h"

namespace wader {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr uint32_t kVocab = 7, kHidden = 4, kLayers = 2, kTopK = 2;

ArchitectureSpec spec() {
  ArchitectureSpec s = {};
  s.family = "fake";
  s.vocab_rows = kVocab;
  s.hidden = kHidden;
  s.experts = 5;
  s.experts_per_token = kTopK;
  s.layers.assign(kLayers, LayerKind::full_attention);
  return s;
}

// A "model" whose every output is a fixed function of position and index, so that goldens can be
// written down.
float logit_at(uint64_t position, uint64_t id, int32_t token) {
  return static_cast<float>(std::sin(static_cast<double>(position * 3 + id * 5) + token));
}

class FakeSession final : public IdleSession {
 public:
  const std::vector<TokenId>& tokens() const override { return tokens_; }
  Result<Generation> generate(std::span<const TokenId> prompt,
                              const GenerateOptions& options) override {
    EXPECT_EQ(options.sampling.temperature, 0);
    Generation out;
    for (uint32_t i = 0; i < options.max_tokens; ++i) {
      out.ids.push_back(static_cast<TokenId>((prompt.back() + 1 + i) % kVocab));
    }
    return out;
  }
  Status evaluate(std::span<const TokenId> tokens, uint32_t first,
                  const std::function<void(uint32_t, std::span<const float>)>& on_logits,
                  Capture* capture) override {
    tokens_.assign(tokens.begin(), tokens.end());
    const uint64_t total = tokens.size();
    for (uint64_t p = first; p < total; ++p) {
      std::vector<float> row(kVocab);
      for (uint64_t i = 0; i < kVocab; ++i) row[i] = logit_at(p, i, tokens[p]);
      on_logits(static_cast<uint32_t>(p), row);
    }
    if (capture == nullptr) return {};
    capture->hidden.resize((kLayers + 1) * total * kHidden);
    for (size_t i = 0; i < capture->hidden.size(); ++i)
      capture->hidden[i] = static_cast<float>(i) * 0.25f;
    capture->router_indices.resize(kLayers * total * kTopK);
    capture->router_weights.resize(kLayers * total * kTopK);
    for (size_t i = 0; i < capture->router_indices.size(); ++i) {
      capture->router_indices[i] = static_cast<int32_t>((i * 2) % 5);
      capture->router_weights[i] = i % 2 == 0 ? 0.75f : 0.25f;
    }
    return {};
  }
  void reset() override { tokens_.clear(); }

 private:
  std::vector<TokenId> tokens_;
};

class GoldenTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "wader-golden-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    FakeSession session;
    const auto keep = [&](uint32_t, std::span<const float> row) {
      logits_.insert(logits_.end(), row.begin(), row.end());
    };
    ASSERT_TRUE(session.evaluate(ids_, 0, keep, &capture_).ok());
    last_logits_.assign(logits_.end() - 2 * kVocab, logits_.end());
  }
  void TearDown() override { fs::remove_all(directory_); }

  // Writes everything there is, in its present (perhaps spoilt) state, and checks it.
  Result<GoldenReport> check() {
    const uint64_t total = ids_.size();
    const fs::path path = directory_ / "golden.safetensors";
    auto writer =
        SafetensorsWriter::create(path, {{"a.input_ids", DType::i32, {total}},
                                         {"a.logits", DType::f32, {total, kVocab}},
                                         {"a.hidden", DType::f32, {kLayers + 1, total, kHidden}},
                                         {"a.router_indices", DType::i32, {kLayers, total, kTopK}},
                                         {"a.router_weights", DType::f32, {kLayers, total, kTopK}},
                                         {"b.input_ids", DType::i32, {total}},
                                         {"b.logits_last2", DType::f32, {2, kVocab}},
                                         {"g.prompt", DType::i32, {2}},
                                         {"g.continuation", DType::i32, {3}},
                                         {"g.margin", DType::f32, {3}},
                                         {"counts", DType::f32, {1}}})
            .value();
    const auto write = [&](const std::string& name, const auto& values) {
      ASSERT_TRUE(writer.write(name, 0, std::as_bytes(std::span(values))).ok()) << name;
    };
    write("a.input_ids", ids_);
    write("b.input_ids", ids_);
    write("a.logits", logits_);
    write("b.logits_last2", last_logits_);
    write("a.hidden", capture_.hidden);
    write("a.router_indices", capture_.router_indices);
    write("a.router_weights", capture_.router_weights);
    write("g.prompt", std::vector<int32_t>{1, 2});
    write("g.continuation", continuation_);
    write("g.margin", margin_);
    if (!writer.finish().ok()) return not_compared("write");
    ASSIGN_OR_RETURN(const GoldenFile golden, GoldenFile::open(path));
    EXPECT_EQ(golden.context_tokens(), 5u);  // prompt and continuation together
    FakeSession session;
    return check_golden(golden, spec(), session, GoldenLimits());
  }
  static Error not_compared(std::string what) { return {ErrorCode::io, std::move(what)}; }

  // Names of the lines that failed.
  std::vector<std::string> failures() {
    const auto report = check();
    EXPECT_TRUE(report.ok()) << report.error().message;
    std::vector<std::string> names;
    for (const GoldenLine& line : report->lines) {
      if (!line.ok()) names.push_back(line.name);
    }
    EXPECT_EQ(report->ok(), names.empty());
    return names;
  }

  fs::path directory_;
  std::vector<int32_t> ids_ = {3, 1, 4};
  std::vector<float> logits_, last_logits_;
  Capture capture_;
  std::vector<int32_t> continuation_ = {3, 4, 5};
  std::vector<float> margin_ = {1, 1, 1};
};

TEST_F(GoldenTest, WhatAgreesPasses) {
  const auto report = check();
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_TRUE(report->ok());
  EXPECT_EQ(report->lines.size(), 6u);  // a: 4, b: 1, g: 1
  EXPECT_THAT(report->not_compared, testing::ElementsAre("counts"));
}

TEST_F(GoldenTest, EachKindOfDifferenceIsSeen) {
  logits_[8] += 0.0021f;
  EXPECT_THAT(failures(), testing::ElementsAre("a.logits"));
  logits_[8] -= 0.0002f;
  EXPECT_THAT(failures(), testing::IsEmpty());
  last_logits_[0] += 1;
  EXPECT_THAT(failures(), testing::ElementsAre("b.logits_last2"));
  last_logits_[0] -= 1;
  capture_.hidden.back() *= 1.01f;
  EXPECT_THAT(failures(), testing::ElementsAre("a.hidden"));
  capture_.hidden.back() /= 1.01f;
  capture_.router_weights[3] += 0.001f;
  EXPECT_THAT(failures(), testing::ElementsAre("a.router_weights"));
  capture_.router_weights[3] -= 0.001f;
  capture_.router_indices[5] = 1;
  EXPECT_THAT(failures(), testing::Contains("a.router_indices"));
}

TEST_F(GoldenTest, ANanNeverPasses) {
  logits_[2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(failures(), testing::ElementsAre("a.logits"));
}

TEST_F(GoldenTest, RoutersAreComparedAsSets) {
  std::swap(capture_.router_indices[0], capture_.router_indices[1]);
  std::swap(capture_.router_weights[0], capture_.router_weights[1]);
  EXPECT_THAT(failures(), testing::IsEmpty());
}

TEST_F(GoldenTest, GreedyIdsCountUpToTheFirstTie) {
  continuation_ = {3, 6, 5};
  EXPECT_THAT(failures(), testing::ElementsAre("g"));
  margin_ = {1, 0.0005f, 1};
  EXPECT_THAT(failures(), testing::IsEmpty());
}

TEST_F(GoldenTest, AnotherModelsFileIsRefused) {
  ArchitectureSpec other = spec();
  other.vocab_rows = 9;
  ASSERT_TRUE(check().ok());
  const GoldenFile golden = GoldenFile::open(directory_ / "golden.safetensors").value();
  FakeSession session;
  const auto report = check_golden(golden, other, session, GoldenLimits());
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.error().message, HasSubstr("belongs to another"));
}

TEST_F(GoldenTest, LikelihoodOfASequence) {
  ASSERT_TRUE(check().ok());
  const GoldenFile golden = GoldenFile::open(directory_ / "golden.safetensors").value();
  double want = 0;
  for (size_t p = 0; p + 1 < ids_.size(); ++p) {
    double sum = 0;
    for (uint64_t i = 0; i < kVocab; ++i) sum += std::exp(logit_at(p, i, ids_[p]));
    want -= logit_at(p, static_cast<uint64_t>(ids_[p + 1]), ids_[p]) - std::log(sum);
  }
  want /= 2;
  const auto check_value = [&](double value) {
    FakeSession session;
    const Json json = {{"a.nll", value}, {"note", "text"}};
    return check_nll({json, golden, nullptr}, session, GoldenLimits());
  };
  EXPECT_TRUE(check_value(want)->ok());
  EXPECT_EQ(check_value(want)->lines[0].compared, 2u);
  EXPECT_TRUE(check_value(want * 1.0019)->ok());
  EXPECT_FALSE(check_value(want * 1.0025)->ok());
  FakeSession session;
  EXPECT_FALSE(check_nll({Json::object(), golden, nullptr}, session, GoldenLimits()).ok());
  const Json heldout = {{"heldout", Json::object()}};
  EXPECT_THAT(check_nll({heldout, golden, nullptr}, session, GoldenLimits()).error().message,
              HasSubstr("tokenizer"));
}

TEST(GoldenParts, Numbers) {
  const std::vector<float> a = {1, 2, 3}, b = {1, 2.5f, 2.75f};
  EXPECT_EQ(max_abs_difference(a, a), 0);
  EXPECT_EQ(max_abs_difference(a, b), 0.5);
  const std::vector<int32_t> x = {1, 2, 3, 4}, y = {2, 1, 3, 5};
  EXPECT_EQ(differing_sets(x, y, 2), 1u);
  EXPECT_EQ(differing_sets(x, y, 4), 1u);
  const std::vector<float> margin = {1, 0.01f, 0.0001f};
  const std::vector<int32_t> want = {5, 6, 7};
  const auto compare = [&](std::vector<int32_t> got) {
    return compare_greedy(got, want, margin, 1e-3);
  };
  EXPECT_EQ(compare({5, 6, 9}).first_wrong, -1);
  EXPECT_EQ(compare({5, 6, 9}).compared, 2u);
  EXPECT_EQ(compare({5, 9, 7}).first_wrong, 1);
  EXPECT_EQ(compare({5}).first_wrong, 1);  // stopped too early
  const std::vector<float> logits = {0, std::log(3.0f)};
  EXPECT_NEAR(negative_log_likelihood(logits, 1), -std::log(0.75), 1e-6);
  const std::vector<float> huge = {3e38f, -3e38f};
  EXPECT_EQ(negative_log_likelihood(huge, 0), 0);
}

}  // namespace
}  // namespace wader
