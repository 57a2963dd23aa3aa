#include "install/install.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "install/install_testing.h"
#include "tensor/matrix.h"

namespace wader {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const fs::path kDemo = WADER_SOURCE_DIR "/models/demo";
const fs::path kTiny = WADER_SOURCE_DIR "/tests/data/tiny-gpt-oss";

class InstallTest : public ::testing::Test {
 protected:
  fs::path source() const { return scratch_.path() / "source"; }
  fs::path destination() const { return scratch_.path() / "model.wader"; }

  InstallOptions options_for(const fs::path& from,
                             std::optional<DType> trunk = std::nullopt) const {
    InstallOptions options;
    options.source = from;
    options.destination = destination();
    options.trunk = trunk;
    return options;
  }

  InstallReport must_install(const InstallOptions& options) {
    auto report = install(options, {});
    EXPECT_TRUE(report.ok()) << (report.ok() ? "" : report.error().message);
    return report.ok() ? *report : InstallReport{};
  }

  Container must_open() {
    auto container = Container::open(destination());
    EXPECT_TRUE(container.ok()) << (container.ok() ? "" : container.error().message);
    const auto verified = verify_container(*container, {});
    EXPECT_TRUE(verified.ok() && verified->problems.empty());
    return std::move(*container);
  }

  // Installs `from` elsewhere, undisturbed.
  std::map<std::string, std::string> reference_tree(InstallOptions options) {
    testing::TempDirectory other;
    options.destination = other.path() / "model.wader";
    EXPECT_TRUE(install(options, {}).ok());
    return testing::read_tree(options.destination);
  }

  void expect_refused(const InstallOptions& options, const std::string& why) {
    const auto report = install(options, {});
    ASSERT_FALSE(report.ok()) << "expected: " << why;
    EXPECT_THAT(report.error().message, HasSubstr(why));
    EXPECT_FALSE(fs::exists(options.destination)) << why;
  }

