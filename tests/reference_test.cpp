// The reference's outputs (tests/data/README.md says where they come from) against `--kernels ref`
// with a bf16 trunk: logits within 2e-3 at every position given, router sets equal, greedy ids
// equal.

#include <gtest/gtest.h>

#include <fstream>

#include "base/json.h"
#include "cli/golden.h"
#include "test_models.h"

namespace wader {
namespace {

using testing::open_engine;
using testing::open_session;

// One line of output per comparison: a failing run shows all of them.
GoldenReport compare(const std::filesystem::path& container, const std::string& golden_path,
                     uint32_t slots) {
  auto golden = GoldenFile::open(golden_path);
  EXPECT_TRUE(golden.ok()) << golden.error().message;
  EngineOptions options;
  options.memory_bytes = 1u << 30;
  options.kernels = "ref";
  options.context = golden->context_tokens();
  options.slots = slots;
  options.threads = 2;
  const auto engine = open_engine(container, options);
  const auto session = open_session(*engine);
  auto report =
      check_golden(*golden, engine->container().spec(), *session, {}, [](const GoldenLine& line) {
        EXPECT_TRUE(line.ok()) << line.name << ": " << line.measure << " " << line.error << " > "
                               << line.limit << " " << line.detail;
        std::printf("%-28s %-12s %8llu %.3g\n", line.name.c_str(), line.measure.c_str(),
                    static_cast<unsigned long long>(line.compared), line.error);
      });
  EXPECT_TRUE(report.ok()) << report.error().message;
  return report.ok() ? *report : GoldenReport{};
}

uint64_t compared(const GoldenReport& report, const std::string& name_part) {
  uint64_t count = 0;
  for (const GoldenLine& line : report.lines)
    if (line.name.find(name_part) != std::string::npos) count += line.compared;
  return count;
}

class Reference : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, Reference, ::testing::ValuesIn(testing::kFixtures),
                         [](const auto& fixture) { return testing::test_name(fixture.param); });

TEST_P(Reference, Fixture) {
  // Minutes each; the two left have every layer kind.
  const std::string name = GetParam();
  if (testing::kSanitized && name != "tiny-qwen3-next" && name != "tiny-qwen3.5-moe")
    GTEST_SKIP() << "slow under a sanitizer";
  const std::string golden =
      std::string(WADER_SOURCE_DIR "/tests/data/") + GetParam() + "/golden.safetensors";
  const auto report = compare(testing::fixture_container(GetParam()), golden, 32);
  // Nothing was left out by chance.
  EXPECT_TRUE(report.not_compared.empty());
  EXPECT_EQ(compared(report, "greedy"), 64u);
  EXPECT_EQ(compared(report, "logits"), 16 + 8 + 8 + 2u);
}

// MXFP4's values are a part of bf16's: the experts may be stored so, and nothing changes.
TEST(ReferenceFormats, TinyGptOssWithBf16Experts) {
  if (testing::kSanitized) GTEST_SKIP() << "slow under a sanitizer";
  const std::string golden = WADER_SOURCE_DIR "/tests/data/tiny-gpt-oss/golden.safetensors";
  compare(testing::fixture_container("tiny-gpt-oss", {.experts = DType::bf16}), golden, 32);
}

// Case C-06: text that looks fine is no pass; the likelihood of 700 tokens is.
TEST_P(Reference, Likelihood) {
  const std::string data = std::string(WADER_SOURCE_DIR "/tests/data/") + GetParam();
  std::ifstream file(data + "/golden.json");
  const Json json = Json::parse(file);
  auto golden = GoldenFile::open(data + "/golden.safetensors");
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  EngineOptions options;
  options.memory_bytes = 1u << 30;
  options.kernels = "ref";
  options.context = 1024;
  const auto engine = open_engine(testing::fixture_container(GetParam()), options);
  GoldenLimits limits;
  limits.nll = 1e-5;
  const auto report =
      check_nll({json, *golden, nullptr}, *open_session(*engine), limits, [](const GoldenLine& l) {
        EXPECT_TRUE(l.ok()) << l.name << ' ' << l.error;
        std::printf("%-28s %-12s %.3g\n", l.name.c_str(), l.measure.c_str(), l.error);
      });
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->lines.size(), 1u);
}

TEST(ReferenceFormats, Demo) {
  if (testing::kSanitized) GTEST_SKIP() << "slow under a sanitizer";
  const auto report = compare(testing::demo_container(),
                              WADER_SOURCE_DIR "/tests/data/demo/golden.safetensors", 64);
  EXPECT_EQ(report.not_compared, std::vector<std::string>{"topic_expert_counts"});
  EXPECT_EQ(compared(report, "logits"), 76u);
}

}  // namespace
}  // namespace wader
