#include "server/http_access.h"

#include <algorithm>

#include "base/ascii.h"
#include "server/http_text.h"

namespace wader {
namespace {

bool is_loopback_name(std::string_view host) {
  return host == "localhost" || host == "127.0.0.1" || host == "[::1]";
}

// Browsers take what is made of digits and dots for an address, never for a name.
bool is_address(std::string_view host) {
  return host.starts_with('[') || host.find_first_not_of("0123456789.") == host.npos;
}

// What a page asks to send, as a list of names; what is no name is left out. A browser asks in a
// few hundred bytes.
std::string allowed_headers(std::string_view wanted) {
  constexpr size_t kMaxBytes = 2048;
  std::string names = "authorization, content-type";
  wanted = wanted.substr(0, kMaxBytes);
  while (!wanted.empty()) {
    const size_t comma = std::min(wanted.find(','), wanted.size());
    const std::string name = lower_ascii(trim_blanks(wanted.substr(0, comma)));
    wanted.remove_prefix(std::min(comma + 1, wanted.size()));
    if (!is_token(name) || name == "authorization" || name == "content-type") continue;
    names.append(", ").append(name);
  }
  return names;
}

}  // namespace

bool equal_in_constant_time(std::string_view given, std::string_view secret) {
  if (secret.empty()) return given.empty();
  // volatile: the compiler must not see that one difference settles it.
  volatile unsigned char difference = given.size() == secret.size() ? 0 : 1;
  for (size_t i = 0, j = 0; i < given.size(); ++i) {
    difference = difference | static_cast<unsigned char>(given[i] ^ secret[j]);
    j = j + 1 < secret.size() ? j + 1 : 0;
  }
  return difference == 0;
}

HttpGuard::HttpGuard(HttpAccess access, uint16_t port) : access_(std::move(access)), port_(port) {}

bool HttpGuard::host_allowed(std::string_view host) const {
  const auto asked = parse_authority(host);
  if (!asked) return false;
  if (is_loopback_name(asked->host) && asked->port.value_or(port_) == port_) return true;
  if (access_.any_address && is_address(asked->host) && asked->port.value_or(80) == port_)
    return true;
  return std::any_of(access_.allowed_hosts.begin(), access_.allowed_hosts.end(), [&](auto& entry) {
    const auto allowed = parse_authority(entry);
    return allowed && allowed->host == asked->host &&
           (!allowed->port || allowed->port == asked->port);
  });
}

bool HttpGuard::origin_allowed(std::string_view origin, std::string_view host) const {
  for (const std::string& allowed : access_.allowed_origins)
    if (allowed == "*" || equal_ignoring_case(allowed, origin)) return true;
  return is_own_origin(origin, host);
}

bool HttpGuard::is_own_origin(std::string_view origin, std::string_view host) const {
  const size_t scheme_end = origin.find("://");
  if (scheme_end == origin.npos) return false;
  const std::string scheme = lower_ascii(origin.substr(0, scheme_end));
  if (scheme != "http" && scheme != "https") return false;
  const auto page = parse_authority(origin.substr(scheme_end + 3));
  const auto own = parse_authority(host);
  if (!page || !own) return false;
  const uint16_t default_port = scheme == "https" ? 443 : 80;
  const uint16_t page_port = page->port.value_or(default_port);
  if (is_loopback_name(page->host)) return page_port == port_;
  // By the name of a proxy, which may speak TLS: its port is not ours, and a Host without a port
  // means the scheme's own.
  return page->host == own->host && page_port == own->port.value_or(default_port);
}

bool HttpGuard::key_matches(std::string_view authorization) const {
  if (!access_.api_key) return true;
  constexpr std::string_view kScheme = "bearer ";
  if (!equal_ignoring_case(authorization.substr(0, kScheme.size()), kScheme)) return false;
  const std::string_view given = trim_blanks(authorization.substr(kScheme.size()));
  return !given.empty() && equal_in_constant_time(given, *access_.api_key);
}

HttpHeaders HttpGuard::cors(std::string_view origin) const {
  return {{"Access-Control-Allow-Origin", std::string(origin)},
          {"Access-Control-Expose-Headers", "retry-after, www-authenticate, x-request-id"},
          {"Vary", "Origin"}};
}

HttpHeaders HttpGuard::preflight(const HttpHead& head) const {
  HttpHeaders headers = cors(head.origin.value);
  headers.emplace_back("Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS");
  // SDKs in a page send headers of their own (x-stainless-os and more): what was asked for is
  // allowed, as an origin that is allowed could send it without a browser anyway.
  headers.emplace_back("Access-Control-Allow-Headers", allowed_headers(head.wanted_headers.value));
  if (head.wanted_private_network.value == "true")
    headers.emplace_back("Access-Control-Allow-Private-Network", "true");
  headers.emplace_back("Access-Control-Max-Age", "600");
  return headers;
}

}  // namespace wader
