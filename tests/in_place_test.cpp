// Experts in place: a checkpoint that is used where it is gives what its container gives, to the
// bit; what keeps it from being used so, or changed since, is named.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <map>

#include "base/hash.h"
#include "container/manifest.h"
#include "engine/read_setup.h"
#include "install/install.h"
#include "test_models.h"

namespace wader {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::open_engine;
using testing::open_session;
using testing::random_tokens;
using testing::scratch_directory;

const fs::path kTiny = fs::path(WADER_SOURCE_DIR) / "tests/data/tiny-gpt-oss";
const fs::path kDemo = fs::path(WADER_SOURCE_DIR) / "models/demo";

Result<InstallReport> make_in_place(const fs::path& checkpoint, const fs::path& destination,
                                    const ProgressFn& progress = {}) {
  InstallOptions options;
  options.source = checkpoint;
  options.destination = destination;
  options.trunk = DType::bf16;
  options.in_place = true;
  return install(options, progress);
}

// Made once a process.
const fs::path& in_place(const fs::path& checkpoint) {
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
Own own_copy(const std::string& name) {
  const Own own{scratch_directory() / name, scratch_directory() / (name + ".wader")};
  fs::remove_all(own.checkpoint);
  fs::remove_all(own.container);
  fs::copy(kTiny, own.checkpoint);
  const auto report = make_in_place(own.checkpoint, own.container);
  EXPECT_TRUE(report.ok()) << report.error().message;
  return own;
}

std::string text_of(const fs::path& file) {
  return read_text_file(file, 64 * kMiB).value();
}

std::string refusal(const fs::path& directory) {
  const auto container = Container::open(directory);
  return container.ok() ? "opened" : container.error().message;
}

void flip_bit(const fs::path& path, uint64_t byte) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(byte));
  const auto c = static_cast<char>(file.get() ^ 0x10);
  file.seekp(static_cast<std::streamoff>(byte));
  file.put(c);
  ASSERT_TRUE(file.good());
}

EngineOptions options_with(uint32_t slots) {
  EngineOptions options;
  options.memory_bytes = 512 * kMiB;
  options.kernels = "auto";
  options.context = 512;
  options.slots = slots;
  options.chunk = 32;
  options.threads = 2;
  return options;
}

