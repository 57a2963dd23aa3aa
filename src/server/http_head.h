// The head of a request as data: what the layer looks at, and nothing else of what was sent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "server/http.h"

namespace wader {

// A header that may stand once. Two lines of it are an attack or a broken client.
struct SingleHeader {
  std::string value;
  uint32_t lines = 0;
};

struct HttpHead {
  HttpMethod method = HttpMethod::other;
  std::string target;
  bool http_1_1 = true;  // else 1.0
  bool keep_alive = true;
  bool expects_continue = false, expects_other = false;
  bool chunked = false;
  uint64_t content_length = 0;
  bool has_body() const { return chunked || content_length > 0; }

  SingleHeader host, origin, authorization, content_type;
  // Of a preflight.
  SingleHeader wanted_method, wanted_headers, wanted_private_network;
};

}  // namespace wader
