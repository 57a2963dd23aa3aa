// Sources of any shape that a Checkpoint may describe, through plan, repacker and writer.
#include "install/repack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/format_join.h"
#include "install/install_testing.h"

namespace wader {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Formats = std::vector<MatrixFormat>;

struct Mixture {
  const char* name;
  Formats matrices, exact, experts;
  bool lossless;  // under auto
};

// What the formats of a mixture hold, in the smallest one.
MatrixFormat joined(const Formats& formats) {
  MatrixFormat format = formats[0];
  for (const MatrixFormat& other : formats) format = join_formats(format, other);
  return format;
}

const std::vector<Mixture> kMixtures = {
    {"mxfp4", {DType::mxfp4}, {DType::bf16}, {DType::mxfp4}, true},
    {"affine",
     {DType::affine4, {DType::affine4, 32}, DType::affine8},
     {DType::bf16, DType::f32},
     {{DType::affine4, 32}, {DType::affine8, 32}},
     true},
    {"affine_f16",
     {{DType::affine4, 32, DType::f16}, {DType::affine8, 32, DType::f16}},
     {DType::f16, DType::affine8},
     {{DType::affine8, 32, DType::f16}},
     true},
    {"plain", {DType::bf16, DType::f16, DType::f32}, {DType::bf16}, {DType::bf16}, false},
    {"unlike",
     {DType::bf16, DType::mxfp4, DType::affine4},
     {DType::bf16, DType::affine8},
     {DType::mxfp4, {DType::affine4, 32}},
     false}};

class RepackTest : public ::testing::Test {
 protected:
  // GPT-OSS and DeltaNet layers with and without experts, all dims multiples of 64. Embedding and
  // head are large enough for several threads to get rows of them.
  static ArchitectureSpec spec() {
    ArchitectureSpec spec = testing::small_spec();
    spec.vocab_rows = 800;
    spec.expert_inner = 64;
    spec.shared_inner = 64;
    spec.dense_inner = 128;
    spec.head_dim = spec.rotary_dim = 16;
    spec.delta = {2, 4, 16, 16, 4};
    spec.attention_gate = spec.qk_norm = true;
    spec.layers = {{LayerKind::sliding_attention, FfnKind::dense},
                   LayerKind::delta_net,
                   LayerKind::full_attention};
    return spec;
  }

  std::unique_ptr<Checkpoint> checkpoint_of(const Mixture& mixture, uint32_t seed) {
    testing::SourceBuilder builder(seed);
    BoundCheckpoint::Parts parts;
    parts.kind = "test";
    parts.directory = scratch_.path();
    parts.spec = spec();
    for (const TrunkTensorSpec& t : trunk_tensors(parts.spec)) {
      Formats formats;
      for (const MatrixFormat& f : t.role == TrunkRole::matrix ? mixture.matrices : mixture.exact)
        if (row_bytes(f, t.cols())) formats.push_back(f);
      if (formats.empty()) formats.push_back(DType::bf16);
      TensorSource source = builder.add(t.rows(), t.cols(), formats, joined(formats));
      if (t.name.ends_with("_norm")) source.add = 1;
      parts.tensors.trunk.emplace(t.name, std::move(source));
    }
    for (uint32_t layer = 0; layer < parts.spec.moe_layer_count(); ++layer) {
      auto& weights = parts.tensors.experts.emplace_back();
      auto& biases = parts.tensors.expert_biases.emplace_back();
      for (const ExpertMatrix matrix : {ExpertMatrix::gate_up, ExpertMatrix::down})
        for (uint32_t e = 0; e < parts.spec.experts; ++e) {
          const MatrixShape shape = expert_matrix_shape(parts.spec, matrix);
          const auto m = static_cast<size_t>(matrix);
          weights[m].sources.push_back(
              builder.add(shape.rows, shape.cols, mixture.experts, joined(mixture.experts)));
          biases[m].sources.push_back(builder.add(1, shape.rows, {DType::bf16}, DType::bf16));
        }
    }
    const fs::path file = scratch_.path() / (std::string(mixture.name) + ".bin");
    testing::write_bytes(file, builder.bytes());
    parts.files.push_back(std::make_unique<File>(File::open(file, File::Mode::read).value()));
    parts.small_files.push_back({"generation_config.json", "{\"eos_token_id\": 7}"});
    return std::make_unique<BoundCheckpoint>(std::move(parts));
  }

