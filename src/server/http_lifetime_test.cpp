// Clients that go away, are slow or never end, and the server's own end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "server/http_testing.h"

namespace wader {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using testing::HasSubstr;

class HttpLifetime : public testing::Test {
 protected:
  HttpLifetime() {
    add(HttpMethod::get, "/health", [](HttpExchange& exchange) -> Task<> {
      HttpResponse response;
      response.body = "{}";
      co_await exchange.send(std::move(response));
    });
    add(HttpMethod::post, "/echo", [](HttpExchange& exchange) -> Task<> {
      HttpResponse response;
      response.body = exchange.request().body;
      co_await exchange.send(std::move(response));
    });
    add(HttpMethod::get, "/wait", [this](HttpExchange& exchange) { return wait(exchange, false); });
    add(HttpMethod::post, "/wait",
        [this](HttpExchange& exchange) { return wait(exchange, false); });
    add(HttpMethod::get, "/stream",
        [this](HttpExchange& exchange) { return wait(exchange, true); });
    add(HttpMethod::get, "/flood", [this](HttpExchange& exchange) { return flood(exchange); });
    add(HttpMethod::get, "/stuck", [this](HttpExchange& exchange) { return stuck(exchange); });
    add(HttpMethod::get, "/late", [this](HttpExchange& exchange) { return late(exchange); });
    add(HttpMethod::get, "/aside", [this](HttpExchange& exchange) { return aside(exchange); });
  }
  ~HttpLifetime() override { server_.reset(); }

  void add(HttpMethod method, std::string pattern, HttpHandler handler) {
    HttpRoute route;
    route.method = method;
    route.pattern = std::move(pattern);
    route.handler = std::move(handler);
    routes_.push_back(std::move(route));
  }
  RunningServer& server() {
    if (!server_) server_ = std::make_unique<RunningServer>(options_, std::move(routes_));
    return *server_;
  }
  uint16_t port() { return server().port(); }
  void request(RawClient& client, const std::string& path) {
    client.send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }

