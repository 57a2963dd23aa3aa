// For tests: whole directories as text, and a small container made without a checkpoint.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arch/arch_testing.h"
#include "container/manifest.h"
#include "container/writer.h"
#include "io/io_testing.h"

namespace wader::testing {

// Every file under `directory`: relative name → bytes. Folders appear as "name/" with no bytes.
inline std::map<std::string, std::string> read_tree(const std::filesystem::path& directory) {
  std::map<std::string, std::string> tree;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    const std::string name = entry.path().lexically_relative(directory).string();
    if (entry.is_directory())
      tree.emplace(name + "/", "");
    else
      tree.emplace(name, read_bytes(entry.path()));
  }
  return tree;
}

// As EXPECT_EQ, but naming the files that differ rather than printing megabytes.
inline void expect_same_tree(const std::map<std::string, std::string>& got,
                             const std::map<std::string, std::string>& want) {
  for (const auto& [name, bytes] : want) {
    const auto found = got.find(name);
    if (found == got.end())
      ADD_FAILURE() << name << " is missing";
    else
      EXPECT_TRUE(found->second == bytes) << name << " differs";
  }
  for (const auto& [name, bytes] : got)
    EXPECT_TRUE(want.contains(name)) << name << " should not be there";
}

// Inverts one bit of a file.
inline void flip_bit(const std::filesystem::path& path, uint64_t byte, int bit = 3) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(byte));
  const int value = file.get();
  ASSERT_GE(value, 0) << path << " has no byte " << byte;
  file.seekp(static_cast<std::streamoff>(byte));
  file.put(static_cast<char>(value ^ (1 << bit)));
  ASSERT_TRUE(file.flush().good());
}

// 2 layers, 3 experts of 64 × 32; heads of 8, so that some matrices have 32 columns.
inline ArchitectureSpec small_spec() {
  ArchitectureSpec spec = small_attention_spec();
  spec.vocab_rows = 40;
  spec.head_dim = spec.rotary_dim = 8;
  spec.experts = 3;
  return spec;
}

// Every format somewhere: matrices of 64 columns affine8, but for the queries' (affine4) and the
// head (affine8 in groups of 32 with f16 scales); those of 32 columns affine4 in layer 0, then
// mxfp4; the rest bf16, but for one f32 norm.
inline MatrixFormat small_format(const TrunkTensorSpec& tensor) {
  if (tensor.name == "final_norm") return DType::f32;
  if (tensor.role == TrunkRole::exact) return DType::bf16;
  if (tensor.name == "head") return {DType::affine8, 32, DType::f16};
  if (tensor.name.ends_with("q.weight")) return DType::affine4;
  if (tensor.cols() % 64 == 0) return DType::affine8;
  if (tensor.name.starts_with("layers.0.")) return {DType::affine4, 32};
  return DType::mxfp4;
}

inline ContainerPlan small_plan(ArchitectureSpec spec = small_spec(),
                                const ExpertFormat& experts = {DType::mxfp4, DType::mxfp4}) {
  ContainerPlan plan;
  Manifest& manifest = plan.manifest;
  manifest.source = "small";
  manifest.revision = "local";
  manifest.spec = std::move(spec);
  std::vector<MatrixFormat> formats;
  for (const TrunkTensorSpec& tensor : trunk_tensors(manifest.spec))
    formats.push_back(small_format(tensor));
  manifest.trunk = place_trunk(manifest.spec, formats);
  manifest.experts = expert_layout(manifest.spec, experts);
  manifest.files = weight_files(manifest);
  manifest.files.emplace("tokenizer.json", FileRecord{16, ""});
  manifest.report = Json::object();
  plan.origin = {{"seed", 1}};
  return plan;
}

// Byte i of a small container's tensors and records: never zero for long, so that offsets show.
inline std::vector<std::byte> pattern(uint64_t bytes, uint64_t seed) {
  std::vector<std::byte> out(bytes);
  for (uint64_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>((i + seed * 37) * 7 % 251);
  return out;
}

// One tensor of the trunk, in two batches of rows where it has more than one.
inline Status append_tensor(ContainerWriter& writer, size_t index) {
  const TrunkTensor& t = writer.manifest().trunk[index];
  const auto bytes = pattern(t.bytes, index);
  const std::span<const std::byte> all = bytes;
  const RowBytes row = row_bytes(t.format, t.cols()).value();
  const uint64_t scales = t.rows() * row.codes, biases = scales + t.rows() * row.scales;
  const auto batch = [&](uint64_t from, uint64_t to) {
    const uint64_t n = to - from;
    return ContainerWriter::TrunkRows{all.subspan(from * row.codes, n * row.codes),
                                      all.subspan(scales + from * row.scales, n * row.scales),
                                      all.subspan(biases + from * row.biases, n * row.biases)};
  };
  const uint64_t first = t.rows() / 3;
  if (first > 0) RETURN_IF_ERROR(writer.append_trunk(batch(0, first)));
  return writer.append_trunk(batch(first, t.rows()));
}

inline Status append_layer(ContainerWriter& writer, uint32_t layer) {
  RETURN_IF_ERROR(writer.begin_layer(layer));
  for (uint32_t e = 0; e < writer.manifest().spec.experts; ++e)
    RETURN_IF_ERROR(writer.append_expert(
        pattern(writer.manifest().experts.stride_bytes, 100 + 10 * layer + e)));
  return writer.finish_layer({{"layer", layer}});
}

// Everything of small_plan() that `writer` does not have yet. `scratch` holds the small file's
// source.
inline Result<uint64_t> write_rest(ContainerWriter& writer, const std::filesystem::path& scratch) {
  write_bytes(scratch / "source.json", "{\"tokens\": [1]}\n");
  ASSIGN_OR_RETURN(const File source, File::open(scratch / "source.json", File::Mode::read));
  RETURN_IF_ERROR(writer.copy_small_file("tokenizer.json", source));
  if (!writer.trunk_finished()) {
    RETURN_IF_ERROR(writer.begin_trunk());
    for (size_t i = 0; i < writer.manifest().trunk.size(); ++i)
      RETURN_IF_ERROR(append_tensor(writer, i));
    RETURN_IF_ERROR(writer.finish_trunk({{"snr", 1.5}}));
  }
  for (uint32_t layer = 0; layer < writer.manifest().spec.layer_count(); ++layer)
    if (has_experts(writer.manifest().spec, layer) && !writer.layer_finished(layer))
      RETURN_IF_ERROR(append_layer(writer, layer));
  Json layers = Json::array();
  for (uint32_t layer = 0; layer < writer.manifest().spec.layer_count(); ++layer)
    if (has_experts(writer.manifest().spec, layer)) layers.push_back(writer.layer_report(layer));
  return writer.finish({{"trunk", writer.trunk_report()}, {"layers", std::move(layers)}});
}

// scratch/small.wader, finished.
inline std::filesystem::path write_small_container(const std::filesystem::path& scratch,
                                                   ContainerPlan plan = small_plan()) {
  const std::filesystem::path directory = scratch / "small.wader";
  auto writer = ContainerWriter::open(directory, std::move(plan));
  EXPECT_TRUE(writer.ok()) << (writer.ok() ? "" : writer.error().message);
  const auto bytes = write_rest(*writer, scratch);
  EXPECT_TRUE(bytes.ok()) << (bytes.ok() ? "" : bytes.error().message);
  return directory;
}

}  // namespace wader::testing
