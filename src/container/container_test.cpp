#include "container/container.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/hash.h"
#include "container/container_testing.h"

namespace wader {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string refusal(const fs::path& directory) {
  const auto container = Container::open(directory);
  return container.ok() ? "opened" : container.error().message;
}

class ContainerTest : public ::testing::Test {
 protected:
  void SetUp() override { directory_ = testing::write_small_container(scratch_.path()); }

  std::vector<std::string> problems_after(const std::function<void()>& damage) {
    const auto container = Container::open(directory_);
    EXPECT_TRUE(container.ok()) << (container.ok() ? "" : container.error().message);
    damage();
    const auto report = verify_container(*container, {});
    EXPECT_TRUE(report.ok());
    return report.ok() ? report->problems : std::vector<std::string>{"failed"};
  }

  testing::TempDirectory scratch_;
  fs::path directory_;
};

TEST_F(ContainerTest, OpensWhatWasWritten) {
  const auto container = Container::open(directory_);
  ASSERT_TRUE(container.ok()) << container.error().message;
  EXPECT_EQ(container->manifest().source, "small");
  EXPECT_EQ(container->spec().layer_count(), 2u);
  EXPECT_EQ(container->read_small_file("tokenizer.json").value(), "{\"tokens\": [1]}\n");
  EXPECT_TRUE(container->has_file("tokenizer.json"));
  EXPECT_FALSE(container->has_file("LICENSE"));
  EXPECT_EQ(container->read_small_file("LICENSE").error().code, ErrorCode::not_found);
  EXPECT_EQ(container->read_small_file("trunk.bin").error().code, ErrorCode::not_found);
  EXPECT_EQ(container->manifest().report["trunk"]["snr"], 1.5);
  EXPECT_EQ(container->manifest().report["layers"][1]["layer"], 1);
}

// Which container a file belongs to that was made for it: the same bytes, the same identity.
TEST_F(ContainerTest, HasAnIdentity) {
  const uint64_t identity = Container::open(directory_)->identity();
  std::string text = testing::read_bytes(directory_ / "manifest.json");
  EXPECT_NE(text.find(digest_to_hex(identity)), std::string::npos);
  testing::TempDirectory again, other;
  EXPECT_EQ(Container::open(testing::write_small_container(again.path()))->identity(), identity);
  ContainerPlan plan = testing::small_plan();
  plan.manifest.revision = "another";
  const auto different = testing::write_small_container(other.path(), std::move(plan));
  EXPECT_NE(Container::open(different)->identity(), identity);
}

// Layers without routed experts have no file and no digests; the others keep their numbers.
TEST_F(ContainerTest, DenseLayersHaveNoExperts) {
  ArchitectureSpec spec = testing::small_spec();
  spec.layers = {{LayerKind::full_attention, FfnKind::dense},
                 LayerKind::full_attention,
                 {LayerKind::full_attention, FfnKind::dense},
                 LayerKind::sliding_attention};
  spec.dense_inner = 128;
  testing::TempDirectory scratch;
  const fs::path directory =
      testing::write_small_container(scratch.path(), testing::small_plan(spec));
  EXPECT_FALSE(fs::exists(directory / "experts/layer-000.bin"));
  EXPECT_TRUE(fs::exists(directory / "experts/layer-001.bin"));
  EXPECT_FALSE(fs::exists(directory / "experts/layer-002.bin"));
  EXPECT_TRUE(fs::exists(directory / "experts/layer-003.bin"));
  const auto container = Container::open(directory);
  ASSERT_TRUE(container.ok()) << container.error().message;
  const Manifest& manifest = container->manifest();
  EXPECT_EQ(manifest.expert_bytes(), 2 * 3 * manifest.experts.stride_bytes);
  EXPECT_EQ(fs::file_size(directory / "digests.bin"), 8 * (2 * 3 + manifest.trunk.size()));
  for (const uint32_t layer : {1u, 3u})
    for (uint32_t e = 0; e < 3; ++e)
      EXPECT_EQ(
          container->expert_digest(layer, e),
          record_digest(testing::pattern(manifest.experts.stride_bytes, 100 + 10 * layer + e)));
  EXPECT_EQ(container->trunk_digest(0), xxh3_64(testing::pattern(manifest.trunk[0].bytes, 0)));
  const auto report = verify_container(*container, {});
  ASSERT_TRUE(report.ok());
  EXPECT_THAT(report->problems, IsEmpty());
  testing::flip_bit(directory / "experts/layer-003.bin", 9);
  EXPECT_THAT(verify_container(*container, {})->problems,
              ElementsAre("experts/layer-003.bin: expert 0 does not match its checksum"));
}

TEST_F(ContainerTest, HoldsExpertsInEveryFormat) {
  for (const ExpertFormat& format :
       {ExpertFormat{DType::bf16, DType::bf16},
        ExpertFormat{DType::affine4, MatrixFormat(DType::affine4, 32)},
        ExpertFormat{MatrixFormat(DType::affine8, 64, DType::f16), DType::mxfp4}}) {
    testing::TempDirectory scratch;
    const auto container = Container::open(testing::write_small_container(
        scratch.path(), testing::small_plan(testing::small_spec(), format)));
    ASSERT_TRUE(container.ok()) << container.error().message;
    EXPECT_EQ(container->manifest().experts.format, format);
    EXPECT_THAT(verify_container(*container, {})->problems, IsEmpty());
  }
}

// Every byte of trunk and records stands where the manifest says, and the digests are of exactly
// those bytes.
TEST_F(ContainerTest, HoldsTheBytesThatWereAppended) {
  const auto container = Container::open(directory_);
  ASSERT_TRUE(container.ok()) << container.error().message;
  const std::string trunk = testing::read_bytes(directory_ / "trunk.bin");
  const Manifest& manifest = container->manifest();
  ASSERT_EQ(trunk.size(), manifest.trunk_bytes());
  EXPECT_EQ(trunk.size() % 4096, 0u);
  std::string expected(trunk.size(), '\0');
  for (size_t i = 0; i < manifest.trunk.size(); ++i) {
    const TrunkTensor& t = manifest.trunk[i];
    const auto bytes = testing::pattern(t.bytes, i);
    std::memcpy(expected.data() + t.offset_bytes, bytes.data(), bytes.size());
    EXPECT_EQ(container->trunk_digest(i), xxh3_64(bytes)) << t.name;
  }
  EXPECT_TRUE(trunk == expected);
  for (uint32_t layer = 0; layer < 2; ++layer) {
    const std::string file = testing::read_bytes(directory_ / expert_file_name(layer));
    for (uint32_t e = 0; e < 3; ++e) {
      const auto record = testing::pattern(manifest.experts.stride_bytes, 100 + 10 * layer + e);
      EXPECT_EQ(std::memcmp(file.data() + e * record.size(), record.data(), record.size()), 0);
      EXPECT_EQ(container->expert_digest(layer, e), record_digest(record));
    }
  }
}

TEST_F(ContainerTest, RefusesAnUnfinishedInstallByName) {
  testing::write_bytes(directory_ / "install.json", "");
  EXPECT_THAT(refusal(directory_), HasSubstr("install of small.wader was not finished"));
  EXPECT_THAT(refusal(directory_), HasSubstr("wader install"));
}

TEST_F(ContainerTest, RefusesWhatIsNoContainer) {
  EXPECT_THAT(refusal(scratch_.path() / "absent.wader"), HasSubstr("no such container"));
  EXPECT_THAT(refusal(scratch_.path()), HasSubstr("it has no manifest.json"));
  EXPECT_THAT(refusal(directory_ / "trunk.bin"), HasSubstr("a container is a directory"));
  EXPECT_EQ(refusal(directory_ / ""), "opened");  // a trailing slash
}

TEST_F(ContainerTest, NamesTheFileThatIsMissingOrResized) {
  const auto tree = testing::read_tree(directory_);
  for (const auto& [name, bytes] : tree) {
    if (name == "manifest.json" || name == "experts/") continue;
    fs::remove(directory_ / name);
    EXPECT_THAT(refusal(directory_), HasSubstr(name + ": missing"));
    testing::write_bytes(directory_ / name, bytes.substr(1));
    EXPECT_THAT(refusal(directory_), HasSubstr(name + ": has "));
    testing::write_bytes(directory_ / name, bytes + "x");
    EXPECT_THAT(refusal(directory_), HasSubstr(name + ": has "));
    fs::remove(directory_ / name);
    fs::create_directory(directory_ / name);
    EXPECT_THAT(refusal(directory_), HasSubstr(name + " is a directory"));
    fs::remove(directory_ / name);
    testing::write_bytes(directory_ / name, bytes);
    EXPECT_EQ(refusal(directory_), "opened");
  }
}

TEST_F(ContainerTest, ChecksSmallFilesWhenItOpens) {
  testing::flip_bit(directory_ / "tokenizer.json", 5);
  EXPECT_THAT(refusal(directory_), HasSubstr("tokenizer.json: does not match its checksum"));
  testing::flip_bit(directory_ / "tokenizer.json", 5);
  testing::flip_bit(directory_ / "digests.bin", 17);
  EXPECT_THAT(refusal(directory_), HasSubstr("digests.bin: does not match its checksum"));
  testing::flip_bit(directory_ / "digests.bin", 17);
  testing::flip_bit(directory_ / "manifest.json", 400);
  EXPECT_THAT(refusal(directory_), HasSubstr("manifest.json: "));
}

TEST_F(ContainerTest, ChecksASmallFileAgainWhenItIsRead) {
  const auto container = Container::open(directory_);
  ASSERT_TRUE(container.ok());
  testing::flip_bit(directory_ / "tokenizer.json", 2);
  EXPECT_EQ(container->read_small_file("tokenizer.json").error().code, ErrorCode::corrupt);
}

TEST_F(ContainerTest, VerifyFindsNothingWrongWithAWholeContainer) {
  const auto container = Container::open(directory_);
  ASSERT_TRUE(container.ok());
  std::vector<uint64_t> done;
  uint64_t total = 0;
  const auto report = verify_container(*container, [&](const Progress& progress) {
    done.push_back(progress.done_bytes);
    total = progress.total_bytes;
    return true;
  });
  ASSERT_TRUE(report.ok());
  EXPECT_THAT(report->problems, IsEmpty());
  uint64_t bytes = 0;
  for (const auto& [name, record] : container->manifest().files) bytes += record.bytes;
  EXPECT_EQ(report->bytes, bytes);
  EXPECT_EQ(total, bytes);
  ASSERT_FALSE(done.empty());
  EXPECT_EQ(done.back(), bytes);
}

TEST_F(ContainerTest, VerifyCanBeStopped) {
  const auto container = Container::open(directory_);
  ASSERT_TRUE(container.ok());
  const auto report = verify_container(*container, [](const Progress&) { return false; });
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, ErrorCode::cancelled);
}

