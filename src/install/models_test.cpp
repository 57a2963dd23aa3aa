#include "install/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>

#include "container/container_testing.h"
#include "container/journal.h"
#include "install/install.h"
#include "io/io_testing.h"

namespace wader {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ModelsTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv("WADER_HOME", home_.c_str(), 1); }
  void TearDown() override { unsetenv("WADER_HOME"); }
  void write(const fs::path& path, std::string_view text = "x") {
    testing::write_bytes(path, text);
  }
  void install_tiny(const std::string& name) {
    InstallOptions options;
    options.source = WADER_SOURCE_DIR "/tests/data/tiny-gpt-oss";
    options.destination = home_ / (name + ".wader");
    options.layers = 1;
    const auto report = install(options, [](const Progress&) { return true; });
    ASSERT_TRUE(report.ok()) << report.error().message;
  }

  const testing::TempDirectory scratch_;
  const fs::path& home_ = scratch_.path();
};

TEST_F(ModelsTest, DirectoryComesFromTheEnvironment) {
  EXPECT_EQ(*models_directory(), home_);
  setenv("WADER_HOME", "", 1);
  setenv("XDG_DATA_HOME", "/data", 1);
  EXPECT_EQ(*models_directory(), "/data/wader/models");
  unsetenv("XDG_DATA_HOME");
  const std::string home = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
  setenv("HOME", "/somebody", 1);
  EXPECT_EQ(*models_directory(), "/somebody/.local/share/wader/models");
  unsetenv("HOME");
  EXPECT_FALSE(models_directory().ok());
  if (!home.empty()) setenv("HOME", home.c_str(), 1);
}

