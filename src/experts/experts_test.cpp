#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "base/hash.h"
#include "base/units.h"
#include "experts/expert_cache.h"
#include "experts/slot_policy.h"

namespace wader {
namespace {

TEST(SlotPolicy, NothingIsFindableBeforeItsReadSucceeded) {
  SlotPolicy policy(2, 1, 8, EvictionRule::lfu);
  const auto slot = policy.reserve(0, 3, 1);
  ASSERT_TRUE(slot.has_value());
  EXPECT_FALSE(policy.is_resident(0, 3));
  policy.release_failed(*slot);
  EXPECT_FALSE(policy.is_resident(0, 3));
  EXPECT_EQ(policy.resident_count(), 0u);
  const auto again = policy.reserve(0, 3, 1);
  policy.commit(*again);
  EXPECT_TRUE(policy.is_resident(0, 3));
}

void load(SlotPolicy& policy, uint32_t expert, int uses = 1) {
  for (int i = 0; i < uses; ++i) {
    auto slot = policy.pin_resident(0, expert, 1);
    if (!slot) {
      slot = policy.reserve(0, expert, 1);
      policy.commit(*slot);
    }
    policy.unpin(*slot);
  }
}

TEST(SlotPolicy, LfuKeepsTheUsedLruTheRecent) {
  SlotPolicy lfu(2, 1, 8, EvictionRule::lfu);
  load(lfu, 0, 3);
  load(lfu, 1);
  load(lfu, 2);
  EXPECT_TRUE(lfu.is_resident(0, 0));
  EXPECT_FALSE(lfu.is_resident(0, 1));
  SlotPolicy lru(2, 1, 8, EvictionRule::lru);
  load(lru, 0, 3);
  load(lru, 1);
  load(lru, 2);
  EXPECT_FALSE(lru.is_resident(0, 0));
}

TEST(SlotPolicy, PinnedSlotsAreNeverGivenAway) {
  SlotPolicy policy(2, 1, 8, EvictionRule::lru);
  const auto a = policy.reserve(0, 0, 1), b = policy.reserve(0, 1, 1);
  EXPECT_FALSE(policy.reserve(0, 2, 1).has_value());
  policy.commit(*a);
  EXPECT_FALSE(policy.reserve(0, 2, 1).has_value());
  policy.unpin(*a);
  EXPECT_EQ(policy.reserve(0, 2, 1), a);
  EXPECT_FALSE(policy.is_resident(0, 0));
  policy.commit(*b);
  EXPECT_TRUE(policy.is_resident(0, 1));
}

TEST(SlotPolicy, ARetiredSlotTakesNothingUntilItIsRestored) {
  SlotPolicy policy(3, 1, 8, EvictionRule::lfu);
  load(policy, 0, 3);
  load(policy, 1, 2);
  load(policy, 2);
  const auto retired = policy.retire();  // the least used goes
  ASSERT_TRUE(retired.has_value());
  EXPECT_FALSE(policy.is_resident(0, 2));
  EXPECT_TRUE(policy.is_resident(0, 0));
  EXPECT_EQ(policy.usable_count(), 2u);
  const auto a = policy.pin_resident(0, 0, 1), b = policy.pin_resident(0, 1, 1);
  EXPECT_FALSE(policy.reserve(0, 5, 1).has_value());
  EXPECT_FALSE(policy.retire().has_value());
  EXPECT_EQ(policy.restore(), retired);
  EXPECT_FALSE(policy.restore().has_value());
  EXPECT_EQ(policy.reserve(0, 5, 1), retired);
  policy.commit(*retired);
  for (const auto slot : {a, b, retired}) policy.unpin(*slot);
  EXPECT_EQ(policy.resident_count(), 3u);
}

ThreadPool& threads() {
  static ThreadPool pool(2);
  return pool;
}

// Two files of records, each record in `pieces` extents.
class FileSource final : public ExpertSource {
 public:
  static constexpr uint32_t kLayers = 2, kExperts = 16;
  explicit FileSource(uint32_t pieces, uint64_t bytes_of_record = 2 * kDirectAlignment)
      : pieces_(pieces), record_bytes_(bytes_of_record) {
    path_ = std::filesystem::temp_directory_path() /
            ("wader_experts_" + std::to_string(::getpid()) + "_" + std::to_string(pieces));
    bytes_.resize(kLayers * kExperts * record_bytes());
    std::mt19937 rng(11);
    std::vector<std::byte> noise(64 * kDirectAlignment);  // of which each block is some other part
    for (std::byte& b : noise) b = static_cast<std::byte>(rng());
    for (size_t at = 0; at < bytes_.size(); at += kDirectAlignment)
      std::memcpy(&bytes_[at], &noise[rng() % (noise.size() - kDirectAlignment)], kDirectAlignment);
    auto file = File::open(path_, File::Mode::create);
    CHECK(file.ok() && file->write_at(0, bytes_).ok());
    file_ = std::move(File::open(path_, File::Mode::update)).value();
    for (uint64_t p = 0; p < uint64_t{kLayers} * kExperts * pieces; ++p)
      extents_.push_back({{&file_, p * record_bytes() / pieces, record_bytes() / pieces},
                          p % pieces * record_bytes() / pieces});
  }
  ~FileSource() override { std::filesystem::remove(path_); }
  uint32_t layers() const override { return kLayers; }
  uint32_t experts() const override { return kExperts; }
  uint64_t record_bytes() const override { return record_bytes_; }
  std::span<const SlotExtent> extents(uint32_t layer, uint32_t expert) const override {
    return std::span(extents_).subspan((layer * kExperts + expert) * pieces_, pieces_);
  }
  uint64_t digest(uint32_t layer, uint32_t expert) const override {
    return record_digest(record(layer, expert));
  }
  std::span<const std::byte> record(uint32_t layer, uint32_t expert) const {
    return std::span(bytes_).subspan((layer * kExperts + expert) * record_bytes(), record_bytes());
  }
  // The last extent of every record is read from `file`.
  void move_extents(const File& file) {
    for (size_t i = pieces_ - 1; i < extents_.size(); i += pieces_) extents_[i].from.file = &file;
  }
  File& file() { return file_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  const uint32_t pieces_;
  const uint64_t record_bytes_;
  std::filesystem::path path_;
  std::vector<std::byte> bytes_;
  File file_;
  std::vector<SlotExtent> extents_;
};

// Runs a pass; checks that each id comes once with the right bytes. Returns the error, if any.
Status run_pass(ExpertCache& cache, const FileSource& source, uint32_t layer,
                const std::vector<uint32_t>& ids) {
  std::set<uint32_t> seen;
  Status status;
  const std::vector<uint32_t> uses(ids.size(), 1);
  cache.begin(layer, ids, uses);
  for (;;) {
    auto lease = cache.next();
    if (!lease.ok()) {
      status = lease.error();
      break;
    }
    if (!lease->has_value()) break;
    const uint32_t index = (*lease)->index();
    EXPECT_TRUE(seen.insert(index).second);
    const auto expected = source.record(layer, ids[index]);
    EXPECT_EQ(std::memcmp((*lease)->record().data(), expected.data(), expected.size()), 0);
  }
  cache.end();
  if (status.ok()) EXPECT_EQ(seen.size(), ids.size());
  return status;
}

// Records of three sections with padding between them, which stand at odd places of a file; read
// into the slot's far end, beside what stands around them, and assembled at its beginning.
class ScatteredSource final : public ExpertSource {
 public:
  static constexpr uint32_t kExperts = 16;
  static constexpr uint64_t kSection = 1000, kPlace = 1024, kAround = 24;
  ScatteredSource() : file_source_(1) {
    for (uint32_t e = 0; e < kExperts; ++e) {
      auto& record = records_.emplace_back(kDirectAlignment);
      for (uint64_t s = 0; s < 3; ++s) {
        // Sections of an expert are far apart, and in another order.
        const uint64_t at = kAround + ((2 - s) * kExperts + e) * kSection;
        const uint64_t in_slot = kDirectAlignment + s * (kSection + 2 * kAround);
        extents_.push_back({{&file_source_.file(), at - kAround, kSection + 2 * kAround}, in_slot});
        EXPECT_TRUE(
            file_source_.file().read_at(at, std::span(record).subspan(s * kPlace, kSection)).ok());
      }
    }
  }
  uint32_t layers() const override { return 1; }
  uint32_t experts() const override { return kExperts; }
  uint64_t record_bytes() const override { return kDirectAlignment; }
  uint64_t slot_bytes() const override { return 2 * kDirectAlignment; }
  std::span<const SlotExtent> extents(uint32_t, uint32_t expert) const override {
    return std::span(extents_).subspan(expert * 3, 3);
  }
  // At another place for every other expert.
  uint64_t assemble(uint32_t, uint32_t expert, std::span<std::byte> slot) const override {
    const uint64_t start = expert % 2 * 8;
    std::memset(&slot[start], 0, record_bytes());  // ends in what stands around
    for (uint64_t s = 0; s < 3; ++s)
      std::memcpy(&slot[start + s * kPlace],
                  &slot[kDirectAlignment + s * (kSection + 2 * kAround) + kAround], kSection);
    return start;
  }
  uint64_t digest(uint32_t, uint32_t expert) const override {
    return record_digest(records_[expert]);
  }
  std::span<const std::byte> record(uint32_t expert) const { return records_[expert]; }

