// The demo's held-out texts: the reference's negative log-likelihood per topic within 0.2 % with a
// bf16 trunk; the default trunk (affine8) within 0.5 % of the same, and within 1e-3 nats of mean KL
// divergence from the bf16 one. The integer products against the f32 ones of `ref`, default trunk:
// NLL within 0.3 %, the same most likely token in 98.5 % of places, and greedy answers that leave
// those of ref only where its two best logits are within 0.05.

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

std::unique_ptr<Engine> demo_engine(DType trunk, const char* kernels = "ref") {
  EngineOptions options;
  options.memory_bytes = 512u << 20;
  options.kernels = kernels;
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

struct Best {
  TokenId id = 0;
  float margin = 0;  // to the second best
};

Best best_of(std::span<const float> logits) {
  const auto top = std::max_element(logits.begin(), logits.end());
  float second = -INFINITY;
  for (auto l = logits.begin(); l != logits.end(); ++l)
    if (l != top) second = std::max(second, *l);
  return {static_cast<TokenId>(top - logits.begin()), *top - second};
}

struct Totals {
  double bf16 = 0, affine8 = 0, integer = 0, kl = 0;  // nats
  uint64_t predicted = 0;
  // Places where the integer products have the same best token; of the others, those where ref's
  // margin is over 0.05, and the widest.
  uint64_t same = 0, far = 0;
  float widest_margin = 0;
  void add(const Totals& other) {
    bf16 += other.bf16;
    affine8 += other.affine8;
    integer += other.integer;
    kl += other.kl;
    predicted += other.predicted;
    same += other.same;
    far += other.far;
    widest_margin = std::max(widest_margin, other.widest_margin);
  }
};

Totals compare_text(const std::vector<TokenId>& ids, Session& exact, Session& quantised,
                    Session& integer) {
  Totals totals;
  std::vector<std::vector<double>> log_p(ids.size());
  std::vector<Best> best(ids.size());
  const auto first = exact.evaluate(
      ids, 0, [&](uint32_t t, std::span<const float> logits) { log_p[t] = log_softmax(logits); },
      nullptr);
  EXPECT_TRUE(first.ok()) << first.error().message;
  const auto second = quantised.evaluate(
      ids, 0,
      [&](uint32_t t, std::span<const float> logits) {
        if (t + 1 == ids.size()) return;
        best[t] = best_of(logits);
        const std::vector<double> log_q = log_softmax(logits);
        totals.bf16 -= log_p[t][ids[t + 1]];
        totals.affine8 -= log_q[ids[t + 1]];
        for (size_t i = 0; i < log_q.size(); ++i)
          totals.kl += std::exp(log_p[t][i]) * (log_p[t][i] - log_q[i]);
        ++totals.predicted;
      },
      nullptr);
  EXPECT_TRUE(second.ok()) << second.error().message;
  const auto third = integer.evaluate(
      ids, 0,
      [&](uint32_t t, std::span<const float> logits) {
        if (t + 1 == ids.size()) return;
        totals.integer -= log_softmax(logits)[ids[t + 1]];
        if (best_of(logits).id == best[t].id) {
          ++totals.same;
        } else {
          totals.far += best[t].margin > 0.05f;
          totals.widest_margin = std::max(totals.widest_margin, best[t].margin);
        }
      },
      nullptr);
  EXPECT_TRUE(third.ok()) << third.error().message;
  return totals;
}

TEST(DemoQuality, HeldOutTexts) {
  const auto text = read_text_file(WADER_SOURCE_DIR "/tests/data/demo/golden.json", 1 << 24);
  ASSERT_TRUE(text.ok()) << text.error().message;
  const Json golden = parse_json(*text, "golden.json").value();
  const auto exact_engine = demo_engine(DType::bf16),
             quantised_engine = demo_engine(DType::affine8),
             integer_engine = demo_engine(DType::affine8, "auto");
  const auto exact = open_session(*exact_engine), quantised = open_session(*quantised_engine),
             integer = open_session(*integer_engine);
  const Tokenizer& tokenizer = *exact_engine->tokenizer();

  Totals all;
  ASSERT_EQ(golden["heldout"].size(), 13u);
  for (const auto& [topic, entry] : golden["heldout"].items()) {
    Totals totals;
    for (const Json& sample : entry["texts"]) {
      std::vector<TokenId> ids = {*tokenizer.added_token("<|startoftext|>")};
      ASSERT_TRUE(tokenizer.encode(sample.get<std::string>(), Tokenizer::Markup::off, ids).ok());
      ids.resize(std::min<size_t>(ids.size(), 1 + kTextTokens));
      totals.add(compare_text(ids, *exact, *quantised, *integer));
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
  const double change = all.integer / all.affine8 - 1;
  const double same = static_cast<double>(all.same) / static_cast<double>(all.predicted);
  std::printf(
      "integer products: NLL %+.4f %%, the same best token %.3f %%; of the others %llu at a "
      "margin over 0.05, the widest %.3f\n",
      100 * change, 100 * same, static_cast<unsigned long long>(all.far),
      static_cast<double>(all.widest_margin));
  EXPECT_LT(std::fabs(change), 3e-3);
  EXPECT_GT(same, 0.985);
  EXPECT_GE(kl, 0);
  EXPECT_LT(kl, 1e-3);
}

std::vector<TokenId> greedy(Session& session, const std::vector<TokenId>& prompt) {
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = 300;
  const auto answer = session.generate(prompt, options);
  EXPECT_TRUE(answer.ok()) << answer.error().message;
  return answer.ok() ? answer->ids : std::vector<TokenId>{};
}

TEST(DemoQuality, IntegerProductsOnGreedyChats) {
  const auto text = read_text_file(WADER_SOURCE_DIR "/tests/data/demo/golden.json", 1 << 24);
  ASSERT_TRUE(text.ok()) << text.error().message;
  const Json golden = parse_json(*text, "golden.json").value();
  const auto ref_engine = demo_engine(DType::affine8),
             integer_engine = demo_engine(DType::affine8, "auto");
  const auto ref = open_session(*ref_engine), integer = open_session(*integer_engine);
  ASSERT_EQ(golden["chats"].size(), 13u);
  size_t tokens = 0, left = 0, far = 0;
  for (const auto& [topic, chat] : golden["chats"].items()) {
    std::vector<TokenId> ids;
    ASSERT_TRUE(ref_engine->tokenizer()
                    ->encode(chat["prompt_text"].get<std::string>(), Tokenizer::Markup::on, ids)
                    .ok());
    const auto ours = greedy(*integer, ids), theirs = greedy(*ref, ids);
    tokens += theirs.size();
    const auto fork = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end());
    if (fork.first == ours.end() && fork.second == theirs.end()) continue;
    ++left;
    ids.insert(ids.end(), theirs.begin(), fork.second);
    float margin = INFINITY;
    ASSERT_TRUE(
        ref->evaluate(
               ids, static_cast<uint32_t>(ids.size()) - 1,
               [&](uint32_t, std::span<const float> logits) { margin = best_of(logits).margin; },
               nullptr)
            .ok());
    std::printf("%s: another token after %td, at a margin of %.3f\n", topic.c_str(),
                fork.second - theirs.begin(), margin);
    if (margin > 0.05f) ++far;
  }
  std::printf("greedy chats: %zu tokens, %zu of 13 left ref's answer, %zu at a margin over 0.05\n",
              tokens, left, far);
  // Activations of 8 bits move 0.25 % of the positions of held-out text whose margin is over 0.05
  // (docs/results.md): one chat of 13 may meet such a position.
  EXPECT_LE(far, 1u);
  EXPECT_GT(tokens, 13u * 8);
}

}  // namespace
}  // namespace wader
