// verify_container: every byte of a container, read again and held against its checksum.
#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/thread.h"
#include "container/container.h"
#include "container/digest_file.h"
#include "container/manifest.h"
#include "container/progress_meter.h"
#include "io/aligned_buffer.h"

namespace wader {
namespace {

// All the memory that verifying takes is a window a thread, whatever the model, and of experts in
// place one for each of a few files that a record stands in. Threads are there
// for the disk more than for the processor: a checksum takes 0.1 ms of a window, and a fast disk
// gives its rate only to several readers.
constexpr uint64_t kWindowBytes = 4 * kMiB, kJobBytes = 16 * kMiB;
constexpr size_t kThreads = 4, kMostFilesInPlace = 8;

// Reads a file front to back in windows. O_DIRECT where it works: a check of the page cache would
// say little about the disk. A window that cannot be read is tried again as just the bytes asked
// for, so that one bad sector or a file cut short costs the records it touches and no other.
class WindowReader {
 public:
  // ahead: windows are whole ones; else they end with what was asked for.
  static Result<WindowReader> open(const std::filesystem::path& path, uint64_t file_bytes,
                                   bool ahead) {
    WindowReader reader;
    reader.ahead_ = ahead;
    ASSIGN_OR_RETURN(reader.buffered_, File::open(path, File::Mode::read));
    if (auto direct = File::open(path, File::Mode::read_direct); direct.ok())
      reader.direct_ = std::move(*direct);
    ASSIGN_OR_RETURN(reader.buffer_, AlignedBuffer::allocate(kWindowBytes));
    reader.file_bytes_ = file_bytes;
    return reader;
  }

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
  uint64_t file_bytes_ = 0;
  uint64_t window_begin_ = 0, window_end_ = 0;
  bool ahead_ = true;
};

// A run of bytes of one file, and where in its part it stands.
struct Piece {
  std::string file;  // in messages
  std::filesystem::path path;
  uint64_t file_bytes = 0, offset = 0, bytes = 0, at = 0;
};

// One thread's open files. Of experts in place a record takes turns over several.
class Readers {
 public:
  explicit Readers(bool in_place) : in_place_(in_place) {}

  // Valid until the next call.
  Result<WindowReader*> find(const Piece& piece) {
    const auto found = open_.find(piece.path);
    if (found != open_.end()) return &found->second;
    if (open_.size() >= (in_place_ ? kMostFilesInPlace : 1)) open_.clear();
    ASSIGN_OR_RETURN(WindowReader reader,
                     WindowReader::open(piece.path, piece.file_bytes, !in_place_));
    return &open_.emplace(piece.path, std::move(reader)).first->second;
  }

 private:
  const bool in_place_;
  std::map<std::filesystem::path, WindowReader> open_;
};

// Bytes that have a digest, or that must be zero, and what was found there.
struct Part {
  enum class Kind : uint8_t { tensor, record, zeros, file };
  Kind kind = Kind::file;  // file: nothing left to read
  DamagedPart damage;
  std::string name;  // in messages
  uint64_t offset = 0, bytes = 0, digest = 0;
  std::string problem = {};
};

// Every part of a container's weights, in the order of the report.
class PartList {
 public:
  explicit PartList(const Container& container)
      : container_(container), manifest_(container.manifest()) {
    add_trunk();
    for (uint32_t layer = 0; layer < manifest_.spec.layer_count(); ++layer)
      if (has_experts(manifest_.spec, layer)) add_layer(layer);
  }

  std::vector<Part> take() { return std::move(parts_); }

 private:
  static DamagedPart tensor_part(size_t index) {
    return {DamagedPart::Kind::trunk_tensor, std::string(kTrunkFile), 0, index};
  }
  static DamagedPart expert_part(uint32_t layer, uint32_t expert) {
    return {DamagedPart::Kind::expert, expert_file_name(layer), layer, expert};
  }

