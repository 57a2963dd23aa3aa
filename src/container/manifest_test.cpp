#include "container/manifest.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/hash.h"
#include "container/container_testing.h"

namespace wader {
namespace {

using ::testing::HasSubstr;

// A whole manifest: every file with a digest, a report with something in it.
Manifest small_manifest() {
  Manifest manifest = testing::small_plan().manifest;
  for (auto& [name, record] : manifest.files)
    if (name == kDigestsFile || is_small_file_name(name))
      record.digest = digest_to_hex(xxh3_64(name));
  manifest.report = {{"trunk", {{"mean_snr_db", 45.25}}}, {"note", "kept as it is"}};
  return manifest;
}

Json document() {
  Json json = Json::parse(manifest_to_text(small_manifest()));
  json.erase("digest");
  return json;
}

std::string message_of(const Result<Manifest>& result) {
  return result.ok() ? "accepted" : result.error().message;
}

TEST(Manifest, SurvivesItsText) {
  const Manifest manifest = small_manifest();
  const std::string text = manifest_to_text(manifest);
  const auto back = parse_manifest(text);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(manifest_to_text(*back), text);
  EXPECT_EQ(back->trunk.size(), manifest.trunk.size());
  EXPECT_EQ(back->trunk_bytes(), manifest.trunk_bytes());
  EXPECT_EQ(back->expert_bytes(), 2 * 3 * manifest.experts.stride_bytes);
  EXPECT_EQ(back->files.at("tokenizer.json").bytes, 16u);
  EXPECT_EQ(back->report["note"], "kept as it is");
}

TEST(Manifest, CarriesItsDigestAsLastKey) {
  std::string text = manifest_to_text(small_manifest());
  const std::string tail = "\n}\n";
  ASSERT_TRUE(text.ends_with(tail));
  const size_t at = text.size() - tail.size() - 17;
  const std::string digest = text.substr(at, 16);
  EXPECT_EQ(text.substr(at - 11, 11), "\"digest\": \"");
  text.replace(at, 16, 16, '0');  // as docs/format.md has it
  EXPECT_EQ(digest, digest_to_hex(xxh3_64(text)));
}

TEST(Manifest, ADamagedTextIsRefusedWhereverTheDamageIs) {
  const std::string text = manifest_to_text(small_manifest());
  for (size_t i = 0; i < text.size(); i += 7) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_FALSE(parse_manifest(damaged).ok()) << "byte " << i;
    EXPECT_FALSE(parse_manifest(text.substr(0, i)).ok()) << "cut at " << i;
  }
  EXPECT_FALSE(parse_manifest(text + "{}").ok());
}

TEST(Manifest, ANewerVersionIsCalledOneWhateverElseIsNew) {
  Json json = document();
  json["version"] = kFormatVersion + 1;
  json["magnetism"] = "north";
  const auto refused = parse_manifest(seal_json(json, 1));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("made by a newer version of wader"));
  EXPECT_THAT(message_of(parse_manifest("{\"format\": \"wader\", \"version\": 7}")),
              HasSubstr("newer version"));
}

TEST(Manifest, AnOlderVersionSaysWhatToDo) {
  const auto refused = parse_manifest("{\"format\": \"wader\", \"version\": 1}");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("format version 1"));
  EXPECT_THAT(refused.error().message, HasSubstr("install the model again"));
}

TEST(Manifest, NamesAnUnknownKey) {
  Json json = document();
  json["compression"] = "zstd";
  EXPECT_THAT(message_of(parse_manifest(seal_json(json, 1))), HasSubstr("'compression'"));
  json = document();
  json["trunk"][1]["stripe"] = 2;
  EXPECT_THAT(message_of(parse_manifest(seal_json(json, 1))), HasSubstr("'stripe'"));
}

// Calls visit(path, node) for every value below `node`, containers before what they hold.
void walk(const Json& node, const Json::json_pointer& path,
          const std::function<void(const Json::json_pointer&, const Json&)>& visit) {
  for (const auto& [key, value] : node.items()) {
    const Json::json_pointer below =
        node.is_array() ? path / static_cast<size_t>(std::stoul(key)) : path / key;
    visit(below, value);
    if (value.is_structured()) walk(value, below, visit);
  }
}

