#include "server/http_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wader {
namespace {

using State = HttpReader::State;

struct Outcome {
  State state = State::head;
  int status = 0;
  std::string body, rest;
  HttpHead head;
};

// Reads `bytes` in pieces of `piece` bytes, as a connection does.
Outcome read(std::string_view bytes, size_t piece = 1 << 20, uint64_t max_header_bytes = 4096,
             uint64_t max_body_bytes = 1000, uint64_t budget_bytes = 1 << 20) {
  BodyBudget budget(budget_bytes);
  Outcome outcome;
  {
    HttpReader reader(max_header_bytes, budget);
    std::string inbox;
    while (reader.state() != State::done && reader.state() != State::failed) {
      if (reader.state() == State::head_done) {
        reader.read_body(max_body_bytes);
      } else {
        if (bytes.empty()) break;
        inbox += bytes.substr(0, piece);
        bytes.remove_prefix(std::min(piece, bytes.size()));
      }
      inbox.erase(0, reader.feed(inbox));
    }
    outcome.state = reader.state();
    outcome.status = reader.status();
    outcome.body = reader.body();
    outcome.head = reader.head();
    outcome.rest = inbox.append(bytes);
    EXPECT_EQ(reader.status() == 0, reader.state() != State::failed);
    EXPECT_EQ(reader.problem().empty(), reader.state() != State::failed);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
  return outcome;
}

int status_of(std::string_view bytes) {
  const Outcome whole = read(bytes), single = read(bytes, 1);
  EXPECT_EQ(whole.status, single.status) << bytes;
  EXPECT_EQ(whole.state, single.state) << bytes;
  return whole.status;
}

TEST(HttpReader, AnyPiecesGiveTheSame) {
  const std::string_view bytes =
      "\r\nPOST /v1/x?q HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Authorization: Bearer k\r\nExpect: 100-Continue\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP";
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    const Outcome outcome = read(bytes, piece);
    ASSERT_EQ(outcome.state, State::done) << piece;
    EXPECT_EQ(outcome.body, "hello");
    EXPECT_EQ(outcome.rest, "GET / HTTP");
    EXPECT_EQ(outcome.head.target, "/v1/x?q");
    EXPECT_EQ(outcome.head.host.value, "localhost");
    EXPECT_EQ(outcome.head.authorization.value, "Bearer k");
    EXPECT_TRUE(outcome.head.expects_continue);
    EXPECT_TRUE(outcome.head.keep_alive);
  }
}

TEST(HttpReader, ChunkedBodies) {
  const std::string_view bytes =
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"
      "3;x=\"y\"\r\nabc\r\nA\r\n0123456789\r\n0\r\nHost: evil\r\n\r\nrest";
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    const Outcome outcome = read(bytes, piece);
    ASSERT_EQ(outcome.state, State::done) << piece;
    EXPECT_EQ(outcome.body, "abc0123456789");
    EXPECT_EQ(outcome.rest, "rest");
    EXPECT_EQ(outcome.head.host.lines, 1u);  // trailers are not headers
  }
}

TEST(HttpReader, ChunkedBodiesWithoutChunks) {
  for (const size_t piece : {1, 2, 3, 4, 100}) {
    const Outcome outcome =
        read("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nrest", piece);
    ASSERT_EQ(outcome.state, State::done) << piece;
    EXPECT_EQ(outcome.body, "");
    EXPECT_EQ(outcome.rest, "rest");
  }
}

TEST(HttpReader, KeepAlive) {
  EXPECT_FALSE(read("GET / HTTP/1.1\r\nConnection: close\r\n\r\n").head.keep_alive);
  EXPECT_FALSE(read("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").head.keep_alive);
}

