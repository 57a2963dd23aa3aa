// What only one back end does: io_uring's refusals and its window, the modelled disk's clock.
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

#include "base/units.h"
#include "io/read_queue_testing.h"
#include "io/read_window.h"

namespace wader {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class OneFile : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_.write("records.bin", std::string(24 * kMiB, 'x'));
    file_ = File::open(path(), File::Mode::read).value();
    memory_ = AlignedBuffer::allocate(64 * kMiB, AlignedBuffer::Pages::huge).value();
  }
  std::string path() const { return (directory_.path() / "records.bin").string(); }
  bool open_direct() {
    if (!direct_reads_work(path())) return false;
    file_ = File::open(path(), File::Mode::read_direct).value();
    return true;
  }
  ReadRequest request(uint64_t tag, uint64_t bytes) {
    return {{&file_, 0, bytes}, memory_.data() + tag * bytes, tag};
  }
  void submit(ReadQueue& queue, uint64_t tag, uint64_t bytes, ReadClass read_class) {
    const ReadRequest one = request(tag, bytes);
    queue.submit(std::span(&one, 1), read_class);
  }
  static std::vector<uint64_t> tags_to_the_end(ReadQueue& queue) {
    std::vector<uint64_t> tags;
    ReadCompletion completion;
    while (queue.wait(std::span(&completion, 1)) > 0) tags.push_back(completion.tag);
    return tags;
  }

  testing::TempDirectory directory_;
  File file_;
  AlignedBuffer memory_;
};

using UringTest = OneFile;

TEST_F(UringTest, RefusalsNameTheirCause) {
  const std::pair<int, const char*> kCases[] = {{ENOSYS, "kernel has none"},
                                                {EPERM, "io_uring_disabled"},
                                                {ENOMEM, "ulimit -l"},
                                                {EMFILE, "ulimit -n"},
                                                {EINVAL, "Invalid argument"}};
  for (const auto& [error, text] : kCases) {
    const auto queue = make_uring_read_queue(8, {.setup_errno = error});
    ASSERT_FALSE(queue.ok());
    EXPECT_NE(queue.error().message.find(text), std::string::npos) << queue.error().message;
    EXPECT_EQ(queue.error().message.find("io_uring"), 0u);
  }
}

// The owner looks only at the end, as one that computes does: large reads still come one after the
// other, each demand before all of ahead but the one that had started.
// Where the first read lands before the last is submitted (this thread was not running), the next
// ahead has started rightly: another attempt then.
constexpr int kAttempts = 20;

TEST_F(UringTest, LargeReadsComeInTheOrderOfTheirClasses) {
  if (!open_direct()) GTEST_SKIP() << "this file system does not read with O_DIRECT";
  auto queue = make_uring_read_queue(16);
  if (!queue.ok()) GTEST_SKIP() << queue.error().message;
  const std::vector<uint64_t> expected = {0, 4, 5, 6, 7, 1, 2, 3};
  std::vector<uint64_t> tags;
  for (int attempt = 0; attempt < kAttempts && tags != expected; ++attempt) {
    for (uint64_t i = 0; i < 4; ++i) submit(**queue, i, 5 * kMiB, ReadClass::ahead);
    for (uint64_t i = 4; i < 8; ++i) submit(**queue, i, 5 * kMiB, ReadClass::demand);
    tags = tags_to_the_end(**queue);
  }
  EXPECT_EQ(tags, expected);
}

TEST_F(UringTest, WhatIsNotInTheKernelIsWithdrawn) {
  if (!open_direct()) GTEST_SKIP() << "this file system does not read with O_DIRECT";
  auto queue = make_uring_read_queue(16);
  if (!queue.ok()) GTEST_SKIP() << queue.error().message;
  bool all_but_the_first = false;
  for (int attempt = 0; attempt < kAttempts && !all_but_the_first; ++attempt) {
    for (uint64_t i = 0; i < 4; ++i) submit(**queue, i, 5 * kMiB, ReadClass::ahead);
    std::vector<uint64_t> withdrawn, expected;
    for (uint64_t i = 0; i < 4; ++i) ((*queue)->withdraw(i) ? withdrawn : expected).push_back(i);
    EXPECT_EQ(tags_to_the_end(**queue), expected);
    all_but_the_first = withdrawn == std::vector<uint64_t>{1, 2, 3};
  }
  EXPECT_TRUE(all_but_the_first);
}