  Status pack(const InstallPlan& plan, const fs::path& directory, int threads) {
    ASSIGN_OR_RETURN(Repacker repacker, Repacker::create(plan, threads));
    ASSIGN_OR_RETURN(ContainerWriter writer, ContainerWriter::open(directory, plan.container));
    const ProgressFn no_progress;
    ProgressMeter meter(no_progress, 1, "stopped");
    for (const auto& small : plan.small_files)
      RETURN_IF_ERROR(writer.write_small_file(small.name, *small.text));
    RETURN_IF_ERROR(repacker.repack_trunk(writer, plan.trunk.size(), meter));
    for (uint32_t layer = 0; layer < plan.container.manifest.spec.layer_count(); ++layer)
      if (has_experts(plan.container.manifest.spec, layer))
        RETURN_IF_ERROR(repacker.repack_layer(writer, layer, meter));
    return writer.finish({}).ok() ? Status() : Status(Error{ErrorCode::io, "not finished"});
  }

  std::string refusal(std::unique_ptr<Checkpoint> checkpoint, int threads) {
    const auto plan = make_install_plan(std::move(checkpoint), {});
    if (!plan.ok()) return plan.error().message;
    const Status packed = pack(*plan, scratch_.path() / "refused.wader", threads);
    fs::remove_all(scratch_.path() / "refused.wader");
    if (packed.ok()) return "accepted";
    EXPECT_EQ(packed.error().code, ErrorCode::corrupt);
    return packed.error().message;
  }