 private:
  FileSource file_source_;
  std::vector<std::vector<std::byte>> records_;
  std::vector<SlotExtent> extents_;
};

TEST(ExpertCache, ARecordIsAssembledOfPiecesBesideIt) {
  const ScatteredSource source;
  for (const uint32_t capacity : {3u, 5u, 64u}) {
    const auto queue = make_fake_read_queue(
        {.seed = capacity, .short_read = 0.3, .interrupt = 0.2, .eio = 0.1}, capacity);
    auto cache = ExpertCache::create(source, 5, EvictionRule::lfu, *queue, threads());
    ASSERT_TRUE(cache.ok());
    std::mt19937 rng(capacity);
    const auto some = [&] {
      std::vector<uint32_t> ids;
      for (uint32_t e = 0; e < ScatteredSource::kExperts; ++e)
        if (rng() % 4 == 0) ids.push_back(e);
      return ids;
    };
    for (int pass = 0; pass < 40; ++pass) {
      if (rng() % 2 == 0)
        (*cache)->predict(0, some(),
                          rng() % 2 == 0 ? Experts::Certainty::likely : Experts::Certainty::sure);
      const std::vector<uint32_t> ids = some();
      const std::vector<uint32_t> uses(ids.size(), 1);
      (*cache)->begin(0, ids, uses);
      size_t seen = 0;
      for (;; ++seen) {
        auto lease = (*cache)->next();
        ASSERT_TRUE(lease.ok()) << lease.error().message;
        if (!lease->has_value()) break;
        const auto expected = source.record(ids[(*lease)->index()]);
        EXPECT_TRUE(std::ranges::equal((*lease)->record(), expected));
      }
      EXPECT_EQ(seen, ids.size());
      (*cache)->end();
      if (pass % 8 == 3) (*cache)->set_usable_slots(2);
      if (pass % 8 == 7) (*cache)->set_usable_slots(5);
    }
    EXPECT_GT((*cache)->counters().hits, 0u);
    EXPECT_GT((*cache)->counters().predicted_right, 0u);
  }
}

// Calls test(cache, source, rng) for records in one and two pieces, pools from one slot to all,
// short and long queues, and a disk that does what `seeds` say: 0 are threads, the others fake ones
// with faults that heal.
template <typename Test>
void for_each_cache(uint32_t seeds, Test&& test) {
  for (const uint32_t pieces : {1u, 2u}) {
    FileSource source(pieces);
    for (const uint32_t slots : {1u, 2u, 5u, 32u})
      for (const uint32_t capacity : {2u, 3u, 64u})
        for (uint32_t seed = 0; seed < seeds; ++seed) {
          const auto queue =
              seed == 0
                  ? make_thread_read_queue(3, capacity)
                  : make_fake_read_queue(
                        {.seed = seed, .short_read = 0.3, .interrupt = 0.2, .eio = 0.1}, capacity);
          auto cache = ExpertCache::create(source, slots, EvictionRule::lfu, *queue, threads());
          ASSERT_TRUE(cache.ok());
          std::mt19937 rng(seed);
          ASSERT_NO_FATAL_FAILURE(test(**cache, source, rng));
        }
  }
}

TEST(ExpertCache, EveryPassGetsItsExpertsWhateverSlotsQueueAndDiskDo) {
  for_each_cache(3, [](ExpertCache& cache, const FileSource& source, std::mt19937& rng) {
    for (int pass = 0; pass < 30; ++pass) {
      std::vector<uint32_t> ids;
      for (uint32_t e = 0; e < FileSource::kExperts; ++e)
        if (rng() % 3 == 0) ids.push_back(e);
      const Status status = run_pass(cache, source, rng() % 2, ids);
      ASSERT_TRUE(status.ok()) << status.error().message;
      EXPECT_LE(cache.resident_count(), cache.slot_count());
    }
  });
}

TEST(ExpertCache, AllResidentMeansNoReads) {
  FileSource source(1);
  const auto queue = make_thread_read_queue(2, 8);
  auto cache =
      std::move(ExpertCache::create(source, 32, EvictionRule::lfu, *queue, threads())).value();
  std::vector<uint32_t> all(16);
  for (uint32_t e = 0; e < 16; ++e) all[e] = e;
  ASSERT_TRUE(run_pass(*cache, source, 0, all).ok());
  ASSERT_TRUE(run_pass(*cache, source, 1, all).ok());
  EXPECT_EQ(cache->counters().misses, 32u);
  EXPECT_EQ(cache->counters().bytes_read, 32 * source.record_bytes());
  const ExpertCounters before = cache->counters();
  ASSERT_TRUE(run_pass(*cache, source, 0, all).ok());
  EXPECT_EQ(cache->counters().since(before).hits, 16u);
  EXPECT_EQ(cache->counters().since(before).bytes_read, 0u);
}

TEST(ExpertCache, SlotsComeAndGoBetweenPasses) {
  FileSource source(2);
  const auto queue = make_thread_read_queue(2, 8);
  auto cache =
      std::move(ExpertCache::create(source, 32, EvictionRule::lfu, *queue, threads())).value();
  std::mt19937 rng(5);
  for (int pass = 0; pass < 200; ++pass) {
    const uint32_t usable = 1 + rng() % 32;
    cache->set_usable_slots(usable);
    EXPECT_EQ(cache->usable_count(), usable);
    EXPECT_LE(cache->resident_count(), usable);
    std::vector<uint32_t> ids;
    for (uint32_t e = 0; e < FileSource::kExperts; ++e)
      if (rng() % 3 == 0) ids.push_back(e);
    const Status status = run_pass(*cache, source, rng() % 2, ids);
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_LE(cache->resident_count(), usable);
  }
}

TEST(ExpertCache, AFlippedBitIsNamedAndNeverCached) {
  FileSource source(1);
  const auto queue = make_thread_read_queue(2, 8);
  auto cache =
      std::move(ExpertCache::create(source, 8, EvictionRule::lfu, *queue, threads())).value();
  const uint64_t at = (16 + 5) * source.record_bytes() + 777;  // layer 1, expert 5
  std::byte flipped[] = {source.record(1, 5)[777] ^ std::byte{4}};
  ASSERT_TRUE(source.file().write_at(at, flipped).ok());
  for (int attempt = 0; attempt < 3; ++attempt) {
    const Status status = run_pass(*cache, source, 1, {2, 5, 9});
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::corrupt);
    EXPECT_NE(status.error().message.find("layer 1 expert 5"), std::string::npos)
        << status.error().message;
    EXPECT_NE(status.error().message.find(source.path().string()), std::string::npos);
  }
  EXPECT_TRUE(run_pass(*cache, source, 1, {2, 9}).ok());
  // The file is repaired: the cache recovers by itself.
  flipped[0] ^= std::byte{4};
  ASSERT_TRUE(source.file().write_at(at, flipped).ok());
  EXPECT_TRUE(run_pass(*cache, source, 1, {2, 5, 9}).ok());
}

TEST(ExpertCache, ARecordCutShortIsNamed) {
  FileSource source(1);
  std::filesystem::resize_file(source.path(), 31 * source.record_bytes() + 100);
  const auto queue = make_thread_read_queue(2, 8);
  auto cache =
      std::move(ExpertCache::create(source, 8, EvictionRule::lfu, *queue, threads())).value();
  EXPECT_TRUE(run_pass(*cache, source, 1, {14}).ok());
  const Status status = run_pass(*cache, source, 1, {14, 15});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::corrupt);
  EXPECT_NE(status.error().message.find("expert 15"), std::string::npos);
}

TEST(ExpertCache, LastingEioFailsThePassAndLeavesTheRestUsable) {
  FileSource source(2);
  const auto queue = make_fake_read_queue(
      {.seed = 3, .eio_always = true, .eio_offset = 20 * source.record_bytes()}, 64);
  auto cache =
      std::move(ExpertCache::create(source, 8, EvictionRule::lfu, *queue, threads())).value();
  const Status status = run_pass(*cache, source, 1, {1, 2, 3, 4, 5, 6});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::io);
  EXPECT_TRUE(run_pass(*cache, source, 1, {0, 1, 2}).ok());
  EXPECT_TRUE(run_pass(*cache, source, 0, {7, 8, 9, 10, 11, 12, 13, 14, 15}).ok());
}

