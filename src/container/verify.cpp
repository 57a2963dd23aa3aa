// verify_container: every byte of a container, read again and held against its checksum.
#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "container/container.h"
#include "container/digest_file.h"
#include "container/manifest.h"
#include "container/progress_meter.h"
#include "io/aligned_buffer.h"

namespace wader {
namespace {

// All the memory that verifying takes, whatever the model: one window, and of experts in place one
// a file that a layer's stand in.
constexpr uint64_t kWindowBytes = 4 * kMiB;

// Reads a file front to back in windows. O_DIRECT where it works: a check of the page cache would
// say little about the disk. A window that cannot be read is tried again as just the bytes asked
// for, so that one bad sector or a file cut short costs the records it touches and no other.
class WindowReader {
 public:
  // ahead: windows are whole ones; else they end with what was asked for.
  static Result<WindowReader> open(const std::filesystem::path& path, uint64_t file_bytes,
                                   bool ahead = true) {
    WindowReader reader;
    reader.ahead_ = ahead;
    ASSIGN_OR_RETURN(reader.buffered_, File::open(path, File::Mode::read));
    if (auto direct = File::open(path, File::Mode::read_direct); direct.ok())
      reader.direct_ = std::move(*direct);
    ASSIGN_OR_RETURN(reader.buffer_, AlignedBuffer::allocate(kWindowBytes));
    ASSIGN_OR_RETURN(const uint64_t actual_bytes, reader.buffered_.size());
    reader.file_bytes_ = file_bytes;
    reader.surplus_bytes_ = actual_bytes > file_bytes ? actual_bytes - file_bytes : 0;
    return reader;
  }

  uint64_t surplus_bytes() const { return surplus_bytes_; }

  // Between 1 and `want` bytes from `offset` on; valid until the next call.
  Result<std::span<const std::byte>> read(uint64_t offset, uint64_t want) {
    CHECK(want > 0 && in_file(offset, want, file_bytes_));
    if (offset < window_begin_ || offset >= window_end_) RETURN_IF_ERROR(move_window(offset, want));
    const uint64_t bytes = std::min(want, window_end_ - offset);
    return std::span<const std::byte>(buffer_.data() + (offset - window_begin_), bytes);
  }

 private:
  Status move_window(uint64_t offset, uint64_t want) {
    const uint64_t begin = offset / kRecordAlignment * kRecordAlignment;
    const uint64_t end = ahead_ ? file_bytes_ : align_up(offset + want, kRecordAlignment);
    const uint64_t bytes = std::min({kWindowBytes, file_bytes_ - begin, end - begin});
    if (bytes % kRecordAlignment != 0) return fill(buffered_, begin, bytes);  // the end of the file
    if (direct_.is_open() && fill(direct_, begin, bytes).ok()) return {};
    direct_ = File();  // odd file system, or damage: from here on whatever the page cache can give
    if (fill(buffered_, begin, bytes).ok()) return {};
    return fill(buffered_, offset, std::min(want, kWindowBytes));
  }

  Status fill(const File& file, uint64_t begin, uint64_t bytes) {
    window_begin_ = window_end_ = 0;
    RETURN_IF_ERROR(file.read_at(begin, buffer_.span().first(bytes)));
    window_begin_ = begin;
    window_end_ = begin + bytes;
    return {};
  }

  File direct_, buffered_;
  AlignedBuffer buffer_;
  uint64_t file_bytes_ = 0, surplus_bytes_ = 0;
  uint64_t window_begin_ = 0, window_end_ = 0;
  bool ahead_ = true;
};

class Verifier {
 public:
  Verifier(const Container& container, const ProgressFn& progress)
      : container_(container),
        manifest_(container.manifest()),
        meter_(progress, total_bytes(container.manifest()), "verifying was stopped") {}

  // The only errors are cancelled and no memory for the window; damage goes into the report.
  Result<VerifyReport> run() {
    check_manifest();
    for (const auto& [name, record] : manifest_.files)
      if (!record.digest.empty()) RETURN_IF_ERROR(check_small_file(name, record));
    RETURN_IF_ERROR(check_trunk());
    for (uint32_t layer = 0; layer < manifest_.spec.layer_count(); ++layer)
      if (has_experts(manifest_.spec, layer)) RETURN_IF_ERROR(check_layer(layer));
    report_.bytes = meter_.done_bytes();
    return std::move(report_);
  }

 private:
  std::filesystem::path path_of(std::string_view name) const {
    return container_.directory() / name;
  }