  testing::TempDirectory scratch_;
};

TEST_F(RepackTest, EveryValueArrivesWhereItBelongs) {
  for (const Mixture& mixture : kMixtures)
    for (uint32_t seed = 1; seed <= 2; ++seed) {
      const auto plan = make_install_plan(checkpoint_of(mixture, seed), {});
      ASSERT_TRUE(plan.ok()) << plan.error().message;
      const fs::path directory = scratch_.path() / "container.wader";
      const Status packed = pack(*plan, directory, 2);
      ASSERT_TRUE(packed.ok()) << mixture.name << ": " << packed.error().message;
      const auto container = Container::open(directory);
      ASSERT_TRUE(container.ok()) << container.error().message;
      EXPECT_TRUE(verify_container(*container, {})->problems.empty());
      EXPECT_EQ(container->read_small_file("generation_config.json").value(),
                "{\"eos_token_id\": 7}");
      testing::StoredValues stored(*container);
      const auto expect = [&](const TensorSource& source, const std::vector<float>& got, bool exact,
                              const std::string& what) {
        const auto want = testing::materialise(*plan->checkpoint, source);
        if (exact)
          EXPECT_TRUE(want == got) << mixture.name << ": " << what;
        else
          EXPECT_GT(testing::snr_db(want, got), 15) << mixture.name << ": " << what;
      };
      for (size_t i = 0; i < plan->trunk.size(); ++i)
        expect(plan->trunk_sources[i], stored.trunk(container->manifest().trunk[i]),
               mixture.lossless || plan->trunk[i].role == TrunkRole::exact, plan->trunk[i].name);
      for (const uint32_t layer : {1u, 2u})
        for (uint32_t e = 0; e < container->spec().experts; ++e)
          for (const InstallPlan::ExpertPart& part : plan->expert_parts(layer, e).value())
            expect(part.source,
                   part.is_bias ? stored.expert_bias(layer, e, part.matrix)
                                : stored.expert(layer, e, part.matrix),
                   mixture.lossless || part.is_bias, "expert");
      fs::remove_all(directory);
    }
}

TEST_F(RepackTest, TheBytesDoNotDependOnTheThreads) {
  for (const Mixture& mixture : kMixtures) {
    InstallOptions options;
    options.experts = DType::affine4;
    const auto plan = make_install_plan(checkpoint_of(mixture, 9), options);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    std::map<std::string, std::string> first;
    for (const int threads : {1, 2, 4, 7}) {
      const fs::path directory = scratch_.path() / "container.wader";
      ASSERT_TRUE(pack(*plan, directory, threads).ok());
      const auto tree = testing::read_tree(directory);
      if (first.empty()) first = tree;
      testing::expect_same_tree(tree, first);
      fs::remove_all(directory);
    }
  }
}

// Writes bytes over row `row` of a source's plane, `at` bytes into it.
void damage(const fs::path& file, const TensorSource& source, SourcePlane SourceRows::*plane,
            uint64_t row, uint64_t at, std::string_view bytes) {
  for (const SourceRows& piece : source.pieces)
    for (uint64_t i = 0; i < piece.rows; ++i) {
      if (piece.to_row + i * piece.to_step != row) continue;
      std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
      const SourcePlane& in = piece.*plane;
      out.seekp(static_cast<std::streamoff>(in.offset_bytes + i * in.stride_bytes + at));
      out << bytes;
      ASSERT_TRUE(out.flush().good());
    }
}

constexpr std::string_view kInfinity = "\x80\x7f";  // bf16

// The first bad row of many, whichever thread meets it.
TEST_F(RepackTest, NamesTheFirstFaultWhateverTheThreads) {
  const Mixture plain = {"plain_bf16", {DType::bf16}, {DType::bf16}, {DType::bf16}, false};
  for (const int threads : {1, 2, 5}) {
    auto checkpoint = checkpoint_of(plain, 4);
    const TrunkTensorSpec head = trunk_tensors(checkpoint->spec()).back();
    const TensorSource source = checkpoint->trunk_source(head).value();
    for (const uint64_t row : {790, 300, 650})
      damage(scratch_.path() / "plain_bf16.bin", source, &SourceRows::codes, row, 2 * 5, kInfinity);
    EXPECT_THAT(refusal(std::move(checkpoint), threads),
                HasSubstr("plain_bf16.bin: trunk tensor head has a NaN or an infinity at element " +
                          std::to_string(300 * 64 + 5)));
  }
}

TEST_F(RepackTest, NamesLayerExpertAndPlaneOfAFault) {
  const auto refused = [&](const Mixture& mixture, SourcePlane SourceRows::*plane, uint64_t row,
                           uint64_t at, std::string_view bytes) {
    auto checkpoint = checkpoint_of(mixture, 6);
    const TensorSource source = checkpoint->expert_source(2, 1, ExpertMatrix::down).value();
    damage(scratch_.path() / (std::string(mixture.name) + ".bin"), source, plane, row, at, bytes);
    return refusal(std::move(checkpoint), 2);
  };
  // 64 columns: two scales a row in groups or blocks of 32, pairs where they stand so.
  const MatrixFormat g32(DType::affine4, 32);
  const Mixture affine = {"affine_g32", {DType::bf16}, {DType::bf16}, {g32}, true};
  EXPECT_THAT(refused(affine, &SourceRows::scales, 9, 0, kInfinity),
              HasSubstr("layer 2, expert 1: down.scales has a NaN or an infinity at element 18"));
  const Mixture mxfp4 = {"mxfp4_only", {DType::bf16}, {DType::bf16}, {DType::mxfp4}, true};
  EXPECT_THAT(refused(mxfp4, &SourceRows::scales, 63, 1, "\xff"),
              HasSubstr("layer 2, expert 1: down.scales has the E8M0 scale 255, which is NaN, at "
                        "element 127"));
  const Mixture bf16 = {"bf16_only", {DType::bf16}, {DType::bf16}, {DType::bf16}, true};
  EXPECT_THAT(refused(bf16, &SourceRows::codes, 1, 6, kInfinity),
              HasSubstr("layer 2, expert 1: down has a NaN or an infinity at element 67"));
}

}  // namespace
}  // namespace wader
