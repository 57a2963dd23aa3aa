#include "install/proof_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "base/units.h"
#include "checkpoint/checkpoint_testing.h"
#include "install/crypto_library.h"
#include "install/fetch_window.h"
#include "install/sha_check.h"

namespace wader {
namespace {

FetchPlan plan_of(const std::vector<SourceRange>& reads) {
  FetchPlanner planner;
  for (const SourceRange& read : reads) {
    planner.begin_unit();
    planner.add(read, true);
  }
  return planner.finish();
}

// What waits at most when the plan is gone through, as FetchQueue would: read at once, hashed when
// it is its turn. Fails when a file that was chosen does not come to its end.
uint64_t played_out(const FetchPlan& plan, const ProofPlan& chosen,
                    const std::vector<ProofFile>& files) {
  struct Chunk {
    bool there = false, read = false;
  };
  std::vector<Chunk> chunks(plan.chunks.size());
  std::map<uint32_t, uint64_t> frontier;
  for (const ProofFile& file : files) frontier[file.file] = file.hashed_bytes;
  const auto is_chosen = [&](uint32_t file) {
    return std::find(chosen.files.begin(), chosen.files.end(), file) != chosen.files.end();
  };
  uint64_t most = 0;
  uint32_t reader = 0;
  for (const uint32_t number : plan.order) {
    chunks[number].there = true;
    while (reader < plan.chunks.size() && chunks[reader].there) chunks[reader++].read = true;
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t i = 0; i < chunks.size(); ++i) {
        const SourceRange& range = plan.chunks[i].range;
        uint64_t& at = frontier[range.file];
        if (!chunks[i].there || range.offset > at || range.offset + range.bytes <= at) continue;
        at = range.offset + range.bytes;
        moved = true;
      }
    }
    uint64_t held = 0;
    for (size_t i = 0; i < chunks.size(); ++i) {
      const SourceRange& range = plan.chunks[i].range;
      const bool waits = chunks[i].there && is_chosen(range.file) &&
                         range.offset + range.bytes > frontier[range.file];
      held += waits ? range.bytes : 0;
    }
    most = std::max(most, held);
  }
  for (const ProofFile& file : files)
    if (is_chosen(file.file)) EXPECT_EQ(frontier[file.file], file.bytes) << file.file;
  return most;
}

TEST(ProofPlan, AFileInItsOrderTakesNoRoom) {
  std::vector<SourceRange> reads;
  for (uint64_t at = 1000; at < 50 * kMiB; at += kMiB) reads.push_back({3, at, kMiB});
  FetchPlan plan = plan_of(reads);
  const std::vector<ProofFile> files = {{3, reads.back().offset + kMiB, 1000}};
  const ProofPlan proofs = plan_proofs(plan, files, {}, 0);
  EXPECT_EQ(proofs.files, std::vector<uint32_t>{3});
  EXPECT_EQ(proofs.held_bytes, 0u);
  EXPECT_EQ(played_out(plan, proofs, files), 0u);
}

// As experts that lie in two tensors, one behind the other: half of them wait.
TEST(ProofPlan, PlanesSideBySideTakeOneOfThem) {
  std::vector<SourceRange> reads;
  for (uint64_t expert = 0; expert < 16; ++expert) {
    reads.push_back({0, expert * kMiB, kMiB});
    reads.push_back({0, (16 + expert) * kMiB, kMiB});
  }
  const std::vector<ProofFile> files = {{0, 32 * kMiB, 0}};
  FetchPlan plan = plan_of(reads);
  ProofPlan proofs = plan_proofs(plan, files, {}, 17 * kMiB);
  EXPECT_EQ(proofs.files.size(), 1u);
  EXPECT_GE(proofs.held_bytes, 15 * kMiB);
  EXPECT_GE(proofs.held_bytes, played_out(plan, proofs, files));
  // With less room it is not begun.
  plan = plan_of(reads);
  proofs = plan_proofs(plan, files, {}, 14 * kMiB);
  EXPECT_TRUE(proofs.files.empty());
  EXPECT_EQ(proofs.held_bytes, 0u);
}

