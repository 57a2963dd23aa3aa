#include "checkpoint/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "base/units.h"
#include "checkpoint/checkpoint_testing.h"
#include "io/file.h"

namespace wader {
namespace {

using ::testing::HasSubstr;
using testing::safetensors_file;
using testing::TempDirectory;
using testing::u64_le;

// Header text with `data_bytes` bytes of data behind it.
auto parse(std::string_view header, uint64_t data_bytes) {
  return parse_safetensors_header(header, 8 + header.size() + data_bytes);
}

Result<uint64_t> header_bytes(uint64_t stated, uint64_t file_bytes) {
  std::array<std::byte, 8> prefix;
  std::memcpy(prefix.data(), u64_le(stated).data(), 8);
  return safetensors_header_bytes(prefix, file_bytes);
}

TEST(Safetensors, ReadsTensorsInFileOrder) {
  const std::string header =
      R"({"__metadata__": {"format": "pt"},
          "b": {"dtype": "F32", "shape": [2, 3], "data_offsets": [4, 28]},
          "a": {"data_offsets": [0, 4], "dtype": "BF16", "shape": [2]},
          "none": {"dtype": "I64", "shape": [0, 5], "data_offsets": [28, 28]},
          "one": {"dtype": "F8_E8M0", "shape": [], "data_offsets": [28, 29]}}   )";
  const auto tensors = parse(header, 29);
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 4u);
  const uint64_t data = 8 + header.size();
  const auto& [name, format_dtype, dtype, shape, offset, bytes] = (*tensors)[1];
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ(name, "b");
  EXPECT_EQ(format_dtype, "F32");
  EXPECT_EQ(dtype, DType::f32);
  EXPECT_EQ(shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(offset, data + 4);
  EXPECT_EQ(bytes, 24u);
  EXPECT_EQ((*tensors)[2].name, "none");
  EXPECT_EQ((*tensors)[3].dtype, DType::u8);
}

TEST(Safetensors, KnowsTheSizesOfAllDTypes) {
  const std::pair<const char*, int> sizes[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
      {"F32", 4},  {"F64", 8}, {"I64", 8}, {"U64", 8}};
  for (const auto& [dtype, bytes] : sizes) {
    const std::string header = fmt::format(
        R"({{"t": {{"dtype": "{}", "shape": [3], "data_offsets": [0, {}]}}}})", dtype, 3 * bytes);
    EXPECT_TRUE(parse(header, static_cast<uint64_t>(3 * bytes)).ok()) << dtype;
    EXPECT_FALSE(parse(header, static_cast<uint64_t>(3 * bytes + 1)).ok()) << dtype;
  }
  EXPECT_FALSE(parse(R"({"t": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}})", 8)
                   .value()[0]
                   .dtype.has_value());
}

TEST(Safetensors, HeaderLengthIsCheckedAgainstTheFile) {
  EXPECT_EQ(header_bytes(92, 100).value(), 92u);
  for (const uint64_t stated : {uint64_t{0}, uint64_t{1}, uint64_t{93}, uint64_t{100},
                                uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 7})
    EXPECT_EQ(header_bytes(stated, 100).error().code, ErrorCode::corrupt) << stated;
  EXPECT_TRUE(header_bytes(100'000'000, 1ull << 40).ok());
  EXPECT_THAT(header_bytes(100'000'001, 1ull << 40).error().message, HasSubstr("limit"));
}

// Each with the words that must name what is wrong.
struct Malformed {
  const char* header;
  uint64_t data_bytes;
  const char* says;
};

