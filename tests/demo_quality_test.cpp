// The demo's held-out texts: the reference's negative log-likelihood per topic within 0.2 % with a
// bf16 trunk; the default trunk (affine8) within 0.5 % of the same, and within 1e-3 nats of mean KL
// divergence from the bf16 one.

#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "io/file.h"
#include "test_models.h"

namespace wader {
namespace {

using testing::open_engine;
using testing::open_session;

constexpr uint32_t kTextTokens =
    600;  // MODEL_CARD.md: <|startoftext|> and the first 600 tokens of each text

std::unique_ptr<Engine> demo_engine(DType trunk) {
  EngineOptions options;
  options.memory_bytes = 512u << 20;
  options.kernels = "ref";
  options.context = 1024;
  return open_engine(testing::demo_container(trunk), options);
}

std::vector<double> log_softmax(std::span<const float> logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float l : logits) sum += std::exp(l - max);
  std::vector<double> out(logits.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = logits[i] - max - std::log(sum);
  return out;
}

struct Totals {
  double bf16 = 0, affine8 = 0, kl = 0;  // nats
  uint64_t predicted = 0;
  void add(const Totals& other) {
    bf16 += other.bf16;
    affine8 += other.affine8;
    kl += other.kl;
    predicted += other.predicted;
  }
};

Totals compare_text(const std::vector<TokenId>& ids, Session& exact, Session& quantised) {
  Totals totals;
  std::vector<std::vector<double>> log_p(ids.size());
  const auto first = exact.evaluate(
      ids, 0, [&](uint32_t t, std::span<const float> logits) { log_p[t] = log_softmax(logits); },
      nullptr);
  EXPECT_TRUE(first.ok()) << first.error().message;
  const auto second = quantised.evaluate(
      ids, 0,
      [&](uint32_t t, std::span<const float> logits) {
        if (t + 1 == ids.size()) return;
        const std::vector<double> log_q = log_softmax(logits);
        totals.bf16 -= log_p[t][ids[t + 1]];
        totals.affine8 -= log_q[ids[t + 1]];
        for (size_t i = 0; i < log_q.size(); ++i)
          totals.kl += std::exp(log_p[t][i]) * (log_p[t][i] - log_q[i]);
        ++totals.predicted;
      },
      nullptr);
  EXPECT_TRUE(second.ok()) << second.error().message;
  return totals;
}

TEST(DemoQuality, HeldOutTexts) {
  const auto text = read_text_file(WADER_SOURCE_DIR "/tests/data/demo/golden.json", 1 << 24);
  ASSERT_TRUE(text.ok()) << text.error().message;
  const Json golden = parse_json(*text, "golden.json").value();
  const auto exact_engine = demo_engine(DType::bf16),
             quantised_engine = demo_engine(DType::affine8);
  const auto exact = open_session(*exact_engine), quantised = open_session(*quantised_engine);
  const Tokenizer& tokenizer = *exact_engine->tokenizer();

  Totals all;
  ASSERT_EQ(golden["heldout"].size(), 13u);
  for (const auto& [topic, entry] : golden["heldout"].items()) {
    Totals totals;
    for (const Json& sample : entry["texts"]) {
      std::vector<TokenId> ids = {*tokenizer.added_token("<|startoftext|>")};
      ASSERT_TRUE(tokenizer.encode(sample.get<std::string>(), Tokenizer::Markup::off, ids).ok());
      ids.resize(std::min<size_t>(ids.size(), 1 + kTextTokens));
      totals.add(compare_text(ids, *exact, *quantised));
    }
    const double bf16 = totals.bf16 / static_cast<double>(totals.predicted);
    const double affine8 = totals.affine8 / static_cast<double>(totals.predicted);
    const double reference = entry["nll_per_token"].get<double>();
    EXPECT_EQ(totals.predicted, entry["tokens"].get<uint64_t>()) << topic;
    EXPECT_LT(std::fabs(bf16 / reference - 1), 2e-3) << topic;
    EXPECT_LT(std::fabs(affine8 / bf16 - 1), 5e-3) << topic;
    std::printf("%-14s reference %.6f  bf16 %.6f  affine8 %.6f  KL %.2e\n", topic.c_str(),
                reference, bf16, affine8, totals.kl / static_cast<double>(totals.predicted));
    all.add(totals);
  }
  const double kl = all.kl / static_cast<double>(all.predicted);
  std::printf("all            %llu tokens, mean KL %.2e nats\n",
              static_cast<unsigned long long>(all.predicted), kl);
  EXPECT_GE(kl, 0);
  EXPECT_LT(kl, 1e-3);
}

}  // namespace
}  // namespace wader
