#include "range/range_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "io/file.h"
#include "range/range_testing.h"

namespace wader {
namespace {

using testing::HasSubstr;

constexpr uint64_t kModel = 0x0123456789abcdef;
const RangeShape kShape{{0, 3}, 20};

RangeMap a_map() {
  testing_range::Model model(5, 40, 3);  // as many as two layers of 20 have
  RangeMap map = build_range_map(kShape, {"a", "b", "中文", "\"quoted\"", "e"},
                                 model.count(model.texts(300)), model.count(model.texts(250)));
  map.model = kModel;
  map.by_chance.credited = 0.25;
  return map;
}

TEST(RangeFile, AMapAndItsFileAreEqual) {
  const RangeMap map = a_map();
  const std::string text = range_to_text(map);
  const auto back = parse_range(text, kModel, kShape, "x");
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, map);
  EXPECT_EQ(range_to_text(*back), text);
  const Json json = parse_json(text, "x").value();
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["model"], "0123456789abcdef");
  EXPECT_EQ(json["experts"].size(), 40u);
  EXPECT_EQ(json["experts"][21]["layer"], 3);
  EXPECT_EQ(json["experts"][21]["expert"], 1);
  EXPECT_EQ(json["credited"], tally(map).credited);
  EXPECT_GT(tally(map).credited, 10u);
  EXPECT_EQ(json["repeat_rate"], tally(map).repeat_rate().value());
}

TEST(RangeFile, WhatDoesNotFitIsRefusedByName) {
  const std::string text = range_to_text(a_map());
  const auto error = [&](std::string_view from, std::string_view to) {
    std::string changed = text;
    const size_t at = changed.find(from);
    EXPECT_NE(at, changed.npos) << from;
    changed.replace(at, from.size(), to);
    const auto map = parse_range(changed, kModel, kShape, "range.json");
    EXPECT_FALSE(map.ok()) << from << " → " << to;
    return map.ok() ? std::string() : map.error().message;
  };
  EXPECT_THAT(error("\"version\":1", "\"version\":2"), HasSubstr("version 2"));
  EXPECT_THAT(error("0123456789abcdef", "0123456789abcdee"), HasSubstr("another model"));
  EXPECT_THAT(error("\"topics\":[", "\"topics\":[\"more\","), HasSubstr("tokens"));
  EXPECT_THAT(error("\"topics\":[", "\"topics\":[7,"), HasSubstr("topics"));
  EXPECT_THAT(error("\"credited\":", "\"credited\":1"), HasSubstr("credited"));
  EXPECT_THAT(error("\"layer\": 3", "\"layer\": 2"), HasSubstr("layer 3"));
  EXPECT_THAT(error("\"topic\": 0", "\"topic\": 5"), HasSubstr("topic"));
  EXPECT_THAT(error("\"topic\": 0", "\"topic\": null"), HasSubstr("contradicts"));
  EXPECT_THAT(error("\"topic\": null, ", "\"topic\": 1, "), HasSubstr("contradicts"));
  EXPECT_THAT(error("\"position\": [", "\"position\": [9, "), HasSubstr("position"));
  EXPECT_THAT(error("\"position\": [", "\"position\": [\"x\", "), HasSubstr("position"));
  EXPECT_THAT(error("\"repeats\": true", "\"repeats\": 1"), HasSubstr("repeats"));
  EXPECT_THAT(error("\"variance_explained\":[", "\"variance_explained\":[-1,"),
              HasSubstr("variance_explained"));
  EXPECT_THAT(error("\"by_chance\":{\"credited\":", "\"by_chance\":{\"credited\":-"),
              HasSubstr("credited"));
  for (const char* bad : {"", "[]", "{}", "7", "null", "{\"version\":1}"})
    EXPECT_THAT(parse_range(bad, kModel, kShape, "range.json").error().message,
                HasSubstr("range.json"));
  for (size_t end = 0; end + 2 < text.size(); end += 97)
    EXPECT_FALSE(parse_range(std::string_view(text).substr(0, end), kModel, kShape, "x").ok());
  // A map of another shape: experts that are missing, or too many.
  EXPECT_THAT(parse_range(text, kModel, {{0, 3}, 21}, "x").error().message, HasSubstr("experts"));
  EXPECT_THAT(parse_range(text, kModel, {{0}, 20}, "x").error().message, HasSubstr("experts"));
  EXPECT_EQ(parse_range(text, kModel + 1, kShape, "x").error().code, ErrorCode::not_found);
}

TEST(RangeFile, TheFuzzersSeedIsAMap) {
  const std::string seed =
      read_text_file(WADER_SOURCE_DIR "/fuzz/corpus/range/map.json", 1u << 20).value();
  const auto map = parse_range(seed, kModel, {{0, 3}, 2}, "seed");
  ASSERT_TRUE(map.ok()) << map.error().message;
  EXPECT_EQ(tally(*map).repeated, 1u);
}

TEST(RangeFile, IsReadBesideTheModel) {
  std::string directory = (std::filesystem::temp_directory_path() / "wader-range-XXXXXX").string();
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  const auto none = read_range_text(directory, kModel, kShape);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::not_found);
  const RangeMap map = a_map();
  ASSERT_TRUE(
      write_file_atomically(std::filesystem::path(directory) / kRangeFile, range_to_text(map))
          .ok());
  EXPECT_EQ(read_range_text(directory, kModel, kShape).value(), range_to_text(map));
  EXPECT_EQ(read_range_text(directory, kModel + 1, kShape).error().code, ErrorCode::not_found);
  EXPECT_EQ(read_range_text(directory, kModel, {{0}, 20}).error().code, ErrorCode::corrupt);
  EXPECT_EQ(read_range_text(directory, kModel, {{0}, 1}).error().code, ErrorCode::corrupt);
  const std::filesystem::path file = std::filesystem::path(directory) / kRangeFile;
  EXPECT_TRUE(check_range_writable(file).ok());
  EXPECT_TRUE(check_range_writable(std::filesystem::path(directory) / "new.json").ok());
  EXPECT_EQ(check_range_writable(directory).error().code, ErrorCode::already_exists);
  const std::filesystem::path other = std::filesystem::path(directory) / "manifest.json";
  ASSERT_TRUE(write_file_atomically(other, R"({"format": "wader"})").ok());
  EXPECT_EQ(check_range_writable(other).error().code, ErrorCode::already_exists);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace wader
