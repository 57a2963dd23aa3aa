#include "container/writer.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "container/manifest.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kCopyBytes = 256 * kKiB;

std::vector<std::string> names_of(const ContainerPlan& plan) {
  std::vector<std::string> names;
  for (const auto& [name, record] : plan.manifest.files)
    if (!plan.in_place || !is_expert_file_name(name)) names.push_back(name);
  if (plan.in_place) names.emplace_back(kSourceFile);
  return names;
}

}  // namespace

Result<ContainerWriter> ContainerWriter::open(const fs::path& directory, ContainerPlan plan) {
  RETURN_IF_ERROR(check_destination(directory));
  std::error_code error;
  const bool created = fs::create_directories(directory, error);
  if (error) return errno_error(error.value(), fmt::format("cannot create {}", directory.string()));
  if (created) RETURN_IF_ERROR(sync_directory(directory / ".."));
  std::vector<std::string> names = names_of(plan);
  names.insert(names.end(), plan.scratch_files.begin(), plan.scratch_files.end());
  ASSIGN_OR_RETURN(Journal journal, Journal::open(directory, plan.origin, names));
  if (!plan.in_place) fs::create_directory(directory / kExpertsFolder, error);
  if (error) return errno_error(error.value(), (directory / kExpertsFolder).string());
  ContainerWriter writer(directory, std::move(plan), std::move(journal));
  writer.find_starts();
  return writer;
}

// How many digests the journal must have for a weight file.
uint64_t ContainerWriter::digests_of(const std::string& file) const {
  return file == kTrunkName ? plan_.manifest.trunk.size() : plan_.manifest.spec.experts;
}

bool ContainerWriter::finished(const std::string& file) const {
  const JournalPiece* piece = journal_.find(file);
  if (piece == nullptr || piece->digests.size() != digests_of(file)) return false;
  if (!is_written(file)) return true;
  // The name may have been lost in a power cut: the bytes were synced, the directory was not yet.
  std::error_code error;
  return fs::file_size(directory_ / file, error) == plan_.manifest.files.at(file).bytes && !error;
}

bool ContainerWriter::is_written(const std::string& file) const {
  return !plan_.in_place || !is_expert_file_name(file);
}

uint64_t ContainerWriter::finished_bytes() const {
  uint64_t bytes = trunk_finished() ? plan_.manifest.trunk_bytes() : 0;
  const ArchitectureSpec& spec = plan_.manifest.spec;
  for (uint32_t layer = 0; layer < spec.layer_count(); ++layer)
    if (has_experts(spec, layer) && layer_finished(layer))
      bytes += plan_.manifest.files.at(expert_file_name(layer)).bytes;
  return bytes;
}

Result<File> ContainerWriter::create(const std::string& name, uint64_t bytes) const {
  ASSIGN_OR_RETURN(File file, File::open(directory_ / name, File::Mode::create));
  RETURN_IF_ERROR(file.allocate(bytes));
  return file;
}

uint32_t ContainerWriter::tensor_at(size_t n) const {
  return plan_.trunk_order.empty() ? static_cast<uint32_t>(n) : plan_.trunk_order[n];
}

uint32_t ContainerWriter::expert_at(uint32_t layer, size_t n) const {
  const auto order = plan_.expert_order.find(layer);
  return order == plan_.expert_order.end() ? static_cast<uint32_t>(n) : order->second[n];
}

void ContainerWriter::pause_trunk() {
  CHECK(name_ == kTrunkName && cursor_.rows == 0 && kept_digests_ == digests_.size());
  paused_digests_ = std::exchange(digests_, {});
  trunk_paused_ = true;
  file_ = File();
}

Status ContainerWriter::begin_trunk() {
  if (std::exchange(trunk_paused_, false)) {
    digests_ = std::exchange(paused_digests_, {});
    return begin_file(kTrunkName, false);
  }
  const JournalPart* const part = journal_.find_part(kTrunkName);
  const bool fresh = trunk_start_.tensors == 0 && trunk_start_.rows == 0;
  digests_.clear();
  if (!fresh)
    digests_.assign(part->digests.begin(),
                    part->digests.begin() + static_cast<std::ptrdiff_t>(trunk_start_.tensors));
  cursor_ = std::exchange(start_cursor_, TensorCursor());
  return begin_file(kTrunkName, fresh);
}