TEST_F(ContainerTest, VerifyNamesTheExpertOfAFlippedBit) {
  const uint64_t stride = testing::small_plan().manifest.experts.stride_bytes;
  // The first and last byte of a record: its end is padding, which counts too.
  for (const uint64_t at : {stride, 2 * stride - 1}) {
    EXPECT_THAT(
        problems_after([&] { testing::flip_bit(directory_ / "experts/layer-001.bin", at); }),
        ElementsAre("experts/layer-001.bin: expert 1 does not match its checksum"));
    testing::flip_bit(directory_ / "experts/layer-001.bin", at);
  }
}

TEST_F(ContainerTest, VerifyNamesTheTensorOfAFlippedBit) {
  const Manifest manifest = Container::open(directory_)->manifest();
  for (const TrunkTensor& t : manifest.trunk) {
    for (const uint64_t at : {t.offset_bytes, t.offset_bytes + t.bytes - 1}) {
      EXPECT_THAT(problems_after([&] { testing::flip_bit(directory_ / "trunk.bin", at, 7); }),
                  ElementsAre("trunk.bin: " + t.name + " does not match its checksum"));
      testing::flip_bit(directory_ / "trunk.bin", at, 7);
    }
  }
}

TEST_F(ContainerTest, VerifyChecksThePaddingOfTheTrunk) {
  const Manifest manifest = Container::open(directory_)->manifest();
  size_t gaps = 0;
  for (size_t i = 1; i < manifest.trunk.size(); ++i) {
    const TrunkTensor& before = manifest.trunk[i - 1];
    const uint64_t end = before.offset_bytes + before.bytes;
    if (end == manifest.trunk[i].offset_bytes) continue;
    ++gaps;
    EXPECT_THAT(
        problems_after([&] { testing::flip_bit(directory_ / "trunk.bin", end); }),
        ElementsAre("trunk.bin: the padding before " + manifest.trunk[i].name + " is not zero"));
    testing::flip_bit(directory_ / "trunk.bin", end);
  }
  EXPECT_GT(gaps, 3u);
  EXPECT_THAT(problems_after(
                  [&] { testing::flip_bit(directory_ / "trunk.bin", manifest.trunk_bytes() - 1); }),
              ElementsAre("trunk.bin: the padding at its end is not zero"));
}

