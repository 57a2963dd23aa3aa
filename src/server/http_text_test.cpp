#include "server/http_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/http_response.h"
#include "server/sse.h"

namespace wader {
namespace {

using testing::HasSubstr;
using testing::Not;
using namespace std::string_view_literals;

TEST(HttpText, PercentDecoding) {
  EXPECT_EQ(percent_decode("/a%20b%2Fc%c3%A9"), "/a b/c\u00E9");
  EXPECT_EQ(percent_decode("100%25"), "100%");
  EXPECT_EQ(percent_decode(""), "");
  for (const auto bad :
       {"%", "%4", "%4g", "a%zz", "%00", "%0a", "%7F", "%ff", "%ED%A0%80", "\xC3", "a\nb"})
    EXPECT_FALSE(percent_decode(bad)) << bad;
}

TEST(HttpText, Targets) {
  EXPECT_EQ(parse_target("/v1/models?a=%20b&c")->path, "/v1/models");
  EXPECT_EQ(parse_target("/v1/models?a=%20b&c")->query, "a=%20b&c");
  EXPECT_EQ(parse_target("/a?b?c")->query, "b?c");
  EXPECT_EQ(parse_target("HTTP://LocalHost:80/x?y")->authority, "LocalHost:80");
  EXPECT_EQ(parse_target("http://localhost/x?y")->path, "/x");
  EXPECT_EQ(parse_target("http://localhost")->path, "/");
  EXPECT_EQ(parse_target("http://localhost?q")->path, "/");
  EXPECT_EQ(parse_target("http://localhost?q")->query, "q");
  EXPECT_EQ(parse_target("*")->path, "*");
  EXPECT_EQ(parse_target("/a/..b/...")->path, "/a/..b/...");
  for (const auto bad :
       {"", "a", "?q", "/..", "/../etc", "/a/./b", "/a/%2e%2E/b", "/a%2f..%2fb", "/a#b", "/%",
        "http://", "http:///a", "https://localhost/", "localhost:80"})
    EXPECT_FALSE(parse_target(bad)) << bad;
}

TEST(HttpText, Base64) {  // RFC 4648 section 10
  const auto encoded = [](std::string_view text) {
    return base64({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  };
  EXPECT_EQ(encoded(""), "");
  EXPECT_EQ(encoded("f"), "Zg==");
  EXPECT_EQ(encoded("fo"), "Zm8=");
  EXPECT_EQ(encoded("foo"), "Zm9v");
  EXPECT_EQ(encoded("foobar"), "Zm9vYmFy");
  EXPECT_EQ(encoded("\xfb\xff\xbf"), "+/+/");
}

TEST(HttpText, JsonTypes) {
  for (const auto good :
       {"application/json", "Application/JSON", " application/json ;charset=UTF-8",
        "application/json; charset=\"utf-8\"", "application/json; a=b", "application/json;"})
    EXPECT_TRUE(is_json_type(good)) << good;
  for (const auto bad : {"", "text/plain", "application/jsonp", "application/json; charset=latin1",
                         "text/plain; application/json", "application/x-www-form-urlencoded"})
    EXPECT_FALSE(is_json_type(bad)) << bad;
}

TEST(HttpText, Authorities) {
  EXPECT_EQ(parse_authority("LOCALHOST.")->host, "localhost");
  EXPECT_EQ(parse_authority("LOCALHOST.")->port, std::nullopt);
  EXPECT_EQ(parse_authority("a-b.c_d:8080")->port, 8080);
  EXPECT_EQ(parse_authority("[::1]:65535")->host, "[::1]");
  EXPECT_EQ(parse_authority("[::1]:65535")->port, 65535);
  for (const auto bad : {"",
                         ".",
                         ":80",
                         "::1",
                         "a:",
                         "a:0",
                         "a:65536",
                         "a:-1",
                         "a:+1",
                         "a: 1",
                         "a:1x",
                         "[::1",
                         "[]",
                         "[::1]x",
                         "a b",
                         "user@localhost",
                         "localhost/",
                         "a\\b",
                         "localhost:80:80",
                         "[localhost]"})
    EXPECT_FALSE(parse_authority(bad)) << bad;
}

TEST(HttpText, TokensAndValues) {
  EXPECT_TRUE(is_token("x-stainless-os"));
  for (const auto bad : {""sv, "a b"sv, "a:"sv, "a\r\nb"sv, "\xC3\xA9"sv, "a\0"sv})
    EXPECT_FALSE(is_token(bad));
  EXPECT_TRUE(is_field_value("a\tb \xC3\xA9"));
  EXPECT_FALSE(is_field_value("a\r\nb"));
  EXPECT_EQ(trim_blanks(" \t a b\t"), "a b");
  EXPECT_EQ(trim_blanks(" \t"), "");
}

TEST(HttpHead, FramingAndSecurityHeaders) {
  HttpResponse response;
  response.body = "{}";
  HttpHeadFacts facts;
  facts.keep_alive = true;
  facts.request_id = 7;
  facts.date = "D";
  EXPECT_EQ(http_head(response, {{"Vary", "Origin"}}, facts),
            "HTTP/1.1 200 OK\r\nServer: wader\r\nDate: D\r\nContent-Type: application/json\r\n"
            "Content-Length: 2\r\nVary: Origin\r\nCache-Control: no-store\r\n"
            "X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n"
            "Cross-Origin-Resource-Policy: same-origin\r\nX-Request-Id: 7\r\n"
            "Connection: keep-alive\r\n\r\n");
  facts.framing = HttpFraming::chunked;
  facts.keep_alive = false;
  const std::string chunked = http_head(response, {}, facts);
  EXPECT_THAT(chunked, HasSubstr("Transfer-Encoding: chunked\r\n"));
  EXPECT_THAT(chunked, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(chunked, Not(HasSubstr("Content-Length")));
  response.status = 204;
  EXPECT_THAT(http_head(response, {}, facts), Not(HasSubstr("Transfer-Encoding")));
}

TEST(HttpHead, NothingSplitsAnAnswer) {
  HttpResponse response;
  response.headers = {{"X-A", "1\r\nSet-Cookie: x"}, {"X B", "1"}, {"cache-control", "max-age=1"}};
  const std::string head = http_head(response, {}, {});
  EXPECT_THAT(head, Not(HasSubstr("Set-Cookie")));
  EXPECT_THAT(head, Not(HasSubstr("X B")));
  EXPECT_THAT(head, HasSubstr("cache-control: max-age=1\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("no-store")));
}

TEST(HttpHead, ChunksAndDates) {
  EXPECT_EQ(http_chunk(std::string(26, 'x')), "1a\r\n" + std::string(26, 'x') + "\r\n");
  EXPECT_EQ(http_date(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(http_date(1709164800), "Thu, 29 Feb 2024 00:00:00 GMT");
}

TEST(ServerSentEvents, EveryLineIsAField) {
  EXPECT_EQ(sse_event("{\"a\":1}"), "data: {\"a\":1}\n\n");
  EXPECT_EQ(sse_event("[DONE]"), "data: [DONE]\n\n");
  EXPECT_EQ(sse_event("a\nb\r\nc\rd", "e"), "event: e\ndata: a\ndata: b\ndata: c\ndata: d\n\n");
  EXPECT_EQ(sse_event(""), "data: \n\n");
  EXPECT_EQ(sse_event("a\n"), "data: a\ndata: \n\n");
  EXPECT_EQ(sse_comment("12 %\r\ndata: x"), ": 12 %  data: x\n\n");
  EXPECT_EQ(sse_head().content_type, "text/event-stream");
}

}  // namespace
}  // namespace wader
