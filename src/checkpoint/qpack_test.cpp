#include "checkpoint/qpack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "checkpoint/family_testing.h"
#include "checkpoint/qpack_layout.h"
#include "checkpoint/qpack_testing.h"
#include "checkpoint/qwen_testing.h"

namespace wader {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using namespace wader::testing;  // NOLINT

// A small container of Qwen3.5's kind; each test may break it.
class Qpack : public ::testing::Test {
 protected:
  void SetUp() override { make(MlxOptions{}); }

  void make(const MlxOptions& options) {
    const Json config = small_qwen_config("qwen3_5_moe");
    write_raw(scratch_.path() / "plain", config, small_qwen_tensors(config));
    values_ = write_mlx(scratch_.path() / "plain", scratch_.path() / "mlx", options);
    fs::remove_all(path());
    write_qpack(scratch_.path() / "mlx", path());
  }
  fs::path path() const { return scratch_.path() / "small.qpack"; }

  std::string message() const {
    const auto checkpoint = Checkpoint::open(path());
    if (checkpoint.ok()) return "opened";
    EXPECT_THAT(checkpoint.error().message, HasSubstr(path().string()));
    return checkpoint.error().message;
  }
  void expect_released_values() const {
    const auto checkpoint = Checkpoint::open(path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_EQ((*checkpoint)->kind(), "qpack");
    expect_values(**checkpoint, ExpectedQwen((*checkpoint)->spec(), values_, true));
  }
  // Changes a JSON file, and the size that the manifest has for it.
  void change(const std::string& name, const std::function<void(Json&)>& change) const {
    Json json = file_json(path() / name);
    change(json);
    write_bytes(path() / name, json.dump());
    if (name == "manifest.json") return;
    this->change("manifest.json",
                 [&](Json& manifest) { manifest["files"][name] = json.dump().size(); });
  }
  void change_layout(const std::function<void(Json&)>& change) const {
    this->change("packed_experts/layout.json", change);
  }
  Json& section(Json& layout, const std::string& name) const {
    for (Json& section : layout["sections"])
      if (section["name"] == name) return section;
    return layout["none"];
  }

  TempDirectory scratch_;
  ValuesByName values_;
};

TEST_F(Qpack, HasTheValuesOfItsCheckpoint) {
  expect_released_values();
  const auto checkpoint = Checkpoint::open(path()).value();
  EXPECT_EQ(checkpoint->expert_format().down, MatrixFormat(DType::affine4, 32));
  // Record e is e strides from the first.
  const auto first = checkpoint->expert_source(1, 0, ExpertMatrix::down).value();
  const auto last = checkpoint->expert_source(1, 3, ExpertMatrix::down).value();
  const auto stride =
      file_json(path() / "packed_experts/layout.json")["expertStride"].get<uint64_t>();
  EXPECT_EQ(stride % 16384, 0u);
  for (const SourcePlane SourceRows::*plane :
       {&SourceRows::codes, &SourceRows::scales, &SourceRows::biases})
    EXPECT_EQ((last.pieces[0].*plane).offset_bytes,
              (first.pieces[0].*plane).offset_bytes + 3 * stride);
}

TEST_F(Qpack, NamesMayBeNestedOrStripped) {
  RawTensors stripped;
  for (const auto& [name, tensor] : read_raw(path()))
    stripped[replaced(name, "language_model.", "")] = tensor;
  write_bytes(path() / "model.safetensors", raw_file(stripped));
  change("manifest.json", [&](Json& manifest) {
    manifest["files"]["model.safetensors"] = raw_file(stripped).size();
  });
  expect_released_values();
  // The sections' names may be those of layer 0's tensors.
  change_layout([](Json& layout) {
    for (Json& section : layout["sections"])
      section["name"] =
          "language_model.model.layers.0.mlp.switch_mlp." + section["name"].get<std::string>();
  });
  expect_released_values();
}

TEST_F(Qpack, UnquantisedAndMixedExperts) {
  MlxOptions plain;
  plain.quantised = false;
  make(plain);
  expect_released_values();
  EXPECT_EQ(Checkpoint::open(path()).value()->expert_format().gate_up, MatrixFormat(DType::bf16));
  // Eight bits by default, the experts four: the shapes say so.
  make({[](const std::string& name) -> std::optional<MlxFormat> {
    return name.find("switch_mlp") == std::string::npos ? MlxFormat{8, 64}
                                                        : MlxFormat{4, 64, "F16"};
  }});
  change("manifest.json", [](Json& manifest) {
    manifest["quantBits"] = 4;
    manifest["quantGroupSize"] = 64;
  });
  expect_released_values();
  EXPECT_EQ(Checkpoint::open(path()).value()->expert_format().gate_up,
            MatrixFormat(DType::affine4, 64, DType::f16));
}

TEST_F(Qpack, BrokenManifests) {
  const auto says = [&](const std::function<void(Json&)>& broken) {
    const std::string whole = read_bytes(path() / "manifest.json");
    change("manifest.json", broken);
    const std::string text = message();
    write_bytes(path() / "manifest.json", whole);
    return text;
  };
  EXPECT_THAT(says([](Json& m) { m["version"] = 2; }), HasSubstr("version 2 is not known"));
  EXPECT_THAT(says([](Json& m) { m.erase("version"); }), HasSubstr("'version' is missing"));
  EXPECT_THAT(says([](Json& m) { m.erase("files"); }), HasSubstr("'files' is missing"));
  EXPECT_THAT(says([](Json& m) { m["files"]["../secret"] = 1; }),
              HasSubstr("'../secret' may only name a file inside"));
  EXPECT_THAT(says([](Json& m) { m["files"]["/etc/passwd"] = 1; }), HasSubstr("absolute path"));
  EXPECT_THAT(says([](Json& m) { m["files"]["vocab.json"] = 1; }),
              HasSubstr("lists 'vocab.json', which is not there"));
  EXPECT_THAT(says([](Json& m) { m["files"]["config.json"] = 1; }),
              HasSubstr("'config.json' has "));
  EXPECT_THAT(says([](Json& m) { m["files"]["config.json"] = -1; }),
              HasSubstr("is not a whole number"));
  EXPECT_THAT(says([](Json& m) { m["quantBits"] = 8; }),
              HasSubstr("manifest.json says 8 bits in groups of 32, but section "
                        "'gate_proj.weight' has 4 bits in groups of 32"));
  EXPECT_THAT(says([](Json& m) { m["quantGroupSize"] = 64; }), HasSubstr("groups of 64, but"));
  EXPECT_EQ(message(), "opened");

  fs::create_symlink("../plain/config.json", path() / "tokenizer.json");
  EXPECT_THAT(message(), HasSubstr("tokenizer.json is a link to"));
  fs::remove(path() / "tokenizer.json");
  fs::remove(path() / "manifest.json");
  EXPECT_THAT(message(), HasSubstr("an interrupted install?"));
}

TEST_F(Qpack, BrokenLayouts) {
  const auto says = [&](const std::function<void(Json&)>& broken) {
    const std::string layout = read_bytes(path() / "packed_experts/layout.json"),
                      manifest = read_bytes(path() / "manifest.json");
    change_layout(broken);
    const std::string text = message();
    write_bytes(path() / "packed_experts/layout.json", layout);
    write_bytes(path() / "manifest.json", manifest);
    return text;
  };
  EXPECT_THAT(says([](Json& l) { l["expertCount"] = 5; }),
              HasSubstr("layout.json has 5 experts and 2 layers, config.json 4 and 2"));
  EXPECT_THAT(says([](Json& l) {
                l["layerCount"] = 3;
                l["linearLayers"] = {true, false, true};
              }),
              HasSubstr("4 experts and 3 layers"));
  EXPECT_THAT(says([](Json& l) { l["linearLayers"] = {true}; }),
              HasSubstr("linearLayers has 1 entries"));
  EXPECT_THAT(says([](Json& l) {
                l["linearLayers"] = {true, true};
              }),
              HasSubstr("disagree on the kind of layer 1"));
  EXPECT_THAT(says([](Json& l) { l["linearLayers"] = {true, 0}; }), HasSubstr("true and false"));
  EXPECT_THAT(says([](Json& l) { l["expertStride"] = 8192; }), HasSubstr("past the stride"));
  EXPECT_THAT(says([](Json& l) { l["expertStride"] = 65536; }),
              HasSubstr("packed_experts/layer_00.bin has "));
  EXPECT_THAT(says([](Json& l) { l["expertStride"] = uint64_t{1} << 40; }),
              HasSubstr("'expertStride'"));
  EXPECT_THAT(says([](Json& l) { l["expertStride"] = -1; }), HasSubstr("'expertStride'"));
  EXPECT_THAT(says([&](Json& l) { section(l, "up_proj.scales")["name"] = "up_proj.zeros"; }),
              HasSubstr("no section 'up_proj.scales'"));
  EXPECT_THAT(says([&](Json& l) { section(l, "up_proj.scales")["name"] = "up_proj.weight"; }),
              HasSubstr("'up_proj.weight' is there twice"));
  EXPECT_THAT(says([&](Json& l) { section(l, "up_proj.scales")["offset"] = 0; }),
              HasSubstr("overlap"));
  EXPECT_THAT(says([&](Json& l) { section(l, "up_proj.scales")["dtype"] = "F8_E4M3"; }),
              HasSubstr("the unknown dtype 'F8_E4M3'"));
  EXPECT_THAT(says([&](Json& l) { section(l, "up_proj.scales")["size"] = 1; }),
              HasSubstr("has 1 bytes, which [64, 4] of BF16 does not take"));
  EXPECT_THAT(says([&](Json& l) {
                section(l, "up_proj.scales")["shape"] = {uint64_t{1} << 63, 2};
                section(l, "up_proj.scales")["size"] = 0;
              }),
              HasSubstr("has 0 bytes"));
  EXPECT_THAT(says([&](Json& l) {
                section(l, "up_proj.scales")["shape"] = {0, 0};
              }),
              HasSubstr("is empty"));
  EXPECT_THAT(says([&](Json& l) {
                section(l, "up_proj.scales")["shape"] = {4, 4, 64};
              }),
              HasSubstr("shape of two"));
  EXPECT_THAT(says([&](Json& l) {
                section(l, "up_proj.weight")["shape"] = {32, 32};
              }),
              HasSubstr("section 'up_proj.weight' is u32 [32, 32]"));
  EXPECT_THAT(says([&](Json& l) {
                section(l, "up_proj.scales")["shape"] = {32, 8};
              }),
              HasSubstr("section 'up_proj.scales' is bf16 [32, 8]"));
  EXPECT_THAT(says([&](Json& l) {
                section(l, "up_proj.scales")["dtype"] = "F32";
                section(l, "up_proj.scales")["shape"] = {64, 2};
              }),
              HasSubstr("section 'up_proj.scales' is f32 [64, 2]"));
  EXPECT_THAT(says([&](Json& l) { section(l, "up_proj.biases")["dtype"] = "F16"; }),
              HasSubstr("section 'up_proj.biases' is f16"));
  EXPECT_THAT(says([](Json& l) { l["sections"].push_back(l["sections"][0]); }),
              HasSubstr("there are 10 sections"));
  EXPECT_THAT(says([](Json& l) { l["sections"] = {1}; }), HasSubstr("a section is not an object"));
  EXPECT_EQ(message(), "opened");
}

TEST_F(Qpack, BrokenFiles) {
  const fs::path layer = path() / "packed_experts/layer_01.bin";
  const auto size = fs::file_size(layer);
  fs::resize_file(layer, size - 1);
  EXPECT_THAT(message(), HasSubstr("'packed_experts/layer_01.bin' has"));
  change("manifest.json", [&](Json& m) { m["files"]["packed_experts/layer_01.bin"] = size - 1; });
  EXPECT_THAT(message(), HasSubstr("packed_experts/layer_01.bin has"));
  fs::resize_file(layer, size);
  change("manifest.json", [&](Json& m) { m["files"]["packed_experts/layer_01.bin"] = size; });
  EXPECT_EQ(message(), "opened");

  // Not listed, and a link out of the directory.
  fs::rename(layer, scratch_.path() / "elsewhere.bin");
  fs::create_symlink("../../elsewhere.bin", layer);
  change("manifest.json", [&](Json& m) { m["files"].erase("packed_experts/layer_01.bin"); });
  EXPECT_THAT(message(), HasSubstr("layer_01.bin is a link to"));
  fs::remove(layer);
  EXPECT_THAT(message(), HasSubstr("layer_01.bin"));
}

TEST_F(Qpack, ExpertsOutsideThePackAreRefused) {
  RawTensors tensors = read_raw(path());
  tensors["language_model.model.layers.0.mlp.switch_mlp.gate_proj.weight"] = {"U8", {1}, "x"};
  write_bytes(path() / "model.safetensors", raw_file(tensors));
  change("manifest.json", [&](Json& manifest) {
    manifest["files"]["model.safetensors"] = raw_file(tensors).size();
  });
  EXPECT_THAT(message(), HasSubstr("switch_mlp.gate_proj.weight' has no part"));
}

}  // namespace
}  // namespace wader