TEST_F(ContainerTest, VerifyGoesOnAfterDamage) {
  const uint64_t stride = testing::small_plan().manifest.experts.stride_bytes;
  const auto problems = problems_after([&] {
    testing::flip_bit(directory_ / "trunk.bin", 0);
    testing::flip_bit(directory_ / "experts/layer-000.bin", 7);
    testing::flip_bit(directory_ / "experts/layer-000.bin", 2 * stride);
    fs::remove(directory_ / "experts/layer-001.bin");
    testing::flip_bit(directory_ / "tokenizer.json", 0);
    testing::flip_bit(directory_ / "digests.bin", 0);
    testing::flip_bit(directory_ / "manifest.json", 100);
  });
  EXPECT_THAT(problems, SizeIs(7));
  EXPECT_THAT(problems, ::testing::Contains(HasSubstr("manifest.json: ")));
  EXPECT_THAT(problems, ::testing::Contains("digests.bin: does not match its checksum"));
  EXPECT_THAT(problems, ::testing::Contains("tokenizer.json: does not match its checksum"));
  EXPECT_THAT(problems, ::testing::Contains("trunk.bin: embed does not match its checksum"));
  EXPECT_THAT(problems,
              ::testing::Contains("experts/layer-000.bin: expert 0 does not match its checksum"));
  EXPECT_THAT(problems,
              ::testing::Contains("experts/layer-000.bin: expert 2 does not match its checksum"));
  EXPECT_THAT(problems, ::testing::Contains(HasSubstr("experts/layer-001.bin: ")));
}

