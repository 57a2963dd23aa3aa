#include "container/journal.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "container/manifest.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

// 62 layers of 512 experts take 0.6 MB; the bound keeps a hostile file from being read whole.
constexpr uint64_t kMaxJournalBytes = 64 * kMiB;
constexpr uint64_t kJournalVersion = 1;
constexpr std::string_view kJournalStart = "{\"wader_install\":";

Error foreign_error(const fs::path& directory) {
  return already_exists_error("{} exists and is not a Wader container; nothing in it was changed",
                              directory.string());
}

Error complete_error(const fs::path& directory) {
  return already_exists_error(
      "{} is a complete container already; `wader rm` makes room for another", directory.string());
}

// Names in the directory other than the journal's.
Result<std::vector<std::string>> other_names(const fs::path& directory) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    if (it->path().filename() != kJournalFile) names.push_back(it->path().filename().string());
  if (error) return errno_error(error.value(), directory.string());
  return names;
}

bool is_container_file(std::string_view name) {
  if (name == kTrunkFile || name == kDigestsFile || name == kSourceFile || is_small_file_name(name))
    return true;
  const std::string prefix = std::string(kExpertsFolder) + "/";
  return name.starts_with(prefix) && is_small_file_name(name.substr(prefix.size()));
}

// An exclusive lock that the kernel drops when the process ends, however it ends.
Status lock(const File& file, const fs::path& directory) {
  if (::flock(file.fd(), LOCK_EX | LOCK_NB) == 0) return {};
  if (errno == EWOULDBLOCK)
    return already_exists_error("another install is writing to {}", directory.string());
  return errno_error(errno, fmt::format("cannot lock {}", file.path()));
}

struct Header {
  Json origin;
  std::vector<std::string> files;
};

Result<Header> header_from_json(const Json& json) {
  Header header;
  ASSIGN_OR_RETURN(const uint64_t version, json_uint(json, "wader_install", 1, UINT64_MAX));
  if (version != kJournalVersion)
    return unsupported_error(
        "begun by another version of wader; remove the directory to start over");
  ASSIGN_OR_RETURN(const Json* origin, json_member(json, "origin"));
  header.origin = *origin;
  ASSIGN_OR_RETURN(const Json* files, json_member(json, "files"));
  for (const Json& name : *files) {
    // What is removed when an install starts over must be ours, whatever the journal says.
    if (!name.is_string() || !is_container_file(name.get<std::string>()))
      return corrupt_error("lists a file that is no part of a container");
    header.files.push_back(name.get<std::string>());
  }
  return header;
}

Result<std::vector<uint64_t>> digests_from_json(const Json& json) {
  std::vector<uint64_t> out;
  ASSIGN_OR_RETURN(const Json* digests, json_member(json, "digests"));
  for (const Json& hex : *digests) {
    uint64_t digest;
    if (!hex.is_string() || !digest_from_hex(hex.get<std::string>(), &digest))
      return corrupt_error("a digest must be 16 hex digits");
    out.push_back(digest);
  }
  return out;
}

Json digests_to_json(std::span<const uint64_t> digests) {
  Json out = Json::array();
  for (const uint64_t digest : digests) out.push_back(digest_to_hex(digest));
  return out;
}

Result<std::pair<std::string, JournalPiece>> piece_from_json(const Json& json) {
  JournalPiece piece;
  ASSIGN_OR_RETURN(std::string file, json_string(json, "file"));
  ASSIGN_OR_RETURN(piece.digests, digests_from_json(json));
  ASSIGN_OR_RETURN(const Json* report, json_member(json, "report"));
  piece.report = *report;
  return std::pair(std::move(file), std::move(piece));
}

// Adds a line about a file that is not finished.
Status add_part(const Json& json, std::map<std::string, JournalPart>& parts) {
  ASSIGN_OR_RETURN(const std::string file, json_string(json, "part"));
  ASSIGN_OR_RETURN(const uint64_t from, json_uint(json, "from", 0, UINT32_MAX));
  ASSIGN_OR_RETURN(const std::vector<uint64_t> digests, digests_from_json(json));
  ASSIGN_OR_RETURN(const Json* state, json_member(json, "state"));
  JournalPart& part = parts[file];
  if (from > part.digests.size()) return corrupt_error("a part of {} is missing", file);
  part.cut(from);
  part.digests.insert(part.digests.end(), digests.begin(), digests.end());
  part.marks.push_back({part.digests.size(), *state});
  return {};
}

// The first line of `text` with its newline; empty when there is no whole line.
std::string_view first_line(std::string_view text) {
  const size_t newline = text.find('\n');
  return newline == std::string_view::npos ? std::string_view() : text.substr(0, newline + 1);
}

