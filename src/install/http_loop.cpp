#include "install/http_loop.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "base/error.h"
#include "base/thread.h"
#include "base/units.h"
#include "install/crypto_library.h"
#include "install/curl_library.h"

namespace wader {
namespace {

using Clock = std::chrono::steady_clock;

constexpr long kReceiveBytes = 512 * 1024;  // the most that libcurl takes
constexpr uint64_t kMaxDrainBytes = 16 * kKiB;
constexpr size_t kMaxHeaderBytes = 16 * kKiB;  // of one header that is kept

struct Transfer {
  HttpTransfer request;
  HubAnswer answer;
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  char error[CURL_ERROR_SIZE] = {};
  bool headers_done = false, unwanted = false;

  ~Transfer() {
    curl().slist_free_all(headers);
    if (easy != nullptr) curl().easy_cleanup(easy);
  }
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && static_cast<unsigned char>(text.front()) <= ' ') text.remove_prefix(1);
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.remove_suffix(1);
  return text;
}

void take_header(HubAnswer& answer, std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == line.npos || line.size() > kMaxHeaderBytes) return;
  const std::string_view name = line.substr(0, colon), value = trimmed(line.substr(colon + 1));
  const std::pair<std::string_view, std::string*> kept[] = {
      {"location", &answer.location},
      {"etag", &answer.etag},
      {"x-linked-etag", &answer.linked_etag},
      {"x-repo-commit", &answer.repo_commit},
      {"link", &answer.link},
      {"x-error-code", &answer.error_code},
      {"x-error-message", &answer.error_message},
      {"retry-after", &answer.retry_after},
      {"ratelimit", &answer.rate_limit},
      {"content-range", &answer.content_range},
      {"content-encoding", &answer.content_encoding},
  };
  for (const auto& [key, to] : kept)
    if (equal_ignoring_case(name, key)) *to = value;
  if (equal_ignoring_case(name, "content-length") && value.size() <= 19 && !value.empty() &&
      std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; }))
    answer.content_bytes = std::stoull(std::string(value));
}

size_t on_header(char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::string_view line(data, size * count);
  // A new status line: of the proxy before, or after a 100 Continue.
  if (line.starts_with("HTTP/")) transfer.answer = {};
  take_header(transfer.answer, line);
  return size * count;
}

void finish_headers(Transfer& transfer) {
  if (std::exchange(transfer.headers_done, true)) return;
  long status = 0;
  curl().easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &status);
  transfer.answer.status = static_cast<int>(status);
  transfer.unwanted = !transfer.request.headers(transfer.answer);
}

size_t on_body(char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  finish_headers(transfer);
  if (transfer.unwanted)  // a short text is read to its end, so that the connection can be kept
    return transfer.answer.content_bytes.value_or(kMaxDrainBytes + 1) <= kMaxDrainBytes
               ? size * count
               : 0;
  const std::span<const char> bytes(data, size * count);
  return transfer.request.body(std::as_bytes(bytes)) ? bytes.size() : 0;
}

// Trying again cannot help. Not among them: what libcurl calls an unsupported protocol or a lack of
// memory may be a garbled answer.
bool is_final(CURLcode code) {
  return code == CURLE_URL_MALFORMAT || code == CURLE_PEER_FAILED_VERIFICATION ||
         code == CURLE_SSL_CACERT_BADFILE;
}

std::string fault_text(CURLcode code, const Transfer& transfer, const HttpSettings& settings) {
  if (code == CURLE_OPERATION_TIMEDOUT && transfer.headers_done)
    return fmt::format("the transfer stalled: less than {} a second for {} s",
                       format_bytes(settings.stall_floor_bytes_per_second),
                       settings.stall_time.count());
  if (code == CURLE_PARTIAL_FILE || code == CURLE_GOT_NOTHING || code == CURLE_RECV_ERROR)
    return "the connection was cut";
  // libcurl quotes the address of a proxy that it cannot take, and there may be a password in it.
  const std::string_view text = transfer.error;
  if (text.find('@') != text.npos && text.find("proxy") != text.npos)
    return "the proxy that https_proxy, http_proxy or all_proxy names cannot be used";
  return transfer.error[0] != '\0' ? transfer.error : curl().easy_strerror(code);
}

}  // namespace

struct HttpLoop::State {
  HttpSettings settings;
  CURLM* multi = nullptr;
  std::mutex mutex;
  std::vector<std::function<void()>> posted;
  std::multimap<Clock::time_point, std::function<void()>> timers;
  std::map<CURL*, std::unique_ptr<Transfer>> transfers;
  std::atomic<bool> stop = false;
  std::thread thread;

  void run() {
    while (!stop) {
      run_posted();
      run_timers();
      int running = 0;
      curl().multi_perform(multi, &running);
      finish_transfers();
      if (!stop) curl().multi_poll(multi, nullptr, 0, wait_ms(), nullptr);
    }
  }

  void run_posted() {
    std::vector<std::function<void()>> tasks;
    {
      const std::lock_guard lock(mutex);
      tasks.swap(posted);
    }
    for (auto& task : tasks) task();
  }

