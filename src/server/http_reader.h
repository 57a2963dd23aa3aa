// HttpReader: the bytes of one request, in any pieces, to its head and its body, within limits. No
// I/O, no clock. The grammar is Beast's parser; on top of it come the refusals that keep two
// readers of one request from seeing two requests (RFC 9112 section 11.2).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/http_head.h"

namespace wader {

// Bytes that all bodies together may hold. One thread.
class BodyBudget {
 public:
  explicit BodyBudget(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  bool take(uint64_t bytes) {
    if (bytes > limit_bytes_ - used_bytes_) return false;
    used_bytes_ += bytes;
    return true;
  }
  void give_back(uint64_t bytes) { used_bytes_ -= bytes; }
  uint64_t used_bytes() const { return used_bytes_; }

 private:
  uint64_t limit_bytes_, used_bytes_ = 0;
};

constexpr uint32_t kMaxHeaderLines = 256;

class HttpReader {
 public:
  // `budget` must outlive the reader, which gives back what its body took when it is destroyed.
  HttpReader(uint64_t max_header_bytes, BodyBudget& budget);
  ~HttpReader();
  HttpReader(const HttpReader&) = delete;
  HttpReader& operator=(const HttpReader&) = delete;

  enum class State : uint8_t { head, head_done, body, done, failed };
  State state() const;

  // Takes bytes and returns how many it took; the caller offers the rest again, with what came
  // since. Stops at the end of the head, and at the end of the request.
  size_t feed(std::string_view bytes);
  // In head_done: goes on with the body, which may have so many bytes. done at once without one,
  // failed at once where one of more bytes is announced.
  void read_body(uint64_t max_body_bytes);

  const HttpHead& head() const;  // from head_done on
  std::string& body();           // in done

  // Of failed: 400, 413, 431, 503 or 505, and why, in words that hold nothing of the request.
  int status() const;
  std::string_view problem() const;

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace wader