TEST(Safetensors, RefusesEveryMalformedHeader) {
  const Malformed cases[] = {
      {"", 0, "start with '{'"},
      {"[]", 0, "start with '{'"},
      {" {}", 0, "start with '{'"},
      {"{\"a\":", 0, "not valid JSON"},
      {"{} x", 0, "not valid JSON"},
      {"{\"\xff\": {}}", 0, "not valid JSON"},
      {R"({"a": 5})", 0, "'a' is not an object"},
      {R"({"a": [1]})", 0, "'a' is not an object"},
      {R"({"a": {"b": {}}})", 0, "unknown key 'b'"},
      {R"({"a": {}})", 0, "no dtype"},
      {R"({"a": {"dtype": "U8", "shape": [1]}})", 1, "no data_offsets"},
      {R"({"a": {"dtype": "U8", "data_offsets": [0, 1]}})", 1, "no shape"},
      {R"({"a": {"dtype": 5, "shape": [1], "data_offsets": [0, 1]}})", 1,
       "dtype has the wrong type"},
      {R"({"a": {"dtype": "F7", "shape": [1], "data_offsets": [0, 1]}})", 1, "unknown dtype 'F7'"},
      {R"({"a": {"dtype": "U8", "shape": 1, "data_offsets": [0, 1]}})", 1,
       "shape has the wrong type"},
      {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": {"0": 1}}})", 1,
       "data_offsets has the wrong"},
      {R"({"a": {"dtype": "U8", "shape": [-1], "data_offsets": [0, 1]}})", 1, "shape must be"},
      {R"({"a": {"dtype": "U8", "shape": [1.0], "data_offsets": [0, 1]}})", 1, "shape must be"},
      {R"({"a": {"dtype": "U8", "shape": ["1"], "data_offsets": [0, 1]}})", 1, "shape must be"},
      {R"({"a": {"dtype": "U8", "shape": [[1]], "data_offsets": [0, 1]}})", 1, "shape must be"},
      {R"({"a": {"dtype": "U8", "shape": [1,1,1,1,1,1,1,1,1], "data_offsets": [0, 1]}})", 1,
       "shape must be"},
      {R"({"a": {"dtype": "U8", "shape": [18446744073709551616], "data_offsets": [0, 1]}})", 1,
       "shape must be"},
      {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [-1, 0]}})", 1,
       "data_offsets must be"},
      {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1e0]}})", 1,
       "data_offsets must be"},
      {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, null]}})", 1,
       "data_offsets must be"},
      {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [1]}})", 1, "data_offsets must be"},
      {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1, 2]}})", 1,
       "data_offsets must be"},
      {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 0]}})", 1,
       "begins after its end"},
      {R"({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}})", 1,
       "past the end of the file"},
      {R"({"a": {"dtype": "U8", "shape": [1],
           "data_offsets": [18446744073709551614, 18446744073709551615]}})",
       1, "past the end of the file"},
      {R"({"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 3]}})", 3, "takes 4 bytes"},
      {R"({"a": {"dtype": "U8", "shape": [4294967296, 4294967297], "data_offsets": [0, 1]}})", 1,
       "more than 2^64"},
      // Wraps to 0 when multiplied in 64 bits.
      {R"({"a": {"dtype": "U8", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]}})", 0,
       "more than 2^64"},
      {R"({"a": {"dtype": "F64", "shape": [2305843009213693952], "data_offsets": [0, 0]}})", 0,
       "more than 2^64"},
      {R"({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
           "b": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]}})",
       3, "'a' and 'b' overlap"},
      {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
           "b": {"dtype": "U8", "shape": [1], "data_offsets": [2, 3]}})",
       3, "1 bytes before tensor 'b'"},
      {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}})", 2,
       "1 bytes before tensor 'a'"},
      {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})", 2,
       "1 bytes after the last"},
      {"{}", 4, "4 bytes after the last"},
      {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
           "a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}})",
       2, "'a' occurs twice"},
      {R"({"a": {"dtype": "U8", "dtype": "I8", "shape": [1], "data_offsets": [0, 1]}})", 1,
       "dtype twice"},
      {R"({"a": {"dtype": "U8", "shape": [1], "shape": [1], "data_offsets": [0, 1]}})", 1,
       "shape twice"},
      {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1], "data_offsets": [0, 1]}})", 1,
       "data_offsets twice"},
      {R"({"__metadata__": {"a": 1}})", 0, "strings to strings"},
      {R"({"__metadata__": {"a": {}}})", 0, "strings to strings"},
      {R"({"__metadata__": [])", 0, "is not an object"},
      {R"({"__metadata__": {"a": "1", "a": "2"}})", 0, "'a' twice"},
      {R"({"__metadata__": {}, "__metadata__": {}})", 0, "__metadata__ occurs twice"},
  };
  for (const auto& [header, data_bytes, says] : cases) {
    const auto tensors = parse(header, data_bytes);
    ASSERT_FALSE(tensors.ok()) << header;
    EXPECT_THAT(tensors.error().message, HasSubstr(says)) << header;
  }
}

