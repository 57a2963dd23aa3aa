#include "synth.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "arch/arch_testing.h"
#include "container/container.h"
#include "engine/engine.h"
#include "install/install.h"
#include "release.h"
#include "shapes.h"

namespace wader::bench {
namespace {

namespace fs = std::filesystem;

class Synth : public ::testing::Test {
 protected:
  Synth() : directory_(fs::path(::testing::TempDir()) / ("synth_" + std::to_string(::getpid()))) {
    fs::remove_all(directory_);
  }
  ~Synth() override { fs::remove_all(directory_); }

  fs::path write(const ArchitectureSpec& spec, ExpertFormat experts, MatrixFormat trunk,
                 const std::string& name, double skew = 0) {
    SynthOptions options;
    options.spec = spec;
    options.experts = experts;
    options.trunk = trunk;
    options.skew = skew;
    options.destination = directory_ / name;
    const auto bytes = write_synthetic_container(options, {});
    EXPECT_TRUE(bytes.ok()) << bytes.error().message;
    return options.destination;
  }

  const fs::path directory_;
};

// Router picks of 64 random tokens, (layers, tokens, k).
std::vector<int32_t> routed(const fs::path& container) {
  EngineOptions options;
  options.memory_bytes = 1u << 30;
  options.context = 128;
  options.threads = 1;
  auto engine = Engine::open(container, options);
  EXPECT_TRUE(engine.ok()) << engine.error().message;
  auto session = (*engine)->new_session();
  Capture capture;
  std::vector<TokenId> tokens;
  for (int i = 0; i < 64; ++i) tokens.push_back(i * 37 % 96);
  float largest = 0;
  const Status status = (*session)->evaluate(
      tokens, 0,
      [&](uint32_t, std::span<const float> logits) {
        for (float logit : logits) largest = std::max(largest, std::fabs(logit));
      },
      &capture);
  EXPECT_TRUE(status.ok()) << status.error().message;
  EXPECT_LT(largest, 100.0f);  // sane: neither vanished nor exploded
  EXPECT_GT(largest, 0.1f);
  return capture.router_indices;
}

TEST_F(Synth, EveryFormatOpensAndComputes) {
  const ArchitectureSpec attention = testing::small_attention_spec();
  const ArchitectureSpec hybrid = testing::small_hybrid_spec();
  routed(write(attention, {DType::mxfp4, DType::mxfp4}, DType::affine8, "a"));
  routed(write(attention, {DType::bf16, DType::bf16}, DType::bf16, "b"));
  const MatrixFormat four(DType::affine4, 32), eight(DType::affine8, 32);
  routed(write(hybrid, {four, four}, DType::affine8, "c"));
  routed(write(hybrid, {eight, eight}, DType::affine4, "d"));
}

TEST_F(Synth, SkewMakesExpertsPopular) {
  ArchitectureSpec spec = testing::small_hybrid_spec();
  spec.layers = {LayerKind::full_attention};
  spec.experts = 64;
  const MatrixFormat four(DType::affine4, 32);
  const auto distinct = [&](const std::string& name, double skew) {
    const auto ids = routed(write(spec, {four, four}, DType::affine8, name, skew));
    return std::set<int32_t>(ids.begin(), ids.end()).size();
  };
  EXPECT_LT(distinct("skewed", 1.5) * 3, distinct("even", 0) * 2);
}

TEST_F(Synth, SameSeedSameBytes) {
  const ArchitectureSpec spec = testing::small_attention_spec();
  const auto container = [&](const std::string& name) {
    return std::move(
               Container::open(write(spec, {DType::mxfp4, DType::mxfp4}, DType::affine8, name)))
        .value();
  };
  const Container one = container("one"), two = container("two");
  EXPECT_EQ(one.identity(), two.identity());
  EXPECT_NE(one.expert_digest(0, 0), one.expert_digest(0, 1));
}

TEST_F(Synth, RefusesNonsense) {
  SynthOptions options;
  options.spec = testing::small_hybrid_spec();
  options.experts = {DType::affine4, DType::affine4};  // down has 32 columns
  options.destination = directory_ / "x";
  EXPECT_FALSE(write_synthetic_container(options, {}).ok());
  options.experts = {DType::bf16, DType::bf16};
  options.skew = -1;
  EXPECT_FALSE(write_synthetic_container(options, {}).ok());
  EXPECT_FALSE(fs::exists(options.destination));
}

// Bytes of one expert as the released files and other programs' containers have them.
TEST(Shapes, RecordsHaveTheReleasedSizes) {
  const auto payload = [](const char* name) {
    const ArchitectureSpec spec = *released_shape(name);
    EXPECT_TRUE(validate_spec(spec).ok());
    return expert_layout(spec, usual_expert_format(spec)).payload_bytes;
  };
  EXPECT_EQ(payload("gpt-oss-20b"), 13'236'480u);
  EXPECT_EQ(payload("gpt-oss-120b"), 13'236'480u);
  EXPECT_EQ(payload("qwen3.6-35b-a3b"), 1'769'472u);
  EXPECT_EQ(payload("qwen3-next-80b-a3b"), 1'769'472u);
  EXPECT_EQ(payload("qwen3-30b-a3b"), 3u * 768 * 2048 * 9 / 16);
  EXPECT_FALSE(released_shape("gpt-5").has_value());
}

// A released model, its container, that released again, and its container.
TEST_F(Synth, AReleaseInstallsAsWhatItWasMadeOf) {
  const auto install_to = [&](const fs::path& source, const char* name, bool in_place) {
    InstallOptions options;
    options.source = source;
    options.destination = directory_ / name;
    options.trunk = DType::bf16;
    options.in_place = in_place;
    const auto report = install(options, {});
    EXPECT_TRUE(report.ok()) << report.error().message;
    return options.destination;
  };
  const auto digests = [](const fs::path& container) {
    return read_text_file(container / "digests.bin", 1u << 20).value();
  };
  const fs::path first =
      install_to(fs::path(WADER_SOURCE_DIR) / "tests/data/tiny-gpt-oss", "first.wader", false);
  const auto container = Container::open(first);
  ASSERT_TRUE(container.ok());
  const fs::path release = directory_ / "release";
  const auto bytes = write_release(*container, release);
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  EXPECT_GT(*bytes, 0u);
  for (const bool in_place : {false, true}) {
    const fs::path again =
        install_to(release, in_place ? "in_place.wader" : "again.wader", in_place);
    EXPECT_EQ(digests(again), digests(first));
    EXPECT_EQ(spec_to_json(Container::open(again)->spec()), spec_to_json(container->spec()));
  }
  // Another family's, and another trunk's, have no such form.
  const ExpertFormat kAffine4{MatrixFormat(DType::affine4, 32), MatrixFormat(DType::affine4, 32)};
  const auto other =
      Container::open(write(testing::small_hybrid_spec(), kAffine4, DType::affine8, "other.wader"));
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(write_release(*other, directory_ / "no").error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace wader::bench
