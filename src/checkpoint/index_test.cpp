#include "checkpoint/index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_testing.h"
#include "checkpoint/source_tree.h"

namespace wader {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempDirectory;

std::string index_of(std::string_view name) {
  return Json{{"weight_map", {{"some.tensor", name}}}}.dump();
}

TEST(ShardIndex, Reads) {
  const auto index = parse_shard_index(
      R"({"metadata": {"total_size": 5, "weight_map": {"x": [1, {"y": null}]}},
          "weight_map": {"a": "m-1.safetensors", "b": "sub/m-2.safetensors", "c": "m-1.safetensors"},
          "more": [true, -1, 1.5, [[]]]})");
  ASSERT_TRUE(index.ok()) << index.error().message;
  EXPECT_THAT(index->files, ElementsAre("m-1.safetensors", "sub/m-2.safetensors"));
  EXPECT_EQ(index->file_of_tensor.size(), 3u);
  EXPECT_EQ(index->file_of_tensor.at("b"), 1u);
  EXPECT_EQ(index->file_of_tensor.at("c"), 0u);
}

TEST(ShardIndex, RefusesMalformedText) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "not valid JSON"},
      {"5", "not a JSON object"},
      {"[]", "not a JSON object"},
      {"{}", "no weight_map"},
      {R"({"weight_map": {}})", "empty"},
      {R"({"weight_map": []})", "not an object"},
      {R"({"weight_map": "x"})", "not an object"},
      {R"({"weight_map": {"a": 1}})", "'a' is not a string"},
      {R"({"weight_map": {"a": {}}})", "'a' is not a string"},
      {R"({"weight_map": {"a": ["m.safetensors"]}})", "'a' is not a string"},
      {R"({"weight_map": {"a": "m.safetensors", "a": "m.safetensors"}})", "'a' twice"},
      {R"({"weight_map": {"a": "m.safetensors"}, "weight_map": {"b": "m.safetensors"}})",
       "occurs twice"},
      {R"({"x": {"weight_map": {"a": "m.safetensors"}}})", "no weight_map"},
  };
  for (const auto& [text, says] : cases) {
    const auto index = parse_shard_index(text);
    ASSERT_FALSE(index.ok()) << text;
    EXPECT_THAT(index.error().message, HasSubstr(says)) << text;
  }
  EXPECT_THAT(parse_shard_index(R"({"x": )" + std::string(1000, '[')).error().message,
              HasSubstr("nested"));
}

TEST(ShardIndex, RefusesNamesThatLeaveTheFolder) {
  const std::string bad[] = {"../../x.safetensors",
                             "/etc/passwd",
                             "/x.safetensors",
                             "a/../../b.safetensors",
                             "a/../b.safetensors",
                             "./b.safetensors",
                             "a//b.safetensors",
                             "a/",
                             "..",
                             "",
                             "..\\x.safetensors",
                             "a\\b.safetensors",
                             std::string("x\0.safetensors", 14),
                             "x\n.safetensors",
                             "x\x1b[2J.safetensors",
                             "x\x7f.safetensors",
                             std::string(5000, 'x') + ".safetensors",
                             "pytorch_model.bin"};
  for (const std::string& name : bad) {
    EXPECT_EQ(check_shard_name(name).error().code, ErrorCode::invalid_argument) << name;
    const auto index = parse_shard_index(index_of(name));
    ASSERT_FALSE(index.ok()) << name;
    EXPECT_THAT(index.error().message, HasSubstr("weight_map entry 'some.tensor'"));
    EXPECT_LT(index.error().message.size(), 250u);
  }
  for (const char* good : {"model-00001-of-00002.safetensors", "sub/m.safetensors",
                           "..x.safetensors", "модель.safetensors"})
    EXPECT_TRUE(check_shard_name(good).ok()) << good;
}

TEST(FindShards, BadNamesAreRefusedBeforeAnyFileIsThere) {
  TempDirectory directory;
  directory.write("m/model.safetensors.index.json",
                  R"({"weight_map": {"a": "missing.safetensors", "b": "../secret.safetensors"}})");
  directory.write("secret.safetensors", "secret");
  const auto shards = find_shards(directory.path() / "m");
  EXPECT_THAT(shards.error().message, HasSubstr("entry 'b'"));
  directory.write("m/model.safetensors.index.json", index_of("missing.safetensors"));
  const auto missing = find_shards(directory.path() / "m");
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_THAT(missing.error().message,
              HasSubstr("lists 'missing.safetensors', which is not there"));
}