// Whether a journal without a whole header is what a kill or power cut leaves of ours: a beginning
// of the header, or blocks of zeros that were never written.
bool is_torn_header(std::string_view text) {
  if (text.find_first_not_of('\0') == std::string_view::npos) return true;
  return text.starts_with(kJournalStart) || kJournalStart.starts_with(text);
}

// The journal has no header. The header is durable before anything else is written, so with other
// files around this directory is not an install of ours, or it was finished while we waited at its
// door. `made`: the journal was not there before this open.
Status check_headless(const fs::path& directory, const std::string& text, bool made) {
  ASSIGN_OR_RETURN(const std::vector<std::string> others, other_names(directory));
  if (others.empty() && is_torn_header(text)) return {};
  const auto manifest = read_text_file(directory / kManifestFile, kMaxManifestBytes);
  const bool complete = text.empty() && manifest.ok() && parse_manifest(*manifest).ok();
  // An empty journal in a whole container is what an opener leaves that came too late and was
  // killed.
  if (complete || (made && text.empty())) ::unlink((directory / kJournalFile).c_str());
  return complete ? complete_error(directory) : foreign_error(directory);
}

// What a kill left of write_file_atomically(): manifest.json.PID.tmp.
void remove_temporaries(const fs::path& directory) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(std::string(kManifestFile) + ".") && name.ends_with(".tmp"))
      found.push_back(entry.path());
  }
  for (const fs::path& path : found) fs::remove(path, ignored);
}

}  // namespace

bool is_journal_text(std::string_view text) {
  return is_torn_header(text);
}

Result<Json> journal_origin(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, unseal_json(first_line(text), kJournalFile));
  ASSIGN_OR_RETURN(Header header, header_from_json(json));
  return std::move(header.origin);
}

Result<File> hold_unfinished(const fs::path& directory) {
  std::error_code error;
  if (!fs::exists(directory / kJournalFile, error)) return File();
  ASSIGN_OR_RETURN(File file, File::open(directory / kJournalFile, File::Mode::read));
  RETURN_IF_ERROR(lock(file, directory));
  return file;
}

Status Journal::check_in_place() const {
  struct stat held {
  }, named{};
  if (::fstat(file_.fd(), &held) != 0) return errno_error(errno, file_.path());
  if (::stat(file_.path().c_str(), &named) == 0 && held.st_dev == named.st_dev &&
      held.st_ino == named.st_ino)
    return {};
  return io_error("{} was deleted or replaced while it was being installed", directory_.string());
}

Status check_destination(const fs::path& directory) {
  std::error_code error;
  const fs::file_status status = fs::status(directory, error);
  if (status.type() == fs::file_type::not_found) return {};
  if (status.type() == fs::file_type::none) return errno_error(error.value(), directory.string());
  if (status.type() != fs::file_type::directory) return foreign_error(directory);
  if (fs::exists(directory / kJournalFile, error)) return {};
  ASSIGN_OR_RETURN(const std::vector<std::string> others, other_names(directory));
  if (std::find(others.begin(), others.end(), kManifestFile) != others.end())
    return complete_error(directory);
  if (!others.empty()) return foreign_error(directory);
  return {};
}

Result<Journal> Journal::open(const fs::path& directory, const Json& origin,
                              const std::vector<std::string>& files) {
  Journal journal;
  journal.directory_ = directory;
  bool made = false;
  for (;;) {
    RETURN_IF_ERROR(check_destination(directory));
    std::error_code ignored;
    made = !fs::exists(directory / kJournalFile, ignored);
    ASSIGN_OR_RETURN(journal.file_, File::open(directory / kJournalFile, File::Mode::update));
    RETURN_IF_ERROR(lock(journal.file_, directory));
    struct stat info {};
    if (::fstat(journal.file_.fd(), &info) != 0) return errno_error(errno, journal.file_.path());
    if (info.st_nlink > 0)
      break;  // else its owner finished and removed it between our open and our lock
  }
  remove_temporaries(directory);

  ASSIGN_OR_RETURN(const std::string text,
                   read_text_file(directory / kJournalFile, kMaxJournalBytes));
  std::string_view rest = text;
  const std::string_view line = first_line(rest);
  auto header_json = unseal_json(line, kJournalFile);
  if (!header_json.ok()) {
    RETURN_IF_ERROR(check_headless(directory, text, made));
    RETURN_IF_ERROR(journal.start(origin, files));
    return journal;
  }
  auto header = header_from_json(*header_json);
  if (!header.ok()) return std::move(header).error().within(journal.file_.path());
  journal.files_ = std::move(header->files);
  // As text: bytes that are not UTF-8 were replaced when the origin was written.
  if (json_text(header->origin) != json_text(origin) || journal.files_ != files) {
    journal.remove_files();
    RETURN_IF_ERROR(sync_directory(directory));
    RETURN_IF_ERROR(journal.start(origin, files));
    journal.started_over_ = true;
    return journal;
  }

  journal.resumed_ = true;
  journal.end_bytes_ = line.size();
  rest.remove_prefix(line.size());
  while (!rest.empty()) {
    const std::string_view next = first_line(rest);
    const auto json = unseal_json(next, kJournalFile);
    if (!json.ok()) break;
    if (json_has(*json, "part")) {
      if (!add_part(*json, journal.parts_).ok()) break;
    } else if (json_has(*json, "forget")) {
      const auto file = json_string(*json, "forget");
      if (!file.ok()) break;
      journal.parts_.erase(*file);
      journal.pieces_.erase(*file);
    } else {
      auto piece = piece_from_json(*json);
      if (!piece.ok()) break;
      journal.parts_.erase(piece->first);
      journal.pieces_.insert_or_assign(std::move(piece->first), std::move(piece->second));
    }
    journal.end_bytes_ += next.size();
    rest.remove_prefix(next.size());
  }
  RETURN_IF_ERROR(journal.file_.truncate(journal.end_bytes_));
  return journal;
}

