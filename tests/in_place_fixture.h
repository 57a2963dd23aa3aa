// What tests of experts in place share: checkpoints of their own, what is made of them, and what a
// model says.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>
#include <map>

#include "base/hash.h"
#include "container/container_testing.h"
#include "container/manifest.h"
#include "install/install.h"
#include "test_models.h"

namespace wader::testing {

namespace fs = std::filesystem;

inline const fs::path kTiny = fs::path(WADER_SOURCE_DIR) / "tests/data/tiny-gpt-oss";
inline const fs::path kDemo = fs::path(WADER_SOURCE_DIR) / "models/demo";

inline Result<InstallReport> make_in_place(const fs::path& checkpoint, const fs::path& destination,
                                           const ProgressFn& progress = {}) {
  InstallOptions options;
  options.source = checkpoint;
  options.destination = destination;
  options.trunk = DType::bf16;
  options.in_place = true;
  return install(options, progress);
}

// Made once a process.
inline const fs::path& in_place(const fs::path& checkpoint) {
  static std::map<fs::path, fs::path> made;
  fs::path& path = made[checkpoint];
  if (path.empty()) {
    path = scratch_directory() / (checkpoint.filename().string() + "-in-place.wader");
    const auto report = make_in_place(checkpoint, path);
    EXPECT_TRUE(report.ok()) << report.error().message;
  }
  return path;
}

// A copy of tiny-gpt-oss that a test may change, and what was made of it.
struct Own {
  fs::path checkpoint, container;
};
inline Own own_copy(const std::string& name) {
  const Own own{scratch_directory() / name, scratch_directory() / (name + ".wader")};
  fs::remove_all(own.checkpoint);
  fs::remove_all(own.container);
  fs::copy(kTiny, own.checkpoint);
  const auto report = make_in_place(own.checkpoint, own.container);
  EXPECT_TRUE(report.ok()) << report.error().message;
  return own;
}

inline std::string text_of(const fs::path& file) {
  return read_text_file(file, 64 * kMiB).value();
}

// A safetensors file: the header's length in 8 bytes, the header, the tensors' bytes.
struct Safetensors {
  Json header;
  std::string data;
};
inline Safetensors read_safetensors(const fs::path& path) {
  const std::string bytes = text_of(path);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  return {Json::parse(bytes.substr(8, length)), bytes.substr(8 + length)};
}
inline void write_safetensors(const fs::path& path, const Safetensors& file) {
  const std::string text = file.header.dump();
  const uint64_t length = text.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << text << file.data;
}

// tiny-gpt-oss with its tensors dealt out to three files, as large releases have them: of one
// record the matrices and their scales are in different ones.
inline fs::path sharded_copy(const std::string& name) {
  const fs::path to = scratch_directory() / name;
  fs::remove_all(to);
  fs::copy(kTiny, to);
  fs::remove(to / "model.safetensors");
  const Safetensors whole = read_safetensors(kTiny / "model.safetensors");
  std::array<Safetensors, 3> shards;
  const auto file_name = [](size_t i) {
    return fmt::format("model-{:05}-of-00003.safetensors", i + 1);
  };
  Json files = Json::object();
  size_t next = 0;
  for (const auto& [tensor, facts] : whole.header.items()) {
    if (tensor == "__metadata__") continue;
    const size_t i = next++ % shards.size();
    auto& [header, data] = shards[i];
    const auto begin = facts["data_offsets"][0].get<uint64_t>();
    const auto end = facts["data_offsets"][1].get<uint64_t>();
    header[tensor] = facts;
    header[tensor]["data_offsets"] = {data.size(), data.size() + (end - begin)};
    data += whole.data.substr(begin, end - begin);
    files[tensor] = file_name(i);
  }
  for (size_t i = 0; i < shards.size(); ++i) write_safetensors(to / file_name(i), shards[i]);
  std::ofstream(to / "model.safetensors.index.json") << Json{{"weight_map", files}};
  return to;
}

inline std::string refusal(const fs::path& directory) {
  const auto container = Container::open(directory);
  return container.ok() ? "opened" : container.error().message;
}

inline EngineOptions options_with(uint32_t slots) {
  EngineOptions options;
  options.memory_bytes = 512 * kMiB;
  options.kernels = "auto";
  options.context = 512;
  options.slots = slots;
  options.chunk = 32;
  options.threads = 2;
  return options;
}

inline bool direct_works(const fs::path& checkpoint) {
  for (const auto& entry : fs::directory_iterator(checkpoint))
    if (entry.path().extension() == ".safetensors" && entry.path().stem() != "golden")
      return direct_reads_work(entry.path().string());
  return false;
}

// Logits of a prompt and of a greedy answer behind it, as a digest, and the answer's ids.
struct Output {
  uint64_t logits = 0;
  std::vector<TokenId> ids;
  bool operator==(const Output&) const = default;
};
inline Output output_of(Engine& engine) {
  Output out;
  Xxh3Stream digest;
  const auto session = open_session(engine);
  auto tokens = random_tokens(70, 1024, 7);
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = 12;
  const auto answer = session->generate(tokens, options);
  EXPECT_TRUE(answer.ok()) << answer.error().message;
  if (!answer.ok()) return out;
  out.ids = answer->ids;
  tokens.insert(tokens.end(), out.ids.begin(), out.ids.end());
  EXPECT_TRUE(session
                  ->evaluate(
                      tokens, 60,
                      [&](uint32_t, std::span<const float> logits) {
                        digest.update(std::as_bytes(logits));
                      },
                      nullptr)
                  .ok());
  out.logits = digest.digest();
  return out;
}

}  // namespace wader::testing
