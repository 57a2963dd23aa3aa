#include "checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "checkpoint/checkpoint_testing.h"
#include "checkpoint/safetensors.h"

namespace wader {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::safetensors_file;
using testing::small_config;
using testing::small_tensors;
using testing::TempDirectory;
using testing::TestTensor;

// Writes a checkpoint in two shards with an index: `split` tensors in the first.
void write_sharded(const TempDirectory& directory, const std::vector<TestTensor>& tensors,
                   size_t split) {
  const auto middle = tensors.begin() + static_cast<std::ptrdiff_t>(split);
  directory.write("config.json", small_config().dump());
  directory.write("m-1.safetensors", safetensors_file({tensors.begin(), middle}));
  directory.write("m-2.safetensors", safetensors_file({middle, tensors.end()}));
  Json map = Json::object();
  for (size_t i = 0; i < tensors.size(); ++i)
    map[tensors[i].name] = i < split ? "m-1.safetensors" : "m-2.safetensors";
  directory.write("model.safetensors.index.json", Json{{"weight_map", map}}.dump());
}

void write_single(const TempDirectory& directory, const std::vector<TestTensor>& tensors,
                  const Json& config = small_config()) {
  directory.write("config.json", config.dump());
  directory.write("model.safetensors", safetensors_file(tensors));
}

TestTensor& find(std::vector<TestTensor>& tensors, std::string_view name) {
  return *std::find_if(tensors.begin(), tensors.end(),
                       [&](const TestTensor& t) { return t.name == name; });
}

// Every byte of every shard that stands behind the canonical names, as (file, begin) → end.
using Ranges = std::map<std::pair<uint32_t, uint64_t>, uint64_t>;

void add_ranges(const TensorSource& source, Ranges& ranges) {
  const auto add = [&](const SourcePlane& plane, uint64_t rows, uint64_t row_bytes) {
    if (row_bytes == 0) return;
    for (uint64_t row = 0; row < rows; ++row) {
      const uint64_t begin = plane.offset_bytes + row * plane.stride_bytes;
      EXPECT_TRUE(ranges.emplace(std::pair(plane.file, begin), begin + row_bytes).second);
    }
  };
  for (const SourceRows& piece : source.pieces) {
    const RowBytes bytes = row_bytes(piece.format, source.cols).value();
    add(piece.codes, piece.rows, bytes.codes);
    add(piece.scales, piece.rows, bytes.scales);
    add(piece.biases, piece.rows, bytes.biases);
  }
}

Ranges used_ranges(const Checkpoint& checkpoint) {
  Ranges ranges;
  for (const TrunkTensorSpec& tensor : trunk_tensors(checkpoint.spec())) {
    const auto source = checkpoint.trunk_source(tensor);
    EXPECT_TRUE(source.ok()) << tensor.name;
    EXPECT_EQ(source->format, DType::bf16);
    add_ranges(*source, ranges);
  }
  for (uint32_t layer = 0; layer < checkpoint.spec().layer_count(); ++layer)
    for (uint32_t expert = 0; expert < checkpoint.spec().experts; ++expert)
      for (const ExpertMatrix matrix : {ExpertMatrix::gate_up, ExpertMatrix::down}) {
        add_ranges(checkpoint.expert_source(layer, expert, matrix).value(), ranges);
        if (checkpoint.spec().expert_bias)
          add_ranges(checkpoint.expert_bias_source(layer, expert, matrix).value(), ranges);
      }
  return ranges;
}

// The released checkpoints hold nothing but what the spec names, so its ranges tile their data
// exactly.
TEST(Checkpoint, CanonicalTensorsTileTheReleasedFiles) {
  for (const char* name : {"/tests/data/tiny-gpt-oss/model.safetensors", "/models/demo"}) {
    const auto checkpoint = Checkpoint::open(std::string(WADER_SOURCE_DIR) + name);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    const auto ranges = used_ranges(**checkpoint);
    for (uint32_t file = 0; file < (*checkpoint)->files().size(); ++file) {
      uint64_t at = read_safetensors_header(*(*checkpoint)->files()[file]).value()[0].offset_bytes;
      for (auto range = ranges.lower_bound({file, 0});
           range != ranges.end() && range->first.first == file; ++range) {
        ASSERT_EQ(range->first.second, at);
        at = range->second;
      }
      EXPECT_EQ(at, (*checkpoint)->files()[file]->size().value());
    }
  }
}

TEST(Checkpoint, OpensTheDemo) {
  const auto checkpoint = Checkpoint::open(WADER_SOURCE_DIR "/models/demo");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ((*checkpoint)->files().size(), 2u);
  EXPECT_EQ((*checkpoint)->spec().hidden, 256u);
  std::vector<std::string> names;
  for (const SmallFile& file : (*checkpoint)->small_files()) {
    EXPECT_FALSE(file.text.has_value());
    names.push_back(file.name);
  }
  EXPECT_THAT(names, ElementsAre("config.json", "generation_config.json", "tokenizer.json",
                                 "tokenizer_config.json"));
}

// Against offsets worked out from the order of small_tensors(), not by the code under test.
TEST(Checkpoint, NamesAndRangesByHand) {
  TempDirectory directory;
  const auto tensors = small_tensors();
  write_single(directory, tensors);
  const auto checkpoint = Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const uint64_t data = read_safetensors_header(*(*checkpoint)->files()[0]).value()[0].offset_bytes;
  const auto offset_of = [&](std::string_view name) {
    uint64_t offset = data;
    for (const TestTensor& tensor : tensors) {
      if (tensor.name == name) return offset;
      offset += tensor.bytes();
    }
    return uint64_t{0};
  };
  const std::pair<const char*, const char*> names[] = {
      {"embed", "model.embed_tokens.weight"},
      {"head", "lm_head.weight"},
      {"final_norm", "model.norm.weight"},
      {"layers.1.mixer_norm", "model.layers.1.input_layernorm.weight"},
      {"layers.0.ffn_norm", "model.layers.0.post_attention_layernorm.weight"},
      {"layers.1.attn.q.weight", "model.layers.1.self_attn.q_proj.weight"},
      {"layers.1.attn.k.bias", "model.layers.1.self_attn.k_proj.bias"},
      {"layers.0.attn.sinks", "model.layers.0.self_attn.sinks"},
      {"layers.1.router.weight", "model.layers.1.mlp.router.weight"}};
  const auto trunk = trunk_tensors((*checkpoint)->spec());
  for (const auto& [canonical, released] : names) {
    const auto tensor = std::find_if(trunk.begin(), trunk.end(),
                                     [&](const auto& t) { return t.name == canonical; });
    ASSERT_NE(tensor, trunk.end()) << canonical;
    EXPECT_EQ((*checkpoint)->trunk_source(*tensor)->pieces.at(0).codes.offset_bytes,
              offset_of(released))
        << canonical;
  }
  const std::string experts = "model.layers.1.mlp.experts.";
  const auto gate_up = (*checkpoint)->expert_source(1, 1, ExpertMatrix::gate_up).value();
  ASSERT_EQ(gate_up.pieces.size(), 1u);
  EXPECT_EQ(gate_up.pieces[0].codes.offset_bytes,
            offset_of(experts + "gate_up_proj_blocks") + 64 * 2 * 16);
  const auto down = (*checkpoint)->expert_source(1, 0, ExpertMatrix::down).value();
  EXPECT_EQ(down.pieces.at(0).scales.offset_bytes, offset_of(experts + "down_proj_scales"));
  const auto bias = (*checkpoint)->expert_bias_source(1, 1, ExpertMatrix::down).value();
  EXPECT_EQ(bias.pieces.at(0).codes.offset_bytes, offset_of(experts + "down_proj_bias") + 64 * 2);
  EXPECT_EQ((*checkpoint)->expert_format(), (ExpertFormat{DType::mxfp4, DType::mxfp4}));
  EXPECT_FALSE((*checkpoint)->expert_source(2, 0, ExpertMatrix::down).ok());
  EXPECT_FALSE((*checkpoint)->expert_source(0, 2, ExpertMatrix::down).ok());
  EXPECT_FALSE((*checkpoint)->expert_bias_source(0, 2, ExpertMatrix::down).ok());
  EXPECT_FALSE((*checkpoint)->trunk_source({"layers.9.mixer_norm", {64}, TrunkRole::exact}).ok());
  EXPECT_FALSE((*checkpoint)->trunk_source({"embed", {64}, TrunkRole::matrix}).ok());
}

TEST(Checkpoint, ShardsGiveTheSameAsOneFile) {
  TempDirectory directory;
  write_sharded(directory, small_tensors(), 17);
  const auto checkpoint = Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  ASSERT_EQ((*checkpoint)->files().size(), 2u);
  EXPECT_FALSE(used_ranges(**checkpoint).empty());
}

TEST(Checkpoint, TrunkMayBeF32OrF16) {
  TempDirectory directory;
  auto tensors = small_tensors();
  find(tensors, "model.norm.weight").dtype = "F32";
  find(tensors, "model.layers.0.mlp.router.bias").dtype = "F32";
  write_single(directory, tensors);
  EXPECT_TRUE(Checkpoint::open(directory.path()).ok());
}

TEST(Checkpoint, SkipsWhatIsKnownToBeUnneeded) {
  TempDirectory directory;
  auto tensors = small_tensors();
  tensors.push_back({"mtp.layers.0.weight", "F32", {3}});
  tensors.push_back({"model.visual.patch.weight", "BF16", {3}});
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {8}});
  write_single(directory, tensors);
  directory.write("original/model.safetensors", "not even a header");
  EXPECT_TRUE(Checkpoint::open(directory.path()).ok());

  tensors.push_back({"model.layers.2.input_layernorm.weight", "BF16", {64}});
  write_single(directory, tensors);
  const auto refused = Checkpoint::open(directory.path());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_THAT(refused.error().message,
              HasSubstr("'model.layers.2.input_layernorm.weight' has no part"));
}