bool starts_with_any(const std::string& text, const std::vector<std::string>& prefixes) {
  for (const std::string& prefix : prefixes)
    if (text.starts_with(prefix)) return true;
  return false;
}

// Another value of the same type.
Json changed(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number_unsigned()) return value.get<uint64_t>() + 1;
  if (value.is_number()) return value.get<double>() * 2;
  if (value.is_string()) return value.get<std::string>() + "x";
  return value;
}

// Fields whose value is free within the format: a different one is another valid manifest.
const std::vector<std::string> kFreeValues = {
    "/source", "/revision", "/report", "/spec/family", "/spec/experts_per_token",
    "/spec/sliding_window", "/spec/dense_inner", "/spec/max_context", "/spec/norm_eps",
    "/spec/rope", "/spec/swiglu_limit",
    // These cannot change the number of a file's bytes, only what they must be.
    "/files/tokenizer.json/bytes"};

TEST(Manifest, EveryFieldIsChecked) {
  const Json original = document();
  int refused = 0;
  walk(original, Json::json_pointer(), [&](const Json::json_pointer& path, const Json& value) {
    const std::string where = path.to_string();
    const auto expect_refused = [&](const Json& mutated, const char* how) {
      const auto result = parse_manifest(seal_json(mutated, 1));
      EXPECT_FALSE(result.ok()) << where << " " << how;
      if (result.ok()) return;
      EXPECT_THAT(result.error().message, HasSubstr("manifest.json")) << where << " " << how;
      EXPECT_NE(result.error().code, ErrorCode::invalid_argument) << where << " " << how;
      ++refused;
    };
    Json mutated = original;
    if (value.is_primitive() && !starts_with_any(where, kFreeValues)) {
      mutated[path] = changed(value);
      expect_refused(mutated, "changed");
    }
    if (!where.starts_with("/report/")) {
      for (const Json& other :
           {Json(nullptr), Json(-1), Json(0.5), Json("1"), Json::array(), Json::object()}) {
        if (other.type() == value.type()) continue;
        if (where == "/spec/rope/yarn" && other.is_null())
          continue;  // null is absent, as in config.json
        mutated[path] = other;
        expect_refused(mutated, ("became " + other.dump()).c_str());
      }
    }
    mutated = original;
    Json& parent = mutated[path.parent_pointer()];
    const bool stays_valid = where == "/spec/rope/yarn" || where == "/files/tokenizer.json";
    if (!where.starts_with("/report/") && !stays_valid) {
      if (parent.is_object())
        parent.erase(path.back());
      else
        parent.erase(std::stoul(path.back()));
      expect_refused(mutated, "removed");
    }
  });
  EXPECT_GT(refused, 1500);
}

TEST(Manifest, HoldsTheTrunkToItsPlaces) {
  const auto refusal = [](const std::function<void(Json&)>& change) {
    Json json = document();
    change(json["trunk"]);
    return message_of(parse_manifest(seal_json(json, 1)));
  };
  EXPECT_THAT(refusal([](Json& t) { std::swap(t[2], t[3]); }),
              HasSubstr("stands where the spec has"));
  EXPECT_THAT(refusal([](Json& t) { t.push_back(t[0]); }),
              HasSubstr("trunk tensors, the spec has"));
  EXPECT_THAT(refusal([](Json& t) { t[1]["offset"] = 0; }), HasSubstr("must be at"));
  EXPECT_THAT(refusal([](Json& t) { t[1]["offset"] = 1ull << 61; }), HasSubstr("must be at"));
  EXPECT_THAT(refusal([](Json& t) { t[0]["dtype"] = "f32"; }), HasSubstr("cannot be f32"));
  EXPECT_THAT(refusal([](Json& t) { t[0]["dtype"] = "affine8-g128"; }),
              HasSubstr("cannot be affine8-g128"));  // of 64 columns
  EXPECT_THAT(refusal([](Json& t) { t[0]["dtype"] = "affine8-g32"; }), HasSubstr("bytes"));
  EXPECT_THAT(refusal([](Json& t) { t[0]["dtype"] = "affine8-g48"; }), HasSubstr("is not known"));
  EXPECT_THAT(refusal([](Json& t) { t[1]["dtype"] = "affine8"; }), HasSubstr("cannot be affine8"));
  EXPECT_THAT(refusal([](Json& t) { t[1]["dtype"] = "u8"; }), HasSubstr("cannot be u8"));
  EXPECT_THAT(refusal([](Json& t) {
                t[0]["shape"] = {64, 40};
              }),
              HasSubstr("the spec has (40, 64)"));
  // Rows of 32 values are no whole groups of 64.
  EXPECT_THAT(refusal([](Json& t) {
                for (Json& tensor : t)
                  if (tensor["name"] == "layers.0.attn.o.weight") tensor["dtype"] = "affine8";
              }),
              HasSubstr("cannot be affine8"));
}

