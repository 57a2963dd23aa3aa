// Routing traces: which experts the router chose, pass by pass, in a file. What `wader trace`
// writes and `wader simulate` replays.
//
// Little-endian. Header, 48 bytes: "WADERTR1"; u32 layers, experts, k; u32 0; u64 bytes of an
// expert's record; u64 identity of the container; u64 XXH3-64 of the 40 bytes before. Then passes:
// u32 rows; u32 1 where it begins a new session's prompt, else 0; ids (layers, rows, k), u8 where a
// layer has at most 256 experts, else u16; u32 the low half of the XXH3-64 of the pass's bytes
// before it. A file that ends inside a pass, as one of a killed program does, is read up to there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/result.h"
#include "io/file.h"

namespace wader {

struct TraceShape {
  uint32_t layers = 0;  // with routed experts
  uint32_t experts = 0;
  uint32_t experts_per_token = 0;
  uint64_t record_bytes = 0;  // of one expert
  uint64_t model = 0;         // Container::identity(), 0: of no model
  bool operator==(const TraceShape&) const = default;
};
// Refuses what no model has: 1 to 1,024 layers, 1 to 65,536 experts, k of 1 to 256 and at most all.
Status check_trace_shape(const TraceShape& shape);

struct TracePass {
  uint32_t rows = 0;
  bool begins_prompt = false;
  size_t first_id = 0;  // into RoutingTrace::ids, (layers, rows, k) from there
};

struct RoutingTrace {
  TraceShape shape;
  std::vector<TracePass> passes;
  std::vector<uint16_t> ids;
  bool cut = false;  // the file ended inside a pass

  uint64_t tokens() const;
  // (rows, k) of one layer.
  std::span<const uint16_t> ids_of(const TracePass& pass, uint32_t layer) const;
  void append(uint32_t rows, bool begins_prompt, std::span<const uint16_t> pass_ids);
};

constexpr uint64_t kMaxTraceBytes = 1ull << 30;
constexpr uint32_t kMaxTraceRows = 1u << 20;

// Errors name `what`, and the pass. The ids of a row are distinct and below shape.experts.
Result<RoutingTrace> parse_routing_trace(std::span<const std::byte> bytes, std::string_view what);
Result<RoutingTrace> read_routing_trace(const std::filesystem::path& path);

// Appends passes to a new file (an existing one is replaced). Buffered: what is not flushed is lost
// with the program, all before it is readable.
class RoutingTraceWriter {
 public:
  static Result<RoutingTraceWriter> create(const std::filesystem::path& path,
                                           const TraceShape& shape);
  // ids: (layers, rows, k).
  Status append(uint32_t rows, bool begins_prompt, std::span<const uint16_t> ids);
  Status flush();
  Status finish();  // flushes, syncs, closes
  uint64_t bytes() const { return written_bytes_ + buffer_.size(); }

 private:
  RoutingTraceWriter(File file, const TraceShape& shape) : file_(std::move(file)), shape_(shape) {}

  File file_;
  TraceShape shape_;
  uint64_t written_bytes_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace wader
