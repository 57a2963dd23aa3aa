// Every family's checkpoint in every pair of formats: what the container holds, held against the
// values of the source.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/gwt_testing.h"
#include "checkpoint/mlx_testing.h"
#include "checkpoint/qpack_testing.h"
#include "install/formats.h"
#include "install/install.h"
#include "install/install_testing.h"

namespace wader {
namespace {

namespace fs = std::filesystem;
using Wanted = std::optional<DType>;

// The least signal-to-noise ratio of a matrix of random weights, in dB; infinite: not a bit may
// differ.
double floor_db(const MatrixFormat& source, const MatrixFormat& stored) {
  if (source == stored || stored.dtype == DType::f32) return INFINITY;
  if (is_affine(source.dtype) &&
      stored == MatrixFormat(DType::affine8, source.group, source.scales))
    return INFINITY;
  if (source.dtype == DType::mxfp4 && stored.dtype == DType::bf16) return INFINITY;
  switch (stored.dtype) {
    case DType::bf16:
      return 50;
    case DType::affine8:
      return 43;
    case DType::affine4:  // 32 columns a row at least; what was coarse already fits worse
      return source.dtype == DType::bf16 ? 21 : 17;
    default:
      return source.dtype == DType::bf16 ? 18 : 14;
  }
}

// Every value of a checkpoint, computed once: trunk tensors by name, experts' matrices of a whole
// layer.
class SourceValues {
 public:
  explicit SourceValues(const fs::path& path) : checkpoint_(Checkpoint::open(path).value()) {
    const ArchitectureSpec& s = spec();
    for (const TrunkTensorSpec& t : trunk_tensors(s)) {
      const TensorSource source = checkpoint_->trunk_source(t).value();
      trunk_[t.name] = testing::materialise(*checkpoint_, source);
      formats_[t.name] = source.format;
    }
    for (uint32_t layer = 0; layer < s.layer_count(); ++layer)
      for (uint32_t e = 0; has_experts(s, layer) && e < s.experts; ++e)
        for (const ExpertMatrix matrix : {ExpertMatrix::gate_up, ExpertMatrix::down}) {
          append(experts_[{layer, matrix}], checkpoint_->expert_source(layer, e, matrix).value());
          if (s.expert_bias)
            append(biases_[{layer, matrix}],
                   checkpoint_->expert_bias_source(layer, e, matrix).value());
        }
  }

  using LayerMatrix = std::pair<uint32_t, ExpertMatrix>;
  const ArchitectureSpec& spec() const { return checkpoint_->spec(); }
  ExpertFormat expert_format() const { return checkpoint_->expert_format(); }
  const std::vector<float>& trunk(const std::string& name) const { return trunk_.at(name); }
  const MatrixFormat& format(const std::string& name) const { return formats_.at(name); }
  const std::vector<float>& experts(const LayerMatrix& of) const { return experts_.at(of); }
  const std::vector<float>& biases(const LayerMatrix& of) const { return biases_.at(of); }

 private:
  void append(std::vector<float>& to, const TensorSource& source) const {
    const auto values = testing::materialise(*checkpoint_, source);
    to.insert(to.end(), values.begin(), values.end());
  }

  std::unique_ptr<Checkpoint> checkpoint_;
  std::map<std::string, std::vector<float>> trunk_;
  std::map<std::string, MatrixFormat> formats_;
  std::map<LayerMatrix, std::vector<float>> experts_, biases_;
};

class InstallValuesTest : public ::testing::Test {
 protected:
  using Choices = std::vector<std::pair<Wanted, Wanted>>;  // of experts and trunk

  void expect_values(const fs::path& from, const Choices& choices) {
    const SourceValues source(from);
    for (const auto& [experts, trunk] : choices) {
      SCOPED_TRACE(from.filename().string() + " " +
                   (experts ? dtype_name(*experts).data() : "auto") + " " +
                   (trunk ? dtype_name(*trunk).data() : "auto"));
      InstallOptions options;
      options.source = from;
      options.destination = scratch_.path() / "model.wader";
      options.experts = experts;
      options.trunk = trunk;
      const uint64_t planned = planned_container_bytes(options).value();
      const auto report = install(options, {});
      ASSERT_TRUE(report.ok()) << report.error().message;
      const auto container = Container::open(options.destination);
      ASSERT_TRUE(container.ok()) << container.error().message;
      EXPECT_GE(planned, report->container_bytes);
      EXPECT_LE(planned, report->container_bytes + 256 * kKiB);
      if (experts) EXPECT_EQ(container->manifest().experts.format.gate_up.dtype, *experts);
      EXPECT_EQ(std::isfinite(report->trunk.snr_db), trunk_lost(source, *container));
      EXPECT_EQ(std::isfinite(report->experts.snr_db), experts_lost(source, *container));
      fs::remove_all(options.destination);
    }
  }

 private:
  // Checks each tensor; true when any value is another one now.
  static bool trunk_lost(const SourceValues& source, const Container& container) {
    const auto specs = trunk_tensors(container.spec());
    const Json& facts = container.manifest().report["trunk"]["matrices"];
    const testing::StoredValues stored(container);
    bool lost = false;
    for (size_t i = 0; i < specs.size(); ++i) {
      const TrunkTensor& t = container.manifest().trunk[i];
      if (specs[i].role == TrunkRole::exact)
        EXPECT_TRUE(stored.trunk(t) == source.trunk(t.name)) << t.name;
      else
        lost |= matrix_lost(source.trunk(t.name), stored.trunk(t),
                            floor_db(source.format(t.name), t.format), facts[t.name], t.name);
    }
    return lost;
  }