// Passes over both layers, each announced before by a prediction that is partly wrong.
TEST(ExpertCache, PredictionsNeverChangeWhatAPassGets) {
  for_each_cache(4, [](ExpertCache& cache, const FileSource& source, std::mt19937& rng) {
    for (uint32_t pass = 0; pass < 60; ++pass) {
      std::vector<uint32_t> ids, predicted;
      for (uint32_t e = 0; e < FileSource::kExperts; ++e) {
        const bool wanted = rng() % 3 == 0;
        if (wanted) ids.push_back(e);
        if (wanted == (rng() % 4 != 0)) predicted.push_back(e);
      }
      if (rng() % 4 != 0)
        cache.predict(pass % 2, predicted,
                      rng() % 2 ? ExpertCache::Certainty::sure : ExpertCache::Certainty::likely);
      const Status status = run_pass(cache, source, pass % 2, ids);
      ASSERT_TRUE(status.ok()) << status.error().message;
    }
    EXPECT_LE(cache.counters().predicted_right, cache.counters().predicted);
  });
}

TEST(ExpertCache, ARightPredictionIsReadOnceAndIsNoHit) {
  FileSource source(1);
  const auto queue = make_thread_read_queue(2, 8);
  auto cache =
      std::move(ExpertCache::create(source, 8, EvictionRule::lfu, *queue, threads())).value();
  cache->predict(1, std::vector<uint32_t>{3, 4}, ExpertCache::Certainty::sure);
  ASSERT_TRUE(run_pass(*cache, source, 1, {3, 4, 9}).ok());
  EXPECT_EQ(cache->counters().predicted, 2u);
  EXPECT_EQ(cache->counters().predicted_right, 2u);
  EXPECT_EQ(cache->counters().misses, 3u);
  EXPECT_EQ(cache->counters().bytes_read, 3 * source.record_bytes());
  EXPECT_EQ(cache->counters().wasted_bytes, 0u);
  ASSERT_TRUE(run_pass(*cache, source, 1, {3, 4, 9}).ok());
  EXPECT_EQ(cache->counters().hits, 3u);
}