  void run_timers() {
    while (!timers.empty() && timers.begin()->first <= Clock::now()) {
      const auto task = std::move(timers.begin()->second);
      timers.erase(timers.begin());
      task();
    }
  }

  int wait_ms() {
    {
      const std::lock_guard lock(mutex);
      if (!posted.empty()) return 0;
    }
    if (timers.empty()) return 1000;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(timers.begin()->first - Clock::now());
    return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1000));
  }

  void finish_transfers() {
    int left = 0;
    while (const CURLMsg* message = curl().multi_info_read(multi, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      CURL* const easy = message->easy_handle;
      const CURLcode code = message->data.result;
      curl().multi_remove_handle(multi, easy);
      std::unique_ptr<Transfer> transfer = std::move(transfers.extract(easy).mapped());
      if (code == CURLE_OK) finish_headers(*transfer);
      // Our own no to a body is no fault.
      if (code != CURLE_OK && !transfer->unwanted) {
        transfer->answer.fault = fault_text(code, *transfer, settings);
        transfer->answer.fault_is_final = is_final(code);
      }
      transfer->request.done(transfer->answer);
    }
  }
};

HttpLoop::HttpLoop(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<HttpLoop>> HttpLoop::create(const HttpSettings& settings) {
  RETURN_IF_ERROR(load_curl());
  RETURN_IF_ERROR(load_crypto());  // for what its user checks bodies with
  auto state = std::make_unique<State>();
  state->settings = settings;
  state->multi = curl().multi_init();
  if (state->multi == nullptr) return over_budget_error("libcurl has no memory");
  auto thread = start_thread([s = state.get()] { s->run(); });
  if (!thread.ok()) {
    curl().multi_cleanup(state->multi);
    return std::move(thread).error();
  }
  state->thread = *std::move(thread);
  return std::unique_ptr<HttpLoop>(new HttpLoop(std::move(state)));
}

HttpLoop::~HttpLoop() {
  stop();
  curl().multi_cleanup(state_->multi);
}

void HttpLoop::stop() {
  if (!state_->thread.joinable()) return;
  state_->stop = true;
  curl().multi_wakeup(state_->multi);
  state_->thread.join();
  for (auto& [easy, transfer] : state_->transfers) curl().multi_remove_handle(state_->multi, easy);
  state_->transfers.clear();
  const std::lock_guard lock(state_->mutex);
  state_->posted.clear();
}

void HttpLoop::post(std::function<void()> task) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->stop) return;
    state_->posted.push_back(std::move(task));
  }
  curl().multi_wakeup(state_->multi);
}

void HttpLoop::after(std::chrono::milliseconds delay, std::function<void()> task) {
  state_->timers.emplace(Clock::now() + delay, std::move(task));
}

void HttpLoop::start(HttpTransfer request) {
  auto transfer = std::make_unique<Transfer>();
  transfer->request = std::move(request);
  transfer->easy = curl().easy_init();
  Transfer& t = *transfer;
  if (t.easy == nullptr) {
    t.answer.fault = "libcurl has no memory";
    t.answer.fault_is_final = true;
    return t.request.done(t.answer);
  }
  const auto set = [&](CURLoption option, auto value) {
    curl().easy_setopt(t.easy, option, value);
  };
  set(CURLOPT_URL, t.request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NOSIGNAL, 1L);
  // One connection a transfer: what several connections are there for.
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_BUFFERSIZE, kReceiveBytes);
  set(CURLOPT_ERRORBUFFER, t.error);
  set(CURLOPT_USERAGENT, "wader");
  set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(state_->settings.connect_timeout.count()));
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(state_->settings.stall_time.count()));
  set(CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(state_->settings.stall_floor_bytes_per_second));
  if (t.request.bytes > 0)
    set(CURLOPT_RANGE,
        fmt::format("{}-{}", t.request.offset, t.request.offset + t.request.bytes - 1).c_str());
  if (!t.request.bearer_token.empty())
    t.headers = curl().slist_append(
        t.headers, fmt::format("Authorization: Bearer {}", t.request.bearer_token).c_str());
  set(CURLOPT_HTTPHEADER, t.headers);
  // A proxy elsewhere cannot reach this machine's own addresses, and would be shown the token.
  const auto origin = url_origin(t.request.url);
  if (origin.ok() && is_this_machine(*origin)) set(CURLOPT_PROXY, "");
  set(CURLOPT_HEADERFUNCTION, &on_header);
  set(CURLOPT_HEADERDATA, &t);
  set(CURLOPT_WRITEFUNCTION, &on_body);
  set(CURLOPT_WRITEDATA, &t);
  CURL* const easy = t.easy;
  if (curl().multi_add_handle(state_->multi, easy) != CURLM_OK) {
    t.answer.fault = "libcurl has no memory";
    t.request.done(std::move(t.answer));
    return;
  }
  state_->transfers.emplace(easy, std::move(transfer));
}

}  // namespace wader