  testing::TempDirectory scratch_;
};

// Each expert's record against the released files, which are read here without any code of the
// program.
void expect_experts_are_the_released_ones(const Container& container,
                                          const testing::RawTensors& released) {
  const ExpertLayout& layout = container.manifest().experts;
  for (uint32_t layer = 0; layer < container.spec().layer_count(); ++layer) {
    const std::string file = testing::read_bytes(container.directory() / expert_file_name(layer));
    ASSERT_EQ(file.size(), layout.stride_bytes * container.spec().experts);
    std::string expected(file.size(), '\0');
    for (const ExpertSection& section : layout.sections) {
      const std::string& all = released.at(testing::released_section(layer, section.name)).bytes;
      ASSERT_EQ(all.size(), section.bytes * container.spec().experts);
      for (uint32_t e = 0; e < container.spec().experts; ++e)
        expected.replace(e * layout.stride_bytes + section.offset_bytes, section.bytes, all,
                         e * section.bytes, section.bytes);
    }
    EXPECT_TRUE(file == expected) << "layer " << layer;
  }
}

TEST_F(InstallTest, TheDemoArrivesWhole) {
  const InstallReport report = must_install(options_for(kDemo));
  const Container container = must_open();
  const auto released = testing::read_raw(kDemo);
  expect_experts_are_the_released_ones(container, released);

  const testing::StoredValues stored(container);
  const std::string trunk = testing::read_bytes(destination() / "trunk.bin");
  double sum = 0;
  int matrices = 0;
  for (const TrunkTensor& t : container.manifest().trunk) {
    const testing::RawTensor& source = released.at(testing::released_name(t.name));
    EXPECT_EQ(t.shape, source.shape) << t.name;
    if (t.format != DType::affine8) {
      EXPECT_EQ(t.format, DType::bf16) << t.name;
      EXPECT_TRUE(trunk.compare(t.offset_bytes, t.bytes, source.bytes) == 0) << t.name;
      continue;
    }
    const double snr = testing::snr_db(testing::raw_values(source), stored.trunk(t));
    EXPECT_GT(snr, 40) << t.name;
    EXPECT_NEAR(container.manifest().report["trunk"]["matrices"][t.name]["snr_db"].get<double>(),
                snr, 0.01);
    sum += snr;
    ++matrices;
  }
  EXPECT_EQ(matrices, 2 + 8 * 4);
  EXPECT_NEAR(report.trunk.snr_db, sum / matrices, 0.02);
  EXPECT_EQ(report.trunk.source, "bf16");
  EXPECT_EQ(report.trunk.stored, "affine8");
  EXPECT_EQ(report.experts.source, "mxfp4");
  EXPECT_EQ(report.experts.stored, "mxfp4");
  EXPECT_EQ(report.experts.snr_db, std::numeric_limits<double>::infinity());
  EXPECT_FALSE(report.resumed);
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"})
    EXPECT_TRUE(container.read_small_file(name).value() == testing::read_bytes(kDemo / name))
        << name;

  uint64_t bytes = 0, source_bytes = 0;
  for (const auto& [name, text] : testing::read_tree(destination())) bytes += text.size();
  for (const auto& [name, tensor] : released) source_bytes += tensor.bytes.size();
  EXPECT_EQ(report.container_bytes, bytes);
  EXPECT_EQ(report.source_bytes_read, source_bytes);
  const uint64_t planned = planned_container_bytes(options_for(kDemo)).value();
  EXPECT_GE(planned, bytes);
  EXPECT_LE(planned, bytes + 128 * kKiB);
}

TEST_F(InstallTest, ABf16TrunkIsTheReleasedOne) {
  const InstallReport report = must_install(options_for(kTiny, DType::bf16));
  EXPECT_EQ(report.trunk.snr_db, std::numeric_limits<double>::infinity());
  const Container container = must_open();
  const auto released = testing::read_raw(kTiny);
  expect_experts_are_the_released_ones(container, released);
  const std::string trunk = testing::read_bytes(destination() / "trunk.bin");
  for (const TrunkTensor& t : container.manifest().trunk) {
    EXPECT_EQ(t.format, DType::bf16) << t.name;
    EXPECT_TRUE(trunk.substr(t.offset_bytes, t.bytes) ==
                released.at(testing::released_name(t.name)).bytes)
        << t.name;
  }
}

TEST_F(InstallTest, KeepsOnlyTheFirstLayers) {
  InstallOptions options = options_for(kTiny);
  options.layers = 1;
  must_install(options);
  const Container container = must_open();
  EXPECT_EQ(container.spec().layer_count(), 1u);
  EXPECT_FALSE(fs::exists(destination() / "experts/layer-001.bin"));
  expect_experts_are_the_released_ones(container, testing::read_raw(kTiny));
}

TEST_F(InstallTest, RefusesOptionsThatMakeNoSense) {
  InstallOptions options = options_for(kTiny);
  options.layers = 5;
  expect_refused(options, "5 layers were asked for, the model has 4");
  expect_refused(options_for(kTiny, DType::f32), "affine8 or bf16, not f32");
  options = options_for(kTiny);
  options.experts = DType::f16;
  expect_refused(options, "experts can be mxfp4, affine4, affine8 or bf16, not f16");
  expect_refused(options_for(scratch_.path() / "absent"), "absent");
  options = options_for(kTiny);
  options.destination.clear();
  EXPECT_THAT(install(options, {}).error().message, HasSubstr("no destination"));
}

// f32 and f16 sources. Exact tensors keep each value; a matrix becomes the nearest bf16, and the
// report says so.
TEST_F(InstallTest, ConvertsOtherFloatFormats) {
  auto tensors = testing::random_tensors();
  testing::RawTensor& norm = tensors["model.norm.weight"];
  testing::RawTensor& sinks = tensors["model.layers.0.self_attn.sinks"];
  testing::RawTensor& embed = tensors["model.embed_tokens.weight"];
  testing::RawTensor& head = tensors["lm_head.weight"];
  const auto odd = [](const testing::RawTensor& tensor) {
    auto values = testing::raw_values(tensor);
    for (float& value : values)
      value *= 1.0009765625f;  // 1 + 2^-10: needs more than bf16's eight bits
    return values;
  };
  norm = testing::raw_tensor("F32", norm.shape, odd(norm));
  sinks = testing::raw_tensor("F16", sinks.shape, odd(sinks));
  embed = testing::raw_tensor("F32", embed.shape, odd(embed));
  head = testing::raw_tensor("F16", head.shape, odd(head));
  testing::write_raw(source(), testing::small_config(), tensors);
  const InstallReport report = must_install(options_for(source(), DType::bf16));

  const Container container = must_open();
  const testing::StoredValues all(container);
  for (const TrunkTensor& t : container.manifest().trunk) {
    const auto values = testing::raw_values(tensors.at(testing::released_name(t.name)));
    const auto stored = all.trunk(t);
    const bool exact = t.name == "final_norm" || t.name == "layers.0.attn.sinks";
    const bool rounded = t.name == "embed" || t.name == "head";
    EXPECT_EQ(t.format, exact ? DType::f32 : DType::bf16) << t.name;
    if (!rounded) EXPECT_EQ(values, stored) << t.name;
    if (rounded)
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(bf16_to_f32(f32_to_bf16(values[i])), stored[i]) << t.name;
  }
  const Json& matrices = container.manifest().report["trunk"]["matrices"];
  EXPECT_EQ(matrices["head"]["source"], "f16");
  EXPECT_GT(matrices["head"]["snr_db"].get<double>(), 45);
  EXPECT_TRUE(matrices["layers.0.attn.q.weight"]["snr_db"].is_null());
  EXPECT_GT(report.trunk.snr_db, 45);
}

// hidden 96: 96 values are no whole groups of 64, but of 32; 64 (of the output projection) are.
TEST_F(InstallTest, AMatrixOfBrokenGroupsTakesSmallerOnes) {
  Json config = testing::small_config();
  config["hidden_size"] = 96;
  auto tensors = testing::random_tensors();
  for (auto& [name, tensor] : tensors) {
    if (name.find("experts.") != std::string::npos) continue;
    for (size_t d = 0; d < tensor.shape.size(); ++d) {
      const bool is_hidden = (name.find("norm") != std::string::npos && d == 0) ||
                             (name.find("o_proj") != std::string::npos && d == 0) ||
                             (name.find("o_proj") == std::string::npos && d == 1);
      if (is_hidden) tensor.shape[d] = 96;
    }
    uint64_t count = 1;
    for (uint64_t dim : tensor.shape) count *= dim;
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i)
      values[i] = static_cast<float>(static_cast<int>(i * 7 % 13) - 6) / 16;
    tensor = testing::raw_tensor("BF16", tensor.shape, values);
  }
  for (const std::string layer : {"0", "1"}) {
    const std::string experts = "model.layers." + layer + ".mlp.experts.";
    const auto bytes = [&](const std::string& dtype, std::vector<uint64_t> shape) {
      uint64_t n = dtype == "U8" ? 1 : 2;
      for (uint64_t dim : shape) n *= dim;
      return testing::RawTensor{dtype, shape, std::string(n, '\x21')};
    };
    tensors[experts + "gate_up_proj_blocks"] = bytes("U8", {2, 64, 3, 16});
    tensors[experts + "gate_up_proj_scales"] = bytes("U8", {2, 64, 3});
    tensors[experts + "down_proj_blocks"] = bytes("U8", {2, 96, 1, 16});
    tensors[experts + "down_proj_scales"] = bytes("U8", {2, 96, 1});
    tensors[experts + "down_proj_bias"] = bytes("BF16", {2, 96});
  }
  testing::write_raw(source(), config, tensors);
  must_install(options_for(source()));
  const Container container = must_open();
  for (const TrunkTensor& t : container.manifest().trunk)
    if (t.shape.size() == 2 && !t.name.ends_with("router.weight"))
      EXPECT_EQ(t.format, t.name.ends_with("attn.o.weight") ? MatrixFormat(DType::affine8)
                                                            : MatrixFormat(DType::affine8, 32))
          << t.name;
}

