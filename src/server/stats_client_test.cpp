#include "server/stats_client.h"

#include <gmock/gmock.h>

#include "base/json.h"
#include "server/http_testing.h"

namespace wader {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using State = StatsReply::State;

constexpr const char* kStats =
    R"({"uptime_seconds":1,"model":{},"plan":{},"now":{},"counters":{},"more":[1e3]})";

bool always() {
  return true;
}

std::string url_of(std::string_view text) {
  const auto url = parse_server_url(text);
  return url.ok() ? url->text() : "error: " + url.error().message;
}

TEST(StatsClient, Addresses) {
  EXPECT_EQ(ServerUrl().text(), "http://127.0.0.1:8080");
  EXPECT_EQ(url_of("http://127.0.0.1:8080"), "http://127.0.0.1:8080");
  EXPECT_EQ(url_of("HTTP://LocalHost/"), "http://localhost:80");
  EXPECT_EQ(url_of("localhost"), "http://localhost:8080");
  EXPECT_EQ(url_of("box.local:99"), "http://box.local:99");
  EXPECT_EQ(url_of("[::1]:99"), "http://[::1]:99");
  for (const char* path : {"", "/", "/v1", "/v1/", "/wader/stats"})
    EXPECT_EQ(url_of(std::string("http://h:1") + path), "http://h:1") << path;
  EXPECT_EQ(url_of("http://h:1/models/a/v1"), "http://h:1/models/a");
  EXPECT_EQ(url_of("http://h:1/models/a/wader/stats"), "http://h:1/models/a");
  for (const char* wrong :
       {"", "http://", "ftp://h", "h:0", "h:65536", "h:x", "a b", "http://h/a b", "http://h/?q",
        "http://h/#f", "http://u:p@h/", "http://h/\r\nHost: x", "http://h/\xC3\xA9", "http:///x"})
    EXPECT_THAT(url_of(wrong), HasSubstr("http://127.0.0.1:8080")) << wrong;
  EXPECT_THAT(url_of("https://h"), AllOf(HasSubstr("https is not spoken"), HasSubstr("tunnel")));
}

TEST(StatsClient, WhatAnswersMean) {
  const ServerUrl url;
  const auto judge = [&](int status, std::string body, bool key = false) {
    StatsReply reply = judge_stats_answer(url, status, std::move(body), key);
    if (reply.state != State::stats) EXPECT_THAT(reply.text, HasSubstr("http://127.0.0.1:8080"));
    return reply;
  };
  EXPECT_EQ(judge(200, kStats).state, State::stats);
  EXPECT_EQ(judge(200, kStats).text, kStats);
  for (const char* other : {"", "hello", "[]", "{}", "null", R"({"model":{},"plan":{},"now":{}})",
                            R"({"model":1,"plan":{},"now":{},"counters":{}})"}) {
    const StatsReply reply = judge(200, other);
    EXPECT_EQ(reply.state, State::refused) << other;
    EXPECT_THAT(reply.text, HasSubstr("not a Wader server"));
  }
  EXPECT_EQ(judge(401, "").state, State::refused);
  EXPECT_THAT(judge(401, "").text, AllOf(HasSubstr("needs a key"), HasSubstr("--api-key-file")));
  EXPECT_THAT(judge(401, "", true).text, HasSubstr("does not take this key"));
  EXPECT_EQ(judge(503, "").state, State::loading);
  EXPECT_THAT(judge(503, "<html>").text, HasSubstr("a model is being loaded"));
  EXPECT_THAT(judge(503, error_response(503, "too many connections").body).text,
              HasSubstr("too many connections"));
  EXPECT_EQ(judge(403, "").state, State::refused);
  EXPECT_THAT(judge(403, error_response(403, "no such host here").body).text,
              HasSubstr("no such host here"));
  EXPECT_EQ(judge(404, "").state, State::refused);
  EXPECT_THAT(judge(302, "").text, HasSubstr("not a Wader server"));
  EXPECT_EQ(judge(502, R"({"error":"x"})").state, State::silent);
  EXPECT_LT(judge(403, error_response(403, std::string(100000, 'x')).body).text.size(), 400u);
}

TEST(StatsClient, AsksAServer) {
  HttpOptions options;
  options.access.api_key = "k3y";
  std::string seen;
  RunningServer server(options,
                       {{HttpMethod::get, "/wader/stats", [&](HttpExchange& exchange) -> Task<> {
                           seen = exchange.request().path;
                           HttpResponse response;
                           response.body = kStats;
                           co_await exchange.send(std::move(response));
                         }}});
  const auto url = parse_server_url("http://localhost:" + std::to_string(server.port()));
  const auto client = StatsClient::create(*url, "k3y");
  ASSERT_TRUE(client.ok()) << client.error().message;
  for (int i = 0; i < 3; ++i) {
    const StatsReply reply = client->ask(always);
    EXPECT_EQ(reply.state, State::stats) << reply.text;
    EXPECT_EQ(reply.text, kStats);
  }
  EXPECT_EQ(seen, "/wader/stats");
  EXPECT_EQ(StatsClient::create(*url, "other")->ask(always).state, State::refused);
  EXPECT_EQ(StatsClient::create(*url, std::nullopt)->ask(always).state, State::refused);
}

// Listens at a free port, and meets each connection as it is told.
class Peer {
 public:
  // `answer`: what it sends once the whole question is there; it closes then, unless `stays`.
  explicit Peer(std::string answer, bool stays = false)
      : file_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    EXPECT_EQ(::bind(file_, reinterpret_cast<sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(::listen(file_, 4), 0);
    EXPECT_EQ(::getsockname(file_, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    url_.port = ntohs(address.sin_port);
    thread_ = std::thread([this, answer = std::move(answer), stays] {
      const int peer = ::accept(file_, nullptr, nullptr);
      char question[4096];
      EXPECT_GT(::recv(peer, question, sizeof(question), 0), 0);
      std::string_view left = answer;
      while (!left.empty()) {
        const ssize_t sent = ::send(peer, left.data(), left.size(), MSG_NOSIGNAL);
        if (sent <= 0) break;
        left.remove_prefix(static_cast<size_t>(sent));
      }
      if (stays) EXPECT_EQ(::recv(peer, question, sizeof(question), 0), 0);
      ::close(peer);
    });
  }
  ~Peer() {
    thread_.join();
    ::close(file_);
  }
  StatsReply asked(const std::function<bool()>& go_on = always,
                   milliseconds timeout = kLongWait) const {
    return StatsClient::create(url_, std::nullopt)->ask(go_on, timeout);
  }

 private:
  int file_;
  ServerUrl url_;
  std::thread thread_;
};

TEST(StatsClient, OthersThatListen) {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
  // To the connection's end, without a length.
  EXPECT_EQ(Peer(head + "\r\n" + kStats).asked().text, kStats);
  for (const std::string& answer :
       {std::string("SSH-2.0-OpenSSH_9.2\r\n"), std::string("HTTP/2 what\r\n\r\n"),
        head + "Content-Length: x\r\n\r\n"}) {
    const StatsReply reply = Peer(answer).asked();
    EXPECT_EQ(reply.state, State::refused) << answer << reply.text;
    EXPECT_THAT(reply.text, HasSubstr("not a Wader server"));
  }
  for (const std::string& answer : {std::string(), head, head + "Content-Length: 9\r\n\r\n{"}) {
    const StatsReply reply = Peer(answer).asked();
    EXPECT_EQ(reply.state, State::silent) << answer << reply.text;
  }
  // Bounded, whether the size is told, comes in chunks, or is that of the head.
  const std::string large(2 * kMaxStatsBytes, ' ');
  for (const std::string& answer :
       {head + "Content-Length: 2000000\r\n\r\n", head + "\r\n" + large,
        head + "Transfer-Encoding: chunked\r\n\r\n200000\r\n" + large + "\r\n0\r\n\r\n",
        head + "X: " + large}) {
    const StatsReply reply = Peer(answer).asked();
    EXPECT_EQ(reply.state, State::refused) << reply.text;
    EXPECT_THAT(reply.text, HasSubstr("1048576 bytes"));
  }
}

TEST(StatsClient, WaitsNoLongerThanAsked) {
  const StatsReply late = Peer("HTTP/1.1 200 OK\r\n", true).asked(always, milliseconds(500));
  EXPECT_EQ(late.state, State::silent);
  EXPECT_THAT(late.text, HasSubstr("0.5 s"));
  int asked = 0;
  const StatsReply stopped = Peer("", true).asked([&] { return ++asked < 2; });
  EXPECT_EQ(stopped.state, State::stopped);
  EXPECT_EQ(asked, 2);
}

TEST(StatsClient, NobodyThere) {
  ServerUrl url;
  url.port = 1;  // tcpmux, which nothing has listened at for decades
  const StatsReply reply = StatsClient::create(url, std::nullopt)->ask(always);
  EXPECT_EQ(reply.state, State::absent);
  EXPECT_THAT(reply.text, AllOf(HasSubstr("http://127.0.0.1:1"), HasSubstr("wader serve")));
  url.host = "no-such-host.invalid";
  const auto unknown = StatsClient::create(url, std::nullopt);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace wader
