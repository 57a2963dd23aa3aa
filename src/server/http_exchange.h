// One request and its answer, between a handler and the client's stream.
#pragma once

#include <array>
#include <ctime>
#include <functional>
#include <string>

#include "server/http_gate.h"
#include "server/http_reader.h"
#include "server/http_response.h"
#include "server/http_stream.h"

namespace wader {

// What the connections of one server share. The network's thread alone.
struct HttpCore {
  HttpCore(const HttpOptions& options, HttpRouter routes, HttpGuard access)
      : limits(options.limits),
        router(std::move(routes)),
        guard(std::move(access)),
        bodies(options.limits.max_all_bodies_bytes),
        on_done(options.on_done),
        on_problem(options.on_problem) {}

  HttpLimits limits;
  HttpRouter router;
  HttpGuard guard;
  BodyBudget bodies;
  std::function<void(const HttpRequest&, int, uint64_t, double)> on_done;
  std::function<void(std::string_view)> on_problem;
  std::array<char, 64 << 10> scratch = {};
  uint64_t last_request_id = 0;
  bool stopping = false;

  std::string_view date();  // of this second
  // One line for the log; never throws.
  void problem(std::string_view text) noexcept;

 private:
  std::time_t date_unix_s_ = -1;
  std::string date_;
};

class Exchange final : public HttpExchange {
 public:
  Exchange(HttpCore& core, HttpStream& stream);

  const HttpRequest& request() const override { return request_; }
  Task<> send(HttpResponse response) override;
  Task<> begin_stream(HttpResponse head) override;
  Task<bool> write(std::string text) override;
  void on_gone(std::function<void()> action) override;
  void forget_on_gone() { on_gone_ = nullptr; }  // after the handler, whose frame it may know
  bool gone() const override { return gone_; }
  void stop_waiting() override { stream_.cancel(); }

  // For the connection. What comes of the request:
  HttpRequest& mutable_request() { return request_; }
  void set_form(const HttpHead& head);
  void set_headers(HttpHeaders headers) { headers_ = std::move(headers); }
  // The connection ends with this answer.
  void close_after() { keep_alive_ = false; }
  bool keep_alive() const { return keep_alive_ && !gone_; }
  // The client is gone: tells the handler, once. Never throws.
  void client_gone() noexcept;
  // Ends a stream as it should end. After the handler.
  Task<> finish();
  bool answered() const { return status_ != 0; }
  int status() const { return status_; }

 private:
  bool may_answer(std::string_view with);
  std::string head_text(const HttpResponse& response, HttpFraming framing);

  HttpCore& core_;
  HttpStream& stream_;
  HttpRequest request_;
  HttpHeaders headers_;
  bool head_only_ = false, http_1_1_ = true, keep_alive_ = true;
  bool streaming_ = false, gone_ = false;
  int status_ = 0;
  std::function<void()> on_gone_;
};

}  // namespace wader