bool direct_works(const fs::path& checkpoint) {
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
Output output_of(Engine& engine) {
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

// The manifest with its identity, and the digests: saved sessions and usage fit both.
TEST(InPlace, IsTheSameContainerWithoutItsExperts) {
  for (const auto& [checkpoint, container] :
       {std::pair{kTiny, testing::tiny_container()}, {kDemo, testing::demo_container()}}) {
    const fs::path& made = in_place(checkpoint);
    EXPECT_EQ(text_of(made / "manifest.json"), text_of(container / "manifest.json"));
    EXPECT_EQ(text_of(made / "digests.bin"), text_of(container / "digests.bin"));
    EXPECT_FALSE(fs::exists(made / "experts"));
    EXPECT_FALSE(fs::exists(made / "install.json"));
    const auto opened = Container::open(made);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    ASSERT_TRUE(opened->in_place().has_value());
    EXPECT_EQ(opened->in_place()->directory, fs::canonical(checkpoint));
    EXPECT_EQ(opened->identity(), Container::open(container)->identity());
    EXPECT_EQ(opened->expert_pieces(1, 0).size(), opened->manifest().experts.sections.size());
    const auto report = verify_container(*opened, {});
    ASSERT_TRUE(report.ok());
    EXPECT_THAT(report->problems, IsEmpty());
  }
}

TEST(InPlace, GivesTheBitsOfTheContainer) {
  struct Case {
    fs::path checkpoint, container;
    uint32_t working_set, all_slots;
  };
  for (const Case& c : {Case{kTiny, testing::tiny_container(), 4, 64},
                        Case{kDemo, testing::demo_container(), 4, 256}}) {
    const auto installed = open_engine(c.container, options_with(c.all_slots));
    const Output expected = output_of(*installed);
    for (const auto& [io, direct] :
         {std::pair{"auto", "auto"}, {"auto", "off"}, {"threads", "auto"}, {"threads", "off"}})
      for (const uint32_t slots : {c.working_set, c.all_slots / 4})
        for (const char* lookahead : {"on", "off"}) {
          // All of them on the smaller model.
          if (lookahead[1] == 'f' && (testing::kSanitized || c.checkpoint == kDemo)) continue;
          if (c.checkpoint == kDemo && slots == c.working_set && io[0] == 't') continue;
          EngineOptions options = options_with(slots);
          options.io = io;
          options.direct = direct;
          options.lookahead = lookahead;
          const auto engine = open_engine(in_place(c.checkpoint), options);
          ASSERT_NE(engine, nullptr);
          const bool is_direct = direct == std::string("auto") && direct_works(c.checkpoint);
          EXPECT_THAT(engine->io_description(), HasSubstr(is_direct ? "O_DIRECT" : "page cache"));
          EXPECT_EQ(output_of(*engine), expected)
              << io << ", direct " << direct << ", " << slots << " slots, lookahead " << lookahead;
          EXPECT_GT(engine->stats().experts.bytes_read, 0u);
        }
  }
}

// Pieces that land in any order, in part, again after an error, and in a queue that holds one
// record's only.
TEST(InPlace, GivesThemOverADiskThatFails) {
  const Output expected = output_of(*open_engine(testing::tiny_container(), options_with(64)));
  for (const auto& [capacity, direct] :
       {std::pair{12u, "auto"}, {13u, "off"}, {64u, "auto"}, {6u, "off"}}) {
    EngineOptions options = options_with(6);
    options.direct = direct;
    options.make_read_queue = [capacity = capacity] {
      return make_fake_read_queue({.seed = 3, .short_read = 0.3, .interrupt = 0.2, .eio = 0.1},
                                  capacity);
    };
    EXPECT_EQ(output_of(*open_engine(in_place(kTiny), options)), expected) << capacity;
  }
}

TEST(InPlace, ASessionGoesOnInEither) {
  const fs::path file = scratch_directory() / "either.state";
  const auto first = open_engine(testing::tiny_container(), options_with(16));
  const auto session = open_session(*first);
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = 8;
  ASSERT_TRUE(session->generate(random_tokens(50, 1024, 3), options).ok());
  ASSERT_TRUE(session->save(file, "note").ok());
  const auto second = open_engine(in_place(kTiny), options_with(16));
  const auto loaded = open_session(*second);
  const auto note = loaded->load(file, kMaxNoteBytes);
  ASSERT_TRUE(note.ok()) << note.error().message;
  std::vector<TokenId> next = session->tokens();
  next.push_back(5);
  EXPECT_EQ(loaded->generate(next, options)->ids, session->generate(next, options)->ids);
}

TEST(InPlace, ContinuesWhereItWasStopped) {
  const fs::path path = scratch_directory() / "stopped.wader";
  const auto stopped = make_in_place(kDemo, path, [](const Progress& progress) {
    return progress.phase != "experts" || progress.done_bytes < 15 * kMiB;
  });
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::cancelled);
  EXPECT_THAT(refusal(path), HasSubstr("was not finished"));
  const auto report = make_in_place(kDemo, path);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_TRUE(report->resumed);
  EXPECT_EQ(text_of(path / "manifest.json"), text_of(in_place(kDemo) / "manifest.json"));
  EXPECT_EQ(text_of(path / "source.json"), text_of(in_place(kDemo) / "source.json"));
}

TEST(InPlace, AReadOnlyCheckpointIsEnough) {
  const Own own = own_copy("read-only");
  for (const auto& entry : fs::directory_iterator(own.checkpoint))
    ASSERT_EQ(::chmod(entry.path().c_str(), 0444), 0);
  ASSERT_EQ(::chmod(own.checkpoint.c_str(), 0555), 0);
  const auto names = [&] {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(own.checkpoint))
      all.push_back(entry.path().filename());
    return all;
  };
  const auto before = names();
  fs::remove_all(own.container);
  ASSERT_TRUE(make_in_place(own.checkpoint, own.container).ok());
  EngineOptions options = options_with(16);
  options.keeps_usage = true;
  options.measured_expert_bytes = 0;
  (void)output_of(*open_engine(own.container, options));
  EXPECT_TRUE(fs::exists(own.container / "usage"));
  EXPECT_EQ(names(), before);
  ASSERT_EQ(::chmod(own.checkpoint.c_str(), 0755), 0);
}

