#include "checkpoint/safetensors_writer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "checkpoint/safetensors.h"
#include "io/io_testing.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

class SafetensorsWriterTest : public ::testing::Test {
 protected:
  const testing::TempDirectory scratch_;
  const fs::path& directory_ = scratch_.path();
};

TEST_F(SafetensorsWriterTest, WhatIsWrittenInPiecesReadsBack) {
  const fs::path path = directory_ / "out.safetensors";
  auto writer = SafetensorsWriter::create(
      path,
      {{"logits", DType::f32, {3, 2}}, {"ids", DType::i32, {2}}, {"none", DType::u8, {0, 7}}});
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  const std::vector<int32_t> ids = {7, -1};
  const std::vector<float> row = {1.5f, -2.5f};
  ASSERT_TRUE(writer->write("ids", 0, std::as_bytes(std::span(ids))).ok());
  ASSERT_TRUE(writer->write("logits", 16, std::as_bytes(std::span(row))).ok());
  EXPECT_FALSE(fs::exists(path));  // not before it is finished
  ASSERT_TRUE(writer->finish().ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);

  const File file = File::open(path, File::Mode::read).value();
  const auto tensors = read_safetensors_header(file);
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  size_t found = 0;
  for (const SafetensorsTensor& tensor : *tensors) {
    if (tensor.name == "logits") {
      ++found;
      EXPECT_EQ(tensor.dtype, DType::f32);
      EXPECT_EQ(tensor.shape, (std::vector<uint64_t>{3, 2}));
      EXPECT_EQ(tensor.offset_bytes % 8, 0u);
      std::vector<float> values(6);
      ASSERT_TRUE(
          file.read_at(tensor.offset_bytes, std::as_writable_bytes(std::span(values))).ok());
      EXPECT_EQ(values, (std::vector<float>{0, 0, 0, 0, 1.5f, -2.5f}));
    } else if (tensor.name == "ids") {
      ++found;
      std::vector<int32_t> values(2);
      ASSERT_TRUE(
          file.read_at(tensor.offset_bytes, std::as_writable_bytes(std::span(values))).ok());
      EXPECT_EQ(values, ids);
    }
  }
  EXPECT_EQ(found, 2u);
  EXPECT_EQ(tensors->size(), 3u);
}

TEST_F(SafetensorsWriterTest, UnfinishedLeavesNothing) {
  const fs::path path = directory_ / "out.safetensors";
  { auto writer = SafetensorsWriter::create(path, {{"x", DType::f32, {4}}}); }
  EXPECT_TRUE(fs::is_empty(directory_));
}

// Renaming over a device node, a pipe or a link would replace it.
TEST_F(SafetensorsWriterTest, OnlyRegularFilesAreReplaced) {
  const fs::path fifo = directory_ / "fifo", link = directory_ / "link", file = directory_ / "file";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  fs::create_symlink("elsewhere", link);
  ASSERT_TRUE(write_file_atomically(file, "old").ok());
  for (const fs::path& taken : {fifo, link, directory_}) {
    const auto writer = SafetensorsWriter::create(taken, {{"x", DType::f32, {1}}});
    ASSERT_FALSE(writer.ok());
    EXPECT_NE(writer.error().message.find("not a regular file"), std::string::npos);
  }
  EXPECT_TRUE(fs::is_fifo(fifo) && fs::is_symlink(link));
  auto writer = SafetensorsWriter::create(file, {{"x", DType::f32, {1}}});
  ASSERT_TRUE(writer.ok() && writer->finish().ok());
  EXPECT_GT(fs::file_size(file), 8u);
}

TEST_F(SafetensorsWriterTest, RefusesWhatCannotBe) {
  const auto huge =
      SafetensorsWriter::create(directory_ / "x", {{"x", DType::f32, {1u << 31, 1u << 31}}});
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.error().code, ErrorCode::over_budget);
  EXPECT_FALSE(SafetensorsWriter::create(directory_ / "no" / "x", {{"x", DType::f32, {1}}}).ok());
  EXPECT_TRUE(fs::is_empty(directory_));
}

}  // namespace
}  // namespace wader