TEST(ExpertCache, AWrongPredictionThatFailsIsNobodysError) {
  FileSource source(2);
  const auto queue = make_fake_read_queue(
      {.seed = 5, .eio_always = true, .eio_offset = 20 * source.record_bytes()}, 64);
  auto cache =
      std::move(ExpertCache::create(source, 8, EvictionRule::lfu, *queue, threads())).value();
  for (int attempt = 0; attempt < 8; ++attempt) {
    cache->predict(1, std::vector<uint32_t>{5, 6, 7},
                   ExpertCache::Certainty::likely);  // behind the damage
    ASSERT_TRUE(run_pass(*cache, source, 1, {0, 1, 2, 3}).ok());
    cache->predict(1, std::vector<uint32_t>{5, 6}, ExpertCache::Certainty::sure);
    const Status status = run_pass(*cache, source, 1, {1, 6});  // asked for: its error
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("expert 6"), std::string::npos) << status.error().message;
  }
}

// A disk of 40 MB/s takes 0.2 s for a record and 50 ms for a piece of it: a quarter of its only
// extent, or of the larger one of two.
void a_wrong_prediction_costs_what_has_started(uint32_t pieces) {
  FileSource source(pieces, 8 * kMiB);
  const auto queue = make_throttled_read_queue(40e6, 0, 64);
  auto cache =
      std::move(ExpertCache::create(source, 8, EvictionRule::lfu, *queue, threads())).value();
  ASSERT_TRUE(run_pass(*cache, source, 0, {1}).ok());  // how long a read takes is known now
  cache->predict(1, std::vector<uint32_t>{5, 6, 7}, ExpertCache::Certainty::likely);
  ASSERT_TRUE(run_pass(*cache, source, 1, {2}).ok());
  const ExpertCounters& counters = cache->counters();
  EXPECT_EQ(counters.predicted, 1u);  // the others had not started
  EXPECT_EQ(counters.predicted_right, 0u);
  EXPECT_LT(counters.wasted_bytes, 8 * kMiB);
  EXPECT_EQ(counters.bytes_read, 16 * kMiB + counters.wasted_bytes);
  EXPECT_GT(counters.delay_seconds, 0);
  // Right in part: what has landed is hidden, the rest is read as if it had been asked for.
  cache->predict(1, std::vector<uint32_t>{9}, ExpertCache::Certainty::likely);
  std::this_thread::sleep_for(std::chrono::milliseconds(80));
  ASSERT_TRUE(run_pass(*cache, source, 1, {9}).ok());
  EXPECT_EQ(counters.predicted_right, 1u);
  EXPECT_GT(counters.hidden_seconds, 0);
  EXPECT_EQ(counters.bytes_read, 24 * kMiB + counters.wasted_bytes);
}