TEST(InPlace, AChangedCheckpointIsRefused) {
  const Own own = own_copy("changed");
  const fs::path file = own.checkpoint / "model.safetensors";
  const std::string bytes = text_of(file);
  const auto time = fs::last_write_time(file);
  const std::string name = "model.safetensors: changed since its checksums were taken";
  ASSERT_EQ(refusal(own.container), "opened");

  fs::last_write_time(file, time + std::chrono::seconds(1));
  EXPECT_THAT(refusal(own.container), HasSubstr(name));
  fs::last_write_time(file, time);
  ASSERT_EQ(refusal(own.container), "opened");

  // Another file under the name, of the same size and time.
  fs::copy_file(file, own.checkpoint / "other");
  fs::rename(own.checkpoint / "other", file);
  fs::last_write_time(file, time);
  EXPECT_THAT(refusal(own.container), HasSubstr(name));

  fs::resize_file(file, bytes.size() - 1);
  EXPECT_THAT(refusal(own.container), HasSubstr(name));
  fs::remove(file);
  EXPECT_THAT(refusal(own.container), HasSubstr("model.safetensors: No such file"));
}

// With its old size and time: only the checksum knows.
TEST(InPlace, DamageIsNamed) {
  const Own own = own_copy("damaged");
  const fs::path file = own.checkpoint / "model.safetensors";
  const auto time = fs::last_write_time(file);
  const Container container = Container::open(own.container).value();
  for (const size_t section : {0u, 1u, 2u, 5u}) {
    const RecordPiece piece = container.expert_pieces(2, 9)[section];
    flip_bit(file, piece.offset_bytes + piece.bytes - 1);
    fs::last_write_time(file, time);
    const auto engine = open_engine(own.container, options_with(8));
    const auto session = open_session(*engine);
    const auto answer = session->generate(random_tokens(100, 1024, 1), {});
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().code, ErrorCode::corrupt);
    EXPECT_THAT(answer.error().message, HasSubstr("layer 2 expert 9"));
    EXPECT_THAT(answer.error().message, HasSubstr(file.string()));
    EXPECT_THAT(answer.error().message, HasSubstr("get that file again"));
    const auto report = verify_container(container, {});
    ASSERT_TRUE(report.ok());
    EXPECT_THAT(report->problems,
                ::testing::ElementsAre(HasSubstr("layer 2 expert 9 does not match")));
    flip_bit(file, piece.offset_bytes + piece.bytes - 1);
    fs::last_write_time(file, time);
  }
  EXPECT_THAT(verify_container(container, {})->problems, IsEmpty());
}

TEST(InPlace, ReadsAreMeasuredOnTheCheckpointsFiles) {
  const Own own = own_copy("measured");
  EngineOptions options = options_with(16);
  options.measured_expert_bytes = 0;
  const auto engine = open_engine(own.container, options);
  if (make_uring_read_queue(1).ok()) EXPECT_TRUE(fs::exists(own.container / "reads.json"));
  EXPECT_FALSE(fs::exists(own.checkpoint / "reads.json"));
}