  Part& add(Part::Kind kind, DamagedPart damage, std::string name) {
    Part& part = parts_.emplace_back();
    part.kind = kind;
    part.damage = std::move(damage);
    part.name = std::move(name);
    return part;
  }

  void add_read(Part::Kind kind, DamagedPart damage, std::string name, uint64_t offset,
                uint64_t bytes, uint64_t digest) {
    Part& part = add(kind, std::move(damage), std::move(name));
    part.offset = offset;
    part.bytes = bytes;
    part.digest = digest;
  }

  // Whether there is a file to read; if not, that is its problem.
  bool check_file(const std::string& name, uint64_t bytes) {
    auto file = File::open(container_.directory() / name, File::Mode::read);
    const auto size = file.ok() ? file->size() : Result<uint64_t>(file.error());
    if (!size.ok())  // its parts are what is damaged
      add(Part::Kind::file, {DamagedPart::Kind::surplus, ""}, name).problem =
          fmt::format("{}: {}", name, size.error().message);
    else if (*size > bytes)
      add(Part::Kind::file, {DamagedPart::Kind::surplus, name}, name).problem =
          fmt::format("{}: {} bytes longer than it was made", name, *size - bytes);
    return size.ok();
  }

  // Of a file that is not there all parts are damaged, which one line has said.
  void add_lost(DamagedPart damage) {
    add(Part::Kind::file, std::move(damage), "").problem = kToldAlready;
  }

  void add_zeros(std::string name, uint64_t offset, uint64_t bytes) {
    if (bytes > 0)
      add_read(Part::Kind::zeros,
               {DamagedPart::Kind::trunk_padding, std::string(kTrunkFile), 0, 0, offset, bytes},
               std::move(name), offset, bytes, 0);
  }

  void add_trunk() {
    const bool there = check_file(std::string(kTrunkFile), manifest_.trunk_bytes());
    uint64_t end = 0;
    for (size_t i = 0; i < manifest_.trunk.size(); ++i) {
      const TrunkTensor& t = manifest_.trunk[i];
      if (!there) {
        add_lost(tensor_part(i));
        continue;
      }
      add_zeros(fmt::format("the padding before {}", t.name), end, t.offset_bytes - end);
      add_read(Part::Kind::tensor, tensor_part(i), t.name, t.offset_bytes, t.bytes,
               container_.trunk_digest(i));
      end = t.offset_bytes + t.bytes;
    }
    if (there) add_zeros("the padding at its end", end, manifest_.trunk_bytes() - end);
  }

  // A checkpoint's files were there, and of their sizes, when the container was opened.
  void add_layer_in_place(uint32_t layer) {
    for (uint32_t expert = 0; expert < manifest_.spec.experts; ++expert)
      add_read(Part::Kind::record,
               {DamagedPart::Kind::expert, files_of(layer, expert), layer, expert},
               fmt::format("layer {} expert {}", layer, expert), 0, manifest_.experts.stride_bytes,
               container_.expert_digest(layer, expert));
  }

  std::string files_of(uint32_t layer, uint32_t expert) const {
    std::vector<uint32_t> seen;
    std::string names;
    for (const RecordPiece& piece : container_.expert_pieces(layer, expert)) {
      if (std::find(seen.begin(), seen.end(), piece.file) != seen.end()) continue;
      seen.push_back(piece.file);
      names += (names.empty() ? "" : ", ") + container_.in_place()->files[piece.file].name;
    }
    return names;
  }

  void add_layer(uint32_t layer) {
    if (container_.in_place()) return add_layer_in_place(layer);
    const uint64_t stride = manifest_.experts.stride_bytes;
    const bool there = check_file(expert_file_name(layer), stride * manifest_.spec.experts);
    for (uint32_t expert = 0; expert < manifest_.spec.experts; ++expert) {
      if (there)
        add_read(Part::Kind::record, expert_part(layer, expert), fmt::format("expert {}", expert),
                 expert * stride, stride, container_.expert_digest(layer, expert));
      else
        add_lost(expert_part(layer, expert));
    }
  }

