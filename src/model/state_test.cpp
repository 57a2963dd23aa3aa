#include "model/state.h"

#include <gtest/gtest.h>

#include <random>

#include "arch/arch_testing.h"
#include "kernels/ops.h"
#include "model/snapshots.h"

namespace wader {
namespace {

ArchitectureSpec ring_spec() {
  ArchitectureSpec spec = testing::small_attention_spec();
  spec.sliding_window = 128;
  spec.max_context = 131072;
  return spec;
}

SequenceState make_state(const ArchitectureSpec& spec, uint32_t context, uint32_t chunk) {
  return std::move(SequenceState::create(spec, {context, chunk, DType::f16})).value();
}

void advance(SequenceState& state, uint32_t rows) {
  state.reserve(rows);
  state.advance(rows);
}

TEST(SequenceState, RingHoldsWindowChunkAndSlack) {
  const ArchitectureSpec spec = ring_spec();
  EXPECT_EQ(kv_capacity(spec, LayerKind::full_attention, 8192, 64), 8192u);
  EXPECT_EQ(kv_capacity(spec, LayerKind::sliding_attention, 8192, 64),
            1216u);  // 128 + 64 + 1024, whole attention blocks
  EXPECT_EQ(kv_capacity(spec, LayerKind::sliding_attention, 100, 64), 128u);
  EXPECT_EQ(kv_capacity(spec, LayerKind::delta_net, 8192, 64), 0u);
}

TEST(SequenceState, RewindIsLegalExactlyWhileTheWindowIsThere) {
  const ArchitectureSpec spec = ring_spec();
  const uint32_t capacity = kv_capacity(spec, LayerKind::sliding_attention, 8192, 64);
  SequenceState state = make_state(spec, 8192, 64);
  for (uint32_t n = 0; n < 5000; n += 50) advance(state, 50);
  // A query at p sees p − 127 … p; the ring holds the last `capacity` positions.
  const uint32_t oldest_legal = 5000 - capacity + 127;
  EXPECT_FALSE(state.can_save(oldest_legal - 1));
  EXPECT_FALSE(state.rewind(oldest_legal - 1));
  EXPECT_EQ(state.length(), 5000u);
  EXPECT_TRUE(state.can_save(oldest_legal));
  EXPECT_TRUE(state.rewind(oldest_legal));
  // What was written before the rewind still counts: the ring is no fuller than it was.
  EXPECT_FALSE(state.rewind(oldest_legal - 1));
  EXPECT_TRUE(state.rewind(0));
  advance(state, 10);
  EXPECT_TRUE(state.rewind(3));
}

TEST(SequenceState, AFailedPassStillCostsTheRing) {
  const ArchitectureSpec spec = ring_spec();
  const uint32_t capacity = kv_capacity(spec, LayerKind::sliding_attention, 8192, 64);
  SequenceState state = make_state(spec, 8192, 64);
  for (uint32_t n = 0; n < capacity; n += 16) advance(state, 16);
  const uint32_t length = state.length();
  state.reserve(64);  // … and the pass fails: no advance
  EXPECT_EQ(state.length(), length);
  EXPECT_TRUE(state.whole());
  EXPECT_TRUE(state.rewind(length - 100));
  EXPECT_FALSE(state.rewind(length + 64 - capacity + 126));
}

TEST(SequenceState, ARecurrentStateOnlyStaysOrStartsAgain) {
  SequenceState state = make_state(testing::small_hybrid_spec(), 512, 32);
  advance(state, 40);
  EXPECT_TRUE(state.rewind(40));
  EXPECT_FALSE(state.rewind(39));
  EXPECT_TRUE(state.can_save(40));
  EXPECT_FALSE(state.can_save(39));
  state.reserve(3);  // a pass that fails may have moved some layers on
  EXPECT_FALSE(state.whole());
  EXPECT_FALSE(state.can_save(40));
  EXPECT_FALSE(state.rewind(40));
  state.delta(0).state[0] = 3;
  state.delta(1).conv[2] = 4;
  EXPECT_TRUE(state.rewind(0));
  EXPECT_TRUE(state.whole());
  EXPECT_EQ(state.delta(0).state[0], 0.0f);
  EXPECT_EQ(state.delta(1).conv[2], 0.0f);
}

// Fills everything that `length` positions leave with seeded values.
void scribble(SequenceState& state, uint32_t length, uint32_t seed) {
  std::mt19937 rng(seed);
  ASSERT_TRUE(state
                  .for_each_piece(length,
                                  [&](std::span<std::byte> piece) -> Status {
                                    for (std::byte& b : piece) b = static_cast<std::byte>(rng());
                                    return {};
                                  })
                  .ok());
}

std::vector<std::byte> everything(const SequenceState& state, uint32_t length) {
  std::vector<std::byte> all;
  EXPECT_TRUE(state
                  .for_each_piece(length,
                                  [&](std::span<std::byte> piece) -> Status {
                                    all.insert(all.end(), piece.begin(), piece.end());
                                    return {};
                                  })
                  .ok());
  return all;
}

class Specs : public ::testing::TestWithParam<ArchitectureSpec> {};
INSTANTIATE_TEST_SUITE_P(All, Specs,
                         ::testing::Values(testing::small_attention_spec(), ring_spec(),
                                           testing::small_hybrid_spec()),
                         [](const auto& spec) { return std::to_string(spec.index); });

// A snapshot and the prefix of full-attention layers, which is never written again, are the whole
// state.
TEST_P(Specs, RestoreBringsBackWhatWasSaved) {
  const ArchitectureSpec& spec = GetParam();
  SequenceState state = make_state(spec, 3000, 20);
  for (int i = 0; i < 70; ++i) advance(state, 20);  // past the end of the longest ring
  scribble(state, 1400, 1);
  const auto before = everything(state, 1400);
  std::vector<std::byte> snapshot(snapshot_bytes(spec, {3000, 20, DType::f16}));
  state.save(snapshot, 1400);

  std::vector<std::vector<std::byte>> prefixes;
  const auto of_full_layers = [&](auto&& fn) {
    for (uint32_t layer = 0; layer < spec.layer_count(); ++layer)
      if (spec.layers[layer].mixer == LayerKind::full_attention)
        for (std::byte* plane : {state.kv(layer).k, state.kv(layer).v})
          fn(plane, state.kv(layer).head_bytes * spec.kv_heads);
  };
  of_full_layers([&](std::byte* plane, size_t n) { prefixes.emplace_back(plane, plane + n); });
  for (int i = 0; i < 75; ++i) advance(state, 20);
  scribble(state, 2900, 2);  // every place of the rings and of the recurrent states
  of_full_layers([&, next = size_t{0}](std::byte* plane, size_t) mutable {
    std::copy(prefixes[next].begin(), prefixes[next].end(), plane);
    ++next;
  });
  state.restore(snapshot, 1400);
  EXPECT_EQ(state.length(), 1400u);
  EXPECT_EQ(everything(state, 1400), before);
}

// A ring as long as the context forgets nothing.
TEST(SequenceState, NothingToSnapshotWhereNothingIsOverwritten) {
  EXPECT_EQ(snapshot_bytes(ring_spec(), {1000, 64, DType::f16}), 0u);
  EXPECT_GT(snapshot_bytes(ring_spec(), {4000, 64, DType::f16}), 0u);
  ArchitectureSpec full = ring_spec();
  full.layers = {LayerKind::full_attention};
  EXPECT_EQ(snapshot_bytes(full, {100000, 64, DType::f16}), 0u);
}

// The pieces do not depend on context and chunk: what one wrote another can adopt.
TEST_P(Specs, PiecesFitAnotherContextAndChunk) {
  SequenceState from = make_state(GetParam(), 4096, 16);
  for (int i = 0; i < 100; ++i) advance(from, 16);  // past the end of the rings
  scribble(from, 1600, 2);
  const auto pieces = everything(from, 1600);
  SequenceState to = make_state(GetParam(), 2000, 8);
  size_t at = 0;
  ASSERT_TRUE(to.for_each_piece(1600, [&](std::span<std::byte> piece) -> Status {
                  std::copy_n(pieces.begin() + static_cast<ptrdiff_t>(at), piece.size(),
                              piece.begin());
                  at += piece.size();
                  return {};
                }).ok());
  EXPECT_EQ(at, pieces.size());
  to.adopt(1600);
  EXPECT_EQ(to.length(), 1600u);
  EXPECT_EQ(everything(to, 1600), pieces);
}

using Kind = SnapshotKind;

TEST(SnapshotPolicy, PeriodicOnesGoFirstAndGapsStayShort) {
  // The loss of 300 leaves 200 … 400, of 200 leaves 0 … 300.
  const SnapshotMark even[] = {
      {200, Kind::periodic}, {300, Kind::periodic}, {400, Kind::periodic}, {700, Kind::periodic}};
  EXPECT_EQ(replaceable(even, 3), 1u);
  EXPECT_EQ(replaceable(even, 1), 0u);  // of 200 as of 700, which nothing follows: 300 each
  EXPECT_EQ(replaceable(std::span(even).first(2), 0), 1u);
  EXPECT_EQ(replaceable(std::span(even).first(2), 1), 0u);
  const SnapshotMark turns[] = {{100, Kind::turn_boundary},
                                {110, Kind::turn_boundary},
                                {900, Kind::periodic},
                                {1000, Kind::turn_boundary}};
  EXPECT_EQ(replaceable(turns, 3), 2u);
  // 900 is the only periodic one: the turns are worth more.
  EXPECT_EQ(replaceable(turns, 2), 2u);
  const SnapshotMark only_turns[] = {
      {400, Kind::turn_boundary}, {900, Kind::turn_boundary}, {1024, Kind::turn_boundary}};
  EXPECT_EQ(replaceable(only_turns, 2), 1u);  // of 900: 400 … 1024; of 400: 0 … 900
}

TEST(Snapshots, KeepsRestoresAndForgets) {
  const ArchitectureSpec spec = testing::small_hybrid_spec();
  SequenceState state = make_state(spec, 512, 32);
  Snapshots snapshots =
      std::move(Snapshots::create(snapshot_bytes(spec, {512, 32, DType::f16}), 2)).value();
  EXPECT_EQ(snapshots.latest(500), 0u);
  for (const uint32_t position : {32u, 64u, 96u}) {
    advance(state, 32);
    state.delta(1).state[5] = static_cast<float>(position);
    snapshots.keep(state, position, position == 64 ? Kind::periodic : Kind::turn_boundary);
  }
  EXPECT_EQ(snapshots.latest(95), 32u);  // 64 gave way
  EXPECT_EQ(snapshots.latest(96), 96u);
  EXPECT_EQ(snapshots.latest(31), 0u);
  snapshots.restore(state, 32);
  EXPECT_EQ(state.length(), 32u);
  EXPECT_EQ(state.delta(1).state[5], 32.0f);
  snapshots.forget_after(32);
  EXPECT_EQ(snapshots.latest(500), 32u);
  advance(state, 1);
  snapshots.keep(state, 33, Kind::periodic);
  EXPECT_EQ(snapshots.latest(500), 33u);
}

TEST(Snapshots, NoneWhereThereIsNothingToKeep) {
  Snapshots none = std::move(Snapshots::create(0, 8)).value();
  SequenceState state = make_state(testing::small_hybrid_spec(), 64, 8);
  advance(state, 8);
  EXPECT_FALSE(none.enabled());
  none.keep(state, 8, Kind::periodic);
  EXPECT_EQ(none.latest(8), 0u);
}

}  // namespace
}  // namespace wader
