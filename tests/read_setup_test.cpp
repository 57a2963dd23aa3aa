// How an engine comes to its way of reading: measured at first use, kept beside the model, forced
// by flags; and the same answers whatever it is.

#include "engine/read_setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "test_models.h"

namespace wader {
namespace {

using testing::copy_of;
using testing::fixture_container;
using ::testing::HasSubstr;

class ReadSetupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    model_ = copy_of(fixture_container("tiny-gpt-oss"), "reads-" + name);
    // A sanitizer itself takes 107 MiB.
    options_.memory_bytes = (testing::kSanitized ? 512 : 64) * kMiB;
    options_.threads = 1;
    options_.measured_expert_bytes = 0;
    uring_ = make_uring_read_queue(1).ok();
  }
  std::filesystem::path rates_file() const { return model_ / std::string(kReadRatesFile); }
  bool is_kept() const { return std::filesystem::is_regular_file(rates_file()); }
  std::string text() const { return read_text_file(rates_file(), kMaxReadRatesBytes).value(); }
  void put(const std::string& text) const {
    std::ofstream file(rates_file(), std::ios::trunc);
    file << text;
  }
  std::string io() const { return testing::open_engine(model_, options_)->io_description(); }
  // Rates of here and now in which only `engine` with `direct` is fast.
  void put_rates(ReadEngine engine, bool direct) const {
    const Container container = Container::open(model_).value();
    ReadRates rates = report_reads(container, options_)->rates;
    rates.measured_at = "2025-01-31T12:00:00Z";
    rates.rates.clear();
    for (const ReadMethod method : kReadMethods)
      rates.rates.push_back({method, method == ReadMethod{engine, direct} ? 9e9 : 1e9});
    put(read_rates_to_text(rates));
  }
  ReadReport report() const {
    const Container container = Container::open(model_).value();
    return report_reads(container, options_).value();
  }

  std::filesystem::path model_;
  EngineOptions options_;
  bool uring_ = false;
};

TEST_F(ReadSetupTest, MeasuresOnceAndKeepsTheRates) {
  EXPECT_EQ(report().why, ReadReport::Why::unmeasured);
  EXPECT_FALSE(is_kept()) << "a report must not measure";
  const std::string first = io();
  ASSERT_TRUE(is_kept());
  const std::string kept = text();
  const auto rates = parse_read_rates(kept);
  ASSERT_TRUE(rates.ok()) << rates.error().message;
  EXPECT_GE(rates->rates.size(), uring_ ? 2u : 1u);
  EXPECT_EQ(rates->measured_at.size(), 20u);
  EXPECT_EQ(io(), first);
  EXPECT_EQ(text(), kept) << "measured again";
  const ReadReport after = report();
  EXPECT_EQ(after.why, ReadReport::Why::measured);
  EXPECT_THAT(read_report_text(after), HasSubstr(" GB/s measured 20"));
  // The container stays whole, and still is one.
  const Container container = Container::open(model_).value();
  EXPECT_TRUE(verify_container(container, {})->problems.empty());
}

TEST_F(ReadSetupTest, TakesTheFastestOfTheKeptRates) {
  put_rates(ReadEngine::threads, false);
  EXPECT_EQ(io(), "4 pread threads, page cache");
  if (direct_reads_work((model_ / expert_file_name(0)).string())) {
    put_rates(ReadEngine::threads, true);
    EXPECT_EQ(io(), "4 pread threads, O_DIRECT");
  }
  if (!uring_) GTEST_SKIP() << make_uring_read_queue(1).error().message;
  put_rates(ReadEngine::uring, false);
  EXPECT_EQ(io(), "io_uring, page cache");
  EXPECT_EQ(read_report_text(report()),
            "io_uring, page cache: the best by measurement (9.00 GB/s measured 2025-01-31)");
}

TEST_F(ReadSetupTest, FlagsForce) {
  put_rates(ReadEngine::threads, false);
  options_.io = "threads";
  options_.direct = "off";
  EXPECT_EQ(io(), "4 pread threads, page cache");
  EXPECT_EQ(report().why, ReadReport::Why::forced);
  if (uring_) {
    options_.io = "uring";
    EXPECT_EQ(io(), "io_uring, page cache");
    options_.direct = "auto";
    EXPECT_THAT(io(), HasSubstr("io_uring"));
  }
  options_.io = "aio";
  EXPECT_THAT(validate_engine_options(options_).error().message, HasSubstr("uring or threads"));
}

TEST_F(ReadSetupTest, DamageAndOtherPlacesAreMeasuredAgain) {
  (void)io();
  const std::string good = text();
  ReadRates other = parse_read_rates(good).value();
  other.device = "9:9";
  const std::string elsewhere = read_rates_to_text(other);
  for (const std::string& bad :
       {std::string(), good.substr(0, good.size() / 2), std::string("[[[[[[[["), elsewhere,
        std::string(kMaxReadRatesBytes + 1, ' ')}) {
    put(bad);
    EXPECT_EQ(report().why, ReadReport::Why::unmeasured);
    (void)io();
    const auto again = parse_read_rates(text());
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_NE(again->device, "9:9");
  }
}

TEST_F(ReadSetupTest, WorksWhereNothingCanBeKept) {
  // Whoever runs this, root too: a directory stands in its place.
  std::filesystem::create_directory(model_ / std::string(kReadRatesFile));
  EXPECT_FALSE(io().empty());
  EXPECT_EQ(report().why, ReadReport::Why::unmeasured);
}

TEST_F(ReadSetupTest, SmallModelsAreNotMeasured) {
  options_.measured_expert_bytes = EngineOptions().measured_expert_bytes;
  EXPECT_THAT(io(), HasSubstr(uring_ ? "io_uring" : "pread threads"));
  EXPECT_FALSE(is_kept());
  EXPECT_EQ(report().why, ReadReport::Why::small);
}

TEST_F(ReadSetupTest, TheSameAnswerByEveryMethod) {
  const std::vector<TokenId> prompt = testing::random_tokens(24, 200, 7);
  std::vector<TokenId> expected;
  for (const char* engine : {"threads", "uring"})
    for (const char* direct : {"off", "auto"}) {
      if (!uring_ && std::string_view(engine) == "uring") continue;
      options_.io = engine;
      options_.direct = direct;
      const auto model = testing::open_engine(model_, options_);
      const auto session = testing::open_session(*model);
      GenerateOptions generate;
      generate.sampling.temperature = 0;
      generate.max_tokens = 12;
      const auto answer = session->generate(prompt, generate);
      ASSERT_TRUE(answer.ok()) << answer.error().message;
      if (expected.empty()) expected = answer->ids;
      EXPECT_EQ(answer->ids, expected) << model->io_description();
    }
}

}  // namespace
}  // namespace wader
