// SourceReader: rows of tensors, wherever their pieces stand in a checkpoint's files, with as few
// reads as can be.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "install/fetch_plan.h"
#include "install/plan.h"
#include "install/row_store.h"

namespace wader {

class SourceReader {
 public:
  // Canonical rows [first_row, first_row + rows.size()) of a tensor.
  struct Request {
    const TensorSource* source;
    uint64_t first_row;
    std::span<SourceRow> rows;  // filled; points into the staging memory
  };

  explicit SourceReader(const InstallPlan& plan) : plan_(&plan) {}

  // All requests together, in the order of the files, what is adjacent there in one read. `staging`
  // has source_bytes() for each of them.
  Status read(std::span<const Request> requests, std::span<std::byte> staging);

  // The reads that read() makes, in its order.
  std::vector<SourceRange> ranges(std::span<const Request> requests);

  // Asks the kernel to start reading: a later read() of the same finds them in memory.
  void prefetch(std::span<const Request> requests);

  uint64_t bytes_read() const { return bytes_read_; }
  uint64_t reads() const { return reads_; }

 private:
  // Rows that stand one behind the other in one plane of a piece.
  struct Extent {
    uint32_t file;
    uint64_t offset_bytes, row_bytes, rows;
    const Request* request;
    const SourceRows* piece;
    uint64_t first;  // of these rows, in the piece
    const std::byte* SourceRow::*plane;
    uint64_t bytes() const { return row_bytes * rows; }
  };

  // The run of extents from `first` on that is one read; returns its end.
  size_t end_of_run(size_t first) const;
  void collect(std::span<const Request> requests);
  void add_plane(const Request& request, const SourceRows& piece, const SourcePlane& plane,
                 uint64_t row_bytes, const std::byte* SourceRow::*member, uint64_t begin,
                 uint64_t end);

  const InstallPlan* plan_;
  std::vector<Extent> extents_;  // of the last collect(), by file and offset
  uint64_t bytes_read_ = 0, reads_ = 0;
};

// Bytes that the longest row of any piece has in the files, and that all rows have.
uint64_t longest_row_bytes(const TensorSource& source);
uint64_t source_bytes(const TensorSource& source);

}  // namespace wader