TEST_F(InstallTest, RefusesANanInTheTrunkByName) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              inf = std::numeric_limits<float>::infinity();
  for (const auto& [name, canonical] : std::map<std::string, std::string>{
           {"lm_head.weight", "head"},
           {"model.layers.1.self_attn.k_proj.bias", "layers.1.attn.k.bias"}}) {
    for (const float bad : {nan, inf, -inf}) {
      auto tensors = testing::random_tensors();
      auto values = testing::raw_values(tensors[name]);
      values[17] = bad;
      tensors[name] = testing::raw_tensor("BF16", tensors[name].shape, values);
      testing::write_raw(source(), testing::small_config(), tensors);
      expect_refused(options_for(source()),
                     "trunk tensor " + canonical + " has a NaN or an infinity at element 17");
    }
  }
}

TEST_F(InstallTest, RefusesValuesBeyondTheTrunksFormats) {
  auto tensors = testing::random_tensors();
  testing::RawTensor& head = tensors["lm_head.weight"];
  auto values = testing::raw_values(head);
  values[3] = 3.4e38f, values[4] = -3.4e38f;  // one group: their distance is beyond f32
  head = testing::raw_tensor("F32", head.shape, values);
  testing::write_raw(source(), testing::small_config(), tensors);
  expect_refused(options_for(source()), "trunk tensor head has values that BF16 cannot hold");
  expect_refused(options_for(source(), DType::bf16),
                 "trunk tensor head has values that BF16 cannot hold");
}

