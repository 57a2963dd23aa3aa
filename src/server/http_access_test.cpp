#include "server/http_access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/http_gate.h"

namespace wader {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using testing::Not;
using testing::Pair;

HttpGuard guard(HttpAccess access = {}) {
  return HttpGuard(std::move(access), 8080);
}

TEST(HttpGuard, LoopbackNamesInAnyForm) {
  for (const auto good : {"localhost", "localhost:8080", "LOCALHOST.", "LocalHost.:8080",
                          "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080"})
    EXPECT_TRUE(guard().host_allowed(good)) << good;
}

TEST(HttpGuard, NamesThatCouldBeSomebodyElses) {
  for (const auto bad :
       {"", "evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example",
        "localhost..", "localhost:80", "127.0.0.1:8081", "127.1", "2130706433", "0.0.0.0", "::1",
        "evil.example@localhost", "localhost@evil.example", "localhost:8080:8080", "localhost ",
        "xlocalhost", "[::2]", "localhost,evil.example"})
    EXPECT_FALSE(guard().host_allowed(bad)) << bad;
}

TEST(HttpGuard, HostsThatTheUserListed) {
  HttpAccess access;
  access.allowed_hosts = {"Box.lan", "proxy.example:443"};
  const HttpGuard listed = guard(access);
  EXPECT_TRUE(listed.host_allowed("box.LAN"));
  EXPECT_TRUE(listed.host_allowed("box.lan.:9"));
  EXPECT_TRUE(listed.host_allowed("proxy.example:443"));
  EXPECT_FALSE(listed.host_allowed("proxy.example"));
  EXPECT_FALSE(listed.host_allowed("a.box.lan"));
  EXPECT_TRUE(listed.host_allowed("localhost"));
}

// What another machine of the house writes in its browser, and no page of elsewhere can.
TEST(HttpGuard, AddressesWhereAllAreBound) {
  HttpAccess access;
  access.any_address = true;
  const HttpGuard open = guard(access);
  for (const auto good : {"192.168.1.5:8080", "[fe80::1]:8080", "10.0.0.1:8080", "localhost"})
    EXPECT_TRUE(open.host_allowed(good)) << good;
  for (const auto bad : {"192.168.1.5", "192.168.1.5:80", "evil.example:8080", "1.2.3.4.evil:8080",
                         "1.2.3.4x:8080", "box:8080"})
    EXPECT_FALSE(open.host_allowed(bad)) << bad;
  EXPECT_TRUE(open.origin_allowed("http://192.168.1.5:8080", "192.168.1.5:8080"));
  EXPECT_FALSE(open.origin_allowed("http://192.168.1.6:8080", "192.168.1.5:8080"));
  EXPECT_FALSE(guard().host_allowed("192.168.1.5:8080"));
}

TEST(HttpGuard, OwnOrigins) {
  for (const auto good : {"http://localhost:8080", "http://127.0.0.1:8080", "http://[::1]:8080"})
    EXPECT_TRUE(guard().origin_allowed(good, "localhost:8080")) << good;
  for (const auto bad :
       {"null", "", "http://localhost", "http://localhost:3000", "http://evil.example",
        "http://evil.example:8080", "https://localhost", "file://",
        "http://localhost:8080.evil.example", "http://localhost:8080@evil.example",
        "chrome-extension://localhost:8080", "http://localhost:8080/"})
    EXPECT_FALSE(guard().origin_allowed(bad, "localhost:8080")) << bad;
  // Behind a proxy that speaks TLS.
  EXPECT_TRUE(guard().origin_allowed("https://box.lan", "box.lan"));
  EXPECT_TRUE(guard().origin_allowed("https://box.lan:444", "box.lan:444"));
  EXPECT_FALSE(guard().origin_allowed("https://box.lan:444", "box.lan"));
}

TEST(HttpGuard, ListedOrigins) {
  HttpAccess access;
  access.allowed_origins = {"https://app.example", "null"};
  EXPECT_TRUE(guard(access).origin_allowed("https://APP.example", "localhost"));
  EXPECT_TRUE(guard(access).origin_allowed("null", "localhost"));
  EXPECT_FALSE(guard(access).origin_allowed("http://app.example", "localhost"));
  EXPECT_FALSE(guard(access).origin_allowed("https://app.example.evil", "localhost"));
  access.allowed_origins = {"*"};
  EXPECT_TRUE(guard(access).origin_allowed("https://anything", "localhost"));
}

TEST(HttpGuard, Keys) {
  HttpAccess access;
  EXPECT_TRUE(guard(access).key_matches(""));
  access.api_key = "s3cret";
  EXPECT_TRUE(guard(access).key_matches("Bearer s3cret"));
  EXPECT_TRUE(guard(access).key_matches("bearer  s3cret"));
  for (const auto bad : {"", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3crets", "Bearer S3cret",
                         "Basic s3cret", "s3cret", "Bearer s3crets3cret", "Bearers3cret"})
    EXPECT_FALSE(guard(access).key_matches(bad)) << bad;
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_FALSE(equal_in_constant_time("a", ""));
  EXPECT_FALSE(equal_in_constant_time("", "a"));
  EXPECT_FALSE(equal_in_constant_time("abab", "ab"));
}

class Gate : public testing::Test {
 protected:
  Gate() {
    access_.api_key = "key";
    access_.allowed_origins = {"https://app.example"};
    head_.method = HttpMethod::get;
    head_.target = "/v1/models";
    head_.host = {"localhost:8080", 1};
    head_.authorization = {"Bearer key", 1};
  }