TEST(ExpertCache, AWrongPredictionCostsThePiecesThatHaveStarted) {
  a_wrong_prediction_costs_what_has_started(1);
}

TEST(ExpertCache, AWrongPredictionOfARecordInExtentsToo) {
  a_wrong_prediction_costs_what_has_started(2);
}

// An extent is damaged that is in another file than the first one.
TEST(ExpertCache, AllFilesOfADamagedRecordAreNamed) {
  FileSource source(2);
  const std::string other = source.path().string() + "_other";
  std::filesystem::copy_file(source.path(), other,
                             std::filesystem::copy_options::overwrite_existing);
  File second = File::open(other, File::Mode::update).value();
  source.move_extents(second);
  const auto queue = make_thread_read_queue(2, 8);
  auto cache =
      std::move(ExpertCache::create(source, 8, EvictionRule::lfu, *queue, threads())).value();
  ASSERT_TRUE(run_pass(*cache, source, 0, {0, 1, 2, 3}).ok());
  std::byte flipped[] = {source.record(1, 5).back() ^ std::byte{4}};
  ASSERT_TRUE(second.write_at((16 + 6) * source.record_bytes() - 1, flipped).ok());
  const Status status = run_pass(*cache, source, 1, {5});
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find(source.path().string() + ", " + other + ": layer 1"),
            std::string::npos)
      << status.error().message;
  std::filesystem::remove(other);
}

TEST(ExpertCache, TooManySlotsAreAnErrorNotACrash) {
  FileSource source(1);
  const auto queue = make_thread_read_queue(1, 4);
  EXPECT_FALSE(ExpertCache::create(source, 0xffffffffu, EvictionRule::lfu, *queue, threads()).ok());
}

}  // namespace
}  // namespace wader