TEST_F(InstallTest, RefusesTheScaleThatIsNaNByLayerAndExpert) {
  for (const std::string section : {"gate_up_proj_scales", "down_proj_scales"}) {
    auto tensors = testing::random_tensors();
    std::string& bytes = tensors["model.layers.1.mlp.experts." + section].bytes;
    bytes[bytes.size() / 2 + 5] = '\xff';  // 2 experts: the second one
    testing::write_raw(source(), testing::small_config(), tensors);
    const std::string name = section == "down_proj_scales" ? "down.scales" : "gate_up.scales";
    expect_refused(options_for(source()), "layer 1, expert 1: " + name + " has the E8M0 scale 255");
  }
  auto tensors = testing::random_tensors();
  std::string& bias = tensors["model.layers.0.mlp.experts.down_proj_bias"].bytes;
  bias[21] = '\x7f', bias[20] = '\x80';
  testing::write_raw(source(), testing::small_config(), tensors);
  expect_refused(options_for(source()),
                 "layer 0, expert 0: down.bias has a NaN or an infinity at element 10");
}

// E8M0 0 (2^-127) and 254 are legal, and every block pattern is.
TEST_F(InstallTest, KeepsExtremeScales) {
  auto tensors = testing::random_tensors();
  std::string& bytes = tensors["model.layers.0.mlp.experts.down_proj_scales"].bytes;
  bytes[0] = '\0', bytes[1] = '\xfe';
  testing::write_raw(source(), testing::small_config(), tensors);
  must_install(options_for(source()));
  expect_experts_are_the_released_ones(must_open(), tensors);
}