TEST_F(ContainerTest, VerifyReportsAFileCutShortRecordByRecord) {
  const uint64_t stride = testing::small_plan().manifest.experts.stride_bytes;
  EXPECT_THAT(problems_after(
                  [&] { fs::resize_file(directory_ / "experts/layer-000.bin", 2 * stride - 100); }),
              ElementsAre(HasSubstr("experts/layer-000.bin: expert 1 cannot be read: "),
                          HasSubstr("experts/layer-000.bin: expert 2 cannot be read: ")));
  fs::resize_file(directory_ / "experts/layer-000.bin",
                  3 * stride);  // the lost end comes back as zeros
  EXPECT_THAT(problems_after([] {}),
              ElementsAre(HasSubstr("expert 1 does not match"), HasSubstr("expert 2 does")));
}

TEST_F(ContainerTest, VerifyReportsACutTrunkTensorByTensor) {
  const Manifest manifest = Container::open(directory_)->manifest();
  const TrunkTensor& last = manifest.trunk.back();
  const auto problems =
      problems_after([&] { fs::resize_file(directory_ / "trunk.bin", last.offset_bytes + 1); });
  EXPECT_THAT(problems, ElementsAre(HasSubstr("trunk.bin: head cannot be read"),
                                    HasSubstr("trunk.bin: the padding at its end cannot be read")));
}

TEST_F(ContainerTest, VerifyReportsAFileThatGrew) {
  const auto size = fs::file_size(directory_ / "trunk.bin");
  EXPECT_THAT(problems_after([&] { fs::resize_file(directory_ / "trunk.bin", size + 9); }),
              ElementsAre("trunk.bin: 9 bytes longer than it was made"));
}

}  // namespace
}  // namespace wader