TEST_F(ModelsTest, ListsStates) {
  EXPECT_TRUE(list_models(home_ / "nowhere").empty());
  install_tiny("b");
  write(home_ / "a.wader" / "install.json");
  write(home_ / "c.wader" / "manifest.json", "{}");
  write(home_ / ".hidden.wader" / "install.json");
  write(home_ / "other" / "manifest.json");
  write(home_ / "file.wader");
  const auto models = list_models(home_);
  ASSERT_EQ(models.size(), 3u);
  EXPECT_EQ(models[0].name, "a");
  EXPECT_EQ(models[0].state, InstalledModel::State::unfinished);
  EXPECT_EQ(models[1].name, "b");
  EXPECT_EQ(models[1].state, InstalledModel::State::complete);
  EXPECT_EQ(models[1].family, "gpt_oss");
  EXPECT_EQ(models[1].layers, 1u);
  EXPECT_EQ(models[1].experts, 16u);
  EXPECT_GT(models[1].disk_bytes, 500'000u);
  EXPECT_EQ(models[2].state, InstalledModel::State::damaged);
  EXPECT_FALSE(models[2].problem.empty());
}

// What has been begun says what it is made of, so that it can be gone on with.
TEST_F(ModelsTest, SaysWhatAnUnfinishedInstallIsMadeOf) {
  InstallOptions options;
  options.source = WADER_SOURCE_DIR "/tests/data/tiny-gpt-oss";
  options.destination = home_ / "begun.wader";
  const auto stopped = install(options, [](const Progress&) { return false; });
  ASSERT_EQ(stopped.error().code, ErrorCode::cancelled);
  const InstalledModel begun = list_models(home_).at(0);
  EXPECT_EQ(begun.state, InstalledModel::State::unfinished);
  EXPECT_EQ(begun.source, fs::canonical(options.source).string());
  EXPECT_EQ(begun.expert_format, "mxfp4");
  EXPECT_EQ(begun.trunk_format, "affine8");
  EXPECT_EQ(begun.layers, 4u);
}

// What is used in place is stale, not damaged, when its checkpoint is elsewhere or another one now.
TEST_F(ModelsTest, SaysWhereACheckpointWas) {
  const fs::path checkpoint = scratch_.path() / "released";
  fs::copy(WADER_SOURCE_DIR "/tests/data/tiny-gpt-oss", checkpoint);
  InstallOptions options;
  options.source = checkpoint;
  options.destination = home_ / "kept.wader";
  options.trunk = DType::bf16;
  options.in_place = true;
  const auto report = install(options, {});
  ASSERT_TRUE(report.ok()) << report.error().message;
  const auto only = [&] { return list_models(home_).at(0); };
  EXPECT_EQ(only().state, InstalledModel::State::complete);

  fs::rename(checkpoint, scratch_.path() / "moved");
  EXPECT_EQ(only().state, InstalledModel::State::stale);
  EXPECT_EQ(only().problem, "its checkpoint is not at " + fs::canonical(scratch_.path()).string() +
                                "/released any more: put it back, or use it where it is now and "
                                "`wader rm kept`");
  EXPECT_EQ(only().in_place, (fs::canonical(scratch_.path()) / "released").string());
  EXPECT_EQ(only().family, "gpt_oss");
  fs::rename(scratch_.path() / "moved", checkpoint);
  EXPECT_EQ(only().state, InstalledModel::State::complete);

  const fs::path file = checkpoint / "model.safetensors";
  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
  EXPECT_EQ(only().state, InstalledModel::State::stale);
  EXPECT_THAT(only().problem, HasSubstr("changed since its checksums were taken"));
  fs::remove(file);
  EXPECT_EQ(only().state, InstalledModel::State::stale);
  EXPECT_THAT(only().problem, HasSubstr("model.safetensors is not there any more"));
  // Damage of its own is damage.
  testing::flip_bit(home_ / "kept.wader" / "manifest.json", 40);
  EXPECT_EQ(only().state, InstalledModel::State::damaged);
}

TEST_F(ModelsTest, ResolvesNamesAndPaths) {
  install_tiny("tiny");
  EXPECT_EQ(*resolve_model("tiny"), home_ / "tiny.wader");
  EXPECT_EQ(*resolve_model("tiny.wader"), home_ / "tiny.wader");
  EXPECT_EQ(*resolve_model((home_ / "tiny.wader").string()), home_ / "tiny.wader");
  for (const char* bad : {"nothing", "", "./nothing", "../x", "a/b", "/dev/null", "a\nb", "\xff"}) {
    const auto result = resolve_model(bad);
    ASSERT_FALSE(result.ok()) << bad;
    EXPECT_EQ(result.error().code, ErrorCode::not_found);
    EXPECT_THAT(result.error().message, HasSubstr("tiny"));           // what is installed
    EXPECT_THAT(result.error().message, HasSubstr("wader install"));  // and how to install
  }
}

TEST_F(ModelsTest, NamesAreTame) {
  for (const char* good : {"demo", "gpt-oss-20b", "a.b_c+1"})
    EXPECT_TRUE(valid_model_name(good)) << good;
  for (const char* bad : {"", ".", "..", ".hidden", "-rf", "a/b", "a b", "a\n", "é"}) {
    EXPECT_FALSE(valid_model_name(bad)) << bad;
  }
  EXPECT_FALSE(valid_model_name(std::string(129, 'a')));
  EXPECT_EQ(model_name_from("/x/gpt-oss-20b"), "gpt-oss-20b");
  EXPECT_EQ(model_name_from("/x/gpt-oss-20b/"), "gpt-oss-20b");
  EXPECT_EQ(model_name_from("/x/my model"), "my-model");
  EXPECT_EQ(model_name_from("/x/tiny/model.safetensors"), "tiny");
  EXPECT_EQ(model_name_from("/x/.cache"), "cache");
  EXPECT_EQ(model_name_from("/"), "model");
}

TEST_F(ModelsTest, RemovesContainersOnly) {
  install_tiny("tiny");
  write(home_ / "tiny.wader" / "usage");  // what runs leave there
  write(home_ / "half.wader" / "experts" / "layer-000.bin");
  std::ofstream(home_ / "half.wader" / "install.json") << "{\"wader_install\":1";  // torn by a cut
  EXPECT_TRUE(remove_model(home_ / "tiny.wader").ok());
  {
    // While an install holds its journal, nobody deletes what it writes.
    const auto held = hold_unfinished(home_ / "half.wader");
    ASSERT_TRUE(held.ok() && held->is_open());
    EXPECT_EQ(remove_model(home_ / "half.wader").error().code, ErrorCode::already_exists);
  }
  EXPECT_TRUE(remove_model(home_ / "half.wader/").ok());
  EXPECT_TRUE(fs::is_empty(home_));
}

// Other programs have files of these names.
TEST_F(ModelsTest, RefusesToRemoveManifestsOfOthers) {
  for (const char* name : {"manifest.json", "install.json"}) {
    const fs::path directory = home_ / "app.wader";
    write(directory / "config.json");
    std::ofstream(directory / name) << "{\"name\": \"My app\"}";
    EXPECT_FALSE(remove_model(directory).ok()) << name;
    EXPECT_TRUE(fs::exists(directory / name));
    fs::remove_all(directory);
  }
}

TEST_F(ModelsTest, RefusesToRemoveAnythingElse) {
  const auto refused = [&](const fs::path& path, const char* why) {
    const Status status = remove_model(path);
    ASSERT_FALSE(status.ok()) << path;
    EXPECT_THAT(status.error().message, HasSubstr(why));
    EXPECT_TRUE(fs::exists(path)) << path;
  };
  write(home_ / "web" / "manifest.json");
  write(home_ / "web" / "index.html");
  refused(home_ / "web", "index.html");
  write(home_ / "photos" / "a.jpg");
  refused(home_ / "photos", "a.jpg");
  fs::create_directories(home_ / "empty");
  refused(home_ / "empty", "neither a container nor an unfinished install");
  write(home_ / "deep" / "manifest.json");
  write(home_ / "deep" / "experts" / "thesis.tex");
  refused(home_ / "deep", "thesis.tex");
  write(home_ / "link-inside" / "manifest.json");
  fs::create_directory_symlink(home_ / "photos", home_ / "link-inside" / "experts");
  refused(home_ / "link-inside", "experts");
  write(home_ / "real.wader" / "manifest.json");
  fs::create_directory_symlink(home_ / "real.wader", home_ / "link.wader");
  refused(home_ / "link.wader", "symbolic link");
  EXPECT_TRUE(fs::exists(home_ / "real.wader" / "manifest.json"));
}

}  // namespace
}  // namespace wader
