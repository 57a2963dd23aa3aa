#include "io/read_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "base/units.h"
#include "io/read_queue_testing.h"

namespace wader {
namespace {

using testing::known_bytes;
using testing::make_back_end;
using testing::PlaceForFiles;

// A file, opened with or without O_DIRECT, a queue of the back end over it, and memory to read
// into.
class Reads {
 public:
  static constexpr uint64_t kFileBytes = 8 * kMiB;
  static constexpr uint64_t kMemoryBytes = 48 * kMiB;  // resident only as far as read into

  // The reason why this cannot be had; empty: it is ready.
  std::string set_up(const std::string& back_end, const std::string& kind, bool direct,
                     uint32_t capacity = 16) {
    place_ = std::make_unique<PlaceForFiles>(kind);
    if (!place_->missing().empty()) return place_->missing();
    static const std::vector<std::byte> bytes = known_bytes(kFileBytes);
    bytes_ = bytes;
    path_ = place_->directory() / "records.bin";
    auto writable = File::open(path_, File::Mode::create);
    if (!writable.ok() || !writable->write_at(0, bytes_).ok())
      return "cannot write " + path_.string();
    if (direct && !direct_reads_work(path_.string())) return kind + " does not read with O_DIRECT";
    direct_ = direct;
    file = File::open(path_, direct ? File::Mode::read_direct : File::Mode::read).value();
    memory = AlignedBuffer::allocate(kMemoryBytes, AlignedBuffer::Pages::huge).value();
    auto made = make_back_end(back_end, capacity);
    if (!made.ok()) return made.error().message;
    queue = std::move(made).value();
    landed.resize(capacity);
    return {};
  }

  ReadRequest request(uint64_t tag, uint64_t offset, uint64_t bytes, uint64_t into) {
    return {{&file, offset, bytes}, memory.data() + into, tag};
  }
  void submit(const ReadRequest& request, ReadClass read_class = ReadClass::demand) {
    queue->submit(std::span(&request, 1), read_class);
  }
  bool holds(const ReadRequest& request) const {
    return std::memcmp(request.into, &bytes_[request.from.offset_bytes], request.from.bytes) == 0;
  }
  std::vector<ReadCompletion> wait_for_all() {
    std::vector<ReadCompletion> all;
    while (queue->in_flight() > 0) {
      const size_t n = queue->wait(landed);
      EXPECT_GT(n, 0u);
      all.insert(all.end(), landed.begin(), landed.begin() + static_cast<long>(n));
    }
    return all;
  }
  uint64_t unit() const { return direct_ ? kDirectAlignment : 1; }
  const std::filesystem::path& path() const { return path_; }

  File file;
  AlignedBuffer memory;
  std::unique_ptr<ReadQueue> queue;  // goes before memory and file
  std::vector<ReadCompletion> landed;

 private:
  std::unique_ptr<PlaceForFiles> place_;
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
  bool direct_ = false;
};

// Back end, file system, O_DIRECT.
class ReadQueueTest : public ::testing::TestWithParam<std::tuple<const char*, const char*, bool>> {
 protected:
  void set_up(uint32_t capacity = 16) {
    const auto& [back_end, kind, direct] = GetParam();
    const std::string missing = reads_.set_up(back_end, kind, direct, capacity);
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
  bool is(std::string_view back_end) const { return std::get<0>(GetParam()) == back_end; }
  Reads reads_;
};

INSTANTIATE_TEST_SUITE_P(All, ReadQueueTest,
                         ::testing::Combine(::testing::ValuesIn(testing::kBackEnds),
                                            ::testing::Values("disk", "tmpfs", "overlay"),
                                            ::testing::Bool()),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param)) + "_" +
                                  std::get<1>(param.param) +
                                  (std::get<2>(param.param) ? "_direct" : "_buffered");
                         });

TEST_P(ReadQueueTest, RandomReadsBringTheRightBytes) {
  set_up();
  if (IsSkipped()) return;
  std::mt19937_64 rng(11);
  const uint64_t slot_bytes = Reads::kMemoryBytes / 8;
  std::vector<ReadRequest> requests(8);
  uint64_t submitted = 0, seen = 0;
  std::set<uint64_t> open, free = {0, 1, 2, 3, 4, 5, 6, 7};
  while (seen < 120) {
    // One to four at a time, small and large, of both classes.
    for (uint64_t n = 1 + rng() % 4; n > 0 && !free.empty() && submitted < 120; --n, ++submitted) {
      const uint64_t slot = *free.begin();
      free.erase(free.begin());
      const uint64_t most = (rng() % 4 == 0 ? slot_bytes : 300 * kKiB) / reads_.unit();
      const uint64_t bytes = (1 + rng() % most) * reads_.unit();
      const uint64_t offset = rng() % ((Reads::kFileBytes - bytes) / reads_.unit()) * reads_.unit();
      requests[slot] = reads_.request(slot, offset, bytes, slot * slot_bytes);
      std::memset(requests[slot].into, 0, bytes);
      open.insert(slot);
      reads_.submit(requests[slot], rng() % 2 ? ReadClass::ahead : ReadClass::demand);
    }
    EXPECT_EQ(reads_.queue->in_flight(), open.size());
    std::span<ReadCompletion> few(reads_.landed.data(), 1 + rng() % 3);
    const size_t n = rng() % 3 == 0 ? reads_.queue->poll(few) : reads_.queue->wait(few);
    for (const ReadCompletion& c : few.first(n)) {
      ASSERT_EQ(open.erase(c.tag), 1u) << "completed twice, or never asked for";
      EXPECT_EQ(c.errno_value, 0);
      EXPECT_EQ(c.bytes_read, requests[c.tag].from.bytes);
      EXPECT_TRUE(reads_.holds(requests[c.tag]));
      free.insert(c.tag);
      ++seen;
    }
  }
  EXPECT_EQ(reads_.queue->in_flight(), 0u);
  EXPECT_EQ(reads_.queue->wait(reads_.landed), 0u);
  EXPECT_EQ(reads_.queue->poll(reads_.landed), 0u);
}