TEST(Manifest, HoldsTheExpertsToTheirFormat) {
  const auto refusal = [](const std::function<void(Json&)>& change) {
    Json json = document();
    change(json["experts"]);
    return message_of(parse_manifest(seal_json(json, 1)));
  };
  // Inner width 32: no whole groups of 64.
  EXPECT_THAT(refusal([](Json& e) { e["format"]["down"] = "affine4"; }),
              HasSubstr("32 columns cannot be stored as affine4"));
  EXPECT_THAT(refusal([](Json& e) { e["format"]["gate_up"] = "f32"; }),
              HasSubstr("cannot be stored as f32"));
  EXPECT_THAT(refusal([](Json& e) { e["format"]["gate_up"] = "affine5"; }),
              HasSubstr("'affine5' is not known"));
  EXPECT_THAT(refusal([](Json& e) { e["format"]["gate_up"] = "bf16"; }), HasSubstr("payload"));
  EXPECT_THAT(refusal([](Json& e) { e["format"]["biases"] = "bf16"; }), HasSubstr("'biases'"));
  EXPECT_THAT(refusal([](Json& e) { std::swap(e["sections"][0], e["sections"][1]); }),
              HasSubstr("is not laid out as the spec"));
}

TEST(Manifest, KeepsFileNamesInsideTheDirectory) {
  const std::string digest = digest_to_hex(1);
  for (const char* name : {"../x", "/etc/passwd", "a/b", "a\\b", "..", ".", ".hidden", "",
                           "experts", "experts/layer-002.bin", "experts/../x", "manifest.json",
                           "install.json", "a b", "a\nb", "caf\u00e9", "nul\u0001"}) {
    Json json = document();
    json["files"][name] = {{"bytes", 1}, {"digest", digest}};
    EXPECT_THAT(message_of(parse_manifest(seal_json(json, 1))),
                HasSubstr("cannot be a file of a container"))
        << name;
  }
  Json json = document();
  json["files"][std::string(129, 'a')] = {{"bytes", 1}, {"digest", digest}};
  EXPECT_THAT(message_of(parse_manifest(seal_json(json, 1))), HasSubstr("cannot be a file"));
  json = document();
  json["files"]["LICENSE"] = {{"bytes", kMaxSmallFileBytes + 1}, {"digest", digest}};
  EXPECT_THAT(message_of(parse_manifest(seal_json(json, 1))), HasSubstr("LICENSE"));
  json["files"]["LICENSE"]["bytes"] = 5;
  EXPECT_TRUE(parse_manifest(seal_json(json, 1)).ok());
}

TEST(Manifest, ShowsNoControlCharacters) {
  for (const char* text : {"\u001b[2J", "a\u007f", "\u009b31m", "line\nline"}) {
    Json json = document();
    json["source"] = text;
    EXPECT_THAT(message_of(parse_manifest(seal_json(json, 1))), HasSubstr("'source'"));
    json = document();
    json["spec"]["family"] = text;
    EXPECT_THAT(message_of(parse_manifest(seal_json(json, 1))), HasSubstr("family"));
  }
  Json json = document();
  json["source"] = "größe \u2014 模型";
  EXPECT_TRUE(parse_manifest(seal_json(json, 1)).ok());
}