Status ContainerWriter::append_trunk(const TrunkRows& rows) {
  CHECK(file_.is_open() && digests_.size() < plan_.manifest.trunk.size());
  const TrunkTensor& t = plan_.manifest.trunk[tensor_at(digests_.size())];
  const RowBytes row = row_bytes(t.format, t.cols()).value();
  const uint64_t count = rows.codes.size() / row.codes;
  CHECK(count > 0 && count <= t.rows() - cursor_.rows && rows.codes.size() == count * row.codes &&
        rows.scales.size() == count * row.scales && rows.biases.size() == count * row.biases);
  const uint64_t scales_at = t.offset_bytes + t.rows() * row.codes;
  const uint64_t biases_at = scales_at + t.rows() * row.scales;
  RETURN_IF_ERROR(file_.write_at(t.offset_bytes + cursor_.rows * row.codes, rows.codes));
  if (row.scales > 0)
    RETURN_IF_ERROR(file_.write_at(scales_at + cursor_.rows * row.scales, rows.scales));
  if (row.biases > 0)
    RETURN_IF_ERROR(file_.write_at(biases_at + cursor_.rows * row.biases, rows.biases));
  wrote(t.offset_bytes + cursor_.rows * row.codes, rows.codes.size());
  unkept_bytes_ += rows.scales.size() + rows.biases.size();
  unsynced_bytes_ += rows.scales.size() + rows.biases.size();
  cursor_.tensor.update(rows.codes);
  cursor_.scales.update(rows.scales);
  cursor_.biases.update(rows.biases);
  cursor_.rows += count;
  return cursor_.rows == t.rows() ? finish_tensor() : Status();
}

Status ContainerWriter::finish_tensor() {
  const TrunkTensor& t = plan_.manifest.trunk[tensor_at(digests_.size())];
  const RowBytes row = row_bytes(t.format, t.cols()).value();
  const uint64_t scales_at = t.offset_bytes + t.rows() * row.codes;
  const uint64_t scales_bytes = t.rows() * row.scales, biases_bytes = t.rows() * row.biases;
  RETURN_IF_ERROR(read_back_plane(scales_at, scales_bytes, cursor_.scales));
  RETURN_IF_ERROR(read_back_plane(scales_at + scales_bytes, biases_bytes, cursor_.biases));
  digests_.push_back(cursor_.tensor.digest());
  cursor_ = TensorCursor();
  return {};
}

// Adds a plane to the tensor's digest, from the file, and makes sure that it is still what was
// written.
Status ContainerWriter::read_back_plane(uint64_t offset, uint64_t bytes,
                                        const Xxh3Stream& written) {
  if (bytes == 0) return {};
  Xxh3Stream read;
  std::vector<std::byte> buffer(std::min(kCopyBytes, bytes));
  for (uint64_t done = 0; done < bytes;) {
    const auto piece = std::span(buffer).first(std::min<uint64_t>(buffer.size(), bytes - done));
    RETURN_IF_ERROR(file_.read_at(offset + done, piece));
    read.update(piece);
    cursor_.tensor.update(piece);
    done += piece.size();
  }
  if (read.digest() != written.digest())
    return io_error("{}: reads back other bytes than were written at {}", file_.path(), offset);
  return {};
}

Status ContainerWriter::finish_trunk(Json report) {
  CHECK(digests_.size() == plan_.manifest.trunk.size());
  std::vector<uint64_t> in_place(digests_.size());
  for (size_t n = 0; n < digests_.size(); ++n) in_place[tensor_at(n)] = digests_[n];
  digests_ = std::move(in_place);
  return finish_file(kTrunkName, std::move(report));
}

const Json& ContainerWriter::trunk_report() const {
  return report_of(kTrunkName);
}

const Json& ContainerWriter::layer_report(uint32_t layer) const {
  return report_of(expert_file_name(layer));
}

const Json& ContainerWriter::report_of(const std::string& file) const {
  const JournalPiece* piece = journal_.find(file);
  CHECK(piece != nullptr);
  return piece->report;
}

ContainerWriter::LayerStart ContainerWriter::layer_start(uint32_t layer) const {
  const auto found = layer_starts_.find(layer);
  return found == layer_starts_.end() ? LayerStart() : found->second;
}

Status ContainerWriter::begin_layer(uint32_t layer) {
  layer_ = layer;
  const std::string name = expert_file_name(layer);
  digests_.clear();
  if (!is_written(name)) return {};
  const uint32_t experts = layer_start(layer).experts;
  if (experts > 0) {
    const std::vector<uint64_t>& kept = journal_.find_part(name)->digests;
    digests_.assign(kept.begin(), kept.begin() + experts);
  }
  RETURN_IF_ERROR(begin_file(name, experts == 0));
  if (auto direct = File::open(directory_ / name, File::Mode::update_direct); direct.ok())
    direct_ = std::move(*direct);
  return {};
}

