// Cuts text into the pieces that BPE works on, by the tokenizer file's own pattern, run by PCRE2.
// The pattern is untrusted: work is bounded by the length of the text, whatever pattern and text
// are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace wader {

class Splitter {
 public:
  enum class Engine : uint8_t {
    automatic,
    interpreter
  };  // automatic: JIT where the system allows it

  // No splitting: all of a text is one piece.
  Splitter();
  // Error unsupported: a pattern that PCRE2 would not read as Oniguruma does, or that can match
  // nothing.
  static Result<Splitter> create(std::string_view pattern, Engine engine = Engine::automatic);

  Splitter(Splitter&&) noexcept;
  Splitter& operator=(Splitter&&) noexcept;
  ~Splitter();

 private:
  friend class PieceCursor;
  struct Impl;
  std::unique_ptr<const Impl> impl_;  // null: no splitting
};

// Walks over the pieces of one text after another. A cursor belongs to one thread; any number of
// them may use one Splitter, which must outlive them.
class PieceCursor {
 public:
  explicit PieceCursor(const Splitter& splitter);
  ~PieceCursor();
  PieceCursor(const PieceCursor&) = delete;
  PieceCursor& operator=(const PieceCursor&) = delete;

  // `text` must be valid UTF-8 and outlive the walk.
  void start(std::string_view text);
  // The next piece: a match, or what lies between two matches. Never empty; all pieces in order
  // make up the text. False at the end and on error.
  bool next(std::string_view& piece);
  const Status& status() const { return status_; }

 private:
  enum class Found : uint8_t { match, nothing, error };
  Found search();
  bool fail(Error error);

  struct Scratch;
  const Splitter::Impl* splitter_;
  std::unique_ptr<Scratch> scratch_;
  Status status_;
  std::string_view text_;
  size_t at_ = 0;           // pieces up to here have been returned
  size_t match_begin_ = 0;  // the match found last; returned when match_end_ <= at_
  size_t match_end_ = 0;
  size_t work_left_ = 0;  // bytes that oversized windows may still look at
};

}  // namespace wader
