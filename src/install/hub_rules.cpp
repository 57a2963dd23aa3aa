#include "install/hub_rules.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/ascii.h"
#include "base/error.h"
#include "base/units.h"
#include "install/curl_library.h"

namespace wader {
namespace {

using std::chrono::milliseconds;

// So much of a body is read and thrown away when a server sends a whole file for a range.
constexpr uint64_t kMaxSkipBytes = 1 * kMiB;
constexpr size_t kMaxUrlBytes = 16 * kKiB;

bool is_word(char c) {
  return is_ascii_alnum(c) || c == '_';
}

bool is_id_part(std::string_view part) {
  if (part.empty() || !is_word(part.front()) || !is_word(part.back())) return false;
  if (part.find("--") != part.npos || part.find("..") != part.npos) return false;
  return std::all_of(part.begin(), part.end(),
                     [](char c) { return is_word(c) || c == '-' || c == '.'; });
}

struct UrlDeleter {
  void operator()(CURLU* url) const { curl().url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, UrlDeleter>;

Url parse_url(std::string_view text) {
  Url url(curl().url());
  if (url == nullptr || text.size() > kMaxUrlBytes || text.find('\0') != text.npos) return nullptr;
  const CURLUcode code = curl().url_set(url.get(), CURLUPART_URL, std::string(text).c_str(),
                                        CURLU_DISALLOW_USER | CURLU_NON_SUPPORT_SCHEME);
  return code == CURLUE_OK ? std::move(url) : nullptr;
}

std::string url_part(const Url& url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl().url_get(url.get(), part, &text, flags) != CURLUE_OK) return "";
  std::string out = lower_ascii(text);
  curl().free(text);
  return out;
}

std::optional<uint64_t> whole(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

// A server's words, for a message of ours: one short line of printable ASCII.
std::string server_words(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 160)) out += c < 0x20 || c >= 0x7f ? ' ' : c;
  return out;
}

// Seconds of Retry-After (a number or a date), or t of `ratelimit: "api";r=0;t=55`.
std::optional<milliseconds> asked_delay(const HubAnswer& answer, int64_t now_unix) {
  constexpr uint64_t kMostSeconds = 30 * 24 * 3600;
  std::optional<uint64_t> seconds = whole(answer.retry_after);
  if (!seconds && !answer.retry_after.empty()) {
    const time_t at = curl().getdate(answer.retry_after.c_str(), nullptr);
    if (at >= 0) seconds = at > now_unix ? static_cast<uint64_t>(at - now_unix) : 0;
  }
  for (std::string_view rest = answer.rate_limit; !seconds && !rest.empty();) {
    const size_t end = std::min(rest.find(';'), rest.size());
    std::string_view item = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    while (item.starts_with(' ')) item.remove_prefix(1);
    if (item.starts_with("t=")) seconds = whole(item.substr(2));
  }
  if (!seconds) return std::nullopt;
  return milliseconds(1000 * std::min(*seconds, kMostSeconds));
}

std::string subject(const HubRequest& request) {
  if (request.name.empty()) return request.repository;
  return fmt::format("{}/{}", request.repository, request.name);
}

Judgement stop(Error error) {
  return {Verdict::stop, std::move(error)};
}
Judgement again(Verdict verdict, Error error) {
  return {verdict, std::move(error)};
}

std::string_view way_to_a_token(const HubRequest& request) {
  return request.keeps_token ? "the token is not sent, as plain http would show it to others; "
                               "HF_ENDPOINT must be https"
                             : "set HF_TOKEN to an access token";
}

// 401, 403 and 404 of the hub itself, each in a line that says what to do.
Judgement judge_refusal(const HubRequest& request, const HubAnswer& answer) {
  const std::string& id = request.repository;
  const std::string where = fmt::format("{}/{}", request.endpoint, id);
  if (answer.error_code == "GatedRepo")
    return stop(
        request.has_token
            ? invalid_argument_error("{} is gated and the token has no access to it: accept "
                                     "its licence at {}, or use another token",
                                     id, where)
            : invalid_argument_error("{} is gated: accept its licence at {}, then {}", id, where,
                                     way_to_a_token(request)));
  if (answer.error_code == "RevisionNotFound")
    return stop(not_found_error("{} has no revision '{}'", id, request.revision));
  if (answer.error_code == "EntryNotFound")
    return stop(not_found_error("{} has no file {} at {}", id, request.name, request.revision));
  if (answer.error_code == "RepoNotFound" || answer.status == 404)
    return stop(not_found_error("{} has no model {}, or it is private and {}", request.endpoint, id,
                                request.has_token
                                    ? "the token has no access to it"
                                    : fmt::format("needs a token: {}", way_to_a_token(request))));
  if (request.has_token)
    return stop(invalid_argument_error(
        "{} refused the token for {} (HTTP {}{}{}): is it still valid?", request.endpoint, id,
        answer.status, answer.error_message.empty() ? "" : ", ",
        server_words(answer.error_message)));
  return stop(invalid_argument_error("{} wants a token for {} (HTTP {}): {}", request.endpoint, id,
                                     answer.status, way_to_a_token(request)));
}

Judgement judge_failure(const HubRequest& request, const HubAnswer& answer, int64_t now_unix) {
  const int status = answer.status;
  const auto delay = asked_delay(answer, now_unix);
  if (status == 429) {
    const std::string when =
        delay ? fmt::format("; it asks to wait {} s", delay->count() / 1000) : std::string();
    return {Verdict::wait,
            io_error("{}: the server allows no more requests for now (HTTP 429){}",
                     subject(request), when),
            delay};
  }
  Error error =
      io_error("{}: the server answered HTTP {}{}{}", subject(request), status,
               answer.error_message.empty() ? "" : ", ", server_words(answer.error_message));
  if (status >= 500 || status == 408 || status == 425)
    return {delay ? Verdict::wait : Verdict::retry, std::move(error), delay};
  // Whatever the storage has against a signed address: the hub gives another.
  if (!request.at_endpoint) return again(Verdict::renew, std::move(error));
  if (status == 401 || status == 403 || status == 404) return judge_refusal(request, answer);
  return stop(std::move(error));
}

// "bytes 0-1023/146515" → its three numbers.
std::optional<HubRequest::Range> parse_content_range(std::string_view text) {
  if (!text.starts_with("bytes ")) return std::nullopt;
  text.remove_prefix(6);
  const size_t dash = text.find('-'), slash = text.find('/');
  if (dash == text.npos || slash == text.npos || dash > slash) return std::nullopt;
  const auto first = whole(text.substr(0, dash));
  const auto last = whole(text.substr(dash + 1, slash - dash - 1));
  const auto total = whole(text.substr(slash + 1));
  if (!first || !last || !total || *last < *first || *last >= *total) return std::nullopt;
  return HubRequest::Range{*first, *last - *first + 1, *total};
}

Judgement judge_range(const HubRequest& request, const HubAnswer& answer) {
  const HubRequest::Range& range = *request.range;
  const auto changed = [&](uint64_t bytes) {
    return again(Verdict::renew,
                 io_error("{} has {} bytes on the server and {} in the list of files: it changed "
                          "meanwhile; run the same install again",
                          subject(request), bytes, range.file_bytes));
  };
  if (answer.status == 206) {
    const auto got = parse_content_range(answer.content_range);
    if (!got)
      return again(Verdict::renew,
                   io_error("{}: the server sent a range without saying which", subject(request)));
    if (got->file_bytes != range.file_bytes) return changed(got->file_bytes);
    if (got->offset != range.offset || got->bytes > range.bytes)
      return again(Verdict::renew, io_error("{}: the server sent another range than was asked for",
                                            subject(request)));
    return {};
  }
  // A whole file. What is before the range is thrown away where that is little.
  if (answer.content_bytes && *answer.content_bytes != range.file_bytes)
    return changed(*answer.content_bytes);
  if (range.offset > kMaxSkipBytes)
    return again(Verdict::renew,
                 io_error("{}: the server ignores ranges and sends whole files; a proxy in between "
                          "may be the cause",
                          subject(request)));
  Judgement take;
  take.skip_bytes = range.offset;
  return take;
}

}  // namespace

bool is_hub_id(std::string_view text) {
  if (text.size() > 96) return false;
  const size_t slash = text.find('/');
  if (slash == text.npos) return is_id_part(text);
  return is_id_part(text.substr(0, slash)) && is_id_part(text.substr(slash + 1));
}

bool is_model_of_hub(std::string_view text) {
  return text.find('/') != text.npos && is_hub_id(text);
}

bool is_hub_revision(std::string_view text) {
  if (text.empty() || text.size() > 255 || text.front() == '/' || text.front() == '-') return false;
  if (text.find("..") != text.npos) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return c > 0x20 && c < 0x7f && std::strchr("?#%\\\"'<>`", c) == nullptr;
  });
}

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool is_commit(std::string_view text) {
  return is_hex(text, 40);
}