Status Journal::start(const Json& origin, const std::vector<std::string>& files) {
  const std::string line =
      seal_json({{"wader_install", kJournalVersion}, {"origin", origin}, {"files", files}}, -1);
  CHECK(line.starts_with(kJournalStart));
  RETURN_IF_ERROR(file_.truncate(0));
  RETURN_IF_ERROR(file_.write_at(0, std::as_bytes(std::span(line))));
  RETURN_IF_ERROR(file_.sync());
  files_ = files;
  pieces_.clear();
  parts_.clear();
  end_bytes_ = line.size();
  return sync_directory(directory_);
}

const JournalPiece* Journal::find(const std::string& file) const {
  const auto found = pieces_.find(file);
  return found == pieces_.end() ? nullptr : &found->second;
}

const JournalPart* Journal::find_part(const std::string& file) const {
  const auto found = parts_.find(file);
  return found == parts_.end() ? nullptr : &found->second;
}

void JournalPart::cut(size_t count) {
  digests.resize(std::min(digests.size(), count));
  while (!marks.empty() && marks.back().digests > count) marks.pop_back();
}

Status Journal::append_line(const Json& line) {
  const std::string text = seal_json(line, -1);
  RETURN_IF_ERROR(file_.write_at(end_bytes_, std::as_bytes(std::span(text))));
  end_bytes_ += text.size();
  return {};
}

Status Journal::append(const std::string& file, JournalPiece piece) {
  RETURN_IF_ERROR(check_in_place());
  RETURN_IF_ERROR(append_line(
      {{"file", file}, {"digests", digests_to_json(piece.digests)}, {"report", piece.report}}));
  RETURN_IF_ERROR(file_.sync());
  pieces_.insert_or_assign(file, std::move(piece));
  parts_.erase(file);
  return {};
}

Status Journal::append_part(const std::string& file, size_t from, std::span<const uint64_t> digests,
                            Json state) {
  JournalPart& part = parts_[file];
  CHECK(from <= part.digests.size());
  RETURN_IF_ERROR(append_line(
      {{"part", file}, {"from", from}, {"digests", digests_to_json(digests)}, {"state", state}}));
  part.cut(from);
  part.digests.insert(part.digests.end(), digests.begin(), digests.end());
  part.marks.push_back({part.digests.size(), std::move(state)});
  return {};
}

Status Journal::forget(const std::string& file) {
  RETURN_IF_ERROR(check_in_place());
  RETURN_IF_ERROR(append_line({{"forget", file}}));
  parts_.erase(file);
  pieces_.erase(file);
  return file_.sync();
}

Status Journal::remove() {
  if (::unlink((directory_ / kJournalFile).c_str()) != 0)
    return errno_error(errno, (directory_ / kJournalFile).string());
  return sync_directory(directory_);
}

// The manifest goes first: without it nothing that is left can be taken for a container.
void Journal::remove_files() const {
  std::error_code ignored;
  fs::remove(directory_ / kManifestFile, ignored);
  remove_temporaries(directory_);
  for (const std::string& name : files_) fs::remove(directory_ / name, ignored);
  fs::remove(directory_ / kExpertsFolder, ignored);  // only when it is empty
}

Status Journal::discard() {
  remove_files();
  RETURN_IF_ERROR(remove());
  std::error_code ignored;
  fs::remove(directory_, ignored);
  return {};
}

}  // namespace wader