// `fresh`: nothing in it counts; else it goes on.
Status ContainerWriter::begin_file(const std::string& name, bool fresh) {
  name_ = name;
  kept_digests_ = digests_.size();
  unkept_bytes_ = unsynced_bytes_ = 0;
  const uint64_t bytes = plan_.manifest.files.at(name).bytes;
  if (fresh) {
    ASSIGN_OR_RETURN(file_, create(name, bytes));
    return {};
  }
  ASSIGN_OR_RETURN(file_, File::open(directory_ / name, File::Mode::update));
  return file_.allocate(bytes);
}

// After every write: writing out begins at once, so that the disk is busy while the next rows are
// made and a sync has little left to do.
void ContainerWriter::wrote(uint64_t offset, uint64_t bytes) {
  file_.start_writeback(offset, bytes);
  unkept_bytes_ += bytes;
  unsynced_bytes_ += bytes;
}

Status ContainerWriter::keep(Json note) {
  if (name_ == kTrunkName) {
    note["rows"] = cursor_.rows;
    note["planes"] = {digest_to_hex(cursor_.tensor.digest()),
                      digest_to_hex(cursor_.scales.digest()),
                      digest_to_hex(cursor_.biases.digest())};
  }
  RETURN_IF_ERROR(journal_.check_in_place());
  if (unsynced_bytes_ >= kSyncBytes) RETURN_IF_ERROR(file_.sync());
  RETURN_IF_ERROR(journal_.append_part(
      name_, kept_digests_, std::span(digests_).subspan(kept_digests_), std::move(note)));
  if (unsynced_bytes_ >= kSyncBytes) {
    RETURN_IF_ERROR(journal_.sync());
    unsynced_bytes_ = 0;
  }
  kept_digests_ = digests_.size();
  unkept_bytes_ = 0;
  return {};
}

Status ContainerWriter::append_expert(std::span<const std::byte> record) {
  RETURN_IF_ERROR(append_expert_later(record));
  return finish_record();
}

Status ContainerWriter::append_expert_later(std::span<const std::byte> record) {
  RETURN_IF_ERROR(finish_record());
  const uint64_t stride = plan_.manifest.experts.stride_bytes;
  CHECK(file_.is_open() != plan_.in_place.has_value() && record.size() == stride &&
        digests_.size() < plan_.manifest.spec.experts);
  const uint64_t offset = expert_at(layer_, digests_.size()) * stride;
  const auto write = [this, offset, record]() -> Result<uint64_t> {
    if (!plan_.in_place) RETURN_IF_ERROR(write_record(offset, record));
    return record_digest(record);
  };
  try {
    pending_ = std::async(std::launch::async, write);
  } catch (const std::system_error&) {  // no thread to be had: it is written when it is waited for
    pending_ = std::async(std::launch::deferred, write);
  }
  if (plan_.in_place) return {};  // nothing that a later run could read back and go on from
  unkept_bytes_ += stride;
  unsynced_bytes_ += stride;
  return {};
}

Status ContainerWriter::write_record(uint64_t offset, std::span<const std::byte> record) {
  const bool aligned = reinterpret_cast<uintptr_t>(record.data()) % kRecordAlignment == 0;
  if (direct_.is_open() && aligned) {
    if (direct_.write_at(offset, record).ok()) return {};
    direct_ = File();  // odd file system; a disk that is full or broken says so again below
  }
  RETURN_IF_ERROR(file_.write_at(offset, record));
  file_.start_writeback(offset, record.size());
  return {};
}

Status ContainerWriter::finish_record() {
  if (!pending_.valid()) return {};
  ASSIGN_OR_RETURN(const uint64_t digest, pending_.get());
  digests_.push_back(digest);
  return {};
}

Status ContainerWriter::finish_layer(Json report) {
  RETURN_IF_ERROR(finish_record());
  direct_ = File();
  CHECK(digests_.size() == plan_.manifest.spec.experts);
  std::vector<uint64_t> in_place(digests_.size());
  for (size_t n = 0; n < digests_.size(); ++n) in_place[expert_at(layer_, n)] = digests_[n];
  digests_ = std::move(in_place);
  return finish_file(expert_file_name(layer_), std::move(report));
}

Status ContainerWriter::finish_file(const std::string& name, Json report) {
  if (is_written(name)) {
    RETURN_IF_ERROR(file_.sync());
    RETURN_IF_ERROR(file_.close());
  }
  return journal_.append(name, {std::exchange(digests_, {}), std::move(report)});
}

Status ContainerWriter::forget(const std::string& name) {
  if (pending_.valid()) static_cast<void>(pending_.get());
  return journal_.forget(name);
}