// Copied experts and quantised ones.
TEST_F(InstallTest, StoppedAnywhereItContinuesToTheSameBytes) {
  for (const fs::path& from : {kTiny, testing::fixture("tiny-qwen3-next")}) {
    const InstallOptions options = options_for(from);
    const auto want = reference_tree(options);
    int steps = 0;
    ASSERT_TRUE(install(options, [&](const Progress&) { return ++steps > 0; }).ok());
    ASSERT_GE(steps, 6);
    for (int stop = 1; stop <= steps; stop += testing::kSanitized ? 5 : 1) {
      fs::remove_all(destination());
      int step = 0;
      const auto stopped = install(options, [&](const Progress&) { return ++step < stop; });
      ASSERT_FALSE(stopped.ok()) << stop;
      EXPECT_EQ(stopped.error().code, ErrorCode::cancelled);
      EXPECT_THAT(Container::open(destination()).error().message, HasSubstr("was not finished"))
          << stop;
      const InstallReport report = must_install(options);
      EXPECT_TRUE(report.resumed);
      EXPECT_FALSE(report.started_over);
      testing::expect_same_tree(testing::read_tree(destination()), want);
    }
    fs::remove_all(destination());
  }
}

TEST_F(InstallTest, AResumedInstallReadsOnlyWhatIsMissing) {
  const InstallOptions options = options_for(kTiny);
  const uint64_t whole = must_install(options).source_bytes_read;
  fs::remove_all(destination());
  int experts = 0;
  ASSERT_FALSE(install(options, [&](const Progress& progress) {
                 return progress.phase != "experts" || ++experts < 3;
               }).ok());
  uint64_t first = UINT64_MAX;
  const auto report = install(options, [&](const Progress& progress) {
    first = std::min(first, progress.done_bytes);
    return true;
  });
  ASSERT_TRUE(report.ok());
  EXPECT_LT(report->source_bytes_read, whole / 2);
  EXPECT_GT(first, 0u);
}

TEST_F(InstallTest, OtherOptionsOrAnotherSourceStartOver) {
  testing::write_raw(source(), testing::small_config(), testing::random_tensors(1));
  const auto stop = [](const Progress& progress) { return progress.phase != "experts"; };
  ASSERT_FALSE(install(options_for(kTiny), stop).ok());

  const InstallOptions bf16 = options_for(source(), DType::bf16);
  ASSERT_FALSE(install(bf16, stop).ok());
  EXPECT_FALSE(fs::exists(destination() / "experts/layer-003.bin"));

  // Other formats.
  InstallOptions coarse = bf16;
  coarse.experts = DType::affine4;
  ASSERT_FALSE(install(coarse, stop).ok());
  coarse.experts = std::nullopt;
  bool restarted = false;
  ASSERT_FALSE(install(coarse, [&](const Progress& progress) {
                 restarted = progress.done_bytes == 0;
                 return false;
               }).ok());
  EXPECT_TRUE(restarted);
  ASSERT_FALSE(install(bf16, stop).ok());

  // Other weights of the same size, a moment later.
  testing::write_raw(source(), testing::small_config(), testing::random_tensors(2));
  fs::last_write_time(source() / "model.safetensors",
                      fs::file_time_type::clock::now() + std::chrono::seconds(5));
  const InstallReport report = must_install(bf16);
  EXPECT_TRUE(report.started_over);
  EXPECT_FALSE(report.resumed);
  expect_experts_are_the_released_ones(must_open(), testing::random_tensors(2));
  testing::expect_same_tree(testing::read_tree(destination()), reference_tree(bf16));
}

TEST_F(InstallTest, ASourceThatChangesIsAnError) {
  const auto tensors = testing::random_tensors();
  const auto expect_change_found = [&](const std::function<void(const fs::path&)>& change,
                                       const char* file) {
    testing::write_raw(source(), testing::small_config(), tensors);
    bool done = false;
    const auto report = install(options_for(source()), [&](const Progress&) {
      if (!std::exchange(done, true)) change(source());
      return true;
    });
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().code, ErrorCode::corrupt);
    EXPECT_THAT(report.error().message,
                HasSubstr(std::string(file) + " changed while it was being installed"));
    EXPECT_FALSE(fs::exists(destination()));
  };
  expect_change_found([](const fs::path& s) { fs::resize_file(s / "model.safetensors", 5000); },
                      "model.safetensors");
  expect_change_found(
      [](const fs::path& s) {
        fs::last_write_time(s / "model.safetensors",
                            fs::file_time_type::clock::now() + std::chrono::seconds(9));
      },
      "model.safetensors");
  expect_change_found(
      [](const fs::path& s) { std::ofstream(s / "config.json", std::ios::app) << " "; },
      "config.json");
}