  static bool experts_lost(const SourceValues& source, const Container& container) {
    testing::StoredValues stored(container);
    const ArchitectureSpec& spec = container.spec();
    bool lost = false;
    for (uint32_t layer = 0; layer < spec.layer_count(); ++layer) {
      if (!has_experts(spec, layer)) continue;
      const Json& facts = container.manifest().report["experts"]["layers"][std::to_string(layer)];
      for (const ExpertMatrix matrix : {ExpertMatrix::gate_up, ExpertMatrix::down}) {
        std::vector<float> weights, biases;  // of all experts: the report has a number a layer
        for (uint32_t e = 0; e < spec.experts; ++e) {
          const auto more = stored.expert(layer, e, matrix);
          weights.insert(weights.end(), more.begin(), more.end());
          if (!spec.expert_bias) continue;
          const auto bias = stored.expert_bias(layer, e, matrix);
          biases.insert(biases.end(), bias.begin(), bias.end());
        }
        if (spec.expert_bias) EXPECT_TRUE(biases == source.biases({layer, matrix}));
        lost |= matrix_lost(source.experts({layer, matrix}), weights,
                            floor_db(source.expert_format().of(matrix),
                                     container.manifest().experts.format.of(matrix)),
                            facts[matrix == ExpertMatrix::gate_up ? "gate_up" : "down"],
                            "experts of layer " + std::to_string(layer));
      }
    }
    return lost;
  }

  static bool matrix_lost(const std::vector<float>& want, const std::vector<float>& got,
                          double floor, const Json& facts, const std::string& what) {
    const double snr = testing::snr_db(want, got);
    EXPECT_GE(snr, floor) << what;
    if (std::isinf(snr))
      EXPECT_TRUE(facts["snr_db"].is_null()) << what;
    else
      EXPECT_NEAR(facts["snr_db"].get<double>(), snr, 0.006) << what;
    return !std::isinf(snr);
  }

  testing::TempDirectory scratch_;
};

constexpr const char* kFixtures[] = {"tiny-gpt-oss", "tiny-qwen3-moe", "tiny-qwen3-next",
                                     "tiny-qwen3.5-moe"};

TEST_F(InstallValuesTest, OfEveryFamilyInEveryFormat) {
  Choices choices = {{std::nullopt, std::nullopt},
                     {DType::affine8, DType::affine8},
                     {DType::bf16, DType::bf16},
                     {DType::affine4, DType::bf16},
                     {DType::mxfp4, std::nullopt}};
  if (testing::kSanitized) choices.resize(2);
  for (const char* name : kFixtures) expect_values(testing::fixture(name), choices);
}

// Under auto every dequantised value is that of the source, to the bit; so it is in wider codes.
TEST_F(InstallValuesTest, OfMlxCheckpoints) {
  const auto unlike_layers = [](const std::string& name) -> std::optional<testing::MlxFormat> {
    if (testing::ends_with_any(name, {"mlp.gate.weight", "shared_expert_gate.weight"}))
      return testing::MlxFormat{8, 64};
    // Layers of unlike widths and groups: what auto stores must hold all of them.
    if (name.find("layers.1.") != std::string::npos) return testing::MlxFormat{8, 32};
    return testing::MlxFormat{4, 32};
  };
  const auto f16_scales = [](const std::string&) {
    return std::optional(testing::MlxFormat{8, 32, "F16"});
  };
  const auto mxfp4 = [](const std::string& name) -> std::optional<testing::MlxFormat> {
    if (testing::ends_with_any(name, {"mlp.gate.weight", "shared_expert_gate.weight"}))
      return testing::MlxFormat{8, 64};
    return testing::MlxFormat{4, 32, "mxfp4"};
  };
  testing::TempDirectory scratch;
  int made = 0;
  const auto from = [&](const char* name, const testing::MlxRule& rule) {
    const fs::path to = scratch.path() / std::to_string(made++) / name;
    testing::MlxOptions mlx;
    mlx.rule = rule;
    testing::write_mlx(testing::fixture(name), to, mlx);
    return to;
  };
  const Choices lossless = {{std::nullopt, std::nullopt}, {DType::affine8, DType::affine8}};
  expect_values(from("tiny-qwen3-moe", testing::usual_mlx),
                {{std::nullopt, std::nullopt}, {DType::affine8, DType::bf16}});
  expect_values(from("tiny-qwen3-next", unlike_layers), lossless);
  expect_values(from("tiny-qwen3.5-moe", f16_scales), lossless);
  expect_values(from("tiny-qwen3-moe", mxfp4), {{std::nullopt, std::nullopt}});
  // Gate and up apart, and so their biases.
  const fs::path gpt_oss = scratch.path() / "mlx-gpt-oss";
  testing::write_mlx_gpt_oss(testing::fixture("tiny-gpt-oss"), gpt_oss);
  expect_values(gpt_oss, {{std::nullopt, std::nullopt}, {DType::bf16, DType::bf16}});
}

// Other programs' containers hold quantised weights: all of them arrive to the bit.
TEST_F(InstallValuesTest, OfOtherProgramsContainers) {
  testing::TempDirectory scratch;
  const fs::path mlx = scratch.path() / "mlx", qpack = scratch.path() / "tiny.qpack";
  testing::write_mlx(testing::fixture("tiny-qwen3.5-moe"), mlx);
  testing::write_qpack(mlx, qpack);
  expect_values(qpack, {{std::nullopt, std::nullopt}, {DType::affine8, DType::bf16}});
  for (const char* name : {"tiny-gpt-oss", "tiny-qwen3-moe"}) {
    const fs::path gwt = scratch.path() / (std::string(name) + ".gwt");
    testing::write_gwt(testing::fixture(name), gwt);
    expect_values(gwt, {{std::nullopt, std::nullopt}, {DType::bf16, DType::bf16}});
  }
}

}  // namespace
}  // namespace wader
