// ContainerWriter: where a file that an earlier run left unfinished goes on. The journal says how
// far it came, but neither its last lines nor the bytes need have reached the disk before a power
// cut: what counts is what reads back with the right digests.
#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "container/manifest.h"
#include "container/writer.h"

namespace wader {
namespace {

constexpr uint64_t kReadBytes = 1 * kMiB;

// Feeds [offset, offset + bytes) of `file` to `sink`; false where it cannot be read.
template <typename Sink>
bool scan(const File& file, uint64_t offset, uint64_t bytes, std::vector<std::byte>& buffer,
          Sink sink) {
  buffer.resize(kReadBytes);
  for (uint64_t done = 0; done < bytes;) {
    const auto piece = std::span(buffer).first(std::min<uint64_t>(kReadBytes, bytes - done));
    if (!file.read_at(offset + done, piece).ok()) return false;
    sink(piece);
    done += piece.size();
  }
  return true;
}

template <typename Stream>
bool has_digest(const File& file, uint64_t offset, uint64_t bytes, uint64_t digest,
                std::vector<std::byte>& buffer) {
  Stream stream;
  return scan(file, offset, bytes, buffer, [&](auto piece) { stream.update(piece); }) &&
         stream.digest() == digest;
}

bool is_hex_of(const Json& text, uint64_t digest) {
  return text.is_string() && text.get<std::string>() == digest_to_hex(digest);
}

}  // namespace

void ContainerWriter::find_starts() {
  if (!trunk_finished()) find_trunk_start();
  for (uint32_t layer = 0; layer < plan_.manifest.spec.layer_count(); ++layer)
    if (has_experts(plan_.manifest.spec, layer) && !layer_finished(layer)) find_layer_start(layer);
}

std::optional<File> ContainerWriter::open_unfinished(const std::string& name) const {
  std::error_code error;
  if (std::filesystem::file_size(directory_ / name, error) != plan_.manifest.files.at(name).bytes ||
      error)
    return std::nullopt;
  auto file = File::open(directory_ / name, File::Mode::read);
  if (!file.ok()) return std::nullopt;
  return std::move(*file);
}

void ContainerWriter::find_layer_start(uint32_t layer) {
  const std::string name = expert_file_name(layer);
  const JournalPart* const part = journal_.find_part(name);
  if (part == nullptr) return;
  const auto file = open_unfinished(name);
  if (!file) return;
  const uint64_t stride = plan_.manifest.experts.stride_bytes;
  const size_t most = std::min<size_t>(part->digests.size(), plan_.manifest.spec.experts);
  std::vector<std::byte> buffer;
  size_t good = 0;
  while (good < most && has_digest<RecordDigestStream>(*file, expert_at(layer, good) * stride,
                                                       stride, part->digests[good], buffer))
    ++good;
  for (size_t i = part->marks.size(); i-- > 0;) {
    const JournalPart::Mark& mark = part->marks[i];
    if (mark.digests > good || mark.digests == 0) continue;
    layer_starts_[layer] = {static_cast<uint32_t>(mark.digests), mark.state};
    return;
  }
}

// The rows that `note` says are there, read back into `cursor`; false when they are not what was
// written.
bool ContainerWriter::read_cursor(const File& file, const TrunkTensor& t, const Json& note,
                                  TensorCursor& cursor) const {
  const auto rows = json_uint(note, "rows", 0, t.rows() - 1);
  if (!rows.ok()) return false;
  if (*rows == 0) return true;
  if (!json_has(note, "planes") || !note["planes"].is_array() || note["planes"].size() != 3)
    return false;
  const RowBytes row = row_bytes(t.format, t.cols()).value();
  const uint64_t scales_at = t.offset_bytes + t.rows() * row.codes;
  const uint64_t biases_at = scales_at + t.rows() * row.scales;
  std::vector<std::byte> buffer;
  const auto read = [&](uint64_t at, uint64_t bytes, Xxh3Stream& stream, size_t plane) {
    return scan(file, at, bytes, buffer, [&](auto piece) { stream.update(piece); }) &&
           is_hex_of(note["planes"][plane], stream.digest());
  };
  cursor.rows = *rows;
  return read(t.offset_bytes, *rows * row.codes, cursor.tensor, 0) &&
         read(scales_at, *rows * row.scales, cursor.scales, 1) &&
         read(biases_at, *rows * row.biases, cursor.biases, 2);
}

void ContainerWriter::find_trunk_start() {
  const JournalPart* const part = journal_.find_part(kTrunkName);
  if (part == nullptr) return;
  const auto file = open_unfinished(kTrunkName);
  if (!file) return;
  const std::vector<TrunkTensor>& tensors = plan_.manifest.trunk;
  std::vector<std::byte> buffer;
  size_t good = 0;
  for (; good < std::min(part->digests.size(), tensors.size()); ++good) {
    const TrunkTensor& t = tensors[tensor_at(good)];
    if (!has_digest<Xxh3Stream>(*file, t.offset_bytes, t.bytes, part->digests[good], buffer)) break;
  }
  for (size_t i = part->marks.size(); i-- > 0;) {
    const JournalPart::Mark& mark = part->marks[i];
    if (mark.digests > good) continue;
    TensorCursor cursor;
    if (mark.digests < tensors.size() &&
        !read_cursor(*file, tensors[tensor_at(mark.digests)], mark.state, cursor))
      continue;
    trunk_start_ = {mark.digests, cursor.rows, {}};
    for (size_t n = 0; n <= i; ++n) trunk_start_.notes.push_back(part->marks[n].state);
    start_cursor_ = std::move(cursor);
    return;
  }
}

}  // namespace wader
