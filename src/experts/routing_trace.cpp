#include "experts/routing_trace.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/units.h"

namespace wader {
namespace {

constexpr char kMagic[8] = {'W', 'A', 'D', 'E', 'R', 'T', 'R', '1'};
constexpr size_t kBufferBytes = 64 * kKiB;

struct Header {
  char magic[8];
  uint32_t layers, experts, experts_per_token, zero;
  uint64_t record_bytes, model, digest;
};
static_assert(sizeof(Header) == 48);

struct PassHeader {
  uint32_t rows, begins_prompt;
};

uint64_t header_digest(const Header& header) {
  return xxh3_64(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, digest)));
}
uint32_t pass_check(std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(xxh3_64(bytes));
}
uint32_t id_bytes(const TraceShape& shape) {
  return shape.experts <= 256 ? 1 : 2;
}
size_t ids_of_a_row(const TraceShape& shape) {
  return size_t{shape.layers} * shape.experts_per_token;
}

Result<TraceShape> parse_header(std::span<const std::byte> bytes, std::string_view what) {
  Header header{};
  if (bytes.size() < sizeof header) return corrupt_error("{}: too short for a routing trace", what);
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, 7) != 0)
    return corrupt_error("{}: not a routing trace", what);
  if (header.magic[7] != kMagic[7])
    return unsupported_error("{}: a routing trace of version '{:c}'; this version of wader reads 1",
                             what, std::max(' ', header.magic[7]));
  if (header.digest != header_digest(header) || header.zero != 0)
    return corrupt_error("{}: the header does not match its checksum; record it again", what);
  const TraceShape shape{header.layers, header.experts, header.experts_per_token,
                         header.record_bytes, header.model};
  if (Status status = check_trace_shape(shape); !status.ok())
    return std::move(status).error().within(what);
  return shape;
}

// The ids of one pass, widened onto the end of `trace.ids`.
Status take_ids(std::span<const std::byte> bytes, RoutingTrace& trace) {
  const TraceShape& shape = trace.shape;
  const size_t first = trace.ids.size(), width = id_bytes(shape), k = shape.experts_per_token;
  for (size_t at = 0; at < bytes.size(); at += width) {
    uint16_t id = 0;
    std::memcpy(&id, bytes.data() + at, width);
    const size_t row_begin = first + (trace.ids.size() - first) / k * k;
    if (id >= shape.experts) return corrupt_error("has expert {} of {}", id, shape.experts);
    if (std::find(trace.ids.begin() + static_cast<ptrdiff_t>(row_begin), trace.ids.end(), id) !=
        trace.ids.end())
      return corrupt_error("gives a token expert {} twice", id);
    trace.ids.push_back(id);
  }
  return {};
}

}  // namespace

Status check_trace_shape(const TraceShape& shape) {
  if (shape.layers == 0 || shape.layers > 1024 || shape.experts == 0 || shape.experts > 65536 ||
      shape.experts_per_token == 0 || shape.experts_per_token > std::min(256u, shape.experts) ||
      uint64_t{shape.layers} * shape.experts > 1u << 20 || shape.record_bytes > uint64_t{1} << 40)
    return corrupt_error(
        "{} layers with {} of {} experts of {} bytes a token are no model's routing", shape.layers,
        shape.experts_per_token, shape.experts, shape.record_bytes);
  return {};
}

uint64_t RoutingTrace::tokens() const {
  uint64_t tokens = 0;
  for (const TracePass& pass : passes) tokens += pass.rows;
  return tokens;
}

std::span<const uint16_t> RoutingTrace::ids_of(const TracePass& pass, uint32_t layer) const {
  const size_t count = size_t{pass.rows} * shape.experts_per_token;
  return std::span(ids).subspan(pass.first_id + layer * count, count);
}

void RoutingTrace::append(uint32_t rows, bool begins_prompt, std::span<const uint16_t> pass_ids) {
  CHECK(rows > 0 && pass_ids.size() == rows * ids_of_a_row(shape));
  passes.push_back({rows, begins_prompt, ids.size()});
  ids.insert(ids.end(), pass_ids.begin(), pass_ids.end());
}