  GateDecision pass() {
    std::vector<HttpRoute> routes(3);
    routes[0].pattern = "/v1/models";
    routes[1].pattern = "/v1/chat";
    routes[1].method = HttpMethod::post;
    routes[2].pattern = "/health";
    routes[2].open = true;
    for (HttpRoute& route : routes) route.handler = [](HttpExchange&) -> Task<> { co_return; };
    router_ = HttpRouter::make(std::move(routes)).value();
    return pass_gate(head_, router_, guard(access_));
  }
  int status() {
    const auto decision = pass();
    return decision.answer ? decision.answer->status : 0;
  }

  HttpAccess access_;
  HttpHead head_;
  HttpRouter router_ = HttpRouter::make({}).value();
};

TEST_F(Gate, LetsThrough) {
  head_.target = "/v1/models?a=b";
  const auto decision = pass();
  ASSERT_FALSE(decision.answer);
  EXPECT_EQ(decision.route->pattern, "/v1/models");
  EXPECT_EQ(decision.path, "/v1/models");
  EXPECT_EQ(decision.query, "a=b");
  EXPECT_THAT(decision.headers, IsEmpty());
}

TEST_F(Gate, RefusesStrangersOnEveryPath) {
  head_.host.value = "evil.example:8080";
  for (const auto path : {"/v1/models", "/health", "/nothing", "*"}) {
    head_.target = path;
    EXPECT_EQ(status(), 403) << path;
    head_.method = HttpMethod::options;
    EXPECT_EQ(status(), 403) << path;
    head_.method = HttpMethod::get;
  }
  head_.host.value = "localhost";
  head_.target = "http://evil.example/health";
  EXPECT_EQ(status(), 403);
  head_.target = "/health";
  head_.origin = {"https://evil.example", 1};
  const auto foreign = pass();
  EXPECT_EQ(foreign.answer->status, 403);
  EXPECT_THAT(foreign.headers, IsEmpty());
}

TEST_F(Gate, RefusesWhatIsSaidTwice) {
  head_.host.lines = 2;
  EXPECT_EQ(status(), 400);
  head_.host = {};
  EXPECT_EQ(status(), 400);
  head_.http_1_1 = false;
  EXPECT_EQ(status(), 403);  // HTTP/1.0 may come without, but then nobody vouches for the name
  head_.host = {"localhost", 1};
  EXPECT_EQ(status(), 0);
  head_.authorization.lines = 2;
  EXPECT_EQ(status(), 400);
  head_.authorization.lines = 1;
  head_.target = "/a/../b";
  EXPECT_EQ(status(), 400);
}

TEST_F(Gate, KeyBeforeAnythingAboutPaths) {
  head_.authorization = {};
  EXPECT_EQ(status(), 401);
  EXPECT_THAT(pass().answer->headers, Contains(Pair("WWW-Authenticate", "Bearer")));
  head_.target = "/nothing";
  EXPECT_EQ(status(), 401);
  head_.target = "/health";
  EXPECT_EQ(status(), 0);
}

TEST_F(Gate, AnAllowedPageCanReadItsRefusal) {
  head_.origin = {"https://app.example", 1};
  head_.authorization.value = "Bearer wrong";
  const auto decision = pass();
  EXPECT_EQ(decision.answer->status, 401);
  EXPECT_THAT(decision.headers,
              Contains(Pair("Access-Control-Allow-Origin", "https://app.example")));
  EXPECT_THAT(decision.headers, Contains(Pair("Vary", "Origin")));
}

TEST_F(Gate, PreflightNeedsNoKeyAndNamesWhatIsAllowed) {
  head_.method = HttpMethod::options;
  head_.authorization = {};
  head_.origin = {"https://app.example", 1};
  head_.wanted_method = {"POST", 1};
  head_.wanted_headers = {"Authorization, content-type,X-Stainless-OS, b\"ad", 1};
  const auto decision = pass();
  ASSERT_TRUE(decision.answer);
  EXPECT_EQ(decision.answer->status, 204);
  const auto& headers = decision.answer->headers;
  EXPECT_THAT(headers, Contains(Pair("Access-Control-Allow-Origin", "https://app.example")));
  EXPECT_THAT(headers, Contains(Pair("Access-Control-Allow-Methods", HasSubstr("POST"))));
  EXPECT_THAT(headers, Contains(Pair("Access-Control-Allow-Headers",
                                     "authorization, content-type, x-stainless-os")));
  EXPECT_THAT(headers, Not(Contains(Key("Access-Control-Allow-Private-Network"))));
  head_.origin.value = "https://evil.example";
  EXPECT_EQ(status(), 403);
}

TEST_F(Gate, MethodsAndTypes) {
  head_.method = HttpMethod::options;
  EXPECT_THAT(pass().answer->headers, Contains(Pair("Allow", "GET, HEAD, OPTIONS")));
  head_.target = "/nothing";
  EXPECT_EQ(status(), 404);
  head_.method = HttpMethod::get;
  EXPECT_EQ(status(), 404);
  head_.target = "/v1/chat";
  EXPECT_EQ(status(), 405);
  EXPECT_THAT(pass().answer->headers, Contains(Pair("Allow", "POST, OPTIONS")));
  head_.method = HttpMethod::post;
  EXPECT_EQ(status(), 415);
  head_.content_type = {"text/plain", 1};
  EXPECT_EQ(status(), 415);
  head_.content_type = {"application/json; charset=utf-8", 1};
  EXPECT_EQ(status(), 0);
  head_.expects_other = true;
  EXPECT_EQ(status(), 417);
  head_.expects_other = false;
  head_.method = HttpMethod::head;
  head_.target = "/v1/models";
  EXPECT_EQ(status(), 0);
  head_.content_length = 1;
  EXPECT_EQ(status(), 400);
}

}  // namespace
}  // namespace wader