  // Waits for its client's end, or for release(), and then answers.
  Task<> wait(HttpExchange& exchange, bool streams) {
    asio::steady_timer timer(co_await asio::this_coro::executor,
                             asio::steady_timer::time_point::max());
    exchange.on_gone([&] {
      gone_.raise();
      timer.cancel();
    });
    if (streams) {
      HttpResponse head;
      co_await exchange.begin_stream(std::move(head));
      std::string first = "first";
      co_await exchange.write(std::move(first));
    }
    release_ = [&timer] { timer.cancel(); };
    running_.raise();
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    release_ = nullptr;
    HttpResponse response;
    response.body = "\"waited\"";
    if (!streams) co_await exchange.send(std::move(response));
    ended_.raise();
  }
  void release() {
    asio::post(server()->executor(), [this] {
      if (release_) release_();
    });
  }
  // Never ends, whatever it is told.
  Task<> stuck(HttpExchange& exchange) {
    asio::steady_timer timer(co_await asio::this_coro::executor,
                             asio::steady_timer::time_point::max());
    exchange.on_gone([this] { gone_.raise(); });
    running_.raise();
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  Task<> flood(HttpExchange& exchange) {
    exchange.on_gone([this] { gone_.raise(); });
    HttpResponse head;
    co_await exchange.begin_stream(std::move(head));
    bool taken = true;
    running_.raise();
    while (taken) {
      std::string text(64 << 10, 'x');
      taken = co_await exchange.write(std::move(text));
      if (taken) flood_bytes_ += 64 << 10;
    }
    EXPECT_TRUE(exchange.gone());
    ended_.raise();
  }
  // Sets on_gone only after its client is gone.
  Task<> late(HttpExchange& exchange) {
    asio::steady_timer timer(co_await asio::this_coro::executor);
    running_.raise();
    while (!exchange.gone()) {
      timer.expires_after(1ms);
      co_await timer.async_wait(asio::use_awaitable);
    }
    exchange.on_gone([this] { gone_.raise(); });
    EXPECT_EQ(gone_.count(), 1);
    ended_.raise();
  }
  Task<> aside(HttpExchange& exchange) {
    const auto network = std::this_thread::get_id();
    std::thread::id worker;
    std::function<void()> work = [&] { worker = std::this_thread::get_id(); };
    co_await server()->run_aside(std::move(work));
    EXPECT_EQ(std::this_thread::get_id(), network);
    EXPECT_NE(worker, network);
    std::function<void()> failing = [] { throw std::runtime_error("work failed"); };
    bool caught = false;
    try {
      co_await server()->run_aside(std::move(failing));
    } catch (const std::runtime_error&) {
      caught = true;
    }
    HttpResponse response;
    response.body = caught ? "true" : "false";
    co_await exchange.send(std::move(response));
  }

  HttpOptions options_;
  std::vector<HttpRoute> routes_;
  Signal running_, gone_, ended_;
  std::function<void()> release_;  // in the network's thread
  std::atomic<uint64_t> flood_bytes_ = 0;
  std::unique_ptr<RunningServer> server_;
};

TEST_F(HttpLifetime, AClientThatClosesEndsItsWork) {
  for (const std::string path : {"/wait", "/stream"}) {
    for (const bool resets : {false, true}) {
      const int before = ended_.count();
      RawClient client(port());
      request(client, path);
      ASSERT_TRUE(running_.wait(before + 1));
      EXPECT_EQ(gone_.count(), before);
      resets ? client.reset() : client.close();
      EXPECT_TRUE(gone_.wait(before + 1)) << path;
      EXPECT_TRUE(ended_.wait(before + 1)) << path;
    }
  }
  EXPECT_EQ(gone_.count(), 4);
  EXPECT_TRUE(wait_until([&] { return server()->connections() == 0; }));
}

TEST_F(HttpLifetime, AlsoBehindHalfOfANextRequest) {
  RawClient client(port());
  request(client, "/wait");
  ASSERT_TRUE(running_.wait());
  client.send("POST /echo HTTP/1.1\r\nHost: local");
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(gone_.count(), 0);
  client.close();
  EXPECT_TRUE(gone_.wait());
  EXPECT_TRUE(ended_.wait());
}

TEST_F(HttpLifetime, WhoClosesItsSendingHalfStillGetsTheAnswer) {
  RawClient client(port());
  request(client, "/wait");
  ASSERT_TRUE(running_.wait());
  client.close_sending();
  EXPECT_TRUE(gone_.wait());
  EXPECT_THAT(client.receive_all(), HasSubstr("\"waited\""));
}

TEST_F(HttpLifetime, OnGoneComesAtOnceWhenTheClientIsGoneAlready) {
  RawClient client(port());
  request(client, "/late");
  ASSERT_TRUE(running_.wait());
  client.close();
  EXPECT_TRUE(ended_.wait());
}

TEST_F(HttpLifetime, TheNextRequestWaitsForTheAnswerBefore) {
  RawClient client(port());
  request(client, "/wait");
  client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n");
  ASSERT_TRUE(running_.wait());
  client.send("Content-Length: 1\r\n\r\n7");
  release();
  EXPECT_EQ(client.answer().body, "\"waited\"");
  EXPECT_EQ(client.answer().body, "7");
  EXPECT_EQ(gone_.count(), 0);
}

TEST_F(HttpLifetime, MoreThanCanBeKeptBehindARunningRequest) {
  RawClient client(port());
  request(client, "/wait");
  ASSERT_TRUE(running_.wait());
  client.send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 300000\r\n\r\n");
  client.send(std::string(300'000, 'x'));
  std::this_thread::sleep_for(50ms);  // the close is wanted whenever the bytes come; see below
  release();
  const RawAnswer answer = client.answer();
  EXPECT_EQ(answer.body, "\"waited\"");
  if (answer.header("Connection") == "close") {
    EXPECT_TRUE(client.closed_by_server());
  } else {  // the bytes came after the answer, as those of any next request
    EXPECT_EQ(client.answer().body.size(), 300'000u);
  }
}

TEST_F(HttpLifetime, ASlowReaderDoesNotHoldUpItsHandlerForEver) {
  options_.limits.write_timeout = 200ms;
  RawClient client(port(), 4096);
  request(client, "/flood");
  ASSERT_TRUE(running_.wait());
  EXPECT_TRUE(gone_.wait());
  EXPECT_TRUE(ended_.wait());
  // What was taken is in the kernel's buffers; nothing was piled up here.
  EXPECT_LT(flood_bytes_, 64u << 20);
  EXPECT_EQ(RawClient(port()).get("/health").status, 200);
}

TEST_F(HttpLifetime, AWriteThatWaitsEndsWithItsClient) {
  RawClient client(port(), 4096);
  request(client, "/flood");
  ASSERT_TRUE(running_.wait());
  uint64_t before = 1;
  // Until the buffers are full, and the handler waits in write().
  EXPECT_TRUE(wait_until([&] {
    std::this_thread::sleep_for(50ms);
    return std::exchange(before, flood_bytes_.load()) == flood_bytes_.load();
  }));
  client.close();
  EXPECT_TRUE(ended_.wait());
}

TEST_F(HttpLifetime, SlowRequestsEndWith408) {
  options_.limits.header_timeout = 150ms;
  options_.limits.body_timeout = 300ms;
  RawClient silent(port());
  for (const std::string begin :
       {"G", "GET /health HTTP/1.1\r\nHost: localhost\r\nX: ",
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Content-Length: 100\r\n\r\n{"}) {
    RawClient client(port());
    client.send(begin);
    // A byte now and then does not help.
    std::atomic<bool> ends = false;
    std::thread drip([&] {
      while (!ends && client.send("x")) std::this_thread::sleep_for(20ms);
    });
    EXPECT_EQ(client.answer().status, 408) << begin;
    EXPECT_TRUE(client.receive_all().empty());
    ends = true;
    drip.join();
  }
  // Whoever has sent nothing has not begun a request.
  EXPECT_EQ(silent.get("/health").status, 200);
}

TEST_F(HttpLifetime, IdleConnectionsAreClosed) {
  options_.limits.idle_timeout = 200ms;
  RawClient fresh(port()), used(port());
  EXPECT_EQ(used.get("/health").status, 200);
  EXPECT_TRUE(used.closed_by_server());
  EXPECT_TRUE(fresh.closed_by_server());
}

TEST_F(HttpLifetime, AHandlerMayTakeLongerThanAnyTimeout) {
  options_.limits.idle_timeout = options_.limits.header_timeout = options_.limits.body_timeout =
      options_.limits.write_timeout = 100ms;
  RawClient client(port());
  request(client, "/wait");
  ASSERT_TRUE(running_.wait());
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(gone_.count(), 0);
  release();
  EXPECT_EQ(client.answer().body, "\"waited\"");
}

TEST_F(HttpLifetime, TooManyConnections) {
  options_.limits.max_connections = 3;
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<RawClient>(port()));
    EXPECT_EQ(clients.back()->get("/health").status, 200);
  }
  EXPECT_EQ(server()->connections(), 3u);
  RawClient one_more(port());
  const RawAnswer answer = one_more.get("/health");
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.header("Retry-After"), "1");
  EXPECT_TRUE(one_more.closed_by_server());
  clients.clear();
  EXPECT_TRUE(wait_until([&] { return server()->connections() == 0; }));
  EXPECT_EQ(RawClient(port()).get("/health").status, 200);
}

// The system has no file left for one more connection: it waits, and the server sleeps meanwhile.
TEST_F(HttpLifetime, OutOfFiles) {
  Signal logged;
  options_.on_problem = [&](std::string_view line) {
    EXPECT_THAT(std::string(line), HasSubstr("cannot take connections for now"));
    logged.raise();
  };
  EXPECT_EQ(RawClient(port()).get("/health").status, 200);
  ASSERT_TRUE(wait_until([&] { return server()->connections() == 0; }));
  rlimit files = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  const int free_file = ::dup(0);
  ::close(free_file);
  rlimit tight = files;
  tight.rlim_cur = static_cast<rlim_t>(free_file) + 1;  // for the client's end
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  RawClient client(port());
  EXPECT_TRUE(logged.wait());
  const std::clock_t begin = std::clock();
  std::this_thread::sleep_for(300ms);
  EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC / 5);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_EQ(client.get("/health").status, 200);
  EXPECT_EQ(logged.count(), 1);
  server_.reset();
}

TEST_F(HttpLifetime, AllBodiesTogetherHaveALimit) {
  options_.limits.max_all_bodies_bytes = 150 << 10;
  const std::string body(90 << 10, 'x');
  RawClient first(port());
  first.send(
      "POST /wait HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  ASSERT_TRUE(running_.wait());
  {
    RawClient second(port());
    const RawAnswer refused = second.post("/echo", body);
    EXPECT_EQ(refused.status, 503);
    EXPECT_EQ(refused.header("Retry-After"), "1");
    EXPECT_TRUE(second.closed_by_server());
    EXPECT_EQ(RawClient(port()).post("/echo", "small").body, "small");
  }
  release();
  EXPECT_EQ(first.answer().body, "\"waited\"");
  EXPECT_EQ(first.post("/echo", body).body, body);
}

TEST_F(HttpLifetime, RunAside) {
  RawClient client(port());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(client.get("/aside").body, "true");
}

TEST_F(HttpLifetime, ATaskThatThrowsDoesNotEndTheServer) {
  Signal logged;
  options_.on_problem = [&](std::string_view line) {
    EXPECT_THAT(std::string(line), HasSubstr("posted badly"));
    logged.raise();
  };
  asio::post(server()->executor(), [] { throw std::runtime_error("posted badly"); });
  EXPECT_TRUE(logged.wait());
  EXPECT_EQ(RawClient(port()).get("/health").status, 200);
  server_.reset();
}

TEST_F(HttpLifetime, StopLetsWhatRunsFinish) {
  RawClient busy(port()), idle(port()), reading(port());
  EXPECT_EQ(idle.get("/health").status, 200);
  request(busy, "/wait");
  reading.send("POST /echo HTTP/1.1\r\nHost: localhost\r\n");
  ASSERT_TRUE(running_.wait());
  ASSERT_TRUE(wait_until([&] { return server()->connections() == 3; }));
  server()->stop(1h);
  server()->stop(2h);
  EXPECT_TRUE(idle.closed_by_server());
  EXPECT_TRUE(reading.closed_by_server());
  EXPECT_EQ(gone_.count(), 0);
  EXPECT_FALSE(server().has_ended());
  release();
  const RawAnswer answer = busy.answer();
  EXPECT_EQ(answer.body, "\"waited\"");
  EXPECT_EQ(answer.header("Connection"), "close");
  EXPECT_TRUE(server().wait_for_end());
}

TEST_F(HttpLifetime, StopCutsWhatDoesNotFinish) {
  RawClient stream(port()), plain(port()), flood(port(), 4096);
  request(stream, "/stream");
  request(plain, "/wait");
  request(flood, "/flood");
  ASSERT_TRUE(running_.wait(3));
  server()->stop(1h);
  server()->stop(1ms);  // a second, more impatient one
  EXPECT_TRUE(server().wait_for_end());
  EXPECT_EQ(gone_.count(), 3);
  EXPECT_EQ(ended_.count(), 3);
  EXPECT_EQ(plain.answer().body, "\"waited\"");
}

TEST_F(HttpLifetime, StopDoesNotWaitForAHandlerThatIsStuck) {
  RawClient client(port());
  request(client, "/stuck");
  ASSERT_TRUE(running_.wait());
  const auto begin = std::chrono::steady_clock::now();
  server()->stop(0ms);
  EXPECT_TRUE(server().wait_for_end());
  EXPECT_EQ(gone_.count(), 1);
  EXPECT_GT(std::chrono::steady_clock::now() - begin, 500ms);
  server_.reset();  // and its coroutine is destroyed with the server
}

TEST(HttpStop, BeforeRunAndTwice) {
  HttpOptions options;
  options.port = 0;
  auto server = HttpServer::listen(options, {}).value();
  server->stop(1h);
  server->stop(0ms);
  server->run();
}

// The load of an idle connection; WADER_IDLE_CONNECTIONS sets their number (a process has 20,000
// files at most on many systems, and both ends are in this one).
TEST_F(HttpLifetime, IdleConnectionsCostNextToNothing) {
  const char* const wanted = std::getenv("WADER_IDLE_CONNECTIONS");
  const int count = wanted == nullptr ? 200 : std::atoi(wanted);
  options_.limits.max_connections = 100'000;
  const auto resident_bytes = [] {
    std::FILE* const file = std::fopen("/proc/self/statm", "r");
    long total = 0, resident = 0;
    EXPECT_EQ(std::fscanf(file, "%ld %ld", &total, &resident), 2);
    std::fclose(file);
    return static_cast<double>(resident) * 4096;
  };
  EXPECT_EQ(RawClient(port()).get("/health").status, 200);
  std::vector<std::unique_ptr<RawClient>> clients;
  clients.reserve(static_cast<size_t>(count));
  const double before = resident_bytes();
  for (int i = 0; i < count; ++i) {
    clients.push_back(std::make_unique<RawClient>(port()));
    if (i % 2 == 0) EXPECT_EQ(clients.back()->get("/health").status, 200);
  }
  EXPECT_TRUE(wait_until([&] { return server()->connections() >= static_cast<uint32_t>(count); }));
  const double each_bytes = (resident_bytes() - before) / count;
  RecordProperty("bytes_each", static_cast<int>(each_bytes));
  // With the client's half, which is an object of a few words.
  if (wanted != nullptr) EXPECT_LT(each_bytes, 8192);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(RawClient(port()).get("/health").status, 200);
  if (wanted != nullptr) EXPECT_LT(std::chrono::steady_clock::now() - begin, 100ms);
}

}  // namespace
}  // namespace wader