Result<RoutingTrace> parse_routing_trace(std::span<const std::byte> bytes, std::string_view what) {
  RoutingTrace trace;
  ASSIGN_OR_RETURN(trace.shape, parse_header(bytes, what));
  size_t at = sizeof(Header);
  while (at < bytes.size()) {
    PassHeader header{};
    const size_t left = bytes.size() - at;
    trace.cut = true;
    if (left < sizeof header) break;
    std::memcpy(&header, bytes.data() + at, sizeof header);
    const size_t number = trace.passes.size();
    if (header.rows == 0 || header.rows > kMaxTraceRows || header.begins_prompt > 1)
      return corrupt_error("{}: pass {} has {} rows, flags {}; it was damaged", what, number,
                           header.rows, header.begins_prompt);
    const uint64_t ids = header.rows * ids_of_a_row(trace.shape) * id_bytes(trace.shape);
    const uint64_t checked = sizeof header + ids;
    if (left < checked + sizeof(uint32_t)) break;
    uint32_t check = 0;
    std::memcpy(&check, bytes.data() + at + checked, sizeof check);
    if (check != pass_check(bytes.subspan(at, checked)))
      return corrupt_error("{}: pass {} does not match its checksum; record it again", what,
                           number);
    trace.passes.push_back({header.rows, header.begins_prompt == 1, trace.ids.size()});
    if (Status status = take_ids(bytes.subspan(at + sizeof header, ids), trace); !status.ok())
      return std::move(status).error().within(fmt::format("{}: pass {}", what, number));
    at += checked + sizeof check;
    trace.cut = false;
  }
  return trace;
}

Result<RoutingTrace> read_routing_trace(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string bytes, read_text_file(path, kMaxTraceBytes));
  return parse_routing_trace(std::as_bytes(std::span(bytes)), path.string());
}

// A trace may take the place of another, and of nothing else that has contents.
static Status refuse_other_file(const std::filesystem::path& path) {
  const auto file = File::open(path, File::Mode::read);
  if (!file.ok()) return {};  // not there, or opening it for writing says why
  const auto size = file->size();
  char magic[sizeof kMagic] = {};
  if (!size.ok() || *size == 0) return {};
  const bool is_trace = *size >= sizeof magic &&
                        file->read_at(0, std::as_writable_bytes(std::span(magic))).ok() &&
                        std::memcmp(magic, kMagic, 7) == 0;
  if (is_trace) return {};
  return already_exists_error("{} is there and is no routing trace; choose another name",
                              path.string());
}

Result<RoutingTraceWriter> RoutingTraceWriter::create(const std::filesystem::path& path,
                                                      const TraceShape& shape) {
  RETURN_IF_ERROR(check_trace_shape(shape));
  RETURN_IF_ERROR(refuse_other_file(path));
  ASSIGN_OR_RETURN(File file, File::open(path, File::Mode::create));
  RoutingTraceWriter writer(std::move(file), shape);
  Header header{.magic = {},
                .layers = shape.layers,
                .experts = shape.experts,
                .experts_per_token = shape.experts_per_token,
                .zero = 0,
                .record_bytes = shape.record_bytes,
                .model = shape.model,
                .digest = 0};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.digest = header_digest(header);
  const auto bytes = std::as_bytes(std::span(&header, 1));
  writer.buffer_.assign(bytes.begin(), bytes.end());
  return writer;
}

Status RoutingTraceWriter::append(uint32_t rows, bool begins_prompt,
                                  std::span<const uint16_t> ids) {
  CHECK(rows > 0 && rows <= kMaxTraceRows && ids.size() == rows * ids_of_a_row(shape_));
  const size_t start = buffer_.size(), width = id_bytes(shape_);
  const auto put = [&](const auto& value, size_t bytes) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    buffer_.insert(buffer_.end(), from, from + bytes);
  };
  put(PassHeader{rows, begins_prompt ? 1u : 0u}, sizeof(PassHeader));
  for (const uint16_t id : ids) {
    CHECK(id < shape_.experts);
    put(id, width);
  }
  put(pass_check(std::span(buffer_).subspan(start)), sizeof(uint32_t));
  return buffer_.size() >= kBufferBytes ? flush() : Status();
}

Status RoutingTraceWriter::flush() {
  RETURN_IF_ERROR(file_.write_at(written_bytes_, buffer_));
  written_bytes_ += buffer_.size();
  buffer_.clear();
  return {};
}

Status RoutingTraceWriter::finish() {
  RETURN_IF_ERROR(flush());
  RETURN_IF_ERROR(file_.sync());
  return file_.close();
}

}  // namespace wader
