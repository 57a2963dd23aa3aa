// Sessions move back and forth exactly: rewind, branch, interleave, save and load give what a fresh
// session gives, to the bit, on every family.

#include <gtest/gtest.h>

#include <fstream>

#include "base/hash.h"
#include "test_models.h"

namespace wader {
namespace {

using testing::fixture_container;
using testing::open_engine;
using testing::open_session;
using testing::random_tokens;

using Tokens = std::vector<TokenId>;

EngineOptions options_with(uint32_t chunk, uint32_t snapshots = 6) {
  EngineOptions options;
  options.memory_bytes = 4ull << 30;  // sanitizers keep freed memory, which counts
  options.kernels = "ref";
  options.context = 2048;
  options.chunk = chunk;
  options.threads = 2;
  options.snapshots = snapshots;
  return options;
}

struct Answer {
  Tokens ids;
  uint64_t logits = 0;  // digest of what the answer's last token would be followed by
  uint32_t reused = 0;
  bool operator==(const Answer& other) const { return ids == other.ids && logits == other.logits; }
};

Answer answer(Session& session, const Tokens& prompt, uint32_t count = 10) {
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = count;
  options.turn_start = static_cast<uint32_t>(prompt.size()) - 3;
  const auto generation = session.generate(prompt, options);
  EXPECT_TRUE(generation.ok()) << generation.error().message;
  if (!generation.ok()) return {};
  Answer out{generation->ids, 0, generation->reused_tokens};
  Tokens all = prompt;
  all.insert(all.end(), out.ids.begin(), out.ids.end());
  const Status status = session.evaluate(
      all, static_cast<uint32_t>(all.size()) - 1,
      [&](uint32_t, std::span<const float> logits) { out.logits = xxh3_64(std::as_bytes(logits)); },
      nullptr);
  EXPECT_TRUE(status.ok());
  return out;
}

Tokens joined(Tokens head, const Tokens& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

class Sessions : public ::testing::TestWithParam<const char*> {
 protected:
  Answer fresh(const Tokens& prompt, uint32_t count = 10) const {
    const auto engine = open_engine(container(), options_with(64));
    return answer(*open_session(*engine), prompt, count);
  }
  const std::filesystem::path& container() const { return fixture_container(GetParam()); }
  bool recurrent() const {
    return Container::open(container())->spec().has_mixer(LayerKind::delta_net);
  }
};
INSTANTIATE_TEST_SUITE_P(Families, Sessions, ::testing::ValuesIn(testing::kFixtures),
                         [](const auto& fixture) { return testing::test_name(fixture.param); });

TEST_P(Sessions, RegenerateGoesBackToTheTurn) {
  const Tokens prompt = random_tokens(150, 1024, 1);
  const Answer want = fresh(prompt);
  for (const uint32_t snapshots : {0u, 1u, 6u}) {
    const auto engine = open_engine(container(), options_with(32, snapshots));
    const auto session = open_session(*engine);
    for (int again = 0; again < 3; ++again) {
      const Answer got = answer(*session, prompt);
      EXPECT_EQ(got, want) << snapshots << ' ' << again;
      if (again == 0 || (recurrent() && snapshots == 0))
        EXPECT_EQ(got.reused, 0u);
      else
        EXPECT_GE(got.reused, 147u);
    }
  }
}

TEST_P(Sessions, ConversationGoesOnEditsAndBranches) {
  // Turns of 60 tokens; an edit of the second, back to the first continuation, then a third.
  const auto turn = [](uint32_t seed) { return random_tokens(60, 1024, seed); };
  const Tokens first = turn(10);
  const Answer first_answer = fresh(first);
  const Tokens base = joined(first, first_answer.ids);
  const Tokens second = joined(base, turn(11)), edited = joined(base, turn(12));
  const Answer second_answer = fresh(second);
  const Tokens third = joined(joined(second, second_answer.ids), turn(13));

  for (const uint32_t chunk : {7u, 64u}) {
    const auto engine = open_engine(container(), options_with(chunk));
    const auto session = open_session(*engine);
    EXPECT_EQ(answer(*session, first), first_answer);
    const Answer on = answer(*session, second);
    EXPECT_EQ(on, second_answer);
    EXPECT_GE(on.reused, 60u + 9);
    const Answer edit = answer(*session, edited);
    EXPECT_EQ(edit, fresh(edited));
    EXPECT_GE(edit.reused, 57u) << "the edit went back to the first turn";
    EXPECT_EQ(answer(*session, second), second_answer);
    EXPECT_EQ(answer(*session, third), fresh(third));
    EXPECT_EQ(answer(*session, first), first_answer);
  }
}

TEST_P(Sessions, RewindsToAnyPlace) {
  const Tokens prompt = random_tokens(700, 1024, 20);
  const auto engine = open_engine(container(), options_with(64));
  const auto session = open_session(*engine);
  answer(*session, prompt);
  for (const uint32_t kept : {690u, 513u, 512u, 300u, 33u, 32u, 31u, 3u, 1u}) {
    if (testing::kSanitized && kept != 300) continue;
    const Tokens branch =
        joined(Tokens(prompt.begin(), prompt.begin() + kept), random_tokens(20, 1024, kept));
    EXPECT_EQ(answer(*session, branch, 4), fresh(branch, 4)) << kept;
    answer(*session, prompt, 1);
  }
}

// Past the end of the sliding rings (1,216 positions here): going back needs a snapshot, and a file
// finds the window where another ring has it.
TEST_P(Sessions, GoesBackAndOnPastTheRings) {
  if (testing::kSanitized)
    GTEST_SKIP() << "2,000 tokens are minutes here; the rest covers its code";
  const auto file = testing::scratch_directory() / "long.state";
  const Tokens first = random_tokens(200, 1024, 70);
  const Tokens longer = joined(first, random_tokens(1300, 1024, 71));
  const Tokens branch = joined(first, random_tokens(30, 1024, 72));
  const auto engine = open_engine(container(), options_with(64));
  const auto session = open_session(*engine);
  answer(*session, first, 2);
  const Answer late = answer(*session, longer);
  EXPECT_EQ(late, fresh(longer));
  ASSERT_TRUE(session->save(file, "").ok());
  const Answer back = answer(*session, branch);
  EXPECT_EQ(back, fresh(branch));
  EXPECT_GE(back.reused, 197u);

  const Tokens next = joined(joined(longer, late.ids), random_tokens(20, 1024, 73));
  const auto other = open_engine(container(), options_with(16));
  const auto resumed = open_session(*other);
  ASSERT_TRUE(resumed->load(file, kMaxNoteBytes).ok());
  const Answer on = answer(*resumed, next);
  EXPECT_EQ(on, fresh(next));
  EXPECT_EQ(on.reused, longer.size() + late.ids.size());
}

TEST_P(Sessions, TwoTakeTurns) {
  EngineOptions options = options_with(16);
  options.sessions = 2;
  const auto engine = open_engine(container(), options);
  const std::unique_ptr<Session> sessions[] = {open_session(*engine), open_session(*engine)};
  EXPECT_FALSE(engine->new_session().ok());  // it was planned for two
  Tokens timeline[] = {random_tokens(70, 1024, 30), random_tokens(45, 1024, 31)};
  const Answer want[] = {fresh(timeline[0], 12), fresh(timeline[1], 12)};
  GenerateOptions one;
  one.sampling.temperature = 0;
  one.max_tokens = 1;
  for (int step = 0; step < 12; ++step)
    for (int i = 0; i < 2; ++i) {
      const auto next = sessions[i]->generate(timeline[i], one);
      ASSERT_TRUE(next.ok()) << next.error().message;
      EXPECT_EQ(next->ids[0], want[i].ids[step]) << i << ' ' << step;
      timeline[i].push_back(next->ids[0]);
    }
}

// A pass that fails half way leaves layers at different places: the next prompt is right all the
// same.
TEST_P(Sessions, GoesOnAfterAFailedPass) {
  const auto copy = testing::copy_of(container(), "failing");
  const Container opened = std::move(Container::open(copy)).value();
  const auto file = copy / expert_file_name(opened.spec().layer_count() - 1);
  const uint64_t bytes = std::filesystem::file_size(file);
  EngineOptions options = options_with(16);
  options.slots = 2 * opened.spec().experts_per_token;
  const auto engine = open_engine(copy, options);
  const auto session = open_session(*engine);
  const Tokens prompt = random_tokens(50, 1024, 40);
  EXPECT_EQ(answer(*session, prompt), fresh(prompt));

  const Tokens longer = joined(prompt, random_tokens(40, 1024, 41));
  const auto backup = testing::scratch_directory() / "backup.bin";
  std::filesystem::copy_file(file, backup, std::filesystem::copy_options::overwrite_existing);
  std::filesystem::resize_file(file, 4096);
  EXPECT_FALSE(session->generate(longer, {}).ok());
  // Nothing said is lost with it: what a snapshot has can be saved, and the rest is computed again.
  const auto saved = testing::scratch_directory() / "failed.state";
  ASSERT_TRUE(session->save(saved, "all that was said").ok());
  const auto note = session->load(saved, kMaxNoteBytes);
  ASSERT_TRUE(note.ok()) << note.error().message;
  EXPECT_EQ(*note, "all that was said");
  std::filesystem::resize_file(file, bytes);
  {
    std::ifstream from(backup, std::ios::binary);
    std::fstream to(file, std::ios::in | std::ios::out | std::ios::binary);
    to << from.rdbuf();
  }
  EXPECT_EQ(answer(*session, longer), fresh(longer));
  EXPECT_EQ(answer(*session, prompt), fresh(prompt));
}

TEST_P(Sessions, ASavedStateGoesOnElsewhere) {
  const auto file = testing::scratch_directory() / "conversation.state";
  const Tokens prompt = random_tokens(333, 1024, 50);
  const Answer first = fresh(prompt);
  const Tokens next = joined(joined(prompt, first.ids), random_tokens(9, 1024, 51));
  {
    const auto engine = open_engine(container(), options_with(64));
    const auto session = open_session(*engine);
    EXPECT_EQ(answer(*session, prompt), first);
    ASSERT_TRUE(session->save(file, "a note: \xc3\xa9").ok());
  }
  EngineOptions other = options_with(16, 0);  // another chunk and context: another memory layout
  other.context = 500;
  const auto engine = open_engine(container(), other);
  const auto session = open_session(*engine);
  answer(*session, random_tokens(20, 1024, 52));
  const auto note = session->load(file, kMaxNoteBytes);
  ASSERT_TRUE(note.ok()) << note.error().message;
  EXPECT_EQ(*note, "a note: \xc3\xa9");
  EXPECT_EQ(session->tokens(), joined(prompt, first.ids));
  const Answer on = answer(*session, next);
  EXPECT_EQ(on, fresh(next));
  EXPECT_EQ(on.reused, prompt.size() + first.ids.size());

  // A template that drops the answer's reasoning forks where the turn began: that is in the file
  // too.
  const Tokens fork = joined(prompt, random_tokens(15, 1024, 53));
  for (const uint32_t snapshots : {0u, 3u}) {
    const auto later = open_engine(container(), options_with(32, snapshots));
    const auto forked = open_session(*later);
    ASSERT_TRUE(forked->load(file, kMaxNoteBytes).ok());
    const Answer got = answer(*forked, fork);
    EXPECT_EQ(got, fresh(fork));
    if (snapshots > 0) EXPECT_GE(got.reused, prompt.size() - 3);
  }
}

TEST_P(Sessions, ADamagedOrForeignStateIsRefused) {
  const auto file = testing::scratch_directory() / "good.state";
  const auto bad = testing::scratch_directory() / "bad.state";
  const Tokens prompt = random_tokens(40, 1024, 60);
  const auto engine = open_engine(container(), options_with(16));
  const auto session = open_session(*engine);
  const Answer first = answer(*session, prompt);
  ASSERT_TRUE(session->save(file, "note").ok());
  EXPECT_EQ(std::filesystem::status(file).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_EQ(session->load(file, 3).error().code, ErrorCode::over_budget);
  EXPECT_TRUE(session->tokens().empty());
  std::string bytes;
  {
    std::ifstream in(file, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  const auto refused = [&](const std::string& content, Session& into) {
    std::ofstream(bad, std::ios::binary) << content;
    const auto loaded = into.load(bad, kMaxNoteBytes);
    EXPECT_FALSE(loaded.ok());
    EXPECT_TRUE(into.tokens().empty());
    return loaded.ok() ? std::string() : loaded.error().message;
  };
  // Every header byte, and places all over the rest.
  for (size_t at = 0; at < bytes.size(); at += at < 60 ? 1 : bytes.size() / 50) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    EXPECT_NE(refused(damaged, *session).find("bad.state"), std::string::npos) << at;
  }
  for (const size_t length : {size_t{0}, size_t{7}, size_t{48}, bytes.size() - 1})
    refused(bytes.substr(0, length), *session);
  refused(bytes + "x", *session);
  EXPECT_FALSE(session->load(testing::scratch_directory() / "absent.state", kMaxNoteBytes).ok());
  EXPECT_EQ(answer(*session, prompt), first);

  EngineOptions small = options_with(16);
  small.context = 32;
  const auto small_engine = open_engine(container(), small);
  EXPECT_NE(refused(bytes, *open_session(*small_engine)).find("--context"), std::string::npos);
  const auto other = fixture_container(GetParam(), {.trunk = DType::affine8});  // other weights
  const auto other_engine = open_engine(other, options_with(16));
  EXPECT_NE(refused(bytes, *open_session(*other_engine)).find("another model"), std::string::npos);
}

}  // namespace
}  // namespace wader
