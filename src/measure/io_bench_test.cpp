#include "measure/io_bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/units.h"
#include "io/io_testing.h"

namespace wader {
namespace {

std::vector<IoSetting> all_settings(uint64_t read_bytes) {
  std::vector<IoSetting> settings;
  for (const ReadMethod method : kReadMethods)
    for (const bool burst : {false, true})
      for (const uint32_t depth : {1u, 3u}) settings.push_back({method, read_bytes, depth, burst});
  return settings;
}

TEST(IoBench, EverySettingReadsItsShare) {
  const testing::TempDirectory directory;
  directory.write("a.bin", std::string(2 * kMiB, 'a'));
  directory.write("b.bin", std::string(kMiB + 77, 'b'));
  directory.write("small.bin", "x");
  const std::vector<std::filesystem::path> files = {
      directory.path() / "a.bin", directory.path() / "b.bin", directory.path() / "small.bin"};
  IoBenchOptions options;
  options.rounds = 3;
  options.round_bytes = kMiB;
  std::vector<std::string> steps;
  options.on_step = [&](const std::string& step) { steps.push_back(step); };
  const auto settings = all_settings(64 * kKiB);
  const auto runs = bench_io(files, settings, options);
  ASSERT_TRUE(runs.ok()) << runs.error().message;
  ASSERT_EQ(runs->size(), settings.size());
  EXPECT_EQ(steps.size(), 3u);
  for (size_t i = 0; i < runs->size(); ++i) {
    const IoRun& run = (*runs)[i];
    if (!run.refused.empty()) continue;  // said in the run; the threads always work:
    const uint64_t reads = 16 / run.setting.depth * run.setting.depth;
    EXPECT_EQ(run.rates.size(), 3u);
    EXPECT_EQ(run.latencies.size(), 3 * reads);
    EXPECT_EQ(run.bytes, 3 * reads * 64 * kKiB);
    EXPECT_TRUE(std::is_sorted(run.latencies.begin(), run.latencies.end()));
    EXPECT_GT(run.latencies.front(), 0);
    for (const double rate : run.rates) EXPECT_GT(rate, 1e4);
    // No read takes longer than all rounds together.
    double seconds = 0;
    for (const double rate : run.rates) seconds += static_cast<double>(reads) * 64 * kKiB / rate;
    EXPECT_LE(run.latencies.back(), seconds * 1.001);
  }
  EXPECT_TRUE(runs->back().refused.empty());
}

TEST(IoBench, NamesWhatCannotBeRead) {
  const testing::TempDirectory directory;
  directory.write("a.bin", std::string(64 * kKiB, 'a'));
  const std::vector<std::filesystem::path> files = {directory.path() / "a.bin"};
  const IoSetting large[] = {{kReadMethods.back(), kMiB, 1, false}};
  auto runs = bench_io(files, large, {});
  ASSERT_FALSE(runs.ok());
  EXPECT_NE(runs.error().message.find("a.bin: too small for reads of 1"), std::string::npos)
      << runs.error().message;
  const std::vector<std::filesystem::path> none = {directory.path() / "none.bin"};
  runs = bench_io(none, large, {});
  ASSERT_FALSE(runs.ok());
  EXPECT_EQ(runs.error().code, ErrorCode::not_found);
  const std::atomic<bool> stop = true;
  IoBenchOptions options;
  options.cancel = &stop;
  const IoSetting good[] = {{kReadMethods.back(), 4 * kKiB, 1, false}};
  EXPECT_EQ(bench_io(files, good, options).error().code, ErrorCode::cancelled);
}

class TwoPieces final : public ExpertSource {
 public:
  TwoPieces() {
    for (uint64_t e = 0; e < 12; ++e)
      for (uint64_t piece = 0; piece < 2; ++piece)
        extents_.push_back({{&file_, e * 100 + piece * 60, piece == 0 ? 60u : 40u}, piece * 60});
  }
  uint32_t layers() const override { return 4; }
  uint32_t experts() const override { return 3; }
  uint64_t record_bytes() const override { return 100; }
  std::span<const SlotExtent> extents(uint32_t layer, uint32_t expert) const override {
    return std::span(extents_).subspan(2 * (layer * 3 + expert), 2);
  }
  uint64_t digest(uint32_t, uint32_t) const override { return 0; }

 private:
  File file_;
  std::vector<SlotExtent> extents_;
};

TEST(IoBench, ExpertPlacesAreWholeRecordsOfTheLayers) {
  const TwoPieces source;
  const uint32_t layers[] = {1, 3};
  const auto records = random_expert_places(source, layers, 200, 5);
  ASSERT_EQ(records.size(), 200u);
  std::set<uint64_t> seen;
  for (const std::vector<Extent>& places : records) {
    ASSERT_EQ(places.size(), 2u);
    EXPECT_EQ(places[0].offset_bytes % 100, 0u);
    EXPECT_EQ(places[1].offset_bytes, places[0].offset_bytes + 60);
    seen.insert(places[0].offset_bytes / 100);
  }
  EXPECT_EQ(seen, (std::set<uint64_t>{3, 4, 5, 9, 10, 11}));
}

}  // namespace
}  // namespace wader
