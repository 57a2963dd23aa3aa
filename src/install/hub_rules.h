// What the hub's HTTP means, without any HTTP: names and addresses, what an answer says, and when
// to try again. Pure; everything that comes from a server is untrusted text.
//
// The protocol: GET /api/models/ID/revision/REV gives the commit; /api/models/ID/tree/COMMIT the
// files, a page at a time; /ID/resolve/COMMIT/PATH a file, usually by a redirect to a signed
// address elsewhere that expires.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace wader {

// "org/name" or "name", as the hub takes it: parts of letters, digits, '-', '_' and '.', none
// beginning or ending with '-' or '.', no "--" or "..", at most 96 bytes.
bool is_hub_id(std::string_view text);
bool is_model_of_hub(std::string_view text);  // "org/name" alone: what an install is asked for
// A branch, tag or commit: at most 255 printable ASCII characters, no "..", no '?', '#', '%', '\\'.
bool is_hub_revision(std::string_view text);
bool is_hex(std::string_view text, size_t digits);  // small letters
bool is_commit(std::string_view text);              // 40 hex digits

// `text` for use in an address: unreserved characters stay, and the slashes of a path. A revision,
// as refs/pr/1, is one part of an address, whose slashes are encoded too.
std::string percent_encode(std::string_view text, bool keep_slashes = true);
// "https://huggingface.co:443": scheme, host and port in lower case. invalid_argument when `url` is
// no http or https address or has a user in it.
Result<std::string> url_origin(std::string_view url);
// Where `location` leads from `url`. io when it is no address or leads from https to http.
Result<std::string> follow_location(const std::string& url, const std::string& location);
bool is_this_machine(std::string_view origin);  // a loopback name
// Whether a token may travel to this origin: https, or this very machine.
bool is_safe_for_token(std::string_view origin);
// The address of rel="next" in a Link header; empty without one.
std::string next_page(std::string_view link_header);

// What came back, as far as it decides anything. Empty strings: no such header.
struct HubAnswer {
  int status = 0;               // 0: no answer
  std::string fault;            // why a transfer broke off, in words; empty when it was whole
  bool fault_is_final = false;  // no use to try again: a bad certificate, an address that is none
  std::string location, etag, linked_etag, repo_commit, link;
  std::string error_code, error_message;  // X-Error-Code, X-Error-Message
  std::string retry_after, rate_limit;
  std::string content_range, content_encoding;
  std::optional<uint64_t> content_bytes;
};

// What was asked for.
struct HubRequest {
  std::string repository, revision, name, endpoint;  // for messages; name empty: no file
  bool at_endpoint = true;                           // and not at the address of a redirect
  bool has_token = false;
  bool keeps_token = false;  // there is one, but it must not travel to this endpoint
  // A range of a file of this size; nothing: the whole answer.
  struct Range {
    uint64_t offset, bytes, file_bytes;
  };
  std::optional<Range> range = {};
  std::string linked_etag = {}, commit = {};  // must be the answer's where both say it
};

enum class Verdict : uint8_t {
  take,      // the body is what was asked for
  redirect,  // go to `location`
  retry,     // after a while
  wait,      // the server says for how long
  renew,     // the signed address is no longer good: ask the hub for another
  stop,      // no use to try again
};

struct Judgement {
  Verdict verdict = Verdict::take;
  Error error = {ErrorCode::io, ""};  // retry, wait and renew: should it be the last try
  std::optional<std::chrono::milliseconds> delay = {};  // wait: as long as was asked for
  uint64_t skip_bytes = 0;  // take: of the body, before the range begins
};

// Judged once the headers are there (fault empty), and once more when the transfer broke.
// `now_unix`: for a Retry-After that is a date.
Judgement judge(const HubRequest& request, const HubAnswer& answer, int64_t now_unix);

// How long to wait before which try. A transfer that brought bytes starts the count anew.
struct RetryLimits {
  std::chrono::milliseconds first_delay{250};
  std::chrono::milliseconds longest_delay{20'000};
  std::chrono::milliseconds longest_wait{15 * 60'000};  // that a server may ask for
  uint32_t tries = 8;
};

class RetrySchedule {
 public:
  explicit RetrySchedule(const RetryLimits& limits = {}) : limits_(limits) {}

  // The delay before the next try, doubled each time and up to a quarter longer by `jitter`;
  // nothing when it was the last. `asked`: by the server, to which up to a second is added.
  std::optional<std::chrono::milliseconds> next(std::optional<std::chrono::milliseconds> asked,
                                                uint32_t jitter);
  void progressed() { failures_ = all_failures_ = 0; }
  // The last failure was this request's own bad luck: others like it came through meanwhile. It is
  // not counted, but for three times as many in all.
  void forgive();
  uint32_t failures() const { return all_failures_; }

 private:
  RetryLimits limits_;
  uint32_t failures_ = 0, all_failures_ = 0;
};

}  // namespace wader
