#include "io/read_method.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/units.h"
#include "io/aligned_buffer.h"
#include "io/burst.h"
#include "io/io_testing.h"
#include "io/read_probe.h"

namespace wader {
namespace {

constexpr ReadMethod kUringDirect = kReadMethods[0], kThreadsDirect = kReadMethods[1],
                     kUringCache = kReadMethods[2], kThreadsCache = kReadMethods[3];

ReadMethod best(const std::vector<MeasuredMethod>& rates) {
  return best_method(kReadMethods, rates);
}

TEST(ReadMethods, TheFastestIsTakenUnlessAPreferredOneIsAsGood) {
  EXPECT_EQ(best({{kUringDirect, 3.5e9}, {kThreadsDirect, 3.6e9}, {kThreadsCache, 3.8e9}}),
            kUringDirect);
  EXPECT_EQ(best({{kUringDirect, 1e9}, {kThreadsDirect, 3.6e9}, {kUringCache, 0.5e9}}),
            kThreadsDirect);
  EXPECT_EQ(best({{kUringDirect, 1e9}, {kThreadsDirect, 1e9}, {kThreadsCache, 4e9}}),
            kThreadsCache);
  // What was not measured is taken only where nothing was, in order of preference.
  EXPECT_EQ(best({{kThreadsCache, 1e6}}), kThreadsCache);
  EXPECT_EQ(best({}), kUringDirect);
  // Only of the candidates, whatever is faster.
  const ReadMethod two[] = {kUringCache, kThreadsCache};
  EXPECT_EQ(best_method(two, std::vector<MeasuredMethod>{{kUringDirect, 9e9}, {kThreadsCache, 1}}),
            kThreadsCache);
}

TEST(ReadMethods, NamesGoBothWays) {
  for (const ReadEngine engine : {ReadEngine::threads, ReadEngine::uring})
    EXPECT_EQ(read_engine_from_name(read_engine_name(engine)), engine);
  EXPECT_FALSE(read_engine_from_name("auto"));
  EXPECT_EQ(read_method_text(kUringDirect), "io_uring, O_DIRECT");
  EXPECT_EQ(read_method_text(kThreadsCache), "pread threads, page cache");
}

ReadRates some_rates() {
  return {"00ff",
          "254:0",
          "ef53",
          "6.1.0",
          "2025-01-31T12:00:00Z",
          {{kUringDirect, 3.5e9}, {kThreadsCache, 1.25e9}}};
}

TEST(ReadRates, TextGoesBothWays) {
  const ReadRates rates = some_rates();
  const auto back = parse_read_rates(read_rates_to_text(rates));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_TRUE(back->same_place(rates));
  EXPECT_EQ(back->measured_at, rates.measured_at);
  ASSERT_EQ(back->rates.size(), 2u);
  EXPECT_EQ(back->find(kUringDirect)->bytes_per_second, 3.5e9);
  EXPECT_EQ(back->find(kThreadsCache)->bytes_per_second, 1.25e9);
  EXPECT_EQ(back->find(kUringCache), nullptr);
}

TEST(ReadRates, HoldOnlyWhereTheyWereMeasured) {
  const ReadRates rates = some_rates();
  for (std::string ReadRates::*field :
       {&ReadRates::container, &ReadRates::device, &ReadRates::file_system, &ReadRates::kernel}) {
    ReadRates other = rates;
    other.*field += "1";
    EXPECT_FALSE(other.same_place(rates));
  }
  const testing::TempDirectory directory;
  const auto place = read_place(directory.path().string(), "abc");
  ASSERT_TRUE(place.ok());
  EXPECT_TRUE(place->same_place(*read_place(directory.path().string(), "abc")));
  EXPECT_FALSE(place->same_place(*read_place(directory.path().string(), "abd")));
  EXPECT_FALSE(place->same_place(*read_place("/proc", "abc")));
  EXPECT_FALSE(read_place((directory.path() / "none").string(), "abc").ok());
}

TEST(ReadRates, HostileTextIsRefused) {
  const std::string good = read_rates_to_text(some_rates());
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, text.npos) << from;
    return text.replace(at, from.size(), to);
  };
  for (size_t cut = 0; cut + 2 < good.size(); ++cut)
    EXPECT_FALSE(parse_read_rates(good.substr(0, cut)).ok()) << cut;
  EXPECT_FALSE(parse_read_rates("[]").ok());
  EXPECT_FALSE(parse_read_rates("{}").ok());
  EXPECT_FALSE(parse_read_rates(with("wader-read-rates", "wader-read-plans")).ok());
  EXPECT_FALSE(parse_read_rates(with("\"version\": 1", "\"version\": 2")).ok());
  EXPECT_FALSE(parse_read_rates(with("\"uring\"", "\"aio\"")).ok());
  EXPECT_FALSE(parse_read_rates(with("true", "1")).ok());
  EXPECT_FALSE(parse_read_rates(with("3500000000.0", "-1")).ok());
  EXPECT_FALSE(parse_read_rates(with("3500000000.0", "1e300")).ok());
  EXPECT_FALSE(parse_read_rates(with("3500000000.0", "\"fast\"")).ok());
  EXPECT_FALSE(parse_read_rates(with("\"kernel\": \"6.1.0\"", "\"kernel\": 6")).ok());
  EXPECT_FALSE(parse_read_rates(with("\"rates\": [", "\"rates\": 1, \"more\": [")).ok());
  ReadRates twice = some_rates();
  twice.rates[1].method = twice.rates[0].method;
  EXPECT_FALSE(parse_read_rates(read_rates_to_text(twice)).ok());
}

