// The head of an answer as text (RFC 9110, 9112). Pure.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>

#include "server/http_access.h"

namespace wader {

enum class HttpFraming : uint8_t {
  length,   // Content-Length: a whole body, or that of the GET that a HEAD asks about
  chunked,  // to its last chunk
  close,    // to the connection's end, for HTTP/1.0
};

struct HttpHeadFacts {
  HttpFraming framing = HttpFraming::length;
  bool keep_alive = false;
  uint64_t request_id = 0;
  std::string_view date;  // of http_date()
};

// From the status line to the empty line. Headers of `response` and `more` that are no headers (a
// line end in a value) are left out: nothing in them can begin a header or a body of its own.
std::string http_head(const HttpResponse& response, const HttpHeaders& more,
                      const HttpHeadFacts& facts);

std::string http_chunk(std::string_view text);  // of text that is not empty
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// "Sun, 06 Nov 1994 08:49:37 GMT"
std::string http_date(std::time_t unix_s);

// Whether an answer with this status never has a body.
bool is_without_body(int status);

}  // namespace wader
