// Experts in place: a checkpoint that is damaged, lies or changes, before or while it is used, and
// a source.json that leads elsewhere, are named.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "in_place_fixture.h"
#include "install/repair.h"

namespace wader::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What an open engine's files go through: it says what is wrong, or has the bytes that it had.
TEST(InPlace, WhatBecomesOfACheckpointInUseIsNamed) {
  struct Case {
    const char* message;  // nothing: the answer is as ever
    std::function<void(const fs::path&)> change;
  };
  const std::vector<Case> cases = {
      {"model.safetensors", [](const fs::path& file) { fs::resize_file(file, 100'000); }},
      {"get that file again",
       [](const fs::path& file) {  // overwritten where it is, as rsync --inplace does
         std::fstream(file, std::ios::in | std::ios::out)
             .write(std::string(900'000, 'x').data(), 900'000);
       }},
      {nullptr,
       [](const fs::path& file) {  // replaced: an open file stays what it was
         std::ofstream(file.string() + ".part") << "another model";
         fs::rename(file.string() + ".part", file);
       }},
      {nullptr, [](const fs::path& file) { fs::remove(file); }},
  };
  const Output expected = output_of(*open_engine(tiny_container(), options_with(64)));
  for (const Case& c : cases)
    for (const char* direct : {"auto", "off"}) {
      const Own own = own_copy("used");
      EngineOptions options = options_with(6);
      options.direct = direct;
      const auto engine = open_engine(own.container, options);
      c.change(own.checkpoint / "model.safetensors");
      if (c.message == nullptr) {
        EXPECT_EQ(output_of(*engine), expected);
        continue;
      }
      const auto answer = open_session(*engine)->generate(random_tokens(100, 1024, 1), {});
      ASSERT_FALSE(answer.ok());
      EXPECT_THAT(answer.error().message, HasSubstr(c.message));
      EXPECT_THAT(answer.error().message, HasSubstr("layer "));
      EXPECT_THAT(refusal(own.container), HasSubstr("changed since"));
    }
}

TEST(InPlace, AHeaderThatLiesIsRefused) {
  const fs::path checkpoint = scratch_directory() / "lies";
  const std::string name = "model.layers.1.mlp.experts.gate_up_proj_blocks";
  const std::map<std::string, std::function<void(Json&)>> lies = {
      {"outside", [&](Json& header) { header[name]["data_offsets"][1] = uint64_t{1} << 40; }},
      {"size", [&](Json& header) { header[name]["shape"][0] = 8; }},
      {"range",
       [&](Json& header) {
         header[name]["data_offsets"] = {9, 4};
       }},
  };
  for (const auto& [what, lie] : lies) {
    fs::remove_all(checkpoint);
    fs::copy(kTiny, checkpoint);
    Safetensors file = read_safetensors(kTiny / "model.safetensors");
    ASSERT_TRUE(file.header.contains(name));
    lie(file.header);
    write_safetensors(checkpoint / "model.safetensors", file);
    const auto report = make_in_place(checkpoint, scratch_directory() / "lies.wader");
    ASSERT_FALSE(report.ok()) << what;
    EXPECT_EQ(report.error().code, ErrorCode::corrupt) << what;
    EXPECT_THAT(report.error().message, HasSubstr("model.safetensors"));
    EXPECT_THAT(report.error().message, HasSubstr(name));
    EXPECT_FALSE(fs::exists(scratch_directory() / "lies.wader"));
  }
}

TEST(InPlace, OthersBytesAreNotOursToMend) {
  InstallOptions options;
  options.source = kTiny;
  options.destination = in_place(kTiny);
  const auto report = repair(options, {});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, ErrorCode::unsupported);
  EXPECT_THAT(report.error().message, HasSubstr("not ours to mend"));
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
  EXPECT_THAT(refusal(own.container), HasSubstr("model.safetensors is not there any more"));
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
}  // namespace wader::testing