std::string percent_encode(std::string_view text, bool keep_slashes) {
  std::string out;
  for (const char c : text) {
    if (is_word(c) || c == '-' || c == '.' || c == '~' || (c == '/' && keep_slashes))
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Result<std::string> url_origin(std::string_view text) {
  RETURN_IF_ERROR(load_curl());
  const Url url = parse_url(text);
  const std::string scheme = url ? url_part(url, CURLUPART_SCHEME) : "";
  const std::string host = url ? url_part(url, CURLUPART_HOST) : "";
  // What may be a password stands in no message.
  if (url == nullptr && text.find('@') != text.npos)
    return invalid_argument_error("an address with a user or password in it is not taken");
  if ((scheme != "http" && scheme != "https") || host.empty())
    return invalid_argument_error("'{}' is not an http or https address", server_words(text));
  return fmt::format("{}://{}:{}", scheme, host, url_part(url, CURLUPART_PORT, CURLU_DEFAULT_PORT));
}

Result<std::string> follow_location(const std::string& from, const std::string& location) {
  const Url url = parse_url(from);
  CHECK(url != nullptr);
  const bool was_https = url_part(url, CURLUPART_SCHEME) == "https";
  char* text = nullptr;
  if (location.size() > kMaxUrlBytes ||
      curl().url_set(url.get(), CURLUPART_URL, location.c_str(), CURLU_DISALLOW_USER) !=
          CURLUE_OK ||
      curl().url_get(url.get(), CURLUPART_URL, &text, 0) != CURLUE_OK)
    return io_error("a redirect leads to no address");
  std::string to(text);
  curl().free(text);
  ASSIGN_OR_RETURN(const std::string origin, url_origin(to));
  if (was_https && !origin.starts_with("https:"))
    return io_error("a redirect leads from https to http, {}", origin);
  return to;
}

bool is_this_machine(std::string_view origin) {
  const size_t host = origin.find("://");
  if (host == origin.npos) return false;
  for (const std::string_view local : {"127.0.0.1:", "localhost:", "[::1]:"})
    if (origin.substr(host + 3).starts_with(local)) return true;
  return false;
}

bool is_safe_for_token(std::string_view origin) {
  return origin.starts_with("https://") || is_this_machine(origin);
}

std::string next_page(std::string_view header) {
  for (size_t at = header.find('<'); at != header.npos; at = header.find('<', at + 1)) {
    const size_t end = header.find('>', at);
    if (end == header.npos) break;
    const std::string_view parameters = header.substr(end, header.find('<', end) - end);
    if (parameters.find("rel=\"next\"") != parameters.npos)
      return std::string(header.substr(at + 1, end - at - 1));
  }
  return "";
}

Judgement judge(const HubRequest& request, const HubAnswer& answer, int64_t now_unix) {
  if (!answer.fault.empty()) {
    Error error = io_error("{}: {}", subject(request), server_words(answer.fault));
    return answer.fault_is_final ? stop(std::move(error)) : again(Verdict::retry, std::move(error));
  }
  if (answer.status == 301 || answer.status == 302 || answer.status == 303 ||
      answer.status == 307 || answer.status == 308) {
    if (answer.location.empty())
      return again(Verdict::renew, io_error("{}: a redirect without address", subject(request)));
    if (!request.commit.empty() && !answer.repo_commit.empty() &&
        answer.repo_commit != request.commit)
      return stop(io_error("{}: the server answers for commit {} instead of {}", subject(request),
                           server_words(answer.repo_commit), request.commit));
    if (!request.linked_etag.empty() && !answer.linked_etag.empty() &&
        answer.linked_etag != request.linked_etag)
      return stop(
          io_error("{}: the server has other contents under this commit than its list of "
                   "files says (X-Linked-ETag)",
                   subject(request)));
    return {Verdict::redirect};
  }
  if (answer.status != 200 && answer.status != 206) return judge_failure(request, answer, now_unix);
  if (!answer.content_encoding.empty() && answer.content_encoding != "identity")
    return again(Verdict::renew, io_error("{}: the server sends {} although plain bytes were asked "
                                          "for; a proxy in between may be the cause",
                                          subject(request), server_words(answer.content_encoding)));
  return request.range ? judge_range(request, answer) : Judgement();
}

void RetrySchedule::forgive() {
  if (failures_ > 1 && all_failures_ < 3 * limits_.tries) --failures_;
}

std::optional<milliseconds> RetrySchedule::next(std::optional<milliseconds> asked,
                                                uint32_t jitter) {
  ++all_failures_;
  if (++failures_ >= limits_.tries) return std::nullopt;
  if (asked) {
    if (*asked > limits_.longest_wait) return std::nullopt;
    return *asked + milliseconds(jitter % 1000);
  }
  const int doublings = static_cast<int>(std::min(failures_ - 1, 20u));
  const milliseconds delay =
      std::min(limits_.first_delay * (1 << doublings), limits_.longest_delay);
  return delay + delay * (jitter % 256) / 1024;
}

}  // namespace wader