TEST(Checkpoint, EveryTensorIsNeeded) {
  for (const TestTensor& victim : small_tensors()) {
    TempDirectory directory;
    auto tensors = small_tensors();
    std::erase_if(tensors, [&](const TestTensor& t) { return t.name == victim.name; });
    write_single(directory, tensors);
    const auto missing = Checkpoint::open(directory.path());
    ASSERT_FALSE(missing.ok()) << victim.name;
    EXPECT_EQ(missing.error().code, ErrorCode::not_found);
    EXPECT_THAT(missing.error().message, HasSubstr("'" + victim.name + "'"));
    EXPECT_THAT(missing.error().message, HasSubstr(directory.path().string()));
  }
}

TEST(Checkpoint, EveryShapeIsChecked) {
  for (const TestTensor& victim : small_tensors()) {
    TempDirectory directory;
    auto tensors = small_tensors();
    find(tensors, victim.name).shape.back() += 1;
    write_single(directory, tensors);
    const auto wrong = Checkpoint::open(directory.path());
    ASSERT_FALSE(wrong.ok()) << victim.name;
    EXPECT_EQ(wrong.error().code, ErrorCode::corrupt);
    EXPECT_THAT(wrong.error().message,
                HasSubstr("tensor '" + victim.name + "' is " + victim.dtype));
    // Both shapes are in the message.
    EXPECT_THAT(wrong.error().message,
                HasSubstr(fmt::format("[{}]", fmt::join(victim.shape, ", "))));
  }
  // Same number of elements, other shape.
  TempDirectory directory;
  auto tensors = small_tensors();
  std::swap(find(tensors, "lm_head.weight").shape[0], find(tensors, "lm_head.weight").shape[1]);
  write_single(directory, tensors);
  EXPECT_THAT(
      Checkpoint::open(directory.path()).error().message,
      HasSubstr("tensor 'lm_head.weight' is BF16 [64, 24], config.json needs f32, f16 or bf16 "
                "[24, 64]"));
}