Status ContainerWriter::copy_small_file(const std::string& name, const File& source) {
  CHECK(is_small_file_name(name));
  const uint64_t bytes = plan_.manifest.files.at(name).bytes;
  ASSIGN_OR_RETURN(const uint64_t source_bytes, source.size());
  if (source_bytes != bytes)
    return corrupt_error("{}: has {} bytes now, {} when the install began", source.path(),
                         source_bytes, bytes);
  ASSIGN_OR_RETURN(File target, create(name, bytes));
  Xxh3Stream stream;
  std::vector<std::byte> buffer(std::min(kCopyBytes, bytes));
  for (uint64_t done = 0; done < bytes;) {
    const auto piece = std::span(buffer).first(std::min<uint64_t>(buffer.size(), bytes - done));
    RETURN_IF_ERROR(source.read_at(done, piece));
    RETURN_IF_ERROR(target.write_at(done, piece));
    stream.update(piece);
    done += piece.size();
  }
  RETURN_IF_ERROR(target.sync());
  RETURN_IF_ERROR(target.close());
  small_digests_[name] = digest_to_hex(stream.digest());
  return {};
}

Status ContainerWriter::write_small_file(const std::string& name, std::string_view text) {
  CHECK(is_small_file_name(name) && text.size() == plan_.manifest.files.at(name).bytes);
  ASSIGN_OR_RETURN(File target, create(name, text.size()));
  RETURN_IF_ERROR(target.write_at(0, std::as_bytes(std::span(text))));
  RETURN_IF_ERROR(target.sync());
  RETURN_IF_ERROR(target.close());
  small_digests_[name] = digest_to_hex(xxh3_64(text));
  return {};
}

Status ContainerWriter::write_digests() {
  std::vector<uint64_t> all;
  const auto take = [&](const std::string& file) -> Status {
    CHECK(journal_.find(file) != nullptr);
    if (!finished(file))
      return io_error("{} is no longer what was written", (directory_ / file).string());
    const std::vector<uint64_t>& digests = journal_.find(file)->digests;
    all.insert(all.end(), digests.begin(), digests.end());
    return {};
  };
  for (uint32_t layer = 0; layer < plan_.manifest.spec.layer_count(); ++layer)
    if (has_experts(plan_.manifest.spec, layer)) RETURN_IF_ERROR(take(expert_file_name(layer)));
  RETURN_IF_ERROR(take(kTrunkName));
  const auto bytes = std::as_bytes(std::span(all));
  const std::string name(kDigestsFile);
  ASSIGN_OR_RETURN(File file, create(name, bytes.size()));
  RETURN_IF_ERROR(file.write_at(0, bytes));
  RETURN_IF_ERROR(file.sync());
  RETURN_IF_ERROR(file.close());
  plan_.manifest.files.at(name).digest = digest_to_hex(xxh3_64(bytes));
  return {};
}

Status ContainerWriter::write_source() {
  const std::string text = in_place_to_text(*plan_.in_place);
  RETURN_IF_ERROR(parse_in_place(text, plan_.manifest));
  ASSIGN_OR_RETURN(File file, create(std::string(kSourceFile), text.size()));
  RETURN_IF_ERROR(file.write_at(0, std::as_bytes(std::span(text))));
  RETURN_IF_ERROR(file.sync());
  return file.close();
}

// Order is what makes it crash-safe: every byte and name on the disk, then the manifest, and only
// then the journal away. Whatever moment a cut hits, either the journal is there or the container
// is whole.
Result<uint64_t> ContainerWriter::finish(Json report) {
  RETURN_IF_ERROR(journal_.check_in_place());
  RETURN_IF_ERROR(write_digests());
  uint64_t bytes = 0;
  for (auto& [name, record] : plan_.manifest.files) {
    if (is_small_file_name(name)) {
      CHECK(small_digests_.contains(name));
      record.digest = small_digests_[name];
    }
    if (is_written(name)) bytes += record.bytes;
  }
  plan_.manifest.report = std::move(report);
  const std::string text = manifest_to_text(plan_.manifest);
  // What is written must be readable, or hours of work end in a directory that nobody can open.
  RETURN_IF_ERROR(parse_manifest(text));
  if (plan_.in_place)
    RETURN_IF_ERROR(write_source());
  else
    RETURN_IF_ERROR(sync_directory(directory_ / kExpertsFolder));
  RETURN_IF_ERROR(sync_directory(directory_));
  RETURN_IF_ERROR(journal_.check_in_place());
  RETURN_IF_ERROR(write_file_atomically(directory_ / kManifestFile, text));
  RETURN_IF_ERROR(journal_.remove());
  return bytes + text.size();
}

}  // namespace wader
