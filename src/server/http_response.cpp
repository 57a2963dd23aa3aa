#include "server/http_response.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http/status.hpp>

#include "base/ascii.h"
#include "server/http_text.h"

namespace wader {
namespace {

void add_header(std::string& text, std::string_view name, std::string_view value) {
  if (!is_token(name) || !is_field_value(value)) return;
  text.append(name).append(": ").append(value).append("\r\n");
}

bool has_header(const HttpResponse& response, std::string_view name) {
  return std::any_of(response.headers.begin(), response.headers.end(),
                     [&](auto& header) { return equal_ignoring_case(header.first, name); });
}

}  // namespace

bool is_without_body(int status) {
  return status < 200 || status == 204 || status == 304;
}

std::string http_head(const HttpResponse& response, const HttpHeaders& more,
                      const HttpHeadFacts& facts) {
  const auto reason =
      boost::beast::http::obsolete_reason(boost::beast::http::int_to_status(response.status));
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nServer: wader\r\nDate: {}\r\n", response.status,
                                 std::string_view(reason.data(), reason.size()), facts.date);
  if (!is_without_body(response.status)) {
    if (!response.content_type.empty()) add_header(text, "Content-Type", response.content_type);
    if (facts.framing == HttpFraming::length)
      text += fmt::format("Content-Length: {}\r\n", response.body.size());
    else if (facts.framing == HttpFraming::chunked)
      text += "Transfer-Encoding: chunked\r\n";
  }
  for (const auto& [name, value] : response.headers) add_header(text, name, value);
  for (const auto& [name, value] : more) add_header(text, name, value);
  if (!has_header(response, "Cache-Control")) text += "Cache-Control: no-store\r\n";
  text +=
      "X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n"
      "Cross-Origin-Resource-Policy: same-origin\r\n";
  if (facts.request_id != 0) text += fmt::format("X-Request-Id: {}\r\n", facts.request_id);
  text += facts.keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return text;
}

std::string http_chunk(std::string_view text) {
  std::string chunk = fmt::format("{:x}\r\n", text.size());
  return chunk.append(text).append("\r\n");
}

std::string http_date(std::time_t unix_s) {
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm utc = {};
  if (gmtime_r(&unix_s, &utc) == nullptr) return "Thu, 01 Jan 1970 00:00:00 GMT";
  return fmt::format("{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT", kDays[utc.tm_wday], utc.tm_mday,
                     kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

}  // namespace wader