TEST(ProofPlan, SmallGapsAreFetchedAndLargeOnesAreNot) {
  for (const uint64_t gap : {uint64_t{1}, kMaxGapBytes, kMaxGapBytes + 1}) {
    FetchPlan plan = plan_of({{0, 0, kMiB}, {0, kMiB + gap, kMiB}});
    const std::vector<ProofFile> files = {{0, 2 * kMiB + gap, 0}};
    const uint64_t before = plan.bytes();
    const ProofPlan proofs = plan_proofs(plan, files, {}, kMiB);
    EXPECT_EQ(proofs.files.size(), gap <= kMaxGapBytes ? 1u : 0u) << gap;
    EXPECT_EQ(plan.bytes() - before, gap <= kMaxGapBytes ? gap : 0u);
    played_out(plan, proofs, files);
  }
  // At the end, too; and what an earlier run left counts as there.
  FetchPlan plan = plan_of({{0, 0, kMiB}});
  const std::vector<SourceRange> kept = {{0, kMiB, 3 * kMiB}};
  const ProofPlan proofs =
      plan_proofs(plan, std::vector<ProofFile>{{0, 4 * kMiB + 10, 0}}, kept, 4 * kMiB);
  EXPECT_EQ(proofs.files.size(), 1u);
  EXPECT_EQ(plan.chunks.back().range, (SourceRange{0, 4 * kMiB, 10}));
}

// A small tensor that is read at the end stands before everything: it comes first, and nothing has
// to wait for it.
TEST(ProofPlan, ALittleThingComesEarly) {
  std::vector<SourceRange> reads;
  for (uint64_t n = 1; n < 40; ++n) reads.push_back({0, n * kMiB, kMiB});
  reads.push_back({0, 0, kMiB});
  FetchPlan plan = plan_of(reads);
  const std::vector<ProofFile> files = {{0, 40 * kMiB, 0}};
  const ProofPlan proofs = plan_proofs(plan, files, {}, 2 * kMiB);
  ASSERT_EQ(proofs.files.size(), 1u);
  EXPECT_EQ(plan.order.front(), plan.chunks.size() - 1);
  EXPECT_TRUE(plan.chunks.back().early);
  EXPECT_LE(proofs.held_bytes, kMiB);
}

TEST(ProofPlan, RandomPlansHoldWhatTheySay) {
  std::mt19937 random(11);
  for (int round = 0; round < 100; ++round) {
    std::vector<ProofFile> files;
    std::vector<SourceRange> reads;
    for (uint32_t file = 0; file < 3; ++file) {
      uint64_t at = random() % 3 == 0 ? 0 : 100;
      files.push_back({file, 0, at});
      for (int n = 0; n < 20; ++n) {
        const uint64_t bytes = 1 + random() % (2 * kMiB);
        reads.push_back({file, at, bytes});
        at += bytes + (random() % 5 == 0 ? random() % (kMaxGapBytes / 4) : 0);
      }
      files.back().bytes = at;
    }
    // Nearly in order, and sometimes not at all.
    const size_t reach = 1 + random() % reads.size();
    for (size_t i = 0; i + 1 < reads.size(); ++i)
      std::swap(reads[i], reads[std::min(reads.size() - 1, i + random() % reach)]);
    FetchPlan plan = plan_of(reads);
    const uint64_t room = random() % (60 * kMiB);
    const ProofPlan proofs = plan_proofs(plan, files, {}, room);
    EXPECT_LE(proofs.held_bytes, room);
    EXPECT_LE(played_out(plan, proofs, files), room);
    std::vector<uint32_t> order = plan.order;
    std::sort(order.begin(), order.end());
    for (uint32_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], i) << "not all, or twice";
    ASSERT_EQ(order.size(), plan.chunks.size());
  }
}

struct ShaChecks : ::testing::Test {
  void SetUp() override {
    const Status loaded = load_crypto();
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  }
};

std::string digest_of(ShaCheck& check, std::string_view text, size_t piece) {
  for (size_t at = check.frontier(); at < text.size(); at += piece)
    check.pass(at, std::as_bytes(std::span(text.substr(at, piece))));
  return check.hex();
}

