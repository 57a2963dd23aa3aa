#include "io/read_queue.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <numeric>
#include <set>

#include "io/aligned_buffer.h"

namespace wader {
namespace {

class ReadQueueTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kRecords = 24, kRecordBytes = 3 * kDirectAlignment;

  void SetUp() override {
    path_ =
        std::filesystem::temp_directory_path() / ("wader_read_queue_" + std::to_string(::getpid()));
    bytes_.resize(kRecords * kRecordBytes);
    for (size_t i = 0; i < bytes_.size(); ++i)
      bytes_[i] = static_cast<std::byte>((i * 2654435761u) >> 13);
    auto file = File::open(path_, File::Mode::create);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write_at(0, bytes_).ok());
    file_ = std::move(File::open(path_, File::Mode::read)).value();
    buffer_ = std::move(AlignedBuffer::allocate(bytes_.size())).value();
  }
  void TearDown() override { std::filesystem::remove(path_); }

  ReadRequest record(uint64_t i) {
    return {{&file_, i * kRecordBytes, kRecordBytes}, buffer_.data() + i * kRecordBytes, i};
  }

  // Reads all records a few at a time; returns the completions by tag.
  std::vector<ReadCompletion> read_all(ReadQueue& queue) {
    std::vector<ReadCompletion> by_tag(kRecords);
    std::vector<ReadCompletion> landed(queue.capacity());
    std::set<uint64_t> seen;
    uint64_t next = 0;
    while (seen.size() < kRecords) {
      while (next < kRecords && queue.in_flight() < queue.capacity()) {
        const ReadRequest request = record(next++);
        queue.submit(std::span(&request, 1));
      }
      const size_t n = queue.wait(landed);
      EXPECT_GT(n, 0u);
      for (size_t i = 0; i < n; ++i) {
        EXPECT_TRUE(seen.insert(landed[i].tag).second);
        by_tag[landed[i].tag] = landed[i];
      }
    }
    EXPECT_EQ(queue.wait(landed), 0u);
    return by_tag;
  }

  void expect_whole(const std::vector<ReadCompletion>& completions) {
    for (const ReadCompletion& c : completions) {
      EXPECT_EQ(c.errno_value, 0);
      EXPECT_EQ(c.bytes_read, kRecordBytes);
    }
    EXPECT_EQ(std::memcmp(buffer_.data(), bytes_.data(), bytes_.size()), 0);
  }

  std::filesystem::path path_;
  std::vector<std::byte> bytes_;
  File file_;
  AlignedBuffer buffer_;
};

TEST_F(ReadQueueTest, ThreadsReadEverythingOnce) {
  for (uint32_t threads : {1u, 4u})
    for (uint32_t capacity : {1u, 3u, 64u}) {
      std::memset(buffer_.data(), 0, bytes_.size());
      const auto queue = make_thread_read_queue(threads, capacity);
      expect_whole(read_all(*queue));
    }
}

TEST_F(ReadQueueTest, ThreadsStopWithReadsInFlight) {
  for (int i = 0; i < 20; ++i) {
    const auto queue = make_thread_read_queue(2, 64);
    for (uint64_t r = 0; r < kRecords; ++r) {
      const ReadRequest request = record(r);
      queue->submit(std::span(&request, 1));
    }
  }
}

TEST_F(ReadQueueTest, ShortReadsInterruptsAndOneEioAreHealed) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::memset(buffer_.data(), 0, bytes_.size());
    const auto queue =
        make_fake_read_queue({.seed = seed, .short_read = 0.5, .interrupt = 0.3, .eio = 0.0}, 8);
    expect_whole(read_all(*queue));
  }
  // At most one EIO a request is forgiven, so the rate must be low enough that no request meets
  // two.
  int healed = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const auto queue = make_fake_read_queue({.seed = seed, .eio = 0.5}, 8);
    for (const ReadCompletion& c : read_all(*queue)) healed += c.errno_value == 0;
  }
  EXPECT_EQ(healed, 50 * static_cast<int>(kRecords));
}

TEST_F(ReadQueueTest, LastingEioIsReported) {
  const auto queue =
      make_fake_read_queue({.seed = 7, .eio_always = true, .eio_offset = 10 * kRecordBytes}, 8);
  const auto completions = read_all(*queue);
  for (uint64_t i = 0; i < kRecords; ++i)
    EXPECT_EQ(completions[i].errno_value, i < 10 ? 0 : EIO) << i;
  const Error error = read_error(completions[10], record(10).from);
  EXPECT_EQ(error.code, ErrorCode::io);
  EXPECT_NE(error.message.find(path_.string()), std::string::npos);
}

TEST_F(ReadQueueTest, AFileCutShortIsSaidSo) {
  std::filesystem::resize_file(path_, 5 * kRecordBytes + 100);
  for (const bool direct : {false, true}) {
    if (direct) {
      auto file = File::open(path_, File::Mode::read_direct);
      if (!file.ok()) GTEST_SKIP() << "no O_DIRECT on this file system: " << file.error().message;
      file_ = std::move(file).value();
    }
    const auto queue = make_thread_read_queue(2, 8);
    const auto completions = read_all(*queue);
    EXPECT_EQ(completions[4].bytes_read, kRecordBytes);
    EXPECT_EQ(completions[5].errno_value, 0);
    EXPECT_EQ(completions[5].bytes_read, 100u);
    EXPECT_EQ(read_error(completions[5], record(5).from).code, ErrorCode::corrupt);
  }
}

TEST_F(ReadQueueTest, DirectIsProvedByReading) {
  EXPECT_FALSE(direct_reads_work("/nonexistent"));
  EXPECT_FALSE(direct_reads_work("/proc/self/status"));
  auto direct = File::open(path_, File::Mode::read_direct);
  EXPECT_EQ(direct_reads_work(path_.string()), direct.ok());
}

}  // namespace
}  // namespace wader
