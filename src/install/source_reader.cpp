#include "install/source_reader.h"

#include <algorithm>
#include <utility>

#include "base/units.h"

namespace wader {
namespace {

// Of one row in the files: paired scales and biases are one plane.
RowBytes stored_row_bytes(const SourceRows& piece, uint64_t cols) {
  RowBytes bytes = row_bytes(piece.format, cols).value();
  if (piece.paired_scales) bytes.scales += std::exchange(bytes.biases, 0);
  return bytes;
}

// How many of the rows to_row, to_row + to_step, … of a piece are before canonical row `row`.
uint64_t rows_before(const SourceRows& piece, uint64_t row) {
  if (row <= piece.to_row) return 0;
  return std::min(piece.rows, (row - piece.to_row + piece.to_step - 1) / piece.to_step);
}

}  // namespace

void SourceReader::add_plane(const Request& request, const SourceRows& piece,
                             const SourcePlane& plane, uint64_t row_bytes,
                             const std::byte* SourceRow::*member, uint64_t begin, uint64_t end) {
  if (row_bytes == 0) return;
  const uint64_t together = plane.stride_bytes == row_bytes ? end - begin : 1;
  for (uint64_t first = begin; first < end; first += together)
    extents_.push_back({plane.file, plane.offset_bytes + first * plane.stride_bytes, row_bytes,
                        together, &request, &piece, first, member});
}

void SourceReader::collect(std::span<const Request> requests) {
  extents_.clear();
  for (const Request& request : requests)
    for (const SourceRows& piece : request.source->pieces) {
      const uint64_t begin = rows_before(piece, request.first_row);
      const uint64_t end = rows_before(piece, request.first_row + request.rows.size());
      if (begin == end) continue;
      const RowBytes bytes = stored_row_bytes(piece, request.source->cols);
      add_plane(request, piece, piece.codes, bytes.codes, &SourceRow::codes, begin, end);
      add_plane(request, piece, piece.scales, bytes.scales, &SourceRow::scales, begin, end);
      add_plane(request, piece, piece.biases, bytes.biases, &SourceRow::biases, begin, end);
    }
  std::sort(extents_.begin(), extents_.end(), [](const Extent& a, const Extent& b) {
    return a.file != b.file ? a.file < b.file : a.offset_bytes < b.offset_bytes;
  });
}

size_t SourceReader::end_of_run(size_t first) const {
  size_t i = first + 1;
  while (i < extents_.size() && extents_[i].file == extents_[first].file &&
         extents_[i].offset_bytes == extents_[i - 1].offset_bytes + extents_[i - 1].bytes())
    ++i;
  return i;
}

std::vector<SourceRange> SourceReader::ranges(std::span<const Request> requests) {
  collect(requests);
  std::vector<SourceRange> out;
  for (size_t i = 0; i < extents_.size();) {
    const size_t end = end_of_run(i);
    const Extent& last = extents_[end - 1];
    out.push_back({extents_[i].file, extents_[i].offset_bytes,
                   last.offset_bytes + last.bytes() - extents_[i].offset_bytes});
    i = end;
  }
  return out;
}

Status SourceReader::read(std::span<const Request> requests, std::span<std::byte> staging) {
  for (const Request& request : requests)
    std::fill(request.rows.begin(), request.rows.end(), SourceRow());
  collect(requests);
  uint64_t at = 0;
  for (size_t i = 0; i < extents_.size();) {
    const uint64_t begin = extents_[i].offset_bytes, place = at;
    const uint32_t file = extents_[i].file;
    for (const size_t end = end_of_run(i); i < end; ++i) {
      const Extent& e = extents_[i];
      CHECK(at + e.bytes() <= staging.size());
      for (uint64_t r = 0; r < e.rows; ++r) {
        const uint64_t row = e.piece->to_row + (e.first + r) * e.piece->to_step;
        SourceRow& out = e.request->rows[row - e.request->first_row];
        out.piece = e.piece;
        out.*e.plane = staging.data() + at + r * e.row_bytes;
      }
      at += e.bytes();
    }
    RETURN_IF_ERROR(plan_->read_source(file, begin, staging.subspan(place, at - place)));
    bytes_read_ += at - place;
    ++reads_;
  }
  for (const Request& request : requests)
    for (const SourceRow& row : request.rows) CHECK(row.piece != nullptr);
  return {};
}

void SourceReader::prefetch(std::span<const Request> requests) {
  collect(requests);
  for (const Extent& e : extents_)
    plan_->checkpoint->files()[e.file]->will_read(e.offset_bytes, e.bytes());
}

uint64_t longest_row_bytes(const TensorSource& source) {
  uint64_t longest = 0;
  for (const SourceRows& piece : source.pieces)
    longest = std::max(longest, stored_row_bytes(piece, source.cols).total());
  return longest;
}

uint64_t source_bytes(const TensorSource& source) {
  uint64_t bytes = 0;
  for (const SourceRows& piece : source.pieces)
    bytes += piece.rows * stored_row_bytes(piece, source.cols).total();
  return bytes;
}

}  // namespace wader