TEST_P(ReadQueueTest, PollAloneFinishesAFullQueue) {
  for (const uint32_t capacity : {1u, 7u, 64u}) {
    set_up(capacity);
    if (IsSkipped()) return;
    ASSERT_EQ(reads_.queue->capacity(), capacity);
    std::vector<ReadRequest> requests;
    for (uint64_t i = 0; i < capacity; ++i)
      requests.push_back(reads_.request(i, i * 8 * kKiB, 8 * kKiB, i * 8 * kKiB));
    reads_.queue->submit(requests);
    std::set<uint64_t> seen;
    while (seen.size() < capacity) {
      const size_t n = reads_.queue->poll(reads_.landed);
      for (size_t i = 0; i < n; ++i) EXPECT_TRUE(seen.insert(reads_.landed[i].tag).second);
    }
    for (const ReadRequest& request : requests) EXPECT_TRUE(reads_.holds(request));
    EXPECT_EQ(reads_.queue->in_flight(), 0u);
  }
}

TEST_P(ReadQueueTest, WithdrawnReadsNeverComplete) {
  set_up(64);
  if (IsSkipped()) return;
  // 48 reads of 2.6 ms: not done before the first is withdrawn, however busy the machine is.
  if (is("throttled")) reads_.queue = make_throttled_read_queue(100e6, 10e-6, 64);
  std::mt19937_64 rng(5);
  uint64_t withdrawn = 0;
  for (int round = 0; round < 4; ++round) {
    std::set<uint64_t> expected;
    for (uint64_t i = 0; i < 48; ++i) {
      reads_.submit(reads_.request(i, i * 64 * kKiB, 256 * kKiB, i * 256 * kKiB),
                    i % 2 ? ReadClass::ahead : ReadClass::demand);
      expected.insert(i);
    }
    EXPECT_FALSE(reads_.queue->withdraw(999));
    for (uint64_t i = 47; i < 48; i -= 1 + rng() % 2) {
      if (!reads_.queue->withdraw(i)) continue;
      expected.erase(i);
      EXPECT_EQ(reads_.queue->in_flight(), expected.size());
      EXPECT_FALSE(reads_.queue->withdraw(i));
    }
    withdrawn += 48 - expected.size();
    std::set<uint64_t> seen;
    for (const ReadCompletion& c : reads_.wait_for_all()) seen.insert(c.tag);
    EXPECT_EQ(seen, expected);
  }
  EXPECT_GT(withdrawn, 0u);
}

// The fake completes in any order on purpose.
TEST_P(ReadQueueTest, DemandStartsBeforeWhatWasQueuedAhead) {
  set_up(64);
  if (IsSkipped()) return;
  if (is("fake")) GTEST_SKIP() << "the fake back end has no order";
  // Between two calls of this thread a back end with threads may finish anything; five tries, and a
  // queue without classes would fail all.
  for (int attempt = 0; attempt < 5; ++attempt) {
    for (uint64_t i = 0; i < 40; ++i)
      reads_.submit(reads_.request(i, i % 8 * kMiB, kMiB, i * kMiB), ReadClass::ahead);
    for (uint64_t i = 40; i < 44; ++i)
      reads_.submit(reads_.request(i, i % 8 * kMiB, kMiB, i * kMiB), ReadClass::demand);
    const auto all = reads_.wait_for_all();
    ASSERT_EQ(all.size(), 44u);
    size_t last_demand = 0;
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].tag >= 40) last_demand = i;
    if (last_demand < 20) return;
  }
  ADD_FAILURE() << "demands came behind reads that had not started";
}

TEST_P(ReadQueueTest, ABadDescriptorIsReported) {
  set_up();
  if (IsSkipped()) return;
  const File closed;
  const ReadRequest bad = {{&closed, 0, 4096}, reads_.memory.data(), 1};
  const ReadRequest good = reads_.request(2, 0, 64 * kKiB, 64 * kKiB);
  reads_.submit(bad);
  reads_.submit(good);
  auto all = reads_.wait_for_all();
  ASSERT_EQ(all.size(), 2u);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.tag < b.tag; });
  EXPECT_EQ(all[0].errno_value, EBADF);
  EXPECT_EQ(all[0].bytes_read, 0u);
  EXPECT_EQ(all[1].errno_value, 0);
  EXPECT_TRUE(reads_.holds(good));
}

