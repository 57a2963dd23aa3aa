// Sessions that take turns, pass by pass, and sessions that begin with a copy of another's state:
// the same ids and log-probabilities as alone, to the bit, on every family.

#include <gtest/gtest.h>

#include <random>

#include "test_models.h"

namespace wader {
namespace {

using testing::fixture_container;
using testing::open_engine;
using testing::random_tokens;

using Tokens = std::vector<TokenId>;

EngineOptions options_for(uint32_t sessions) {
  return testing::session_options(sessions, 1024, 48);
}

GenerateOptions sampled(uint64_t seed, uint32_t count) {
  GenerateOptions options;
  options.sampling.temperature = 0.9;
  options.sampling.seed = seed;
  options.max_tokens = count;
  options.top_logprobs = 3;
  return options;
}

struct Output {
  Tokens ids;
  std::vector<float> logprobs;  // of the ids and of the three likeliest
  uint32_t reused = 0;
  std::optional<FinishReason> ended;
  bool operator==(const Output& other) const {
    return ids == other.ids && logprobs == other.logprobs && ended == other.ended;
  }
};

void take(Output& out, const GenerationStep& step) {
  if (step.token) {
    out.ids.push_back(step.token->id);
    out.logprobs.push_back(*step.token->logprob);
    for (const TokenLogprob& top : step.token->top) out.logprobs.push_back(top.logprob);
  }
  out.ended = step.ended;
}

Output run(Session& session, const Tokens& prompt, const GenerateOptions& options) {
  Output out;
  const auto reused = session.begin(prompt, options);
  EXPECT_TRUE(reused.ok());
  if (!reused.ok()) return out;
  out.reused = *reused;
  while (!out.ended) {
    const auto step = session.step();
    EXPECT_TRUE(step.ok()) << step.error().message;
    if (!step.ok()) return out;
    take(out, *step);
  }
  return out;
}

class Turns : public ::testing::TestWithParam<const char*> {
 protected:
  Output alone(const Tokens& prompt, const GenerateOptions& options) const {
    const auto engine = open_engine(container(), options_for(1));
    return run(*engine->new_session().value(), prompt, options);
  }
  const std::filesystem::path& container() const { return fixture_container(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Families, Turns, ::testing::ValuesIn(testing::kFixtures),
                         [](const auto& fixture) { return testing::test_name(fixture.param); });

TEST_P(Turns, InAnyOrderGiveWhatEachGivesAlone) {
  constexpr size_t kSessions = 3;
  const auto engine = open_engine(container(), options_for(kSessions));
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Tokens> prompts;
  std::vector<Output> outputs(kSessions);
  for (size_t i = 0; i < kSessions; ++i) {
    sessions.push_back(engine->new_session().value());
    prompts.push_back(random_tokens(60 + 70 * static_cast<uint32_t>(i), 1024, 5 + i));
    ASSERT_TRUE(sessions[i]->begin(prompts[i], sampled(i, 20)).ok());
  }
  std::mt19937 random(1);
  for (size_t open = kSessions; open > 0;) {
    const size_t i = random() % kSessions;
    if (outputs[i].ended) continue;
    const auto step = sessions[i]->step();
    ASSERT_TRUE(step.ok()) << step.error().message;
    take(outputs[i], *step);
    open -= step->ended.has_value();
  }
  for (size_t i = 0; i < kSessions; ++i)
    EXPECT_EQ(outputs[i], alone(prompts[i], sampled(i, 20))) << i;
}

TEST_P(Turns, AStepSaysHowFarThePromptIs) {
  const auto engine = open_engine(container(), options_for(1));
  const auto session = engine->new_session().value();
  ASSERT_TRUE(session->begin(random_tokens(100, 1024, 1), sampled(1, 2)).ok());
  uint32_t done = 0, tokens = 0;
  for (;;) {
    const GenerationStep step = session->step().value();
    EXPECT_GE(step.prompt_done, done);
    EXPECT_LE(step.prompt_done - done, 48u);
    EXPECT_EQ(step.token.has_value(), step.prompt_done == 100);
    done = step.prompt_done;
    tokens += step.token.has_value();
    if (step.ended) break;
  }
  EXPECT_EQ(tokens, 2u);
}

TEST_P(Turns, ACopiedBeginningIsTheSameAsAComputedOne) {
  const Tokens head = random_tokens(150, 1024, 7);
  Tokens first = head, second = head;
  const Tokens a = random_tokens(40, 1024, 8), b = random_tokens(50, 1024, 9);
  first.insert(first.end(), a.begin(), a.end());
  second.insert(second.end(), b.begin(), b.end());

  const auto engine = open_engine(container(), options_for(2));
  const auto one = engine->new_session().value(), two = engine->new_session().value();
  GenerateOptions options = sampled(1, 12);
  options.turn_start = 150;  // a recurrent state can only go back to where a snapshot was taken
  const Output first_output = run(*one, first, options);
  const uint32_t reusable = one->reusable(second);
  EXPECT_EQ(reusable, 150u);
  // What is copied over what the session had before.
  run(*two, random_tokens(300, 1024, 10), sampled(2, 3));
  EXPECT_EQ(two->copy_prefix(*one, second), reusable);
  EXPECT_EQ(two->tokens(), head);
  const Output second_output = run(*two, second, sampled(3, 12));
  EXPECT_EQ(second_output.reused, 150u);
  EXPECT_EQ(second_output, alone(second, sampled(3, 12)));
  // The one copied from goes on from its own end.
  Tokens on = first;
  on.insert(on.end(), first_output.ids.begin(), first_output.ids.end());
  const Output more = run(*one, on, sampled(4, 5));
  EXPECT_GE(more.reused, 190u);
  EXPECT_EQ(more, alone(on, sampled(4, 5)));
}

TEST_P(Turns, AFlagStopsBetweenTwoSteps) {
  const auto engine = open_engine(container(), options_for(1));
  const auto session = engine->new_session().value();
  std::atomic<bool> cancel = false;
  GenerateOptions options = sampled(1, 50);
  options.cancel = &cancel;
  ASSERT_TRUE(session->begin(random_tokens(100, 1024, 1), options).ok());
  ASSERT_TRUE(session->step().ok());
  cancel = true;
  const GenerationStep last = session->step().value();
  EXPECT_EQ(last.ended, FinishReason::cancelled);
  EXPECT_FALSE(last.token);
  EXPECT_EQ(session->tokens().size(), 48u);
}

}  // namespace
}  // namespace wader