// A ring that the kernel stops serving: every read completes, with data or with the reason.
TEST_F(UringTest, ARingThatIsRefusedLaterFailsEveryReadOnce) {
  for (uint64_t before = 0; before < 6; ++before) {
    auto queue = make_uring_read_queue(64, {.enter_errno = EPERM, .enters_before = before});
    if (!queue.ok()) GTEST_SKIP() << queue.error().message;
    for (uint64_t i = 0; i < 24; ++i) submit(**queue, i, 512 * kKiB, ReadClass::demand);
    std::set<uint64_t> seen;
    uint64_t failed = 0;
    ReadCompletion completion;
    while ((*queue)->wait(std::span(&completion, 1)) > 0) {
      EXPECT_TRUE(seen.insert(completion.tag).second);
      EXPECT_TRUE(completion.errno_value == 0 || completion.errno_value == EPERM);
      failed += completion.errno_value != 0;
    }
    EXPECT_EQ(seen.size(), 24u);
    EXPECT_GT(failed, 0u);
    EXPECT_EQ((*queue)->in_flight(), 0u);
  }
}

TEST(ReadWindow, KeepsTheDiskBusyAndNoMore) {
  const KernelLoad none = {}, one_large = {1, 13 * kMiB, false}, two = {2, 26 * kMiB, true};
  using enum HandOver;
  // Something always runs.
  EXPECT_EQ(hand_over(none, 13 * kMiB, ReadClass::ahead, true), together);
  // A large read runs alone, the next demand behind it, and no third.
  EXPECT_EQ(hand_over(one_large, 13 * kMiB, ReadClass::demand, true), behind);
  EXPECT_EQ(hand_over(one_large, 13 * kMiB, ReadClass::ahead, true), later);
  EXPECT_EQ(hand_over(two, 13 * kMiB, ReadClass::demand, true), later);
  EXPECT_EQ(hand_over(two, kMiB, ReadClass::demand, true), later);
  // Small ones run side by side up to the window, which is smaller for reading ahead.
  const KernelLoad few = {2, 4 * kMiB, false}, full = {4, 8 * kMiB, false};
  EXPECT_EQ(hand_over(few, 2 * kMiB, ReadClass::demand, true), together);
  EXPECT_EQ(hand_over(few, 2 * kMiB, ReadClass::ahead, true), later);
  EXPECT_EQ(hand_over(full, 2 * kMiB, ReadClass::demand, true), later);
  EXPECT_EQ(hand_over({kMostReadsInKernel, 1 * kMiB, false}, 1, ReadClass::demand, true), later);
  // Through the page cache the number counts, not the bytes.
  EXPECT_EQ(hand_over({3, 39 * kMiB, false}, 13 * kMiB, ReadClass::ahead, false), together);
  EXPECT_EQ(hand_over({4, 4 * kKiB, false}, 1, ReadClass::demand, false), later);
}

using ThrottledTest = OneFile;

TEST_F(ThrottledTest, ReadsOneAfterTheOtherAtItsRate) {
  const auto queue = make_throttled_read_queue(100e6, 5e-3, 8);
  const auto start = Clock::now();
  for (uint64_t i = 0; i < 4; ++i) submit(*queue, i, 500'000, ReadClass::demand);
  ReadCompletion completion;
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_EQ(queue->wait(std::span(&completion, 1)), 1u);
    EXPECT_EQ(completion.tag, i);
    EXPECT_GE(seconds_since(start), 0.010 * static_cast<double>(i + 1));
  }
  EXPECT_LT(seconds_since(start), 2.0);
}

TEST_F(ThrottledTest, TheDiskGoesOnWhileTheOwnerIsAway) {
  const auto queue = make_throttled_read_queue(1e9, 20e-3, 8);
  for (uint64_t i = 0; i < 3; ++i) submit(*queue, i, 4096, ReadClass::demand);
  std::this_thread::sleep_for(std::chrono::milliseconds(70));
  std::vector<ReadCompletion> landed(8);
  EXPECT_EQ(queue->poll(landed), 3u);
}

TEST_F(ThrottledTest, PollDoesNotWaitAndWithdrawWorksUntilTheStart) {
  const auto queue = make_throttled_read_queue(1e9, 0.5, 8);
  const auto start = Clock::now();
  for (uint64_t i = 0; i < 3; ++i) submit(*queue, i, 4096, ReadClass::ahead);
  submit(*queue, 3, 4096, ReadClass::demand);
  std::vector<ReadCompletion> landed(8);
  EXPECT_EQ(queue->poll(landed), 0u);
  EXPECT_FALSE(queue->withdraw(0));  // the disk is at it
  EXPECT_TRUE(queue->withdraw(1));
  EXPECT_LT(seconds_since(start), 0.4);
  EXPECT_TRUE(queue->withdraw(2));
  EXPECT_EQ(tags_to_the_end(*queue), (std::vector<uint64_t>{0, 3}));
  EXPECT_GE(seconds_since(start), 1.0);
}

}  // namespace
}  // namespace wader
