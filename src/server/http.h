// HTTP/1.1 on Boost.Beast coroutines: a request that has passed all limits and access rules comes
// to the handler of its path, which answers once, whole or as a stream. One thread runs the network
// and all handlers; what takes longer than a millisecond goes to the workers
// (HttpServer::run_aside). Sources: RFC 9110, 9112; server-sent events as in the HTML
// standard, 9.2.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace wader {

template <typename T = void>
using Task = boost::asio::awaitable<T>;

enum class HttpMethod : uint8_t { get, head, post, options, other };
std::string_view method_name(HttpMethod method);  // "GET"; "other"

struct HttpRequest {
  HttpMethod method = HttpMethod::get;
  std::string path;   // percent-decoded, begins with '/', no "." or ".." segments
  std::string query;  // as it came, without '?'
  std::string body;
  std::string_view route;  // its pattern; empty where the request has none
  std::vector<std::pair<std::string, std::string>> path_values;  // of {name} in the route's pattern
  std::string_view path_value(std::string_view name) const;      // empty when there is none
  uint64_t id = 0;                                               // for logs and response ids
  std::chrono::steady_clock::time_point received;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// One request and its answer. Used by one handler, in the network's thread.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;
  // The whole answer. Once, and not after begin_stream(). HEAD sends no body. Goes out also when
  // gone(): who closed the sending half alone still reads it.
  virtual Task<> send(HttpResponse response) = 0;
  // A chunked answer: head now, then write() any number of times. The handler's return ends it; an
  // exception cuts it. (To HTTP/1.0 without chunks; to HEAD the head alone, and write() is false.)
  virtual Task<> begin_stream(HttpResponse head) = 0;
  // False when the client is gone or took nothing for the write timeout: stop working for it.
  virtual Task<bool> write(std::string text) = 0;
  // Called at most once, in the network's thread, when the client closes or resets its connection
  // while the handler runs (also its sending half alone), or the server shuts down for good; within
  // this call where that has happened already. Set before the first co_await that waits long.
  virtual void on_gone(std::function<void()> action) = 0;
  virtual bool gone() const = 0;
  // The client is waited for no longer: what is written from now on is what the system takes at
  // once.
  virtual void stop_waiting() = 0;
};

using HttpHandler = std::function<Task<>(HttpExchange&)>;

struct HttpRoute {
  HttpMethod method =
      HttpMethod::get;  // get also answers HEAD; POST routes take application/json alone
  std::string pattern;  // "/v1/models/{id...}": {name} one segment, {name...} the rest
  HttpHandler handler;
  bool open = false;            // needs no key (health, the dashboard's own files)
  uint64_t max_body_bytes = 0;  // 0: the server's limit
  // Of pages, the server's own alone may ask, whatever origins are allowed: what it does is not
  // what those were allowed for.
  bool own_pages = false;
};

struct HttpLimits {
  uint64_t max_header_bytes = 32 << 10;
  uint64_t max_body_bytes = 32 << 20;
  uint64_t max_all_bodies_bytes = 256 << 20;  // of all requests that are being received or handled
  uint32_t max_connections = 8192;            // further ones are closed after a 503
  // From the first byte of a request to its header's end, and to its body's end: 408.
  std::chrono::milliseconds header_timeout{std::chrono::seconds(10)};
  std::chrono::milliseconds body_timeout{std::chrono::seconds(60)};
  std::chrono::milliseconds idle_timeout{std::chrono::seconds(120)};  // between requests
  std::chrono::milliseconds write_timeout{std::chrono::seconds(60)};  // without a byte taken
};

// Who may ask. Host must be a loopback name (localhost, 127.0.0.1, ::1, any case, the port that is
// served or none), the address that is bound, or one of allowed_hosts ("name" with any port, or
// "name:port"); an Origin, where sent, must be the server's own or one of allowed_origins
// ("https://app.example", or "*" for all), which get CORS headers and preflights. Else 403 on every
// path.
struct HttpAccess {
  std::optional<std::string>
      api_key;  // "Authorization: Bearer KEY", compared in constant time; 401
  std::vector<std::string> allowed_hosts, allowed_origins;
  // Also any IP address with the port that is served: a page of elsewhere can make its own name
  // mean this machine, but not a number. listen() sets it for 0.0.0.0 and [::].
  bool any_address = false;
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;  // 0: any free one
  HttpLimits limits;
  HttpAccess access;
  uint32_t workers = 1;
  // One line a request, after its end. No body, no query, no key.
  std::function<void(const HttpRequest&, int status, uint64_t sent_bytes, double seconds)> on_done =
      {};
  // One line for the log: a handler that failed or gave no answer, connections that the system
  // refuses. In the network's thread.
  std::function<void(std::string_view)> on_problem = {};
};

class HttpServer {
 public:
  virtual ~HttpServer() = default;
  // Binds and listens; io with "address already in use" names host and port. invalid_argument: a
  // host that is no address or "localhost", access rules or routes that make no sense. Raises the
  // process's soft limit of open files to its hard one.
  static Result<std::unique_ptr<HttpServer>> listen(const HttpOptions& options,
                                                    std::vector<HttpRoute> routes);
  virtual uint16_t port() const = 0;
  virtual std::string url() const = 0;  // "http://127.0.0.1:8080"
  // Serves in the calling thread until stop() has finished. Once.
  virtual void run() = 0;
  // From any thread, also before run() (not from a signal handler itself): no new connections or
  // requests; what runs may finish for `grace`, then is told on_gone and cut. run() returns at most
  // a second after that. A second call may only shorten the grace.
  virtual void stop(std::chrono::milliseconds grace) = 0;
  // Runs `work` on a worker thread and comes back to the network's thread, with its exception if it
  // threw one.
  virtual Task<> run_aside(std::function<void()> work) = 0;
  // After run(): whether all such work has ended, waiting for it for `patience`.
  virtual bool workers_idle(std::chrono::milliseconds patience) = 0;
  virtual boost::asio::any_io_executor
  executor() = 0;                            // of the network's thread; post() to it from anywhere
  virtual uint32_t connections() const = 0;  // from any thread
};

// An error in OpenAI's form: {"error": {"message", "type", "param", "code"}}. The message is made
// valid UTF-8. `param` and `code` empty: null.
HttpResponse error_response(int status, std::string_view message, std::string_view param = {},
                            std::string_view code = {});

}  // namespace wader