  template <typename... Args>
  void problem(const DamagedPart& part, fmt::format_string<Args...> format, Args&&... args) {
    report_.problems.push_back(fmt::format(format, std::forward<Args>(args)...));
    report_.damaged.push_back(part);
  }

  template <typename... Args>
  void problem(fmt::format_string<Args...> format, Args&&... args) {
    report_.problems.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  static uint64_t total_bytes(const Manifest& manifest) {
    uint64_t total = 0;
    for (const auto& [name, record] : manifest.files) total += record.bytes;
    return total;
  }

  // Still the one that was opened? Its own digest is checked by the parser.
  void check_manifest() {
    const auto text = read_text_file(path_of(kManifestFile), kMaxManifestBytes);
    if (!text.ok()) return problem("{}: {}", kManifestFile, text.error().message);
    const auto parsed = parse_manifest(*text);
    if (!parsed.ok()) return problem("{}", parsed.error().message);
    if (manifest_to_text(*parsed) != manifest_to_text(manifest_))
      problem("{}: changed since the container was opened", kManifestFile);
  }

  Status check_small_file(const std::string& name, const FileRecord& record) {
    const auto digest = digest_file(path_of(name));
    const DamagedPart part{DamagedPart::Kind::small_file, name};
    if (!digest.ok()) {
      problem(part, "{}: {}", name, digest.error().message);
      return {};
    }
    if (digest_to_hex(*digest) != record.digest)
      problem(part, "{}: does not match its checksum", name);
    return meter_.advance("verify", record.bytes);
  }

  // Feeds [offset, offset + bytes) to `sink`, piece by piece. A read that fails becomes a problem
  // of `part`, and the result is false.
  template <typename Sink>
  Result<bool> scan(WindowReader& reader, const DamagedPart& damage, std::string_view part,
                    uint64_t offset, uint64_t bytes, Sink sink) {
    for (const uint64_t end = offset + bytes; offset < end;) {
      auto piece = reader.read(offset, end - offset);
      if (!piece.ok()) {
        problem(damage, "{}: {} cannot be read: {}", damage.file, part, piece.error().message);
        return false;
      }
      sink(*piece);
      offset += piece->size();
      RETURN_IF_ERROR(meter_.advance("verify", piece->size()));
    }
    return true;
  }

  template <typename Stream>
  Status check_digest(WindowReader& reader, const DamagedPart& damage, std::string_view part,
                      uint64_t offset, uint64_t bytes, uint64_t expected) {
    Stream stream;
    ASSIGN_OR_RETURN(const bool whole,
                     scan(reader, damage, part, offset, bytes, [&](auto p) { stream.update(p); }));
    if (whole && stream.digest() != expected)
      problem(damage, "{}: {} does not match its checksum", damage.file, part);
    return {};
  }

  Status check_zeros(WindowReader& reader, std::string_view part, uint64_t offset, uint64_t bytes) {
    const DamagedPart damage{
        DamagedPart::Kind::trunk_padding, std::string(kTrunkFile), 0, 0, offset, bytes};
    bool zero = true;
    const auto sink = [&](std::span<const std::byte> piece) {
      for (std::byte b : piece) zero = zero && b == std::byte{0};
    };
    ASSIGN_OR_RETURN(const bool whole, scan(reader, damage, part, offset, bytes, sink));
    if (whole && !zero) problem(damage, "{}: {} is not zero", kTrunkFile, part);
    return {};
  }

  // Nothing when the file cannot even be opened, which is then in the report.
  Result<std::optional<WindowReader>> open_weights(std::string_view file,
                                                   const std::filesystem::path& path,
                                                   uint64_t bytes, bool ahead = true) {
    auto reader = WindowReader::open(path, bytes, ahead);
    if (reader.ok()) {
      if (reader->surplus_bytes() > 0)
        problem({DamagedPart::Kind::surplus, std::string(file)},
                "{}: {} bytes longer than it was made", file, reader->surplus_bytes());
      return std::optional(std::move(*reader));
    }
    if (reader.error().code == ErrorCode::over_budget) return std::move(reader).error();
    problem("{}: {}", file, reader.error().message);
    mark_all(file);
    return std::optional<WindowReader>();
  }

  static DamagedPart tensor_part(size_t index) {
    return {DamagedPart::Kind::trunk_tensor, std::string(kTrunkFile), 0, index};
  }

  // Of a file that is not there all parts are damaged. Its padding is zero in a new one.
  void mark_all(std::string_view file) {
    if (file == kTrunkFile)
      for (size_t i = 0; i < manifest_.trunk.size(); ++i) report_.damaged.push_back(tensor_part(i));
    for (uint32_t layer = 0; layer < manifest_.spec.layer_count(); ++layer)
      if (file == expert_file_name(layer))
        for (uint32_t expert = 0; expert < manifest_.spec.experts; ++expert)
          report_.damaged.push_back({DamagedPart::Kind::expert, std::string(file), layer, expert});
  }

  Status check_trunk() {
    ASSIGN_OR_RETURN(auto reader,
                     open_weights(kTrunkFile, path_of(kTrunkFile), manifest_.trunk_bytes()));
    if (!reader) return {};
    uint64_t end = 0;
    for (size_t i = 0; i < manifest_.trunk.size(); ++i) {
      const TrunkTensor& t = manifest_.trunk[i];
      RETURN_IF_ERROR(check_zeros(*reader, fmt::format("the padding before {}", t.name), end,
                                  t.offset_bytes - end));
      RETURN_IF_ERROR(check_digest<Xxh3Stream>(*reader, tensor_part(i), t.name, t.offset_bytes,
                                               t.bytes, container_.trunk_digest(i)));
      end = t.offset_bytes + t.bytes;
    }
    return check_zeros(*reader, "the padding at its end", end, manifest_.trunk_bytes() - end);
  }

  // A file with expert records: its name in the report, and a reader while a layer is checked.
  struct ExpertFile {
    std::string name;
    std::optional<WindowReader> reader;
    bool is_bad = false;
  };

  Status check_layer(uint32_t layer) {
    std::map<uint32_t, ExpertFile> files;
    for (uint32_t expert = 0; expert < manifest_.spec.experts; ++expert) {
      const std::vector<RecordPiece> pieces = container_.expert_pieces(layer, expert);
      bool readable = true;
      for (const RecordPiece& piece : pieces) {
        ASSIGN_OR_RETURN(const bool open, open_expert_file(layer, piece.file, files));
        readable = readable && open;
      }
      if (readable) RETURN_IF_ERROR(check_expert(layer, expert, pieces, files));
    }
    return {};
  }

  Result<bool> open_expert_file(uint32_t layer, uint32_t index,
                                std::map<uint32_t, ExpertFile>& files) {
    const auto [at, is_new] = files.try_emplace(index);
    ExpertFile& file = at->second;
    if (!is_new) return !file.is_bad;
    const auto& source = container_.in_place();
    file.name = source ? source->files[index].name : expert_file_name(layer);
    const uint64_t bytes = source ? source->files[index].bytes
                                  : manifest_.experts.stride_bytes * manifest_.spec.experts;
    ASSIGN_OR_RETURN(file.reader, open_weights(file.name, container_.expert_files()[index], bytes,
                                               /*ahead=*/!source));
    file.is_bad = !file.reader;
    return !file.is_bad;
  }

  Status check_expert(uint32_t layer, uint32_t expert, std::span<const RecordPiece> pieces,
                      std::map<uint32_t, ExpertFile>& files) {
    const std::string part = container_.in_place()
                                 ? fmt::format("layer {} expert {}", layer, expert)
                                 : fmt::format("expert {}", expert);
    RecordDigestStream stream;
    uint64_t end = 0;
    for (const RecordPiece& piece : pieces) {
      RETURN_IF_ERROR(add_padding(piece.record_offset_bytes - end, stream));
      ExpertFile& file = files.at(piece.file);
      ASSIGN_OR_RETURN(
          const bool whole,
          scan(*file.reader, {DamagedPart::Kind::expert, file.name, layer, expert}, part,
               piece.offset_bytes, piece.bytes, [&](auto bytes) { stream.update(bytes); }));
      if (!whole) return {};
      end = piece.record_offset_bytes + piece.bytes;
    }
    RETURN_IF_ERROR(add_padding(manifest_.experts.stride_bytes - end, stream));
    if (stream.digest() == container_.expert_digest(layer, expert)) return {};
    const std::string& file = files.at(pieces[0].file).name;
    problem({DamagedPart::Kind::expert, file, layer, expert}, "{}: {} does not match its checksum",
            file, part);
    return {};
  }

  // Bytes of a record that no piece has: zero.
  Status add_padding(uint64_t bytes, RecordDigestStream& stream) {
    static constexpr std::array<std::byte, kRecordAlignment> kZeros = {};
    CHECK(bytes <= kZeros.size());
    stream.update(std::span(kZeros).first(bytes));
    return meter_.advance("verify", bytes);
  }

  const Container& container_;
  const Manifest& manifest_;
  ProgressMeter meter_;
  VerifyReport report_;
};

}  // namespace

Result<VerifyReport> verify_container(const Container& container, const ProgressFn& progress) {
  return Verifier(container, progress).run();
}

}  // namespace wader
