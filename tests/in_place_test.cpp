// Experts in place: a checkpoint that is used where it is gives what its container gives, to the
// bit; what keeps it from being used so is named.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <set>

#include "engine/read_setup.h"
#include "in_place_fixture.h"

namespace wader::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The manifest with its identity, and the digests: saved sessions and usage fit both.
TEST(InPlace, IsTheSameContainerWithoutItsExperts) {
  for (const auto& [checkpoint, container] :
       {std::pair{kTiny, tiny_container()}, {kDemo, demo_container()}}) {
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
  for (const Case& c :
       {Case{kTiny, tiny_container(), 4, 64}, Case{kDemo, demo_container(), 4, 256}}) {
    const auto installed = open_engine(c.container, options_with(c.all_slots));
    const Output expected = output_of(*installed);
    for (const auto& [io, direct] :
         {std::pair{"auto", "auto"}, {"auto", "off"}, {"threads", "auto"}, {"threads", "off"}})
      for (const uint32_t slots : {c.working_set, c.all_slots / 4})
        for (const char* lookahead : {"on", "off"}) {
          // All of them on the smaller model.
          if (lookahead[1] == 'f' && (kSanitized || c.checkpoint == kDemo)) continue;
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
  const Output expected = output_of(*open_engine(tiny_container(), options_with(64)));
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

TEST(InPlace, ARecordMayStandInSeveralFiles) {
  const fs::path checkpoint = sharded_copy("sharded");
  const Output expected = output_of(*open_engine(tiny_container(), options_with(64)));
  const Container container = Container::open(in_place(checkpoint)).value();
  EXPECT_EQ(text_of(container.directory() / "digests.bin"),
            text_of(tiny_container() / "digests.bin"));
  std::set<uint32_t> files;
  for (const RecordPiece& piece : container.expert_pieces(2, 9)) files.insert(piece.file);
  EXPECT_GT(files.size(), 1u);
  for (const char* io : {"auto", "threads"})
    for (const char* direct : {"auto", "off"}) {
      EngineOptions options = options_with(6);
      options.io = io;
      options.direct = direct;
      options.lookahead = "on";
      EXPECT_EQ(output_of(*open_engine(container.directory(), options)), expected) << io << direct;
    }
  fs::remove(checkpoint / "model-00002-of-00003.safetensors");
  EXPECT_THAT(refusal(container.directory()),
              HasSubstr("model-00002-of-00003.safetensors is not there any more"));
  const auto again = make_in_place(checkpoint, scratch_directory() / "without.wader");
  ASSERT_FALSE(again.ok());
  EXPECT_THAT(again.error().message, HasSubstr("model-00002-of-00003.safetensors"));
  EXPECT_FALSE(fs::exists(scratch_directory() / "without.wader"));
}

TEST(InPlace, ASessionGoesOnInEither) {
  const fs::path file = scratch_directory() / "either.state";
  const auto first = open_engine(tiny_container(), options_with(16));
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

}  // namespace
}  // namespace wader::testing