TEST_F(InstallTest, LeavesWhatIsNotOursAlone) {
  testing::write_bytes(destination() / "photo.jpg", "precious");
  const auto report = install(options_for(kTiny), {});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, ErrorCode::already_exists);
  testing::expect_same_tree(testing::read_tree(destination()), {{"photo.jpg", "precious"}});
  fs::remove_all(destination());

  must_install(options_for(kTiny));
  const auto tree = testing::read_tree(destination());
  EXPECT_THAT(install(options_for(kTiny), {}).error().message,
              HasSubstr("complete container already"));
  testing::expect_same_tree(testing::read_tree(destination()), tree);
}

TEST_F(InstallTest, RefusesADestinationAroundItsSource) {
  testing::write_raw(source(), testing::small_config(), testing::random_tensors());
  const auto before = testing::read_tree(source());
  InstallOptions options = options_for(source());
  options.destination = source();
  EXPECT_FALSE(install(options, {}).ok());
  // A journal in the source's own directory or above it would let an install write there.
  const fs::path link = scratch_.path() / "link";
  fs::create_directory_symlink(scratch_.path(), link);
  for (const fs::path& around : {source(), scratch_.path(), link, source() / "." / ".."}) {
    testing::write_bytes(around / "install.json", "{\"wader_install\":");
    options.destination = around;
    EXPECT_THAT(install(options, {}).error().message, HasSubstr("lies in the destination"))
        << around;
    fs::remove(around / "install.json");
  }
  testing::expect_same_tree(testing::read_tree(source()), before);
  options.destination = source() / "inside.wader";  // a checkpoint is read by name: no harm
  must_install(options);
  EXPECT_TRUE(Container::open(options.destination).ok());
}

TEST_F(InstallTest, RefusesADestinationInsideAContainer) {
  must_install(options_for(kTiny));
  const auto tree = testing::read_tree(destination());
  InstallOptions options = options_for(kTiny);
  options.destination = destination() / "experts" / "inner.wader";
  EXPECT_THAT(install(options, {}).error().message, HasSubstr("lies in the container"));
  testing::expect_same_tree(testing::read_tree(destination()), tree);
}

// A snapshot in the hub's cache: links to blobs; repository and commit come from the path.
TEST_F(InstallTest, FollowsTheHubsCache) {
  const std::string commit(40, 'b');
  const fs::path cache = scratch_.path() / "models--acme--small-moe",
                 snapshot = cache / "snapshots" / commit;
  testing::write_raw(cache / "blobs", testing::small_config(), testing::random_tensors());
  fs::create_directories(snapshot);
  for (const char* name : {"config.json", "model.safetensors"})
    fs::create_symlink(fs::path("../../blobs") / name, snapshot / name);
  const auto report = install(options_for(snapshot), {});
  ASSERT_TRUE(report.ok()) << report.error().message;
  const Container container = must_open();
  EXPECT_EQ(container.manifest().source, "acme/small-moe");
  EXPECT_EQ(container.manifest().revision, commit);
  EXPECT_FALSE(fs::is_symlink(destination() / "config.json"));
}

TEST_F(InstallTest, AnySourceNameIsSafeToShow) {
  const fs::path odd = scratch_.path() / "odd\x1b[31m\xff name";
  testing::write_raw(odd, testing::small_config(), testing::random_tensors());
  const auto stop = [](const Progress&) { return false; };
  ASSERT_FALSE(install(options_for(odd), stop).ok());
  EXPECT_TRUE(must_install(options_for(odd)).resumed);  // such a name is no reason to start over
  EXPECT_TRUE(is_printable(must_open().manifest().source));
}

}  // namespace
}  // namespace wader