TEST(Checkpoint, DTypesAreChecked) {
  const std::pair<const char*, const char*> wrong[] = {
      {"model.norm.weight", "U8"},
      {"model.layers.0.mlp.experts.down_proj_bias", "F32"},  // copied byte for byte: bf16 only
      {"model.layers.0.mlp.experts.gate_up_proj_blocks", "BF16"},
      {"model.layers.1.mlp.experts.down_proj_scales", "F32"}};
  for (const auto& [name, dtype] : wrong) {
    TempDirectory directory;
    auto tensors = small_tensors();
    find(tensors, name).dtype = dtype;
    write_single(directory, tensors);
    EXPECT_THAT(Checkpoint::open(directory.path()).error().message,
                HasSubstr(fmt::format("tensor '{}' is {} ", name, dtype)));
  }
}

TEST(Checkpoint, TiedHead) {
  Json config = small_config();
  config["tie_word_embeddings"] = true;
  TempDirectory directory;
  auto tensors = small_tensors();
  for (const bool with_copy : {true, false}) {
    if (!with_copy)
      std::erase_if(tensors, [](const TestTensor& t) { return t.name == "lm_head.weight"; });
    write_single(directory, tensors, config);
    const auto checkpoint = Checkpoint::open(directory.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    const auto trunk = trunk_tensors((*checkpoint)->spec());
    EXPECT_TRUE((*checkpoint)->spec().tied_head);
    EXPECT_EQ(trunk.back().name, "final_norm");
    EXPECT_FALSE((*checkpoint)->trunk_source({"head", {24, 64}, TrunkRole::matrix}).ok());
  }
  // Not tied, and no head.
  write_single(directory, tensors);
  EXPECT_THAT(Checkpoint::open(directory.path()).error().message, HasSubstr("'lm_head.weight'"));
}

TEST(Checkpoint, IndexAndShardsMustAgree) {
  const auto tensors = small_tensors();
  const auto message = [](const TempDirectory& directory) {
    const auto checkpoint = Checkpoint::open(directory.path());
    return checkpoint.ok() ? std::string("opened") : checkpoint.error().message;
  };
  {
    TempDirectory directory;
    write_sharded(directory, tensors, 10);
    auto rest = std::vector(tensors.begin() + 11, tensors.end());
    directory.write("m-2.safetensors", safetensors_file(rest));
    EXPECT_THAT(message(directory), HasSubstr("lists tensor '" + tensors[10].name +
                                              "' in m-2.safetensors, which does not have it"));
  }
  {
    TempDirectory directory;
    write_sharded(directory, tensors, 10);
    auto more = std::vector(tensors.begin() + 10, tensors.end());
    more.push_back({"extra", "U8", {1}});
    directory.write("m-2.safetensors", safetensors_file(more));
    EXPECT_THAT(message(directory), HasSubstr("m-2.safetensors has tensor 'extra', which"));
  }
  {
    TempDirectory directory;
    write_sharded(directory, tensors, 10);
    directory.write("m-2.safetensors", safetensors_file({tensors.begin() + 9, tensors.end()}));
    EXPECT_THAT(message(directory), HasSubstr("'" + tensors[9].name +
                                              "' is in m-1.safetensors and in m-2.safetensors"));
  }
  {
    TempDirectory directory;
    write_sharded(directory, tensors, 10);
    // The shards change places.
    fs::rename(directory.path() / "m-1.safetensors", directory.path() / "t");
    fs::rename(directory.path() / "m-2.safetensors", directory.path() / "m-1.safetensors");
    fs::rename(directory.path() / "t", directory.path() / "m-2.safetensors");
    EXPECT_THAT(message(directory), HasSubstr("lists in m-2.safetensors"));
  }
  {
    TempDirectory directory;
    write_sharded(directory, tensors, 10);
    fs::resize_file(directory.path() / "m-2.safetensors",
                    fs::file_size(directory.path() / "m-2.safetensors") - 1);
    EXPECT_THAT(message(directory), HasSubstr("m-2.safetensors: tensor"));
  }
}

TEST(Checkpoint, ConfigIsNeededAndChecked) {
  TempDirectory directory;
  directory.write("model.safetensors", safetensors_file(small_tensors()));
  EXPECT_EQ(Checkpoint::open(directory.path()).error().code, ErrorCode::not_found);
  directory.write("config.json", "{\"model_type\": \"gpt_oss\", \"model_type\": \"gpt_oss\"}");
  EXPECT_THAT(Checkpoint::open(directory.path()).error().message, HasSubstr("occurs twice"));
  directory.write("config.json", std::string((1 << 20) + 1, ' '));
  EXPECT_EQ(Checkpoint::open(directory.path()).error().code, ErrorCode::corrupt);
}

TEST(Checkpoint, SmallFilesMayNotLeadOutside) {
  TempDirectory directory;
  directory.write("secret", "x");
  directory.write("m/config.json", small_config().dump());
  directory.write("m/model.safetensors", safetensors_file(small_tensors()));
  EXPECT_TRUE(Checkpoint::open(directory.path() / "m").ok());
  fs::create_symlink("../secret", directory.path() / "m" / "tokenizer.json");
  const auto checkpoint = Checkpoint::open(directory.path() / "m");
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_THAT(checkpoint.error().message, HasSubstr("tokenizer.json is a link to"));
}

}  // namespace
}  // namespace wader