// The worked example of docs/format.md: GPT-OSS-20B.
TEST(Manifest, HasTheDocumentedSizes) {
  Manifest manifest = small_manifest();
  ArchitectureSpec& spec = manifest.spec;
  spec.vocab_rows = 201088;
  spec.hidden = spec.expert_inner = 2880;
  spec.query_heads = spec.head_dim = 64;
  spec.kv_heads = 8;
  spec.experts = 32;
  spec.layers.assign(24, LayerKind::full_attention);
  std::vector<MatrixFormat> formats;
  for (const TrunkTensorSpec& tensor : trunk_tensors(spec))
    formats.push_back(tensor.role == TrunkRole::matrix ? DType::affine8 : DType::bf16);
  manifest.trunk = place_trunk(spec, formats);
  manifest.experts = expert_layout(spec, {DType::mxfp4, DType::mxfp4});
  EXPECT_EQ(manifest.experts.stride_bytes, 13'238'272u);
  EXPECT_EQ(manifest.experts.payload_bytes, 13'236'480u);
  EXPECT_EQ(manifest.experts.sections.back().name, "down.bias");
  EXPECT_EQ(manifest.experts.sections.back().offset_bytes, 13'230'720u);
  EXPECT_EQ(manifest.trunk_bytes(), 1'912'578'048u);
  EXPECT_EQ(manifest.expert_bytes(), 10'166'992'896u);
  EXPECT_EQ(weight_files(manifest).at("digests.bin").bytes, 8'664u);
  EXPECT_EQ(weight_files(manifest).at("experts/layer-023.bin").bytes, 423'624'704u);
}

// … and Qwen3-30B-A3B.
TEST(Manifest, HasTheDocumentedSizesOfAffine4Records) {
  ArchitectureSpec spec = testing::small_spec();
  spec.hidden = 2048, spec.expert_inner = 768, spec.experts = 128;
  spec.expert_bias = false;
  const ExpertLayout layout = expert_layout(spec, {DType::affine4, DType::affine4});
  std::string table;
  for (const ExpertSection& section : layout.sections)
    table += fmt::format("{} {} {}, ", section.name, section.offset_bytes, section.bytes);
  EXPECT_EQ(table,
            "gate_up.codes 0 1572864, gate_up.scales 1572864 98304, "
            "gate_up.group_biases 1671168 98304, down.codes 1769472 786432, "
            "down.scales 2555904 49152, down.group_biases 2605056 49152, ");
  EXPECT_EQ(layout.payload_bytes, 2'654'208u);
  EXPECT_EQ(layout.stride_bytes, 2'654'208u);
}

// Bounds of single dims allow 2^64 bytes of experts.
TEST(Manifest, RefusesSizesThatOverflow) {
  Json json = document();
  Json& spec = json["spec"];
  spec["hidden"] = spec["expert_inner"] = 1 << 20;
  spec["experts"] = 1 << 14;
  spec["layers"] = Json(1024, {{"mixer", "full_attention"}, {"ffn", "moe"}});
  EXPECT_THAT(message_of(parse_manifest(seal_json(json, 1))), HasSubstr("2^62"));
}

TEST(Manifest, ReadsNoHugeOrDeepText) {
  EXPECT_FALSE(parse_manifest(std::string(kMaxManifestBytes + 1, ' ')).ok());
  EXPECT_FALSE(parse_manifest(std::string(100000, '[')).ok());
  EXPECT_FALSE(parse_manifest("").ok());
  EXPECT_FALSE(parse_manifest("[1]").ok());
  EXPECT_THAT(message_of(parse_manifest("{\"format\": \"qpack\", \"version\": 1}")),
              HasSubstr("qpack"));
}

TEST(SealedJson, TellsADamagedTextFromAWholeOne) {
  const std::string text = seal_json({{"a", 1}, {"zeros", "0000000000000000"}}, -1);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  const auto back = unseal_json(text, "line");
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, Json({{"a", 1}, {"zeros", "0000000000000000"}}));
  EXPECT_FALSE(unseal_json(text.substr(0, text.size() - 2), "line").ok());
  EXPECT_FALSE(unseal_json("{\"digest\":\"0000000000000000\",\"a\":1}\n", "line").ok());
  EXPECT_FALSE(unseal_json("{\"digest\":7}\n", "line").ok());
  EXPECT_FALSE(unseal_json("{\"digest\":\"\"}\n", "line").ok());
  EXPECT_FALSE(unseal_json("{}\n", "line").ok());
}

}  // namespace
}  // namespace wader
