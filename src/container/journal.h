// Journal: install.json, which stands in a container's directory for as long as the container is
// not finished. It says what is being built from what, and which files are already whole; it is
// also the lock that keeps a second builder away. One sealed JSON object (container/manifest.h) a
// line, appended and synced; a torn last line is a step that did not happen. docs/format.md has the
// keys.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "io/file.h"

namespace wader {

// A finished file: the digests of what it holds, in order, and facts that the manifest's report
// wants.
struct JournalPiece {
  std::vector<uint64_t> digests;
  Json report = Json::object();
};

// What is known of a file that is not finished: digests of its first parts, and what its writer
// noted at some of them.
struct JournalPart {
  struct Mark {
    size_t digests;  // that were there
    Json state;
  };
  std::vector<uint64_t> digests;
  std::vector<Mark> marks;

  // Forgets all that came after `digests` of them.
  void cut(size_t count);
};

class Journal {
 public:
  // `directory` exists and passed check_destination. `origin` identifies source and options: a
  // journal with the same one is continued; with another one the files that it lists, and no
  // others, are removed and the work starts over. `files`: every name that will be written, the
  // manifest left out. already_exists when another process holds it, or when the directory became a
  // finished container.
  static Result<Journal> open(const std::filesystem::path& directory, const Json& origin,
                              const std::vector<std::string>& files);

  bool resumed() const { return resumed_; }
  bool started_over() const { return started_over_; }

  const JournalPiece* find(const std::string& file) const;  // null when it is not finished
  // Call when the file's bytes are synced; durable when this returns.
  Status append(const std::string& file, JournalPiece piece);

  // Of a file that is not finished; null when nothing is known.
  const JournalPart* find_part(const std::string& file) const;
  // Digests after the first `from` of that file's, and a note. Not durable before sync(): whoever
  // continues compares what is there with the digests.
  Status append_part(const std::string& file, size_t from, std::span<const uint64_t> digests,
                     Json state);
  Status sync() { return file_.sync(); }
  // What is known of a file counts no more, finished or not; durable when this returns.
  Status forget(const std::string& file);

  // io when the file that we hold is no longer the one in the directory: somebody deleted the
  // install, or put another there, and what we would write now is not ours to write.
  Status check_in_place() const;
  // The last step of all: the directory becomes a container.
  Status remove();
  // Removes every file that this install may have written, the journal last, then the directory if
  // it is empty.
  Status discard();

 private:
  Status start(const Json& origin, const std::vector<std::string>& files);
  Status append_line(const Json& line);
  void remove_files() const;

  std::filesystem::path directory_;
  File file_;
  std::vector<std::string> files_;
  std::map<std::string, JournalPiece> pieces_;
  std::map<std::string, JournalPart> parts_;
  uint64_t end_bytes_ = 0;  // of the last good line
  bool resumed_ = false, started_over_ = false;
};

// Whether `text` begins as a journal does, also one that a power cut left torn.
bool is_journal_text(std::string_view text);
// What an unfinished install is made of, by its journal: the `origin` of Journal::open().
Result<Json> journal_origin(std::string_view text);

// Holds the journal of an unfinished install, so that nobody writes to it while the result lives; a
// closed File where there is none. already_exists while an install is running.
Result<File> hold_unfinished(const std::filesystem::path& directory);

// Whether an install may write to `directory`: absent, empty, or an unfinished install.
// already_exists for a finished container and for anything that is not ours. Changes nothing.
Status check_destination(const std::filesystem::path& directory);

}  // namespace wader
