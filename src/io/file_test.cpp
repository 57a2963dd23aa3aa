#include "io/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/machine.h"
#include "base/units.h"
#include "io/aligned_buffer.h"
#include "io/io_testing.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
 protected:
  std::vector<std::byte> pattern(size_t bytes) const {
    std::vector<std::byte> out(bytes);
    for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 131 >> 4);
    return out;
  }

  const testing::TempDirectory scratch_;
  const fs::path& directory_ = scratch_.path();
};

TEST_F(FileTest, WritesAndReadsBack) {
  File file = File::open(directory_ / "a", File::Mode::create).value();
  const auto bytes = pattern(100000);
  ASSERT_TRUE(file.write_at(5, bytes).ok());
  EXPECT_EQ(file.size().value(), 100005u);
  std::vector<std::byte> back(bytes.size());
  ASSERT_TRUE(file.read_at(5, back).ok());
  EXPECT_EQ(back, bytes);
  ASSERT_TRUE(file.sync().ok());
  ASSERT_TRUE(file.close().ok());
  EXPECT_FALSE(file.is_open());

  const File again = File::open(directory_ / "a", File::Mode::read).value();
  std::byte first{1};
  ASSERT_TRUE(again.read_at(0, {&first, 1}).ok());
  EXPECT_EQ(first, std::byte{0});  // the hole before offset 5
  EXPECT_NE(::fcntl(again.fd(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(::fcntl(again.fd(), F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(FileTest, ModesKeepOrDropTheContents) {
  const auto bytes = pattern(10);
  ASSERT_TRUE(File::open(directory_ / "a", File::Mode::update).value().write_at(0, bytes).ok());
  EXPECT_EQ(File::open(directory_ / "a", File::Mode::update).value().size().value(), 10u);
  EXPECT_EQ(File::open(directory_ / "a", File::Mode::create).value().size().value(), 0u);
  const auto missing = File::open(directory_ / "b", File::Mode::read);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_NE(missing.error().message.find((directory_ / "b").string()), std::string::npos);
}

TEST_F(FileTest, ShortFileSaysHowShort) {
  File file = File::open(directory_ / "a", File::Mode::create).value();
  ASSERT_TRUE(file.write_at(0, pattern(100)).ok());
  std::vector<std::byte> into(60);
  for (auto [offset, missing] : {std::pair<uint64_t, int>{50, 10}, {100, 60}, {5000, 60}}) {
    const Status status = file.read_at(offset, into);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::corrupt);
    EXPECT_EQ(status.error().message,
              file.path() + ": ends at byte 100, " + std::to_string(missing) + " bytes short");
  }
  EXPECT_TRUE(file.read_at(100, {}).ok());
  for (uint64_t offset : {1ull << 63, ~0ull, (1ull << 63) - 10})
    EXPECT_EQ(file.read_at(offset, into).error().code, ErrorCode::invalid_argument);
}

TEST_F(FileTest, OnlyRegularFiles) {
  ASSERT_EQ(::mkfifo((directory_ / "fifo").c_str(), 0600), 0);
  for (File::Mode mode : {File::Mode::read, File::Mode::create, File::Mode::update}) {
    EXPECT_EQ(File::open(directory_ / "fifo", mode).error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(File::open("/dev/null", mode).error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(File::open(directory_, mode).error().code, ErrorCode::invalid_argument);
  }
  EXPECT_FALSE(File::open(std::string("/tmp/a\0b", 8), File::Mode::read).ok());
  // The blobs of a Hugging Face cache are reached through links.
  ASSERT_TRUE(File::open(directory_ / "blob", File::Mode::create).ok());
  fs::create_symlink("blob", directory_ / "link");
  EXPECT_TRUE(File::open(directory_ / "link", File::Mode::read).ok());
}

TEST_F(FileTest, DirectReadsGiveTheSameBytesOrSayUnsupported) {
  const auto bytes = pattern(3 * 4096 + 100);
  ASSERT_TRUE(File::open(directory_ / "a", File::Mode::create).value().write_at(0, bytes).ok());
  const auto file = File::open(directory_ / "a", File::Mode::read_direct);
  if (!file.ok()) {
    EXPECT_EQ(file.error().code, ErrorCode::unsupported);
    return;
  }
  AlignedBuffer buffer = AlignedBuffer::allocate(16384).value();
  ASSERT_TRUE(file->read_at(4096, buffer.span().first(8192)).ok());
  EXPECT_TRUE(std::equal(bytes.begin() + 4096, bytes.begin() + 12288, buffer.data()));
  // Past the end, whatever the file system thinks of the odd offset it is left at.
  EXPECT_EQ(file->read_at(0, buffer.span()).error().code, ErrorCode::corrupt);
}

TEST_F(FileTest, AllocateSetsTheLengthBothWays) {
  File file = File::open(directory_ / "a", File::Mode::create).value();
  for (uint64_t bytes : {100000u, 300u, 0u}) {
    ASSERT_TRUE(file.allocate(bytes).ok());
    EXPECT_EQ(file.size().value(), bytes);
  }
  // More than any disk of this world: refused now, not at the millionth write.
  const Status huge = file.allocate(1ull << 60);
  ASSERT_FALSE(huge.ok());
  EXPECT_TRUE(huge.error().code == ErrorCode::over_budget || huge.error().code == ErrorCode::io);
  EXPECT_EQ(file.allocate(1ull << 63).error().code, ErrorCode::invalid_argument);
}

// /dev/full is no regular file, so the limit on file sizes stands in for a disk that refuses.
TEST_F(FileTest, RefusedWritesAreReported) {
  File file = File::open(directory_ / "a", File::Mode::create).value();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = file.write_at(0, pattern(5000));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::io);
}

TEST_F(FileTest, MoveLeavesOneOwner) {
  File a = File::open(directory_ / "a", File::Mode::create).value();
  const int fd = a.fd();
  File b = std::move(a);
  EXPECT_FALSE(a.is_open());  // NOLINT: what moving leaves is the point
  EXPECT_EQ(b.fd(), fd);
  { b = File::open(directory_ / "b", File::Mode::create).value(); }
  EXPECT_EQ(::fcntl(fd, F_GETFD), -1);  // the first one was closed
}

TEST_F(FileTest, SeveralThreadsReadAtOnce) {
  const auto bytes = pattern(1 << 20);
  File file = File::open(directory_ / "a", File::Mode::create).value();
  ASSERT_TRUE(file.write_at(0, bytes).ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<std::byte> into(4096);
      for (size_t offset = static_cast<size_t>(t) * 977; offset + 4096 < bytes.size();
           offset += 65537) {
        ASSERT_TRUE(file.read_at(offset, into).ok());
        ASSERT_TRUE(
            std::equal(into.begin(), into.end(), bytes.begin() + static_cast<long>(offset)));
      }
    });
  for (auto& thread : threads) thread.join();
}

TEST_F(FileTest, SmallTextFiles) {
  ASSERT_TRUE(write_file_atomically(directory_ / "t", "one").ok());
  ASSERT_TRUE(write_file_atomically(directory_ / "t", "second").ok());
  EXPECT_EQ(read_text_file(directory_ / "t", 6).value(), "second");
  EXPECT_EQ(read_text_file(directory_ / "t", 5).error().code, ErrorCode::corrupt);
  EXPECT_FALSE(fs::exists(directory_ / "t.tmp"));
  ASSERT_TRUE(write_file_atomically(directory_ / "empty", "").ok());
  EXPECT_EQ(read_text_file(directory_ / "empty", 0).value(), "");

  // A rename that cannot be done leaves the old thing and no temporary file.
  fs::create_directories(directory_ / "taken" / "x");
  EXPECT_FALSE(write_file_atomically(directory_ / "taken", "text").ok());
  EXPECT_FALSE(fs::exists(directory_ / "taken.tmp"));
  EXPECT_EQ(write_file_atomically(directory_ / "no" / "t", "x").error().code, ErrorCode::not_found);
}

TEST_F(FileTest, DirectoriesAndDisks) {
  EXPECT_TRUE(sync_directory(directory_).ok());
  EXPECT_EQ(sync_directory(directory_ / "no").error().code, ErrorCode::not_found);
  EXPECT_GT(free_disk_bytes(directory_).value(), 0u);
  EXPECT_EQ(free_disk_bytes(directory_ / "no").error().code, ErrorCode::not_found);
}

TEST(AlignedBuffer, WholeZeroedPages) {
  EXPECT_EQ(AlignedBuffer::allocate(0).value().size(), 0u);
  for (uint64_t bytes :
       {uint64_t{1}, uint64_t{4096}, uint64_t{4097}, 2 * kMiB - 1, 2 * kMiB, 5 * kMiB + 1}) {
    AlignedBuffer buffer = AlignedBuffer::allocate(bytes).value();
    EXPECT_GE(buffer.size(), bytes);
    EXPECT_LT(buffer.size(), bytes + 65536);
    EXPECT_EQ(buffer.size() % 4096, 0u);
    const auto address = reinterpret_cast<uintptr_t>(buffer.data());
    EXPECT_EQ(address % (buffer.size() >= 2 * kMiB ? 2 * kMiB : 4096), 0u);
    EXPECT_EQ(buffer.span().front(), std::byte{0});
    buffer.span().back() = std::byte{7};  // the last page is ours
    AlignedBuffer moved = std::move(buffer);
    EXPECT_EQ(buffer.data(), nullptr);  // NOLINT: what moving leaves is the point
    EXPECT_EQ(moved.span().back(), std::byte{7});
  }
}

// Pieces that are not whole huge pages, given back from the middle.
TEST(AlignedBuffer, ReleasedPagesLeaveTheProcessAndTheOthersStay) {
  constexpr uint64_t kPiece = 300 * kKiB, kPieces = 200;
  const auto resident = [] { return process_memory().resident_bytes; };
  for (const auto pages : {AlignedBuffer::Pages::ordinary, AlignedBuffer::Pages::huge}) {
    AlignedBuffer buffer = AlignedBuffer::allocate(kPiece * kPieces, pages).value();
    std::fill_n(buffer.data(), kPiece * kPieces, std::byte{7});
    const uint64_t full = resident();
    for (uint64_t i = 0; i < kPieces; i += 2) buffer.release(i * kPiece, kPiece);
    EXPECT_LT(resident() + kPiece * kPieces / 2, full + kMiB);
    for (uint64_t i = 0; i < kPieces; ++i) {
      EXPECT_EQ(buffer.data()[i * kPiece + 5000], std::byte(i % 2 ? 7 : 0));
      EXPECT_EQ(buffer.data()[i * kPiece + kPiece - 1], std::byte(i % 2 ? 7 : 0));
    }
    for (uint64_t i = 0; i < kPieces; i += 2) {
      buffer.reclaim(i * kPiece, kPiece);
      std::fill_n(buffer.data() + i * kPiece, kPiece, std::byte{9});
    }
    EXPECT_GT(resident() + kMiB, full);
    EXPECT_EQ(buffer.data()[kPiece], std::byte{7});
    buffer.release(1, 4096);  // no whole page in it
    EXPECT_EQ(buffer.data()[1], std::byte{9});
  }
}

TEST(AlignedBuffer, RefusesWhatTheKernelRefuses) {
  for (uint64_t bytes : {1ull << 46, 1ull << 62, ~0ull})
    EXPECT_EQ(AlignedBuffer::allocate(bytes).error().code, ErrorCode::over_budget) << bytes;
}

}  // namespace
}  // namespace wader