TEST(FindShards, LinksMayNotLeadOutside) {
  TempDirectory directory;
  directory.write("secret.safetensors", "secret");
  directory.write("m/real.safetensors", "x");
  directory.write("m/model.safetensors.index.json", index_of("link.safetensors"));
  fs::create_symlink("../secret.safetensors", directory.path() / "m" / "link.safetensors");
  const auto shards = find_shards(directory.path() / "m");
  ASSERT_FALSE(shards.ok());
  EXPECT_EQ(shards.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(shards.error().message, HasSubstr("link.safetensors is a link to"));
  EXPECT_THAT(shards.error().message, HasSubstr("give the directory that it is in"));

  // Inside is fine, and the folder itself may be reached through a link.
  fs::remove(directory.path() / "m" / "link.safetensors");
  fs::create_symlink("real.safetensors", directory.path() / "m" / "link.safetensors");
  fs::create_symlink("m", directory.path() / "n");
  EXPECT_TRUE(find_shards(directory.path() / "n").ok());

  // A folder that leads out, and the same without an index.
  fs::create_symlink("..", directory.path() / "m" / "up");
  directory.write("m/model.safetensors.index.json", index_of("up/secret.safetensors"));
  EXPECT_FALSE(find_shards(directory.path() / "m").ok());
  directory.write("k/config.json", "{}");
  fs::create_symlink("../secret.safetensors", directory.path() / "k" / "model.safetensors");
  EXPECT_EQ(find_shards(directory.path() / "k").error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(find_shards(directory.path() / "k" / "model.safetensors").error().code,
            ErrorCode::invalid_argument);
}

// Links of a download that was cut, a loop, and links to what is no file.
TEST(FindShards, LinksThatLeadNowhere) {
  TempDirectory directory;
  const fs::path model = directory.path() / "m", link = model / "link.safetensors";
  directory.write("m/model.safetensors.index.json", index_of("link.safetensors"));
  directory.write("m/folder/x", "x");
  for (const char* target : {"gone.safetensors", "../gone.safetensors", "link.safetensors"}) {
    fs::create_symlink(target, link);
    const auto shards = find_shards(model);
    ASSERT_FALSE(shards.ok()) << target;
    EXPECT_EQ(shards.error().code, ErrorCode::not_found) << target;
    EXPECT_THAT(shards.error().message,
                HasSubstr(fmt::format("link.safetensors is a link to '{}', which", target)));
    EXPECT_THAT(shards.error().message, HasSubstr("get the file again"));
    fs::remove(link);
  }
  // A shard's name that is a folder is inside the checkpoint; opening it says what it is.
  fs::create_symlink("folder", link);
  ASSERT_TRUE(find_shards(model).ok());
  const auto opened = DirectoryTree(model).open("link.safetensors");
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(opened.error().message, HasSubstr("link.safetensors is a directory"));
}

TEST(FindShards, HuggingFaceCacheLayout) {
  TempDirectory directory;
  const std::string model = "models--org--name/";
  directory.write(model + "blobs/0123abcd", "x");
  directory.write("elsewhere/blobs/0123abcd", "x");
  directory.write(model + "snapshots/c0ffee/README.md", "x");
  const fs::path snapshot = directory.path() / "models--org--name" / "snapshots" / "c0ffee";
  fs::create_symlink("../../blobs/0123abcd", snapshot / "model.safetensors");
  const auto shards = find_shards(snapshot);
  ASSERT_TRUE(shards.ok()) << shards.error().message;
  EXPECT_THAT(shards->files, ElementsAre("model.safetensors"));

  // A blob that was pruned, or is not there yet.
  fs::remove(snapshot / "model.safetensors");
  fs::create_symlink("../../blobs/4567", snapshot / "model.safetensors");
  EXPECT_THAT(find_shards(snapshot).error().message,
              HasSubstr("model.safetensors is a link to '../../blobs/4567', which"));

  // Another blobs folder is outside, and so is the rest of the cache.
  fs::remove(snapshot / "model.safetensors");
  fs::create_symlink("../../../elsewhere/blobs/0123abcd", snapshot / "model.safetensors");
  EXPECT_FALSE(find_shards(snapshot).ok());
  directory.write(model + "refs/main", "c0ffee");
  fs::remove(snapshot / "model.safetensors");
  fs::create_symlink("../../refs/main", snapshot / "model.safetensors");
  EXPECT_FALSE(find_shards(snapshot).ok());

  EXPECT_THAT(find_shards(directory.path() / "models--org--name").error().message,
              HasSubstr("snapshots/<commit>"));
}

TEST(FindShards, WithoutAnIndex) {
  TempDirectory directory;
  const auto message = [&] { return find_shards(directory.path()).error().message; };
  EXPECT_THAT(message(), HasSubstr("no model.safetensors.index.json and no *.safetensors"));
  directory.write("original/model.safetensors", "x");
  EXPECT_THAT(message(), HasSubstr("original/ folder"));
  directory.write("pytorch_model.bin", "x");
  EXPECT_THAT(message(), HasSubstr("*.bin"));
  directory.write("model-Q4.gguf", "x");
  EXPECT_THAT(message(), HasSubstr("GGUF"));

  directory.write("weights.safetensors", "x");
  EXPECT_THAT(find_shards(directory.path())->files, ElementsAre("weights.safetensors"));
  directory.write("weights-2.safetensors", "x");
  EXPECT_THAT(message(), HasSubstr("2 *.safetensors files"));
  directory.write("model.safetensors", "x");
  EXPECT_THAT(find_shards(directory.path())->files, ElementsAre("model.safetensors"));
  EXPECT_THAT(find_shards(directory.path() / "weights.safetensors")->files,
              ElementsAre("weights.safetensors"));

  directory.write("model.safetensors.index.json", index_of("weights.safetensors"));
  EXPECT_THAT(find_shards(directory.path())->files, ElementsAre("weights.safetensors"));
  EXPECT_THAT(find_shards(directory.path() / "weights.safetensors").error().message,
              HasSubstr("one file of a checkpoint"));
}

TEST(FindShards, PathsThatAreNoCheckpoint) {
  TempDirectory directory;
  directory.write("notes.txt", "x");
  EXPECT_EQ(find_shards(directory.path() / "notes.txt").error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(find_shards(directory.path() / "no").error().code, ErrorCode::not_found);
  const auto hub = find_shards("some-org-nobody-has/model-1.5_b");
  EXPECT_EQ(hub.error().code, ErrorCode::not_found);
  EXPECT_EQ(
      hub.error().message,
      "some-org-nobody-has/model-1.5_b is not a file or directory; installing from the hub comes "
      "in a later version");
  for (const char* path : {"/no/such", "./no", "no/such/dir", "no"})
    EXPECT_THAT(find_shards(path).error().message, ::testing::Not(HasSubstr("hub"))) << path;
}

}  // namespace
}  // namespace wader
