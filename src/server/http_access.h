// Who may ask: names in Host, origins of pages, the key. Pure. Against DNS rebinding
// (CVE-2024-28224) a page's own name must not reach a server on loopback, so only names that cannot
// be somebody else's are answered. Sources: RFC 9110 sections 7.2 and 11; RFC 6750; the Fetch
// standard's CORS protocol.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http_head.h"

namespace wader {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

class HttpGuard {
 public:
  // An allowed host without a port is allowed with any. The origin "*" allows every page.
  HttpGuard(HttpAccess access, uint16_t port);

  bool host_allowed(std::string_view host) const;
  // `host` is the request's own, which was allowed: its pages are the server's own.
  bool origin_allowed(std::string_view origin, std::string_view host) const;
  bool is_own_origin(std::string_view origin, std::string_view host) const;
  // `authorization` is the header's value, empty where there is none. True without a key.
  bool key_matches(std::string_view authorization) const;

  // What lets a page of an allowed origin read an answer, and ask for permission first.
  HttpHeaders cors(std::string_view origin) const;
  HttpHeaders preflight(const HttpHead& head) const;

 private:
  HttpAccess access_;
  uint16_t port_;
};

// Whether the two are equal, in a time that depends on the length of `given` alone.
bool equal_in_constant_time(std::string_view given, std::string_view secret);

}  // namespace wader