TEST_P(ReadQueueTest, AFileCutShortIsSaidSo) {
  set_up();
  if (IsSkipped()) return;
  std::filesystem::resize_file(reads_.path(), 5 * 64 * kKiB + 100);
  for (uint64_t i = 0; i < 8; ++i)
    reads_.submit(reads_.request(i, i * 64 * kKiB, 64 * kKiB, i * 64 * kKiB));
  const auto all = reads_.wait_for_all();
  ASSERT_EQ(all.size(), 8u);
  for (const ReadCompletion& c : all) {
    EXPECT_EQ(c.errno_value, 0) << c.tag;
    EXPECT_EQ(c.bytes_read, c.tag < 5 ? 64 * kKiB : c.tag == 5 ? 100u : 0u) << c.tag;
  }
  const ReadRequest sixth = reads_.request(5, 5 * 64 * kKiB, 64 * kKiB, 0);
  const Error error = read_error({5, 0, 100}, sixth.from);
  EXPECT_EQ(error.code, ErrorCode::corrupt);
  EXPECT_NE(error.message.find(reads_.path().string()), std::string::npos) << error.message;
}

TEST_P(ReadQueueTest, GoesAwayWithReadsInFlight) {
  for (int i = 0; i < 8; ++i) {
    set_up(64);
    if (IsSkipped()) return;
    for (uint64_t r = 0; r < 40; ++r)
      reads_.submit(reads_.request(r, r * 64 * kKiB, kMiB, r * kMiB),
                    r % 3 ? ReadClass::demand : ReadClass::ahead);
    reads_.queue.reset();
    reads_.memory = {};  // nothing may write there any more
  }
}

// What a disk does to a reader, for the back ends that take faults.
class FaultyReadsTest : public ::testing::TestWithParam<const char*> {
 protected:
  // Reads 24 records with the faults; false: this system has no such back end.
  bool read_all(const FaultPlan& plan, bool direct, std::vector<ReadCompletion>& by_tag) {
    const std::string missing = reads_.set_up(GetParam(), "disk", direct);
    if (!missing.empty()) {
      reason_ = missing;
      return false;
    }
    reads_.queue = std::string_view(GetParam()) == "fake"
                       ? make_fake_read_queue(plan, 32)
                       : make_uring_read_queue(32, {.reads = plan}).value();
    reads_.landed.resize(32);
    for (uint64_t i = 0; i < kRecords; ++i) reads_.submit(record(i));
    by_tag.resize(kRecords);
    const auto all = reads_.wait_for_all();
    EXPECT_EQ(all.size(), kRecords);
    for (const ReadCompletion& c : all) by_tag[c.tag] = c;
    return true;
  }
  ReadRequest record(uint64_t i) { return reads_.request(i, i * kBytes, kBytes, i * kBytes); }

  static constexpr uint64_t kRecords = 24, kBytes = 3 * kDirectAlignment;
  Reads reads_;
  std::string reason_;
};

INSTANTIATE_TEST_SUITE_P(All, FaultyReadsTest, ::testing::Values("fake", "uring"),
                         [](const auto& param) { return std::string(param.param); });

TEST_P(FaultyReadsTest, ShortReadsInterruptsAndOneEioAreHealed) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    std::vector<ReadCompletion> all;
    const FaultPlan plan = {.seed = seed, .short_read = 0.5, .interrupt = 0.3, .eio = 0.4};
    if (!read_all(plan, seed % 2 == 0, all)) GTEST_SKIP() << reason_;
    for (uint64_t i = 0; i < kRecords; ++i) {
      EXPECT_EQ(all[i].errno_value, 0);
      EXPECT_EQ(all[i].bytes_read, kBytes);
      EXPECT_TRUE(reads_.holds(record(i)));
    }
  }
}

TEST_P(FaultyReadsTest, LastingEioIsReported) {
  std::vector<ReadCompletion> all;
  if (!read_all({.seed = 7, .eio_always = true, .eio_offset = 10 * kBytes}, false, all))
    GTEST_SKIP() << reason_;
  for (uint64_t i = 0; i < kRecords; ++i) EXPECT_EQ(all[i].errno_value, i < 10 ? 0 : EIO) << i;
  const Error error = read_error(all[10], record(10).from);
  EXPECT_EQ(error.code, ErrorCode::io);
  EXPECT_NE(error.message.find(reads_.path().string()), std::string::npos);
}

TEST(DirectReads, AreProvedByReading) {
  EXPECT_FALSE(direct_reads_work("/nonexistent"));
  EXPECT_FALSE(direct_reads_work("/proc/self/status"));
  const testing::TempDirectory directory;
  directory.write("file", std::string(64 * kKiB, 'x'));
  const std::string path = (directory.path() / "file").string();
  EXPECT_EQ(direct_reads_work(path), File::open(path, File::Mode::read_direct).ok());
}

}  // namespace
}  // namespace wader
