// Requests over real sockets: what is answered, what is refused, and what the connection does then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "server/http_testing.h"

namespace wader {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

HttpRoute route(HttpMethod method, std::string pattern, HttpHandler handler, bool open = false) {
  HttpRoute result;
  result.method = method;
  result.pattern = std::move(pattern);
  result.handler = std::move(handler);
  result.open = open;
  return result;
}

Task<> hello(HttpExchange& exchange) {
  HttpResponse response;
  response.body = "{\"id\":\"" + std::string(exchange.request().path_value("id")) + "\"}";
  co_await exchange.send(std::move(response));
}
Task<> echo(HttpExchange& exchange) {
  HttpResponse response;
  response.body = exchange.request().body;
  co_await exchange.send(std::move(response));
}
Task<> stream(HttpExchange& exchange) {
  HttpResponse head;
  head.content_type = "text/event-stream";
  co_await exchange.begin_stream(std::move(head));
  for (const char* const part : {"one", "", "two", "three"}) {
    std::string text = part;
    const bool taken = co_await exchange.write(std::move(text));
    if (!taken) co_return;
  }
}
Task<> throws(HttpExchange&) {
  throw std::runtime_error("the reason");
  co_return;
}
Task<> throws_late(HttpExchange& exchange) {
  co_await stream(exchange);
  throw std::runtime_error("half way");
}
Task<> silent(HttpExchange&) {
  co_return;
}
Task<> answers_twice(HttpExchange& exchange) {
  co_await hello(exchange);
  co_await hello(exchange);
}
Task<> writes_first(HttpExchange& exchange) {
  std::string text = "x";
  const bool taken = co_await exchange.write(std::move(text));
  EXPECT_FALSE(taken);
}

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() {
    options_.limits.max_header_bytes = 4096;
    options_.limits.max_body_bytes = 100 << 10;
    options_.on_problem = [this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      problems_.emplace_back(line);
    };
    options_.on_done = [this](const HttpRequest& request, int status, uint64_t bytes, double) {
      const std::lock_guard lock(mutex_);
      done_.push_back(request.path + " " + std::to_string(status));
      sent_bytes_ += bytes;
    };
  }

