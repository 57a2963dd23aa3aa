#include "server/http_connection.h"

#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>

namespace wader {
namespace {

namespace asio = boost::asio;
using Clock = HttpStream::Clock;

// Bytes of pipelined requests that are kept while one is handled. A client that sends more gets its
// answer and a closed connection, after which it has to send the rest again (RFC 9112
// section 9.3.2).
constexpr size_t kPipelineBytes = 64 << 10;
constexpr auto kLinger = std::chrono::seconds(2);

constexpr int kClientClosedRequest = 499;  // nginx's number for the log: no answer was sent

HttpResponse unavailable(std::string_view message) {
  HttpResponse response = error_response(503, message);
  response.headers.emplace_back("Retry-After", "1");
  return response;
}

}  // namespace

// To the last byte of the answer: a stop leaves alone what is being sent.
class HttpConnection::Handling {
 public:
  Handling(HttpConnection& connection, Exchange& exchange) : connection_(connection) {
    connection.handling_ = &exchange;
  }
  ~Handling() { connection_.handling_ = nullptr; }
  Handling(const Handling&) = delete;
  Handling& operator=(const Handling&) = delete;

 private:
  HttpConnection& connection_;
};

HttpConnection::HttpConnection(HttpStream::Socket socket, HttpCore& core)
    : core_(core), stream_(std::make_shared<HttpStream>(std::move(socket), core.scratch)) {}

void HttpConnection::stop_soon() {
  if (handling_ == nullptr) stream_->cancel();
}

void HttpConnection::cut() {
  if (handling_ != nullptr) handling_->client_gone();
  stream_->cancel();
}

Task<> HttpConnection::serve(std::shared_ptr<HttpConnection> self) {
  try {
    bool more = true;
    while (more) more = co_await self->serve_next();
    if (!self->core_.stopping) co_await self->stream_->linger(kLinger);
  } catch (const std::exception& error) {
    self->core_.problem(fmt::format("connection ended by an error: {}", error.what()));
  } catch (...) {
    self->core_.problem("connection ended by what is no std::exception");
  }
  self->stream_->close();
}

Task<bool> HttpConnection::serve_next() {
  if (inbox_.empty()) {
    std::string().swap(inbox_);  // an idle connection holds no buffer
    const auto input = co_await stream_->read(inbox_, Clock::now() + core_.limits.idle_timeout);
    if (input != HttpStream::Input::some) co_return false;
  } else {
    // A pipeline whose answers all fit the socket would never wait: the others' turn comes between
    // its requests.
    const auto executor = co_await asio::this_coro::executor;
    co_await asio::post(executor, asio::use_awaitable);
  }
  if (core_.stopping) co_return false;
  const bool more = co_await serve_request();
  co_return more;
}

Task<bool> HttpConnection::serve_request() {
  HttpReader reader(core_.limits.max_header_bytes, core_.bodies);
  Exchange exchange(core_, *stream_);
  GateDecision decision;
  const uint64_t written_before = stream_->written_bytes();
  const bool received = co_await receive(exchange, reader, decision);
  if (!received) co_return false;
  exchange.set_headers(std::move(decision.headers));
  if (decision.answer)
    co_await exchange.send(*std::move(decision.answer));
  else
    co_await handle(exchange, decision.route->handler);
  if (core_.on_done) {
    const std::chrono::duration<double> seconds = Clock::now() - exchange.request().received;
    core_.on_done(exchange.request(),
                  exchange.answered() ? exchange.status() : kClientClosedRequest,
                  stream_->written_bytes() - written_before, seconds.count());
  }
  co_return exchange.keep_alive() && !core_.stopping && !stream_->flooded();
}

// Feeds the reader until it has left `from`. False when no more bytes come in time.
Task<bool> HttpConnection::advance(HttpReader& reader, HttpReader::State from,
                                   Clock::time_point end) {
  for (;;) {
    if (!inbox_.empty()) inbox_.erase(0, reader.feed(inbox_));
    if (reader.state() != from) co_return true;
    const auto input = co_await stream_->read(inbox_, end);
    if (input != HttpStream::Input::some) co_return false;
  }
}

bool HttpConnection::refused(Exchange& exchange, GateDecision& decision, HttpResponse response) {
  decision.answer = std::move(response);
  exchange.close_after();
  return true;
}

bool HttpConnection::failed(Exchange& exchange, const HttpReader& reader, GateDecision& decision) {
  return refused(exchange, decision,
                 reader.status() == 503 ? unavailable(reader.problem())
                                        : error_response(reader.status(), reader.problem()));
}

// A whole request that its handler may have, or the answer in its place. False: nothing to say.
Task<bool> HttpConnection::receive(Exchange& exchange, HttpReader& reader, GateDecision& decision) {
  using State = HttpReader::State;
  HttpRequest& request = exchange.mutable_request();
  const auto head_end = request.received + core_.limits.header_timeout;
  const bool has_head = co_await advance(reader, State::head, head_end);
  if (!has_head) {
    if (Clock::now() < head_end) co_return false;
    co_return refused(exchange, decision,
                      error_response(408, "the request's headers took too long"));
  }
  if (reader.state() == State::failed) co_return failed(exchange, reader, decision);

  exchange.set_form(reader.head());
  decision = pass_gate(reader.head(), core_.router, core_.guard);
  request.path = std::move(decision.path);
  request.query = std::move(decision.query);
  request.path_values = std::move(decision.path_values);
  if (decision.route != nullptr) request.route = decision.route->pattern;
  if (decision.answer) {
    if (reader.head().has_body()) exchange.close_after();  // it stays unread
    co_return true;
  }

  const uint64_t route_bytes = decision.route->max_body_bytes;
  reader.read_body(route_bytes != 0 ? route_bytes : core_.limits.max_body_bytes);
  if (reader.state() == State::body && reader.head().expects_continue && inbox_.empty()) {
    const bool sent =
        co_await stream_->write("HTTP/1.1 100 Continue\r\n\r\n", core_.limits.write_timeout);
    if (!sent) co_return false;
  }
  const auto body_end = request.received + core_.limits.body_timeout;
  const bool has_body = co_await advance(reader, State::body, body_end);
  if (!has_body) {
    if (Clock::now() < body_end) co_return false;
    co_return refused(exchange, decision, error_response(408, "the request's body took too long"));
  }
  if (reader.state() == State::failed) co_return failed(exchange, reader, decision);
  request.body = std::move(reader.body());
  if (inbox_.empty()) std::string().swap(inbox_);  // its handler may take minutes
  co_return true;
}

Task<> HttpConnection::handle(Exchange& exchange, const HttpHandler& handler) {
  const Handling handling(*this, exchange);
  stream_->watch(inbox_, kPipelineBytes, [&exchange] { exchange.client_gone(); });
  std::string failure;
  try {
    co_await handler(exchange);
  } catch (const std::exception& error) {
    failure = fmt::format("handler failed: {}", error.what());
  } catch (...) {
    failure = "handler threw what is no std::exception";
  }
  stream_->unwatch();
  exchange.forget_on_gone();
  if (failure.empty() && !exchange.answered() && !exchange.gone())
    failure = "handler gave no answer";
  if (failure.empty()) {
    co_await settle(exchange);
    co_return;
  }
  core_.problem(
      fmt::format("request {} to {}: {}", exchange.request().id, exchange.request().path, failure));
  exchange.close_after();
  if (exchange.answered()) {
    // Part of the answer may be on its way: the client sees that its end is missing.
    stream_->cancel();
    co_return;
  }
  HttpResponse response =
      error_response(500, "the server failed at this request; its log says why");
  co_await exchange.send(std::move(response));
}

// After a handler that did nothing wrong.
Task<> HttpConnection::settle(Exchange& exchange) {
  if (exchange.answered()) {
    co_await exchange.finish();
  } else if (core_.stopping) {
    HttpResponse response = unavailable("the server is shutting down");
    co_await exchange.send(std::move(response));
  }
}

}  // namespace wader
