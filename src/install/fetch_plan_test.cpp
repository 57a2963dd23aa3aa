#include "install/fetch_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/units.h"
#include "checkpoint/checkpoint_testing.h"
#include "install/fetch_window.h"

namespace wader {
namespace {

// Every byte of every needed read lies in the chunks from its own on, in order, and uses add up.
void check_plan(const FetchPlan& plan, const std::vector<SourceRange>& needed) {
  ASSERT_EQ(plan.reads.size(), needed.size());
  std::vector<uint64_t> uses(plan.chunks.size());
  for (size_t i = 0; i < needed.size(); ++i) {
    const FetchPlan::Read& read = plan.reads[i];
    ASSERT_EQ(read.range, needed[i]);
    uint64_t at = read.range.offset;
    for (uint32_t c = read.chunk; at < read.range.offset + read.range.bytes; ++c) {
      ASSERT_LT(c, plan.chunks.size());
      const SourceRange& chunk = plan.chunks[c].range;
      ASSERT_EQ(chunk.file, read.range.file);
      ASSERT_GE(at, chunk.offset);
      ASSERT_LT(at, chunk.offset + chunk.bytes);
      const uint64_t end =
          std::min(read.range.offset + read.range.bytes, chunk.offset + chunk.bytes);
      uses[c] += end - at;
      at = end;
    }
  }
  for (size_t c = 0; c < uses.size(); ++c) {
    EXPECT_EQ(uses[c], plan.chunks[c].uses);
    EXPECT_LE(plan.chunks[c].range.bytes, kMaxChunkBytes);
  }
}

// Experts of three planes, small and large, begun at every expert: chunks end at the same places.
TEST(FetchPlan, IsTheSameWhereverARunBegins) {
  constexpr uint64_t kPlanes[] = {3'000'000, 200'000, 1'000};
  std::vector<uint64_t> ends;
  for (size_t begin = 0; begin <= 10; ++begin) {
    FetchPlanner planner;
    planner.begin_unit();
    std::vector<SourceRange> needed;
    for (size_t expert = 0; expert < 10; ++expert)
      for (uint32_t plane = 0; plane < 3; ++plane) {
        const SourceRange read{plane % 2, 100'000'000 * plane + expert * kPlanes[plane],
                               kPlanes[plane]};
        planner.add(read, expert >= begin);
        if (expert >= begin) needed.push_back(read);
      }
    const FetchPlan plan = planner.finish();
    check_plan(plan, needed);
    uint64_t bytes = 0;
    for (const SourceRange& read : needed) bytes += read.bytes;
    EXPECT_EQ(plan.bytes(), bytes);
    if (begin == 0)
      for (const FetchChunk& chunk : plan.chunks)
        ends.push_back(chunk.range.offset + chunk.range.bytes);
    for (const FetchChunk& chunk : plan.chunks)
      EXPECT_NE(std::find(ends.begin(), ends.end(), chunk.range.offset + chunk.range.bytes),
                ends.end());
    // The ten smallest pieces are one chunk.
    if (begin == 0) EXPECT_EQ(plan.chunks.size(), 10 * 3 + 2 + 1u);
  }
}

TEST(FetchPlan, RandomReads) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    FetchPlanner planner;
    std::vector<SourceRange> needed;
    std::vector<uint64_t> at(3);
    for (int i = 0; i < 60; ++i) {
      if (random() % 10 == 0) planner.begin_unit();
      const uint32_t file = random() % 3;
      if (random() % 4 == 0) at[file] = random() % 50'000'000;  // also back, over what was read
      const SourceRange read{file, at[file], 1 + random() % (random() % 3 ? 100'000 : 5'000'000)};
      at[file] += read.bytes;
      const bool need = random() % 3 > 0;
      planner.add(read, need);
      if (need) needed.push_back(read);
    }
    check_plan(planner.finish(), needed);
  }
}

TEST(FetchWindow, KeepsWhatAKilledRunHad) {
  const testing::TempDirectory directory;
  const auto path = directory.path() / "fetch.part";
  const SourceRange a{1, 100, 5'000}, b{2, 7, 300'000};
  {
    auto window = FetchWindow::open(path, kMiB, 42);
    ASSERT_TRUE(window.ok()) << window.error().message;
    EXPECT_TRUE(window->kept().empty());
    const uint32_t at_a = window->take(a).value(), at_b = window->take(b).value();
    std::fill(window->bytes(at_b).begin(), window->bytes(at_b).end(), std::byte{9});
    window->set_received(at_b, 1234);
    window->set_received(at_a, 5'000);
    window->give_back(at_a);
  }
  auto window = FetchWindow::open(path, kMiB, 42);
  ASSERT_EQ(window->kept().size(), 1u);
  EXPECT_EQ(window->kept()[0].range, b);
  EXPECT_EQ(window->kept()[0].received, 1234u);
  EXPECT_EQ(window->bytes(window->kept()[0].place)[1233], std::byte{9});
  // Its place is taken, the rest is free.
  EXPECT_FALSE(window->take({0, 0, kMiB - 250'000}));
  EXPECT_TRUE(window->take({0, 0, kMiB - 320'000}));
  // Of another source it is nothing.
  EXPECT_TRUE(FetchWindow::open(path, kMiB, 43)->kept().empty());
}

// An entry that a torn file might have names memory outside, or twice the same.
TEST(FetchWindow, BelievesNoEntryThatDoesNotFit) {
  const testing::TempDirectory directory;
  const auto path = directory.path() / "fetch.part";
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    {
      auto window = FetchWindow::open(path, kMiB, 1);
      const auto place = window->take({1, 100, 5'000});
      if (place) window->set_received(*place, 10);
    }
    {
      File file = File::open(path, File::Mode::update).value();
      std::vector<std::byte> noise(400);
      for (std::byte& byte : noise) byte = static_cast<std::byte>(random() % 3 ? 0 : random());
      ASSERT_TRUE(file.write_at(64 + random() % 4096, noise).ok());
    }
    auto window = FetchWindow::open(path, kMiB, 1);
    ASSERT_TRUE(window.ok());
    for (const FetchWindow::Kept& kept : window->kept()) {
      const auto bytes = window->bytes(kept.place);
      EXPECT_LE(kept.received, bytes.size());
      std::fill(bytes.begin(), bytes.end(), std::byte{1});
    }
  }
}

TEST(FetchWindow, GivesMemoryBackWhole) {
  auto window = FetchWindow::open({}, kMiB, 1);
  std::mt19937 random(5);
  std::vector<uint32_t> places;
  for (int i = 0; i < 2000; ++i) {
    if (random() % 2 == 0 && !places.empty()) {
      std::swap(places[random() % places.size()], places.back());
      window->give_back(places.back());
      places.pop_back();
    } else if (const auto place = window->take({0, 0, 1 + random() % 200'000})) {
      places.push_back(*place);
    }
  }
  for (const uint32_t place : places) window->give_back(place);
  EXPECT_TRUE(window->take({0, 0, kMiB}));
}

}  // namespace
}  // namespace wader