class Bursts : public ::testing::Test {
 protected:
  static constexpr uint64_t kRecord = 64 * kKiB;
  void SetUp() override {
    std::string text(16 * kRecord, ' ');
    for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i / kRecord);
    directory_.write("records.bin", text);
    file_ = File::open(path(), File::Mode::read).value();
    memory_ = AlignedBuffer::allocate(8 * kRecord).value();
  }
  std::filesystem::path path() const { return directory_.path() / "records.bin"; }
  std::vector<Extent> places(std::initializer_list<uint64_t> records) const {
    std::vector<Extent> all;
    for (const uint64_t r : records) all.push_back({&file_, r * kRecord, kRecord});
    return all;
  }

  testing::TempDirectory directory_;
  File file_;
  AlignedBuffer memory_;
};

TEST_F(Bursts, TakeTheTimeOfTheModelledDisk) {
  // 64 KiB at 65.536 MB/s: a millisecond, and another one of latency.
  const auto queue = make_throttled_read_queue(65.536e6, 1e-3, 8);
  std::vector<double> landed(3);
  const auto seconds = burst_seconds(*queue, places({5, 1, 9}), memory_.span(), landed);
  ASSERT_TRUE(seconds.ok());
  EXPECT_GE(*seconds, 6e-3);
  EXPECT_LT(*seconds, 1.0);
  for (size_t i = 0; i < 3; ++i) EXPECT_GE(landed[i], 2e-3 * static_cast<double>(i + 1));
  EXPECT_EQ(*std::max_element(landed.begin(), landed.end()), *seconds);
  for (const auto& [at, letter] : {std::pair{0, 'f'}, {1, 'b'}, {2, 'j'}})
    EXPECT_EQ(static_cast<char>(memory_.data()[at * kRecord + 17]), letter);
}

TEST_F(Bursts, RateIsOfAllBurstsTogether) {
  const auto queue = make_throttled_read_queue(65.536e6, 1e-3, 8);
  const BurstCount bursts[] = {{1, 4}, {4, 2}, {0, 5}};
  std::vector<std::vector<Extent>> records;
  for (const Extent& place : places({0, 3, 7, 2, 8})) records.push_back({place});
  const auto rate = burst_rate(*queue, records, bursts, memory_.span());
  ASSERT_TRUE(rate.ok());
  EXPECT_LE(*rate, 65.536e6 / 2 * 1.001);  // latency counts
  EXPECT_GT(*rate, 65.536e6 / 200);
  EXPECT_EQ(*burst_rate(*queue, {}, {}, memory_.span()), 0);
}

// Each place begins a block of its own in memory: with O_DIRECT what follows an odd one must.
TEST_F(Bursts, ARecordMayStandInSeveralPlaces) {
  const auto queue = make_thread_read_queue(2, 8);
  auto parts = places({4, 6, 2});
  parts[1].bytes = 100;
  const std::vector<std::vector<Extent>> records = {parts};
  const BurstCount bursts[] = {{1, 3}};
  std::memset(memory_.data(), 0, memory_.size());
  ASSERT_TRUE(burst_rate(*queue, records, bursts, memory_.span()).ok());
  const uint64_t third = kRecord + kDirectAlignment;
  for (const auto& [at, letter] :
       {std::pair{uint64_t{0}, 'e'}, {kRecord + 99, 'g'}, {kRecord + 100, '\0'}, {third, 'c'}})
    EXPECT_EQ(static_cast<char>(memory_.data()[at]), letter) << at;
}

TEST_F(Bursts, AFailedReadIsTheError) {
  const auto queue = make_fake_read_queue({.eio_always = true, .eio_offset = 8 * kRecord}, 8);
  const auto seconds = burst_seconds(*queue, places({1, 2, 12, 3}), memory_.span());
  ASSERT_FALSE(seconds.ok());
  EXPECT_NE(seconds.error().message.find("records.bin"), std::string::npos);
  EXPECT_EQ(queue->in_flight(), 0u);
}

TEST_F(Bursts, ProbeMeasuresWhatWorks) {
  ProbeJob job;
  job.files = {path(), path()};
  job.record_bytes = kRecord;
  job.records_a_file = 16;
  job.memory = memory_.span();
  job.target_seconds = 0.05;
  std::vector<ReadMethod> expected = {kThreadsCache};
  const bool direct = direct_reads_work(path().string()), uring = make_uring_read_queue(1).ok();
  if (direct) expected.insert(expected.begin(), kThreadsDirect);
  if (uring) expected.insert(expected.end() - 1, kUringCache);
  if (uring && direct) expected.insert(expected.begin(), kUringDirect);
  const auto rates = measure_methods(job, kReadMethods);
  ASSERT_TRUE(rates.ok()) << rates.error().message;
  ASSERT_EQ(rates->size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ((*rates)[i].method, expected[i]);
    EXPECT_GT((*rates)[i].bytes_per_second, 1e5);
  }
}

TEST_F(Bursts, ProbeSaysWhyNothingWorks) {
  ProbeJob job;
  job.record_bytes = kRecord;
  job.records_a_file = 16;
  job.memory = memory_.span();
  job.files = {directory_.path() / "none.bin"};
  EXPECT_EQ(measure_methods(job, kReadMethods).error().code, ErrorCode::not_found);
  job.files = {path()};
  job.records_a_file = 1000;  // beyond the end, where nearly all places are
  const auto rates = measure_methods(job, kReadMethods);
  ASSERT_FALSE(rates.ok());
  EXPECT_NE(rates.error().message.find("short"), std::string::npos) << rates.error().message;
}

}  // namespace
}  // namespace wader