  uint16_t port() {
    if (!server_) {
      std::vector<HttpRoute> routes;
      routes.push_back(route(HttpMethod::get, "/v1/models/{id...}", hello));
      routes.push_back(route(HttpMethod::get, "/health", hello, true));
      routes.push_back(route(HttpMethod::post, "/echo", echo));
      routes.push_back(route(HttpMethod::post, "/small", echo));
      routes.back().max_body_bytes = 10;
      routes.push_back(route(HttpMethod::get, "/stream", stream));
      routes.push_back(route(HttpMethod::get, "/throws", throws));
      routes.push_back(route(HttpMethod::get, "/throws_late", throws_late));
      routes.push_back(route(HttpMethod::get, "/silent", silent));
      routes.push_back(route(HttpMethod::get, "/twice", answers_twice));
      routes.push_back(route(HttpMethod::get, "/writes_first", writes_first));
      server_ = std::make_unique<RunningServer>(options_, std::move(routes));
    }
    return server_->port();
  }
  std::string problems() {
    const std::lock_guard lock(mutex_);
    std::string all;
    for (const auto& line : problems_) all += line + "\n";
    return all;
  }
  std::vector<std::string> done() {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  // Sends `bytes` to a fresh connection, and expects this status, a JSON error, and the end.
  void expect_refused(std::string_view bytes, int status) {
    RawClient client(port());
    client.send(bytes);
    const RawAnswer answer = client.answer();
    EXPECT_EQ(answer.status, status) << bytes.substr(0, 200);
    const auto json = parse_json(answer.body, "error");
    ASSERT_TRUE(json.ok()) << answer.body;
    EXPECT_TRUE((*json)["error"]["message"].is_string());
    EXPECT_EQ(answer.header("Connection"), "close");
    EXPECT_TRUE(client.closed_by_server());
  }

  HttpOptions options_;
  std::mutex mutex_;
  std::vector<std::string> problems_, done_;
  uint64_t sent_bytes_ = 0;
  std::unique_ptr<RunningServer> server_;
};

TEST_F(HttpServerTest, AnswersOneRequestAfterTheOther) {
  RawClient client(port());
  const RawAnswer first = client.get("/v1/models/org%2Fname%20x?secret=1");
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.body, "{\"id\":\"org/name x\"}");
  EXPECT_EQ(first.header("Connection"), "keep-alive");
  EXPECT_EQ(first.header("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(first.header("Cache-Control"), "no-store");
  EXPECT_EQ(first.header("Server"), "wader");
  EXPECT_THAT(first.header("Date"), HasSubstr(" GMT"));
  EXPECT_EQ(client.post("/echo", "{\"a\":1}").body, "{\"a\":1}");
  EXPECT_EQ(client.get("/nothing").status, 404);
  EXPECT_EQ(client.get("/echo").header("Allow"), "POST, OPTIONS");
  EXPECT_EQ(client.get("/health").status, 200);
  EXPECT_TRUE(wait_until([&] { return done().size() == 5; }));
  EXPECT_THAT(done(), testing::ElementsAre("/v1/models/org/name x 200", "/echo 200", "/nothing 404",
                                           "/echo 405", "/health 200"));
  EXPECT_GT(sent_bytes_, 1000u);
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(HttpServerTest, ConnectionClose) {
  RawClient client(port());
  EXPECT_EQ(client.get("/health", "Connection: close\r\n").header("Connection"), "close");
  EXPECT_TRUE(client.closed_by_server());
  RawClient old(port());
  old.send("GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(old.answer().status, 200);
  EXPECT_TRUE(old.closed_by_server());
}

TEST_F(HttpServerTest, HeadAndOptions) {
  RawClient client(port());
  client.send("HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const RawAnswer head = client.answer(true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.header("Content-Length"), "9");
  client.send("HEAD /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.answer(true).header("Content-Type"), "text/event-stream");
  client.send("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.answer().status, 204);
  client.send("HEAD /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.answer(true).status, 404);
  // No body has come between, or this would not be read as an answer.
  EXPECT_EQ(client.get("/health").body, "{\"id\":\"\"}");
}

TEST_F(HttpServerTest, Streams) {
  RawClient client(port());
  const RawAnswer answer = client.get("/stream");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.header("Transfer-Encoding"), "chunked");
  EXPECT_EQ(answer.body, "onetwothree");
  EXPECT_EQ(client.get("/health").status, 200);
  RawClient old(port());
  old.send("GET /stream HTTP/1.0\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(old.receive_all(),
              AllOf(Not(HasSubstr("chunked")), HasSubstr("\r\n\r\nonetwothree")));
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  RawClient client(port());
  std::string requests;
  for (int i = 0; i < 50; ++i)
    requests += "GET /v1/models/" + std::to_string(i) + " HTTP/1.1\r\nHost: localhost\r\n\r\n" +
                "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                "Transfer-Encoding: chunked\r\n\r\n1\r\n7\r\n0\r\n\r\n";
  client.send(requests);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(client.answer().body, "{\"id\":\"" + std::to_string(i) + "\"}");
    EXPECT_EQ(client.answer().body, "7");
  }
}

TEST_F(HttpServerTest, HandlersThatFail) {
  for (const auto path : {"/throws", "/silent", "/writes_first"}) {
    RawClient client(port());
    const RawAnswer answer = client.get(path);
    EXPECT_EQ(answer.status, 500) << path;
    EXPECT_THAT(answer.body, Not(HasSubstr("the reason")));
    EXPECT_TRUE(client.closed_by_server());
  }
  EXPECT_THAT(problems(), AllOf(HasSubstr("/throws: handler failed: the reason"),
                                HasSubstr("/silent: handler gave no answer"),
                                HasSubstr("/writes_first: write() before begin_stream()")));
  RawClient half(port());
  EXPECT_EQ(half.get("/throws_late").status,
            0);  // the last chunk is missing, and the client sees it
  EXPECT_THAT(problems(), HasSubstr("half way"));
  RawClient twice(port());
  EXPECT_EQ(twice.get("/twice").status, 200);
  EXPECT_TRUE(twice.closed_by_server());
  EXPECT_THAT(problems(), HasSubstr("send() after the answer had begun"));
  EXPECT_EQ(RawClient(port()).get("/health").status, 200);
}

TEST_F(HttpServerTest, RefusesWhatIsNoRequest) {
  const std::string get = "GET /health HTTP/1.1\r\n";
  const std::string post =
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  expect_refused("\x16\x03\x01\x02\x00\x01\r\n\r\n", 400);
  expect_refused("GET /health HTTP/2.0\r\n\r\n", 505);
  expect_refused(get + "Host: a\r\nX: " + std::string(1 << 20, 'x'), 431);
  expect_refused("GET /" + std::string(100'000, 'x'), 431);
  expect_refused(post + "Content-Length: -1\r\n\r\n", 400);
  expect_refused(post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc", 400);
  expect_refused(post + "Transfer-Encoding: gzip\r\n\r\nabc", 400);
  expect_refused(post + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400);
  expect_refused(post + "Content-Length: 1073741824\r\n\r\n{", 413);
  EXPECT_EQ(RawClient(port()).get("/health").status, 200);
}

TEST_F(HttpServerTest, ARefusalOfTheFormKeepsTheConnection) {
  RawClient client(port());
  client.send("GET /health HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.answer().status, 400);
  client.send("GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.answer().status, 400);
  client.send("GET /a/../health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.answer().status, 400);
  client.send("GET /%ff%fe HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const RawAnswer answer = client.answer();
  EXPECT_EQ(answer.status, 400);
  EXPECT_TRUE(parse_json(answer.body, "error").ok());
  client.send("PUT /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.answer().status, 405);
  EXPECT_EQ(client.get("/health").status, 200);
}

TEST_F(HttpServerTest, BodiesThatAreTooLarge) {
  const std::string post =
      "POST /small HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  expect_refused(post + "Content-Length: 11\r\n\r\n01234567890", 413);
  expect_refused(post + "Transfer-Encoding: chunked\r\n\r\n6\r\n012345\r\n5\r\n01234\r\n0\r\n\r\n",
                 413);
  RawClient client(port());
  EXPECT_EQ(client.post("/small", "0123456789").status, 200);
  // A client that sends all before it reads gets its refusal too.
  RawClient stubborn(port());
  stubborn.send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "10000\r\n" + std::string(65536, 'x') + "\r\n";
  for (int i = 0; i < 200 && stubborn.send(chunk); ++i) {
  }
  EXPECT_EQ(stubborn.answer().status, 413);
}

TEST_F(HttpServerTest, ExpectContinue) {
  const std::string post = "POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n";
  const std::string json = "Content-Type: application/json\r\n";
  RawClient client(port());
  client.send(post + json + "Content-Length: 3\r\n\r\n");
  EXPECT_EQ(client.answer().status, 100);
  client.send("123");
  EXPECT_EQ(client.answer().body, "123");
  // Whoever does not wait for it is not told.
  client.send(post + json + "Content-Length: 3\r\n\r\n456");
  EXPECT_EQ(client.answer().body, "456");
  expect_refused(post + json + "Content-Length: 999999999\r\n\r\n", 413);
  expect_refused(post + "Content-Type: text/plain\r\nContent-Length: 3\r\n\r\n", 415);
  expect_refused("POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: magic\r\n" + json +
                     "Content-Length: 3\r\n\r\n",
                 417);
}

TEST_F(HttpServerTest, StrangersAreRefusedOnEveryPath) {
  for (const auto path : {"/health", "/v1/models/x", "/nothing", "/stream"}) {
    for (const std::string& host :
         {"evil.example:" + std::to_string(port()), std::string("127.0.0.1.evil.example"),
          std::string("localhost:1"), std::string("")}) {
      RawClient client(port());
      client.send("GET " + std::string(path) + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
      EXPECT_EQ(client.answer().status, 403) << path << " " << host;
    }
  }
  for (const std::string& host : {"LOCALHOST.:" + std::to_string(port()), std::string("[::1]"),
                                  "127.0.0.1:" + std::to_string(port())}) {
    RawClient client(port());
    client.send("GET /health HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
    EXPECT_EQ(client.answer().status, 200) << host;
  }
}

TEST_F(HttpServerTest, PagesAndKeys) {
  options_.access.api_key = "s3cret";
  options_.access.allowed_origins = {"https://app.example"};
  RawClient client(port());
  EXPECT_EQ(client.get("/health").status, 200);
  RawAnswer answer = client.get("/v1/models/x", "Origin: https://app.example\r\n");
  EXPECT_EQ(answer.status, 401);
  EXPECT_EQ(answer.header("WWW-Authenticate"), "Bearer");
  EXPECT_EQ(answer.header("Access-Control-Allow-Origin"), "https://app.example");
  answer = client.get("/v1/models/x", "Authorization: Bearer wrong\r\n");
  EXPECT_EQ(answer.status, 401);
  EXPECT_EQ(answer.header("Access-Control-Allow-Origin"), "");
  answer =
      client.get("/v1/models/x", "Authorization: Bearer s3cret\r\nOrigin: https://app.example\r\n");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.header("Access-Control-Allow-Origin"), "https://app.example");
  EXPECT_EQ(answer.header("Vary"), "Origin");
  answer = client.get("/health", "Origin: https://evil.example\r\n");
  EXPECT_EQ(answer.status, 403);
  EXPECT_EQ(answer.header("Access-Control-Allow-Origin"), "");
  client.send(
      "OPTIONS /echo HTTP/1.1\r\nHost: localhost\r\nOrigin: https://app.example\r\n"
      "Access-Control-Request-Method: POST\r\n"
      "Access-Control-Request-Headers: authorization,content-type\r\n\r\n");
  answer = client.answer();
  EXPECT_EQ(answer.status, 204);
  EXPECT_THAT(answer.header("Access-Control-Allow-Headers"),
              AllOf(HasSubstr("authorization"), HasSubstr("content-type")));
  // A form of a foreign page needs no preflight, so it must not be taken for JSON.
  client.send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer s3cret\r\n"
      "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_EQ(client.answer().status, 415);
  EXPECT_TRUE(client.closed_by_server());
}

TEST(HttpListen, WhatMakesNoSense) {
  const auto error_of = [](const HttpOptions& options) {
    const auto server = HttpServer::listen(options, {});
    return server.ok() ? std::string() : server.error().message;
  };
  HttpOptions options;
  options.port = 0;
  EXPECT_EQ(error_of(options), "");
  options.host = "no.such.host";
  EXPECT_THAT(error_of(options), HasSubstr("host 'no.such.host' is no address"));
  options.host = "192.0.2.1";  // kept for documentation: nobody's
  EXPECT_THAT(error_of(options), HasSubstr("192.0.2.1:0: cannot listen"));
  options.host = "127.0.0.1";
  options.access.api_key = "";
  EXPECT_THAT(error_of(options), HasSubstr("API key is empty"));
  options.access.api_key = "k";
  options.access.allowed_hosts = {"http://box"};
  EXPECT_THAT(error_of(options), HasSubstr("allowed host 'http://box'"));
  options.access.allowed_hosts = {"box"};
  options.access.allowed_origins = {"app.example"};
  EXPECT_THAT(error_of(options), HasSubstr("allowed origin 'app.example'"));
  options.access.allowed_origins = {"https://app.example/"};
  EXPECT_THAT(error_of(options), HasSubstr("is no origin"));
}

TEST(HttpListen, APortThatIsTaken) {
  HttpOptions options;
  options.port = 0;
  const auto first = HttpServer::listen(options, {});
  ASSERT_TRUE(first.ok());
  options.port = (*first)->port();
  EXPECT_EQ((*first)->url(), "http://127.0.0.1:" + std::to_string(options.port));
  const auto second = HttpServer::listen(options, {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::io);
  EXPECT_THAT(second.error().message,
              StartsWith("127.0.0.1:" + std::to_string(options.port) + ": address already in use"));
}

}  // namespace
}  // namespace wader
