#include "install/source_reader.h"

#include <gtest/gtest.h>

#include "install/install_testing.h"

namespace wader {
namespace {

class SourceReaderTest : public ::testing::Test {
 protected:
  // The file of `builder` as a plan that can be read from.
  InstallPlan plan_of(const testing::SourceBuilder& builder) {
    testing::write_bytes(scratch_.path() / "source.bin", builder.bytes());
    BoundCheckpoint::Parts parts;
    parts.spec = testing::small_spec();
    parts.tensors.experts.resize(2);
    parts.files.push_back(std::make_unique<File>(
        File::open(scratch_.path() / "source.bin", File::Mode::read).value()));
    InstallPlan plan;
    plan.checkpoint = std::make_unique<BoundCheckpoint>(std::move(parts));
    plan.stamps.resize(1);
    return plan;
  }

  testing::TempDirectory scratch_;
};

// Every row of any range, in each plane, against reads of that row alone.
TEST_F(SourceReaderTest, FindsEveryRow) {
  const std::vector<MatrixFormat> formats = {DType::bf16, DType::mxfp4, DType::affine4,
                                             MatrixFormat(DType::affine8, 32, DType::f16)};
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    testing::SourceBuilder builder(seed);
    const TensorSource a = builder.add(37, 128, formats, DType::f32);
    const TensorSource b = builder.add(1 + seed % 9, 64, formats, DType::f32);
    const InstallPlan plan = plan_of(builder);
    SourceReader reader(plan);
    std::vector<std::byte> staging(source_bytes(a) + source_bytes(b));
    for (uint64_t first = 0; first < a.rows; first += 5)
      for (uint64_t n = 1; first + n <= a.rows; n += 3) {
        std::vector<SourceRow> rows_a(n), rows_b(b.rows);
        const SourceReader::Request requests[] = {{&a, first, rows_a}, {&b, 0, rows_b}};
        reader.prefetch(requests);
        ASSERT_TRUE(reader.read(requests, staging).ok());
        for (const auto& [request, source] : {std::pair(requests[0], &a), {requests[1], &b}})
          for (const SourceRows& piece : source->pieces)
            for (uint64_t i = 0; i < piece.rows; ++i) {
              const uint64_t row = piece.to_row + i * piece.to_step;
              if (row < request.first_row || row >= request.first_row + request.rows.size())
                continue;
              const SourceRow& got = request.rows[row - request.first_row];
              ASSERT_EQ(got.piece, &piece);
              const auto expect_plane = [&](const SourcePlane& plane, uint64_t bytes,
                                            const std::byte* at) {
                const auto want = testing::read_plane(
                    *plan.checkpoint,
                    {plane.file, plane.offset_bytes + i * plane.stride_bytes, bytes}, 1, bytes);
                ASSERT_EQ(std::memcmp(at, want.data(), bytes), 0);
              };
              const RowBytes bytes = row_bytes(piece.format, source->cols).value();
              expect_plane(piece.codes, bytes.codes, got.codes);
              if (bytes.scales > 0)
                expect_plane(piece.scales, bytes.scales * (piece.paired_scales ? 2 : 1),
                             got.scales);
              if (bytes.biases > 0 && !piece.paired_scales)
                expect_plane(piece.biases, bytes.biases, got.biases);
            }
      }
  }
}

// gate and up rows of an expert in two tensors, one after the other in the file: a single read.
TEST_F(SourceReaderTest, ReadsWhatIsAdjacentAtOnce) {
  testing::SourceBuilder builder(1);
  builder.add(64, 64, {DType::bf16}, DType::bf16);
  const uint64_t row = 128;
  const auto run = [&](uint64_t first, uint64_t rows, uint64_t to, uint64_t step) {
    SourceRows piece;
    piece.format = DType::bf16;
    piece.codes = {0, first * row, row};
    piece.rows = rows, piece.to_row = to, piece.to_step = step;
    return piece;
  };
  const TensorSource down{16, 64, DType::bf16, {run(0, 16, 0, 1)}, 0};
  const TensorSource gate_up{32, 64, DType::bf16, {run(32, 16, 1, 2), run(16, 16, 0, 2)}, 0};
  const InstallPlan plan = plan_of(builder);
  SourceReader reader(plan);
  std::vector<SourceRow> rows(48);
  std::vector<std::byte> staging(48 * row);
  const auto all = std::span(rows);
  const SourceReader::Request requests[] = {{&gate_up, 0, all.first(32)}, {&down, 0, all.last(16)}};
  ASSERT_TRUE(reader.read(requests, staging).ok());
  EXPECT_EQ(reader.reads(), 1u);
  EXPECT_EQ(reader.bytes_read(), 48 * row);
  EXPECT_EQ(std::memcmp(staging.data(), builder.bytes().data(), 48 * row), 0);
  EXPECT_EQ(rows[3].codes, staging.data() + (32 + 1) * row);
  // Part of them: two runs that are apart.
  const SourceReader::Request some[] = {{&gate_up, 4, all.first(4)}};
  ASSERT_TRUE(reader.read(some, staging).ok());
  EXPECT_EQ(reader.reads(), 3u);
}

TEST_F(SourceReaderTest, NamesAFileThatEnds) {
  testing::SourceBuilder builder(2);
  const TensorSource source = builder.add(8, 64, {DType::f32}, DType::f32);
  const InstallPlan plan = plan_of(builder);
  std::filesystem::resize_file(scratch_.path() / "source.bin", 100);
  SourceReader reader(plan);
  std::vector<SourceRow> rows(8);
  std::vector<std::byte> staging(source_bytes(source));
  const SourceReader::Request request{&source, 0, rows};
  const Status read = reader.read({&request, 1}, staging);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::corrupt);
  EXPECT_NE(read.error().message.find("source.bin"), std::string::npos);
}

}  // namespace
}  // namespace wader