  const Container& container_;
  const Manifest& manifest_;
  std::vector<Part> parts_;

 public:
  // In place of a message: the damage counts, and has its line elsewhere.
  static constexpr std::string_view kToldAlready = "-";
};

// Small files in the caller's thread, then the weights by several: each takes the next few MiB of
// one file.
class Verifier {
 public:
  Verifier(const Container& container, const ProgressFn& progress)
      : container_(container),
        manifest_(container.manifest()),
        meter_(progress, total_bytes(container.manifest()), "verifying was stopped") {}

  // The only errors are cancelled and no memory for the windows; damage goes into the report.
  Result<VerifyReport> run() {
    check_manifest();
    for (const auto& [name, record] : manifest_.files)
      if (!record.digest.empty()) RETURN_IF_ERROR(check_small_file(name, record));
    parts_ = PartList(container_).take();
    plan_jobs();
    RETURN_IF_ERROR(run_jobs());
    for (Part& part : parts_) {
      if (part.problem.empty()) continue;
      if (!part.damage.file.empty()) report_.damaged.push_back(part.damage);
      if (part.problem != PartList::kToldAlready) report_.problems.push_back(part.problem);
    }
    report_.bytes = meter_.done_bytes();
    return std::move(report_);
  }

 private:
  std::filesystem::path path_of(std::string_view name) const {
    return container_.directory() / name;
  }

  static uint64_t total_bytes(const Manifest& manifest) {
    uint64_t total = 0;
    for (const auto& [name, record] : manifest.files) total += record.bytes;
    return total;
  }

  template <typename... Args>
  void problem(fmt::format_string<Args...> format, Args&&... args) {
    report_.problems.push_back(fmt::format(format, std::forward<Args>(args)...));
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
    if (!digest.ok() || digest_to_hex(*digest) != record.digest) {
      report_.damaged.push_back({DamagedPart::Kind::small_file, name});
      problem("{}: {}", name, digest.ok() ? "does not match its checksum" : digest.error().message);
    }
    return digest.ok() ? meter_.advance("verify", record.bytes) : Status();
  }

