// Repacker: moves weights from a checkpoint into a container. Reads and writes are in order and in
// one thread; several store rows of what was read. Memory, whatever the model's size: the bytes of
// one expert in the source and in the container, or of a batch of trunk rows, and a few rows a
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "container/progress_meter.h"
#include "container/writer.h"
#include "install/plan.h"
#include "install/row_store.h"
#include "install/source_reader.h"
#include "io/aligned_buffer.h"

namespace wader {

class Repacker {
 public:
  // `plan` outlives the repacker. Takes all the memory that repacking needs; over_budget when there
  // is none.
  static Result<Repacker> create(const InstallPlan& plan, int threads);

  // Each begins, fills and finishes its file. corrupt for a NaN or infinity among values, scales or
  // biases and for the E8M0 scale byte 255, which is NaN: every one named by tensor, layer and
  // expert.
  // The trunk: the tensors up to the `end`-th in the plan's order; the last of them end the file.
  Status repack_trunk(ContainerWriter& writer, size_t end, ProgressMeter& meter);
  Status repack_layer(ContainerWriter& writer, uint32_t layer, ProgressMeter& meter);

  // One expert's record, valid until the next call; and the rows of one trunk tensor, batch after
  // batch.
  Result<std::span<const std::byte>> make_expert(uint32_t layer, uint32_t expert);
  using TakeRows =
      std::function<Status(uint64_t first_row, const ContainerWriter::TrunkRows& rows)>;
  Status make_tensor(size_t index, uint64_t first_row, RowLoss& loss, const TakeRows& take);

  uint64_t source_bytes_read() const { return reader_.bytes_read(); }

 private:
  // Rows of one tensor, read and to be stored.
  struct Batch {
    std::span<const SourceRow> rows;
    uint32_t cols;
    uint64_t first_row;  // of the tensor
    float add;
    MatrixFormat target;
    RowPlanes out;  // of all rows
    RowBytes row() const { return row_bytes(target, cols).value(); }
  };
  // What becomes of a matrix: {"source", "stored", "snr_db"}.
  struct MatrixFacts {
    MatrixFormat source, stored;
    RowLoss loss;
    Json to_json() const;
  };
  struct ThreadState {
    RowScratch scratch;
    RowFault fault;
    uint64_t fault_row;
  };

  explicit Repacker(const InstallPlan& plan) : plan_(&plan), reader_(plan) {}

  // From `first_row` on.
  Status repack_tensor(ContainerWriter& writer, size_t index, uint64_t first_row,
                       ProgressMeter& meter, RowLoss& loss);
  Status keep_trunk(ContainerWriter& writer, const RowLoss& loss, bool always);
  // `next`: the expert after it, which the kernel may begin to read.
  Status repack_expert(uint32_t layer, uint32_t expert, std::optional<uint32_t> next,
                       std::array<MatrixFacts, 2>& facts);
  // Bytes of an expert's part in record_.
  RowPlanes part_planes(const InstallPlan::ExpertPart& part);
  // Threads take slices of the rows; sums and faults are those of one thread. `what`: "trunk tensor
  // head".
  Status store(const Batch& batch, const std::string& what, RowLoss& loss);

  const InstallPlan* plan_;
  SourceReader reader_;
  std::unique_ptr<ThreadPool> pool_;
  AlignedBuffer staging_;  // what was read
  AlignedBuffer record_;   // one expert; its padding is zeroed once and never written
  AlignedBuffer written_;  // the one before it
  AlignedBuffer batch_;    // of trunk rows as the container stores them
  std::vector<SourceRow> rows_;
  std::vector<RowLoss> losses_;  // a row each
  std::vector<ThreadState> threads_;
  // What progress calls it: the trunk's tensors between layers are not a phase of their own.
  std::string_view phase_ = "trunk";
  // Of the trunk: what its report has so far, of which matrices the journal has it, and how many
  // tensors are done.
  Json matrices_ = Json::object();
  std::set<std::string> noted_;
  std::optional<size_t> tensors_done_;
};

}  // namespace wader
