#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/machine.h"
#include "base/thread_pool.h"
#include "base/units.h"

namespace wader {
namespace {

TEST(Units, FormatsForPeople) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(59ull * kGiB), "59.0 GiB");
  EXPECT_EQ(format_bytes(kMiB - 1), "1.0 MiB");
}

TEST(Units, ParsesWhatPeopleWrite) {
  EXPECT_EQ(parse_bytes("4GiB").value(), 4 * kGiB);
  EXPECT_EQ(parse_bytes("4G").value(), 4 * kGiB);
  EXPECT_EQ(parse_bytes("4GB").value(), 4'000'000'000u);
  EXPECT_EQ(parse_bytes("1.5 MiB").value(), 3 * kMiB / 2);
  EXPECT_EQ(parse_bytes("4096").value(), 4096u);
  for (const char* bad :
       {"", "-1", "x", "4X", "4GiBB", "nan", "inf", "1e30", "99999999999TiB", "0x10"})
    EXPECT_FALSE(parse_bytes(bad).ok()) << bad;
}

TEST(Units, RangesInFilesCannotOverflow) {
  EXPECT_TRUE(in_file(0, 10, 10));
  EXPECT_TRUE(in_file(10, 0, 10));
  EXPECT_FALSE(in_file(1, 10, 10));
  EXPECT_FALSE(in_file(~0ull, 2, 10));
  EXPECT_FALSE(in_file(2, ~0ull, 10));
  EXPECT_FALSE(checked_mul(1ull << 33, 1ull << 33).has_value());
  EXPECT_FALSE(checked_add(~0ull, 1).has_value());
}

TEST(Hash, StreamEqualsWhole) {
  std::vector<std::byte> bytes(100000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 >> 3);
  Xxh3Stream stream;
  stream.update(std::span(bytes).first(777));
  stream.update(std::span(bytes).subspan(777));
  EXPECT_EQ(stream.digest(), xxh3_64(bytes));
  uint64_t back = 0;
  EXPECT_TRUE(digest_from_hex(digest_to_hex(stream.digest()), &back));
  EXPECT_EQ(back, stream.digest());
  EXPECT_FALSE(digest_from_hex("0123456789abcdeg", &back));
  EXPECT_EQ(xxh3_64(std::string_view{}),
            0x2d06800538d394c2u);  // published value for the empty input
}

TEST(Hash, ARecordsDigestIsOneHoweverItIsFed) {
  ThreadPool threads(3);
  for (const size_t size : {size_t{0}, size_t{1}, kRecordPieceBytes - 1, kRecordPieceBytes,
                            kRecordPieceBytes + 1, 3 * kRecordPieceBytes + 77}) {
    std::vector<std::byte> record(size);
    for (size_t i = 0; i < size; ++i) record[i] = static_cast<std::byte>(i * 7 + (i >> 9));
    std::vector<uint64_t> pieces;
    for (size_t begin = 0; begin < size; begin += kRecordPieceBytes)
      pieces.push_back(
          xxh3_64(std::span(record).subspan(begin, std::min(kRecordPieceBytes, size - begin))));
    const uint64_t expected = xxh3_64(std::as_bytes(std::span(pieces)));
    EXPECT_EQ(record_digest(record), expected) << size;
    std::vector<uint64_t> scratch(record_pieces(size));
    EXPECT_EQ(record_digest(record, threads, scratch), expected) << size;
    RecordDigestStream stream;
    for (size_t begin = 0; begin < size; begin += 100'003)
      stream.update(std::span(record).subspan(begin, std::min<size_t>(100'003, size - begin)));
    EXPECT_EQ(stream.digest(), expected) << size;
    if (size == 0) continue;
    record[size - 1] ^= std::byte{1};
    EXPECT_NE(record_digest(record), expected) << size;
  }
}

TEST(JsonDoor, RefusesWhatParsersDisagreeOn) {
  EXPECT_TRUE(parse_json(R"({"a": [1, 2, {"b": null}]})", "t").ok());
  const auto twice = parse_json(R"({"a": 1, "a": 2})", "config.json");
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().message, "config.json: key 'a' occurs twice in one object");
  EXPECT_TRUE(parse_json(R"([{"a": 1}, {"a": 2}])", "t").ok());
  EXPECT_FALSE(parse_json(std::string(200, '[') + std::string(200, ']'), "t").ok());
  EXPECT_FALSE(parse_json(std::string(100000, '['), "t").ok());
  std::string many = "{";
  for (size_t i = 0; i <= kMaxJsonKeys; ++i) many += fmt::format("\"{}\": 0,", i);
  EXPECT_TRUE(parse_json(many.substr(0, many.rfind(",\"")) + "}", "t").ok());
  many.back() = '}';
  EXPECT_FALSE(parse_json(many, "t").ok());
  for (const char* bad : {"", "{", "NaN", "[1,]", "{} x", "\"\xff\"", "'a'", "1e999"})
    EXPECT_FALSE(parse_json(bad, "t").ok()) << bad;
}

TEST(JsonDoor, GettersCheckTypeAndRange) {
  const Json object =
      parse_json(R"({"n": 5, "f": 0.5, "neg": -1, "s": "x", "z": null})", "t").value();
  EXPECT_EQ(json_uint(object, "n", 1, 10).value(), 5u);
  EXPECT_FALSE(json_uint(object, "n", 6, 10).ok());
  EXPECT_FALSE(json_uint(object, "f", 0, 10).ok());
  EXPECT_FALSE(json_uint(object, "neg", 0, 10).ok());
  EXPECT_FALSE(json_uint(object, "s", 0, 10).ok());
  // A long value is cut between two characters.
  const Json wide = {{"k", "ü" + std::string(58, 'x') + "üüüü"}};
  EXPECT_NE(json_uint(wide, "k", 0, 10).error().message.find("xxx…"), std::string::npos);
  EXPECT_FALSE(json_uint(object, "gone", 0, 10).ok());
  EXPECT_EQ(json_number(object, "n", 0, 10).value(), 5.0);
  EXPECT_FALSE(json_has(object, "z"));
  EXPECT_TRUE(json_has(object, "s"));
}

TEST(ThreadPool, EveryIndexOnceForEverySize) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (int64_t count : {0, 1, 2, 7, 64, 1000}) {
      for (int64_t grain : {1, 4, 16}) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
        pool.parallel_for(count, grain, [&](ThreadPool::Slice slice) {
          EXPECT_LT(slice.worker, threads);
          for (int64_t i = slice.begin; i < slice.end; ++i) ++seen[static_cast<size_t>(i)];
        });
        for (const auto& n : seen) EXPECT_EQ(n.load(), 1);
      }
    }
  }
}

TEST(ThreadPool, ALateWorkersShareIsTakenOver) {
  ThreadPool pool(2);
  std::atomic<int> done = 0;
  // The first to come stays until all else is done, by the other.
  std::atomic<bool> stays = true;
  pool.parallel_for(64, 1, [&](ThreadPool::Slice slice) {
    const auto size = static_cast<int>(slice.end - slice.begin);
    if (slice.worker == 0 && stays.exchange(false))
      while (done < 64 - size) std::this_thread::yield();
    done += size;
  });
  EXPECT_EQ(done, 64);
}

TEST(ThreadPool, ManyShortJobsInARowAndAfterSleep) {
  ThreadPool pool(3);
  int64_t sum = 0;
  std::array<int64_t, 3> sums{};
  for (int job = 0; job < 3000; ++job) {
    pool.parallel_for(5, 1, [&](ThreadPool::Slice slice) {
      for (int64_t i = slice.begin; i < slice.end; ++i)
        sums[static_cast<size_t>(slice.worker)] += job + i;
    });
    sum += 5 * job + 10;
    if (job % 1000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(sums[0] + sums[1] + sums[2], sum);
}

// Sanitizers need more address space than this leaves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Little address space, and each thread's stack takes 8 MiB of it: the pool works with what it got,
// and ends.
TEST(ThreadPool, FewerThreadsThanAskedForAreNoHang) {
  rlimit before{}, after{};
  getrlimit(RLIMIT_AS, &before);
  const rlimit wanted = {std::min<rlim_t>(before.rlim_max, rlim_t{1} << 46), before.rlim_max};
  setrlimit(RLIMIT_AS, &wanted);
  getrlimit(RLIMIT_AS, &after);
  setrlimit(RLIMIT_AS, &before);
  if (after.rlim_cur != wanted.rlim_cur)
    GTEST_SKIP() << "RLIMIT_AS has no effect, as under an emulator";
  const auto child = [] {
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = process_memory().resident_bytes + (96u << 20);
    setrlimit(RLIMIT_AS, &limit);
    int64_t sum = 0;
    ThreadPool pool(256);
    pool.parallel_for(1, 1, [&](ThreadPool::Slice slice) { sum += slice.end; });
    std::_Exit(pool.size() >= 1 && pool.size() < 256 && sum == 1 ? 0 : 1);
  };
  EXPECT_EXIT(child(), ::testing::ExitedWithCode(0), "");
}
#endif

TEST(Error, ErrnoKeepsItsMeaning) {
  EXPECT_EQ(errno_error(ENOENT, "a").code, ErrorCode::not_found);
  EXPECT_EQ(errno_error(ENOSPC, "a").code, ErrorCode::over_budget);
  EXPECT_EQ(errno_error(EIO, "a/b").message, "a/b: Input/output error");
}

}  // namespace
}  // namespace wader
