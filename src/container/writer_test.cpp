#include "container/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/no_threads_testing.h"
#include "container/container_testing.h"

namespace wader {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class WriterTest : public ::testing::Test {
 protected:
  Result<ContainerWriter> open(ContainerPlan plan = testing::small_plan()) {
    return ContainerWriter::open(directory_, std::move(plan));
  }
  ContainerWriter must_open(ContainerPlan plan = testing::small_plan()) {
    auto writer = open(std::move(plan));
    EXPECT_TRUE(writer.ok()) << (writer.ok() ? "" : writer.error().message);
    return std::move(*writer);
  }
  std::map<std::string, std::string> whole_tree() {
    testing::TempDirectory other;
    return testing::read_tree(testing::write_small_container(other.path()));
  }
  void expect_finishes_whole(ContainerWriter writer) {
    const auto bytes = testing::write_rest(writer, scratch_.path());
    ASSERT_TRUE(bytes.ok()) << bytes.error().message;
    testing::expect_same_tree(testing::read_tree(directory_), whole_tree());
    EXPECT_TRUE(Container::open(directory_).ok());
  }

  testing::TempDirectory scratch_;
  fs::path directory_ = scratch_.path() / "parents/that/are/new/small.wader";
};

TEST_F(WriterTest, IsNoContainerBeforeFinish) {
  ContainerWriter writer = must_open();
  EXPECT_FALSE(writer.resumed());
  EXPECT_FALSE(Container::open(directory_).ok());
  const auto bytes = testing::write_rest(writer, scratch_.path());
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  EXPECT_TRUE(Container::open(directory_).ok());
  uint64_t total = 0;
  for (const auto& [name, text] : testing::read_tree(directory_)) total += text.size();
  EXPECT_EQ(*bytes, total);
  EXPECT_FALSE(fs::exists(directory_ / "install.json"));
}

TEST_F(WriterTest, ContinuesAfterTheLastFinishedFile) {
  {
    ContainerWriter writer = must_open();
    ASSERT_TRUE(testing::append_layer(writer, 1).ok());
    ASSERT_TRUE(writer.begin_layer(0).ok());  // begun, not finished
    ASSERT_TRUE(
        writer.append_expert(testing::pattern(writer.manifest().experts.stride_bytes, 9)).ok());
  }
  EXPECT_THAT(Container::open(directory_).error().message, HasSubstr("was not finished"));
  ContainerWriter writer = must_open();
  EXPECT_TRUE(writer.resumed());
  EXPECT_FALSE(writer.started_over());
  EXPECT_TRUE(writer.layer_finished(1));
  EXPECT_FALSE(writer.layer_finished(0));
  EXPECT_FALSE(writer.trunk_finished());
  EXPECT_EQ(writer.finished_bytes(), 3 * writer.manifest().experts.stride_bytes);
  expect_finishes_whole(std::move(writer));
}

TEST_F(WriterTest, AFinishedFileThatIsGoneOrCutIsWrittenAgain) {
  {
    ContainerWriter writer = must_open();
    ASSERT_TRUE(testing::append_layer(writer, 0).ok());
    ASSERT_TRUE(testing::append_layer(writer, 1).ok());
  }
  fs::remove(directory_ / "experts/layer-000.bin");
  fs::resize_file(directory_ / "experts/layer-001.bin", 4096);
  ContainerWriter writer = must_open();
  EXPECT_FALSE(writer.layer_finished(0));
  EXPECT_FALSE(writer.layer_finished(1));
  expect_finishes_whole(std::move(writer));
}

TEST_F(WriterTest, WithoutThreadsItIsOnlySlower) {
  const testing::NoThreads none;
  expect_finishes_whole(must_open());
  const auto report = verify_container(*Container::open(directory_), {});
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_TRUE(report->problems.empty());
}

// Whatever of the journal a power cut leaves, what follows the last whole line did not happen.
TEST_F(WriterTest, ATornJournalLosesOnlyItsTornLine) {
  {
    ContainerWriter writer = must_open();
    ASSERT_TRUE(testing::append_layer(writer, 0).ok());
    ASSERT_TRUE(testing::append_layer(writer, 1).ok());
  }
  const std::string journal = testing::read_bytes(directory_ / "install.json");
  const auto tree = testing::read_tree(directory_);
  const size_t header_end = journal.find('\n') + 1, first_end = journal.find('\n', header_end) + 1;
  ASSERT_GT(journal.size(), first_end);
  for (size_t cut = header_end; cut < journal.size(); cut += 11) {
    for (const std::string& tail : {std::string(), std::string(50, '\0')}) {
      testing::write_bytes(directory_ / "install.json", journal.substr(0, cut) + tail);
      ContainerWriter writer = must_open();
      EXPECT_TRUE(writer.resumed());
      EXPECT_EQ(writer.layer_finished(0), cut >= first_end) << cut;
      EXPECT_FALSE(writer.layer_finished(1)) << cut;
    }
  }
  std::string flipped = journal;
  flipped[first_end - 30] ^=
      1;  // in the first layer's line: that one and the next are not believed
  testing::write_bytes(directory_ / "install.json", flipped);
  ContainerWriter writer = must_open();
  EXPECT_FALSE(writer.layer_finished(0));
  EXPECT_FALSE(writer.layer_finished(1));
  expect_finishes_whole(std::move(writer));
}

TEST_F(WriterTest, ATornHeaderIsAFreshStart) {
  { ContainerWriter writer = must_open(); }
  const std::string journal = testing::read_bytes(directory_ / "install.json");
  fs::remove(directory_ / "experts");
  for (const std::string& left :
       {std::string(), std::string("{\"wader_in"), journal.substr(0, journal.size() - 9),
        std::string(journal.size(), '\0')}) {
    testing::write_bytes(directory_ / "install.json", left);
    ContainerWriter writer = must_open();
    EXPECT_FALSE(writer.resumed());
    EXPECT_EQ(testing::read_bytes(directory_ / "install.json"), journal);
    fs::remove(directory_ / "experts");
  }
  expect_finishes_whole(must_open());
}

TEST_F(WriterTest, AnotherOriginStartsOverAndKeepsWhatIsNotOurs) {
  {
    ContainerPlan other = testing::small_plan();
    other.origin = {{"seed", 2}};
    other.manifest.files.emplace("LICENSE", FileRecord{3, ""});
    ContainerWriter writer = must_open(std::move(other));
    ASSERT_TRUE(testing::append_layer(writer, 0).ok());
    testing::write_bytes(directory_ / "LICENSE", "abc");
    testing::write_bytes(directory_ / "notes.txt", "mine");
  }
  {
    ContainerWriter writer = must_open();
    EXPECT_TRUE(writer.started_over());
    EXPECT_FALSE(writer.resumed());
    EXPECT_FALSE(writer.layer_finished(0));
    EXPECT_FALSE(fs::exists(directory_ / "LICENSE"));
    EXPECT_FALSE(fs::exists(directory_ / "experts/layer-000.bin"));
    EXPECT_EQ(testing::read_bytes(directory_ / "notes.txt"), "mine");
  }
  fs::remove(directory_ / "notes.txt");
  expect_finishes_whole(must_open());
}

TEST_F(WriterTest, LeavesADirectoryThatIsNotOursAlone) {
  const std::vector<std::map<std::string, std::string>> foreign = {
      {{"photo.jpg", "x"}},
      {{".hidden", ""}},
      {{"install.json", "{\"name\": \"something else\"}"}},  // another program's file of that name
      {{"install.json", "{\"wader_install\":"}, {"photo.jpg", "x"}},
      {{"install.json", ""}, {"photo.jpg", "x"}},
      {{"experts/layer-000.bin", "x"}}};
  for (const auto& files : foreign) {
    for (const auto& [name, text] : files) testing::write_bytes(directory_ / name, text);
    const auto before = testing::read_tree(directory_);
    const auto writer = open();
    ASSERT_FALSE(writer.ok()) << files.begin()->first;
    EXPECT_EQ(writer.error().code, ErrorCode::already_exists);
    EXPECT_THAT(writer.error().message, HasSubstr("is not a Wader container"));
    testing::expect_same_tree(testing::read_tree(directory_), before);
    fs::remove_all(directory_);
  }
  testing::write_bytes(directory_, "a file");
  EXPECT_EQ(open().error().code, ErrorCode::already_exists);
  EXPECT_EQ(testing::read_bytes(directory_), "a file");
}

// `rm` of a running install, and another install in its place: what was written is not ours to
// finish.
TEST_F(WriterTest, StopsWhenItsDirectoryIsTakenAway) {
  ContainerWriter writer = must_open();
  ASSERT_TRUE(testing::append_layer(writer, 0).ok());
  fs::rename(directory_, directory_.string() + ".gone");
  expect_finishes_whole(must_open());
  const Status late = testing::append_layer(writer, 1);
  ASSERT_FALSE(late.ok());
  EXPECT_THAT(late.error().message, HasSubstr("deleted or replaced"));
  testing::expect_same_tree(testing::read_tree(directory_), whole_tree());
}

TEST_F(WriterTest, LeavesACompleteContainerAlone) {
  expect_finishes_whole(must_open());
  EXPECT_THAT(open().error().message, HasSubstr("complete container already"));
  // What a process leaves that was killed between making its journal and seeing that it came too
  // late.
  testing::write_bytes(directory_ / "install.json", "");
  EXPECT_FALSE(Container::open(directory_).ok());
  EXPECT_THAT(open().error().message, HasSubstr("complete container already"));
  testing::expect_same_tree(testing::read_tree(directory_), whole_tree());
}

// Killed after the manifest, before the journal went: all is there, and finishing again is quick
// and harmless.
TEST_F(WriterTest, FinishesAContainerThatLacksOnlyTheLastStep) {
  std::string journal;
  {
    ContainerWriter writer = must_open();
    ASSERT_TRUE(testing::append_layer(writer, 0).ok());
    ASSERT_TRUE(testing::append_layer(writer, 1).ok());
    ASSERT_TRUE(writer.begin_trunk().ok());
    for (size_t i = 0; i < writer.manifest().trunk.size(); ++i)
      ASSERT_TRUE(testing::append_tensor(writer, i).ok());
    ASSERT_TRUE(writer.finish_trunk({{"snr", 1.5}}).ok());
    journal = testing::read_bytes(directory_ / "install.json");
    ASSERT_TRUE(testing::write_rest(writer, scratch_.path()).ok());
  }
  testing::write_bytes(directory_ / "install.json", journal);
  EXPECT_FALSE(Container::open(directory_).ok());
  ContainerWriter writer = must_open();
  EXPECT_TRUE(writer.trunk_finished() && writer.layer_finished(0) && writer.layer_finished(1));
  expect_finishes_whole(std::move(writer));
}

TEST_F(WriterTest, OneWriterAtATime) {
  ContainerWriter writer = must_open();
  // The lock belongs to the open file: a second one is refused in the same process and in another.
  const auto second = open();
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message, HasSubstr("another install is writing"));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(ContainerWriter::open(directory_, testing::small_plan()).ok() ? 1 : 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  expect_finishes_whole(std::move(writer));
}

TEST_F(WriterTest, RemovesNothingOutsideOnAForgedJournal) {
  const fs::path outside = scratch_.path() / "precious";
  testing::write_bytes(outside, "x");
  for (const char* name :
       {"../../../../../precious", "/etc/hostname", "experts/../../x", "experts/", "a/b"}) {
    const std::string journal = seal_json(
        {{"wader_install", 1}, {"origin", {{"seed", 2}}}, {"files", {"trunk.bin", name}}}, -1);
    testing::write_bytes(directory_ / "install.json", journal);
    const auto writer = open();
    ASSERT_FALSE(writer.ok()) << name;
    EXPECT_THAT(writer.error().message, HasSubstr("no part of a container")) << name;
    EXPECT_TRUE(fs::exists(outside));
    fs::remove_all(directory_);
  }
}

TEST_F(WriterTest, DiscardLeavesNothing) {
  ContainerWriter writer = must_open();
  ASSERT_TRUE(testing::append_layer(writer, 0).ok());
  ASSERT_TRUE(writer.begin_trunk().ok());
  ASSERT_TRUE(writer.discard().ok());
  EXPECT_FALSE(fs::exists(directory_));
}

TEST_F(WriterTest, ASmallFileMustHaveItsPlannedSize) {
  ContainerWriter writer = must_open();
  testing::write_bytes(scratch_.path() / "tokenizer.json", "too short");
  const File source = File::open(scratch_.path() / "tokenizer.json", File::Mode::read).value();
  EXPECT_EQ(writer.copy_small_file("tokenizer.json", source).error().code, ErrorCode::corrupt);
}

}  // namespace
}  // namespace wader