// Gate and up rows apart: no run of bytes is a section of a record.
TEST(InPlace, OtherLayoutsAreRefusedBeforeAnythingIsWritten) {
  for (const char* name : {"tiny-qwen3-moe", "tiny-qwen3-next", "tiny-qwen3.5-moe"}) {
    const fs::path path = scratch_directory() / "refused.wader";
    const auto report = make_in_place(fs::path(WADER_SOURCE_DIR) / "tests/data" / name, path);
    ASSERT_FALSE(report.ok()) << name;
    EXPECT_EQ(report.error().code, ErrorCode::unsupported);
    EXPECT_THAT(report.error().message, HasSubstr("gate_up"));
    EXPECT_THAT(report.error().message, HasSubstr("wader install"));
    EXPECT_FALSE(fs::exists(path));
  }
  // Another format than the source's is no copy.
  InstallOptions options;
  options.source = kTiny;
  options.destination = scratch_directory() / "refused.wader";
  options.in_place = true;
  options.experts = DType::bf16;
  const auto report = install(options, {});
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.error().message, HasSubstr("is mxfp4 here and bf16 in a record"));
}

class SourceText : public ::testing::Test {
 protected:
  // source.json with one change, sealed again.
  std::string refusal_of(const std::function<void(Json&)>& change) {
    Json json = unseal_json(text_of(in_place(kTiny) / kSourceFile), "source.json").value();
    change(json);
    const auto source = parse_in_place(seal_json(json, 1), manifest_);
    return source.ok() ? "accepted" : source.error().message;
  }
  const Manifest manifest_ = Container::open(in_place(kTiny))->manifest();
};

TEST_F(SourceText, IsReadBackAsItWasWritten) {
  const std::string text = text_of(in_place(kTiny) / kSourceFile);
  const auto source = parse_in_place(text, manifest_);
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(in_place_to_text(*source), text);
  EXPECT_EQ(refusal_of([](Json&) {}), "accepted");
}

TEST_F(SourceText, WhatLeadsElsewhereIsRefused) {
  const std::map<std::string, std::function<void(Json&)>> changes = {
      {"must stay inside", [](Json& j) { j["files"][0]["name"] = "../model.safetensors"; }},
      {"must stay inside the", [](Json& j) { j["files"][0]["name"] = "/etc/passwd"; }},
      {"inside the checkpoint", [](Json& j) { j["files"][0]["name"] = "a\x1b[2J"; }},
      {"absolute", [](Json& j) { j["directory"] = "models"; }},
      {"there is no file 7", [](Json& j) { j["layers"][1][2]["file"] = 7; }},
      {"layer 1 down.bias: leads out of",
       [](Json& j) { j["layers"][1][5]["offset"] = j["files"][0]["bytes"]; }},
      {"leads out of", [](Json& j) { j["layers"][0][0]["step"] = uint64_t{1} << 61; }},
      {"an array of 4", [](Json& j) { j["layers"].erase(3); }},
      {"an array of 6 sections", [](Json& j) { j["layers"][3].erase(0); }},
      {"'more' is not known", [](Json& j) { j["more"] = 1; }},
      {"'modified_ns' must be", [](Json& j) { j["files"][0]["modified_ns"] = "now"; }},
      {"another version", [](Json& j) { j["wader_source"] = 2; }},
  };
  for (const auto& [message, change] : changes) EXPECT_THAT(refusal_of(change), HasSubstr(message));
}

TEST_F(SourceText, DamageIsRefusedAtOpen) {
  const Own own = own_copy("text");
  flip_bit(own.container / kSourceFile, 40);
  EXPECT_THAT(refusal(own.container), HasSubstr("source.json"));
  fs::remove(own.container / kSourceFile);
  EXPECT_THAT(refusal(own.container), HasSubstr("layer-000.bin: missing from the container"));
}

}  // namespace
}  // namespace wader