// Each of these has been read as two different requests by two servers (request smuggling).
TEST(HttpReader, RequestsThatCanBeReadInTwoWays) {
  const std::string post = "POST / HTTP/1.1\r\nHost: a\r\n";
  for (const std::string headers : {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                                    "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                                    "Content-Length: 5\r\nContent-Length: 6\r\n",
                                    "Content-Length: 5\r\nContent-Length: 5\r\n",
                                    "Content-Length: 5, 5\r\n",
                                    "Content-Length: -1\r\n",
                                    "Content-Length: +5\r\n",
                                    "Content-Length: 0x5\r\n",
                                    "Content-Length: 5 5\r\n",
                                    "Content-Length:\r\n",
                                    "Content-Length: 99999999999999999999999\r\n",
                                    "Content-Length: 1e3\r\n",
                                    "Transfer-Encoding: gzip\r\n",
                                    "Transfer-Encoding: chunked, gzip\r\n",
                                    "Transfer-Encoding: gzip, chunked\r\n",
                                    "Transfer-Encoding: xchunked\r\n",
                                    "Transfer-Encoding: identity\r\n",
                                    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                                    "Transfer-Encoding : chunked\r\n",
                                    "Transfer-Encoding:\x0b"
                                    "chunked\r\n",
                                    "Bad Name: x\r\n",
                                    ": x\r\n",
                                    "X: a\x01"
                                    "b\r\n",
                                    "X: a\nContent-Length: 5\r\n",
                                    "X\r\n"})
    EXPECT_EQ(status_of(post + headers + "\r\nhello"), 400) << headers;
  EXPECT_EQ(status_of("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  for (const std::string body :
       {"x\r\n", "-1\r\n", "3\r\nabcd\r\n", "3 4\r\nabc\r\n", "fffffffffffffffff\r\n", "3\nabc\r\n",
        "0\r\nContent-Length: 3\r\n\r\n"})
    EXPECT_EQ(status_of(chunked + body + "            "), 400) << body;
}

TEST(HttpReader, RequestLinesThatAreNone) {
  for (const std::string line :
       {"GET\r\n", "GET / HTTP/1.1 x\r\n", "GET  / HTTP/1.1\r\n", " GET / HTTP/1.1\r\n",
        "GET /a b HTTP/1.1\r\n", "G@T / HTTP/1.1\r\n", "\x16\x03\x01\x02",
        "GET /\x01 HTTP/1.1\r\n"})
    EXPECT_THAT(status_of(line + "Host: a\r\n\r\n"), testing::AnyOf(400, 505)) << line;
  EXPECT_EQ(status_of("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 0);
}

TEST(HttpReader, HeadersHaveALimit) {
  const std::string begin = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
  const std::string end = "\r\n\r\n";
  const auto of_size = [&](size_t bytes) {
    return begin + std::string(bytes - begin.size() - end.size(), 'x') + end;
  };
  EXPECT_EQ(status_of(of_size(4096)), 0);
  EXPECT_EQ(status_of(of_size(4097)), 431);
  EXPECT_EQ(status_of(begin + std::string(64 << 10, 'x')), 431);
  EXPECT_EQ(status_of("GET /" + std::string(8000, 'x')), 431);
  std::string blank_lines;
  for (int i = 0; i < 3000; ++i) blank_lines += "\r\n";
  EXPECT_EQ(status_of(blank_lines + "GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 431);
  std::string many = "GET / HTTP/1.1\r\n";
  for (uint32_t i = 0; i < kMaxHeaderLines; ++i) many += "A:b\r\n";
  EXPECT_EQ(status_of(many + "\r\n"), 0);
  EXPECT_EQ(status_of(many + "A:b\r\n\r\n"), 431);
}

TEST(HttpReader, BodiesHaveALimit) {
  const auto announced = [](size_t bytes) {
    return "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(bytes) + "\r\n\r\n";
  };
  EXPECT_EQ(read(announced(1000) + std::string(1000, 'x')).body.size(), 1000u);
  EXPECT_EQ(status_of(announced(1001)), 413);  // before a byte of it came
  EXPECT_EQ(status_of(announced(1ull << 40)), 413);
  const std::string chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(status_of(chunked + "3e9\r\n"), 413);
  std::string chunks;
  for (int i = 0; i < 101; ++i) chunks += "a\r\n0123456789\r\n";
  EXPECT_EQ(status_of(chunked + chunks), 413);
  EXPECT_EQ(status_of(chunked + "1;" + std::string(70000, 'x')), 400);  // an extension without end
}

TEST(HttpReader, AllBodiesTogetherHaveALimit) {
  const std::string post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 500\r\n\r\n";
  EXPECT_EQ(read(post + std::string(500, 'x'), 100, 4096, 1000, 499).status, 503);
  EXPECT_EQ(read(post + std::string(500, 'x'), 100, 4096, 1000, 500).status, 0);
  // What is announced but has not come takes no room.
  EXPECT_EQ(read(post, 100, 4096, 1000, 0).state, State::body);
}

}  // namespace
}  // namespace wader