  // Neighbours of one file, together at most about kJobBytes.
  void plan_jobs() {
    uint64_t bytes = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i].kind == Part::Kind::file) continue;
      const bool same = !jobs_.empty() && jobs_.back().second == i &&
                        parts_[i - 1].damage.file == parts_[i].damage.file;
      if (!same || bytes + parts_[i].bytes > kJobBytes) {
        jobs_.emplace_back(i, i);
        bytes = 0;
      }
      ++jobs_.back().second;
      bytes += parts_[i].bytes;
    }
  }

  Status run_jobs() {
    const size_t threads = std::min<size_t>(kThreads, jobs_.size());
    std::vector<std::thread> others;
    std::vector<Status> ended(std::max<size_t>(threads, 1));
    for (size_t n = 1; n < threads; ++n) {
      auto other = start_thread([this, &ended, n] { ended[n] = work(); });
      if (!other.ok()) break;  // it works with those it has
      others.push_back(*std::move(other));
    }
    if (threads > 0) ended[0] = work();
    for (std::thread& thread : others) thread.join();
    for (Status& status : ended) RETURN_IF_ERROR(std::move(status));
    return {};
  }

  // One thread's. An error stops all of them.
  Status work() {
    Readers readers(container_.in_place().has_value());
    for (size_t job; !stopped_ && (job = next_job_++) < jobs_.size();) {
      for (size_t i = jobs_[job].first; !stopped_ && i < jobs_[job].second; ++i) {
        if (Status status = check(readers, parts_[i]); !status.ok()) {
          stopped_ = true;
          return status;
        }
      }
    }
    return {};
  }

  Status check(Readers& readers, Part& part) {
    switch (part.kind) {
      case Part::Kind::tensor:
        return check_digest<Xxh3Stream>(readers, part);
      case Part::Kind::record:
        return check_digest<RecordDigestStream>(readers, part);
      default:
        return check_zeros(readers, part);
    }
  }

  std::vector<Piece> pieces_of(const Part& part) const {
    const std::string& file = part.damage.file;
    if (part.kind != Part::Kind::record || !container_.in_place())
      return {{file, path_of(file), manifest_.files.at(file).bytes, part.offset, part.bytes, 0}};
    const InPlaceSource& source = *container_.in_place();
    std::vector<Piece> pieces;
    for (const RecordPiece& piece :
         container_.expert_pieces(part.damage.layer, static_cast<uint32_t>(part.damage.index))) {
      const SourceFile& in = source.files[piece.file];
      pieces.push_back({in.name, source.directory / in.name, in.bytes, piece.offset_bytes,
                        piece.bytes, piece.record_offset_bytes});
    }
    return pieces;
  }

  // Feeds the part to `sink`, run by run, with zeros where no piece is; false, and a problem, where
  // it cannot be read.
  template <typename Sink>
  Result<bool> scan(Readers& readers, Part& part, Sink sink) {
    static constexpr std::array<std::byte, kRecordAlignment> kZeros = {};
    uint64_t end = 0;
    for (const Piece& piece : pieces_of(part)) {
      CHECK(piece.at - end <= kZeros.size());
      if (piece.at > end) sink(std::span(kZeros).first(piece.at - end));
      ASSIGN_OR_RETURN(const bool whole, scan_piece(readers, piece, part, sink));
      if (!whole) return false;
      end = piece.at + piece.bytes;
    }
    CHECK(part.bytes - end <= kZeros.size());
    if (part.bytes > end) sink(std::span(kZeros).first(part.bytes - end));
    return true;
  }

  template <typename Sink>
  Result<bool> scan_piece(Readers& readers, const Piece& piece, Part& part, Sink sink) {
    const auto reader = readers.find(piece);
    if (!reader.ok() && reader.error().code == ErrorCode::over_budget) return reader.error();
    for (uint64_t done = 0; done < piece.bytes && !stopped_;) {
      const auto run = reader.ok() ? (*reader)->read(piece.offset + done, piece.bytes - done)
                                   : Result<std::span<const std::byte>>(reader.error());
      if (!run.ok()) {
        part.problem =
            fmt::format("{}: {} cannot be read: {}", piece.file, part.name, run.error().message);
        return false;
      }
      sink(*run);
      done += run->size();
      const std::lock_guard lock(mutex_);
      RETURN_IF_ERROR(meter_.advance("verify", run->size()));
    }
    return !stopped_;
  }

  template <typename Stream>
  Status check_digest(Readers& readers, Part& part) {
    Stream stream;
    ASSIGN_OR_RETURN(const bool whole, scan(readers, part, [&](auto p) { stream.update(p); }));
    if (whole && stream.digest() != part.digest)
      part.problem = fmt::format("{}: {} does not match its checksum", part.damage.file, part.name);
    return {};
  }

  Status check_zeros(Readers& readers, Part& part) {
    bool zero = true;
    const auto sink = [&](std::span<const std::byte> piece) {
      for (std::byte b : piece) zero = zero && b == std::byte{0};
    };
    ASSIGN_OR_RETURN(const bool whole, scan(readers, part, sink));
    if (whole && !zero) part.problem = fmt::format("{}: {} is not zero", kTrunkFile, part.name);
    return {};
  }

  const Container& container_;
  const Manifest& manifest_;
  VerifyReport report_;
  std::vector<Part> parts_;                      // each is one thread's while the jobs run
  std::vector<std::pair<size_t, size_t>> jobs_;  // [first, end) of parts_
  std::atomic<size_t> next_job_ = 0;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  ProgressMeter meter_;
};

}  // namespace

Result<VerifyReport> verify_container(const Container& container, const ProgressFn& progress) {
  return Verifier(container, progress).run();
}

}  // namespace wader
