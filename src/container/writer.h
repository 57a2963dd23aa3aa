// ContainerWriter: builds a container's directory in any number of runs. The directory keeps its
// journal, and is no container, until finish() has everything on the disk. One thread. What it
// holds in memory are the digests; a failed call leaves the files as they are, for a later run to
// continue.
#pragma once

#include <cstdint>
#include <filesystem>
#include <future>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "container/container.h"
#include "container/journal.h"

namespace wader {

struct ContainerPlan {
  // Complete but for the digests of files, and the report. `trunk` comes from place_trunk, `files`
  // holds weight_files and the small files with their sizes (container/manifest.h).
  Manifest manifest;
  // In which order parts are written, of which the container's bytes do not depend: tensors, and
  // the experts of a layer. Empty, or a layer that is not there: in their own order.
  std::vector<uint32_t> trunk_order = {};
  std::map<uint32_t, std::vector<uint32_t>> expert_order = {};
  // Names of further files that the install may write and removes before it ends.
  std::vector<std::string> scratch_files = {};
  // Identifies source and options: an unfinished directory with another origin is started over.
  Json origin;
  // The experts stay where this says: their records are digested and not written.
  std::optional<InPlaceSource> in_place = {};
};

class ContainerWriter {
 public:
  // Creates the directory and its parents, or continues. Refuses, and leaves alone, a finished
  // container, a directory that is not ours and one that another process is writing to
  // (already_exists).
  static Result<ContainerWriter> open(const std::filesystem::path& directory, ContainerPlan plan);

  const Manifest& manifest() const { return plan_.manifest; }
  bool resumed() const { return journal_.resumed(); }
  bool started_over() const { return journal_.started_over(); }
  bool trunk_finished() const { return finished(std::string(kTrunkName)); }
  bool layer_finished(uint32_t layer) const { return finished(expert_file_name(layer)); }
  uint64_t finished_bytes() const;  // of the finished ones of these files

  // The trunk, tensor after tensor in the plan's order, each in batches of whole rows: every plane
  // that the format has (row_bytes), of the same rows. Codes are the values of plain formats.
  struct TrunkRows {
    std::span<const std::byte> codes, scales = {}, biases = {};
    size_t bytes() const { return codes.size() + scales.size() + biases.size(); }
  };
  // A file that an earlier run left unfinished goes on after trunk_start(), in the middle of a
  // tensor too.
  struct TrunkStart {
    size_t tensors = 0;            // finished
    uint64_t rows = 0;             // of the next one
    std::vector<Json> notes = {};  // of every keep(), in order
  };
  const TrunkStart& trunk_start() const { return trunk_start_; }
  Status begin_trunk();  // or goes on after pause_trunk()
  // Lets go of the trunk between two tensors, after keep(), for layers to be written meanwhile.
  void pause_trunk();
  Status append_trunk(const TrunkRows& rows);
  // `report`: facts for the manifest's report, kept in the journal in case this run is not the
  // last.
  Status finish_trunk(Json report);
  const Json& trunk_report() const;

  // A moe layer's experts in the plan's order, each a whole record of stride_bytes. Reports as the
  // trunk's. … and a layer's after layer_start().
  struct LayerStart {
    uint32_t experts = 0;  // finished
    Json note = {};        // of the last keep()
  };
  LayerStart layer_start(uint32_t layer) const;
  Status begin_layer(uint32_t layer);
  Status append_expert(std::span<const std::byte> record);
  // The same while the caller makes the next record: `record` is used until the next call of a
  // function of this class that is not const has returned. keep() does not count it yet. Past the
  // page cache where the file system can and the memory is aligned, at half the cost for the CPU.
  Status append_expert_later(std::span<const std::byte> record);
  Status finish_layer(Json report);
  const Json& layer_report(uint32_t layer) const;

  // Whether enough was written since the last keep() to be worth another.
  bool keep_due() const { return unkept_bytes_ >= kKeepBytes; }
  // Notes in the journal how far the file has come: a later run goes on there. It survives a kill
  // at once, and a power cut with the next sync, every 64 MiB: whoever continues checks what is
  // there.
  Status keep(Json note);

  // Of a file that is finished or begun: nothing that was made of it counts any more, also after a
  // power cut. For what was made of a source that turned out to be wrong. Nothing can be written
  // afterwards.
  Status forget(const std::string& name);

  // Copies a small file of the plan. corrupt when its size is no longer the planned one.
  Status copy_small_file(const std::string& name, const File& source);
  // Writes a small file of the plan, whose size is the text's.
  Status write_small_file(const std::string& name, std::string_view text);

  // Needs the trunk, every moe layer and every small file. Returns the container's bytes.
  Result<uint64_t> finish(Json report);

  // Gives up for good: removes everything that was written.
  Status discard() { return journal_.discard(); }

 private:
  static constexpr const char* kTrunkName = "trunk.bin";
  static constexpr uint64_t kKeepBytes = 4 << 20, kSyncBytes = 64 << 20;

  // Where the tensor being written stands. Its digest runs over codes, scales, biases in this
  // order; the codes are hashed as they come, the two small planes (11 % of the bytes at most) are
  // read back when all are there.
  struct TensorCursor {
    uint64_t rows = 0;  // written so far
    Xxh3Stream tensor, scales, biases;
  };

  ContainerWriter(std::filesystem::path directory, ContainerPlan plan, Journal journal)
      : directory_(std::move(directory)), plan_(std::move(plan)), journal_(std::move(journal)) {}

  uint32_t tensor_at(size_t n) const;  // that is written as the n-th
  uint32_t expert_at(uint32_t layer, size_t n) const;
  bool finished(const std::string& file) const;
  uint64_t digests_of(const std::string& file) const;
  Result<File> create(const std::string& name, uint64_t bytes) const;
  const Json& report_of(const std::string& file) const;
  void find_starts();
  void find_trunk_start();
  void find_layer_start(uint32_t layer);
  std::optional<File> open_unfinished(const std::string& name) const;
  bool read_cursor(const File& file, const TrunkTensor& t, const Json& note,
                   TensorCursor& cursor) const;
  Status finish_record();
  Status write_record(uint64_t offset, std::span<const std::byte> record);
  Status begin_file(const std::string& name, bool fresh);
  void wrote(uint64_t offset, uint64_t bytes);
  Status finish_tensor();
  Status read_back_plane(uint64_t offset, uint64_t bytes, const Xxh3Stream& written);
  Status finish_file(const std::string& name, Json report);
  Status write_digests();
  Status write_source();
  // Not the experts that stay in place.
  bool is_written(const std::string& file) const;

  std::filesystem::path directory_;
  ContainerPlan plan_;
  Journal journal_;
  std::map<std::string, std::string> small_digests_;

  File file_;                      // the trunk or layer being written
  std::vector<uint64_t> digests_;  // of what it holds so far, in the order of writing
  TensorCursor cursor_;
  uint32_t layer_ = 0;
  std::string name_;  // of file_
  bool trunk_paused_ = false;
  std::vector<uint64_t> paused_digests_;  // of the trunk
  TrunkStart trunk_start_;
  TensorCursor start_cursor_;  // of trunk_start_
  std::map<uint32_t, LayerStart> layer_starts_;
  size_t kept_digests_ = 0;
  uint64_t unkept_bytes_ = 0, unsynced_bytes_ = 0;
  File direct_;  // file_ with O_DIRECT, or not open
  // The record that is being written, and then its digest. Last: its end waits for the write.
  std::future<Result<uint64_t>> pending_;
};

}  // namespace wader