TEST(Safetensors, HostileNamesAreMadePrintable) {
  const std::string header = R"({")" + std::string(5000, 'x') + R"(\u001b[31m": 1})";
  const std::string message = parse(header, 0).error().message;
  EXPECT_LT(message.size(), 150u);
  const std::string escape = parse(R"({"\u001b[31m\n": 1})", 0).error().message;
  EXPECT_THAT(escape, HasSubstr(R"('\u001b[31m\n')"));
}

TEST(Safetensors, DeepNestingEndsEarly) {
  EXPECT_FALSE(parse(R"({"a": )" + std::string(1'000'000, '['), 0).ok());
  EXPECT_FALSE(parse(std::string(1'000'000, '{'), 0).ok());
}

// A model with an expert a tensor has tens of thousands in one header. Anything quadratic in their
// number would be at it for a minute.
TEST(Safetensors, ManyTensors) {
  constexpr uint64_t kCount = 100'000;
  std::string header = "{";
  for (uint64_t i = 0; i < kCount; ++i) {
    const uint64_t place = (i * 7919) % kCount;  // not in the order of their bytes
    header +=
        fmt::format(R"({}"model.layers.{}.mlp.experts.{}.w": {{"dtype": "BF16", "shape": [2, 1],
        "data_offsets": [{}, {}]}})",
                    i == 0 ? "" : ",", place / 512, place, place * 4, place * 4 + 4);
  }
  header += "}";
  const auto tensors = parse(header, kCount * 4);
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  ASSERT_EQ(tensors->size(), kCount);
  for (uint64_t i = 1; i < kCount; ++i)
    ASSERT_EQ((*tensors)[i].offset_bytes, (*tensors)[i - 1].offset_bytes + 4);
}

TEST(SafetensorsFile, ReadsOnlyTheHeader) {
  TempDirectory directory;
  const std::string header =
      R"({"a": {"dtype": "U8", "shape": [1099511627776], "data_offsets": [0, 1099511627776]}})";
  directory.write("a.safetensors", safetensors_file(header, ""));
  // A terabyte of hole: reading it would take minutes, mapping it into memory fail.
  std::filesystem::resize_file(directory.path() / "a.safetensors",
                               8 + header.size() + (1ull << 40));
  const auto file = File::open(directory.path() / "a.safetensors", File::Mode::read);
  const auto tensors = read_safetensors_header(*file);
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  EXPECT_EQ((*tensors)[0].bytes, 1ull << 40);
}

TEST(SafetensorsFile, RefusesWrongLengthsByName) {
  TempDirectory directory;
  const std::string good = R"({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}})";
  const std::string files[] = {"",
                               "1234567",
                               u64_le(0),
                               u64_le(7) + "{\"a\":{}",
                               u64_le(good.size() + 3) + good + "ab",
                               u64_le(1ull << 63) + good + "ab",
                               u64_le(~0ull) + good + "ab",
                               u64_le(~0ull - 7) + good + "ab",
                               u64_le(100'000'001) + good + "ab",
                               safetensors_file(good, "a"),
                               safetensors_file(good, "abc")};
  for (const std::string& bytes : files) {
    directory.write("x.safetensors", bytes);
    const auto file = File::open(directory.path() / "x.safetensors", File::Mode::read);
    const auto tensors = read_safetensors_header(*file);
    ASSERT_FALSE(tensors.ok()) << bytes;
    EXPECT_EQ(tensors.error().code, ErrorCode::corrupt);
    EXPECT_THAT(tensors.error().message, HasSubstr("x.safetensors: "));
  }
  directory.write("x.safetensors", safetensors_file(good, "ab"));
  EXPECT_TRUE(
      read_safetensors_header(*File::open(directory.path() / "x.safetensors", File::Mode::read))
          .ok());
}

}  // namespace
}  // namespace wader