TEST_F(ShaChecks, AgreesWithThePublishedDigests) {  // FIPS 180-4, the examples of NIST
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  ShaCheck check(3);
  EXPECT_EQ(digest_of(check, "abc", 1), sha256_hex("abc"));
  EXPECT_EQ(git_blob_hex("hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
}

TEST_F(ShaChecks, TakesBytesInTheirTurnOnly) {
  const std::string text(1000, 'x');
  const auto bytes = std::as_bytes(std::span(text));
  ShaCheck check(1000);
  check.pass(10, bytes.first(5));
  EXPECT_EQ(check.frontier(), 0u);
  check.pass(0, bytes.first(100));
  check.pass(50, bytes.first(100));  // half of it is new
  check.pass(20, bytes.first(30));
  EXPECT_EQ(check.frontier(), 150u);
  check.pass(150, bytes.subspan(150));
  ASSERT_TRUE(check.whole());
  EXPECT_EQ(check.hex(), sha256_hex(text));
}

TEST_F(ShaChecks, GoesOnInAnotherProcess) {
  std::string text(5000, '\0');
  std::mt19937 random(1);
  for (char& c : text) c = static_cast<char>(random());
  for (const size_t cut : {0, 1, 63, 64, 65, 4096, 5000}) {
    ShaCheck first(text.size());
    first.pass(0, std::as_bytes(std::span(text)).first(cut));
    ShaCheck second(text.size());
    ASSERT_TRUE(second.restore(first.frontier(), first.state())) << cut;
    EXPECT_EQ(digest_of(second, text, 100), sha256_hex(text));
  }
  // What is no state is not believed, whatever it says of its length.
  ShaCheck check(text.size());
  ShaCheck::State noise;
  for (int round = 0; round < 1000; ++round) {
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
    EXPECT_FALSE(check.restore(random() % 5000, noise));
  }
  ShaCheck other(100);
  other.pass(0, std::as_bytes(std::span(text)).first(64));
  EXPECT_FALSE(check.restore(65, other.state()));
  EXPECT_EQ(digest_of(check, text, 999), sha256_hex(text));
}

TEST(FetchWindow, KeepsHowFarDigestsCame) {
  const testing::TempDirectory directory;
  const auto path = directory.path() / "fetch.part";
  const auto at = [](uint64_t frontier) {
    FetchWindow::KeptProof proof{7, frontier, {}};
    std::memset(proof.state.data(), static_cast<int>(frontier), proof.state.size());
    return proof;
  };
  {
    auto window = FetchWindow::open(path, kMiB, 42);
    ASSERT_TRUE(window.ok()) << window.error().message;
    EXPECT_TRUE(window->kept_proofs().empty());
    for (const uint64_t frontier : {1, 2, 3}) window->note_proof(200, at(frontier));
  }
  {
    auto window = FetchWindow::open(path, kMiB, 42);
    ASSERT_EQ(window->kept_proofs().size(), 1u);
    EXPECT_EQ(window->kept_proofs()[0].file, 7u);
    EXPECT_EQ(window->kept_proofs()[0].frontier, 3u);
    EXPECT_EQ(window->kept_proofs()[0].state, at(3).state);
    window->note_proof(200, at(4));
  }
  // A note that a kill cut short leaves the one before.
  {
    std::string bytes = testing::read_bytes(path);
    const std::string state(reinterpret_cast<const char*>(at(4).state.data()), 128);
    const size_t found = bytes.find(state);
    ASSERT_NE(found, bytes.npos);
    bytes[found + 50] ^= 1;
    testing::write_bytes(path, bytes);
  }
  auto window = FetchWindow::open(path, kMiB, 42);
  ASSERT_EQ(window->kept_proofs().size(), 1u);
  EXPECT_EQ(window->kept_proofs()[0].frontier, 3u);
}

// Memory that was set aside is there again when it is looked at.
TEST(FetchWindow, SetAsideIsNotLost) {
  const testing::TempDirectory directory;
  auto window = FetchWindow::open(directory.path() / "fetch.part", kMiB, 42);
  ASSERT_TRUE(window.ok());
  const uint32_t place = window->take({0, 0, 100'000}).value();
  std::fill(window->bytes(place).begin(), window->bytes(place).end(), std::byte{5});
  window->set_aside(place);
  for (const std::byte byte : window->bytes(place)) ASSERT_EQ(byte, std::byte{5});
}

}  // namespace
}  // namespace wader
