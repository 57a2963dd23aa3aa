// A connection's bytes, from the socket to the handlers: whatever a client sends, in pieces of the
// size that the first byte says, the connection comes to its end, gives back what its bodies took,
// and accepts the same requests as when all comes at once (what is read in two ways can be smuggled
// past somebody). Refusals may differ: the end of a head that is wrong is not waited for if the
// wrong byte is there at once.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "server/http_connection.h"
#include "tokenizer/utf8.h"

namespace wader {
namespace {

constexpr int kMaxTurns = 100'000;

Task<> echo(HttpExchange& exchange) {
  HttpResponse response;
  response.body = exchange.request().body;
  co_await exchange.send(std::move(response));
}

Task<> stream(HttpExchange& exchange) {
  HttpResponse head;
  co_await exchange.begin_stream(std::move(head));
  std::string text = exchange.request().path;
  co_await exchange.write(std::move(text));
}

HttpRouter make_router() {
  std::vector<HttpRoute> routes(4);
  routes[0].pattern = "/";
  routes[0].handler = echo;
  routes[0].open = true;
  routes[1].pattern = "/v1/models/{id...}";
  routes[1].handler = stream;
  routes[2].pattern = "/v1/echo";
  routes[2].method = HttpMethod::post;
  routes[2].handler = echo;
  routes[3].pattern = "/v1/{name}";
  routes[3].handler = stream;
  return HttpRouter::make(std::move(routes)).value();
}

struct Accepted {
  std::string path, body;
  bool operator==(const Accepted&) const = default;
};

std::vector<Accepted> accepted_of(std::string_view bytes, size_t piece_bytes) {
  HttpOptions options;
  options.limits.max_header_bytes = 2048;
  options.limits.max_body_bytes = 4096;
  options.limits.max_all_bodies_bytes = 6000;
  HttpAccess access;
  access.api_key = "key";
  access.allowed_origins = {"https://app.example"};
  std::vector<Accepted> accepted;
  options.on_done = [&](const HttpRequest& request, int status, uint64_t, double) {
    CHECK(valid_utf8_prefix(request.path) == request.path.size());
    CHECK(request.path.find("/../") == std::string::npos);
    CHECK(status >= 200 && status < 600);
    if (status < 300) accepted.push_back({request.path, request.body});
  };
  options.on_problem = [](std::string_view) { UNREACHABLE("no handler here fails"); };
  HttpCore core(options, make_router(), HttpGuard(access, 8080));

  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  bool ended = false;
  std::string answers;
  boost::asio::io_context io(1);
  const auto turn = [&] {
    io.poll();
    char received[16384];
    for (ssize_t count = 0; (count = ::recv(ends[0], received, sizeof received, 0)) > 0;)
      answers.append(received, static_cast<size_t>(count));
  };
  HttpStream::Socket socket(io, boost::asio::generic::stream_protocol(AF_UNIX, 0), ends[1]);
  auto connection = std::make_shared<HttpConnection>(std::move(socket), core);
  boost::asio::co_spawn(io, HttpConnection::serve(std::move(connection)),
                        [&](std::exception_ptr error) {
                          CHECK(!error);
                          ended = true;
                        });
  int turns = 0;
  for (; !bytes.empty() && !ended; ++turns) {
    const std::string_view piece = bytes.substr(0, piece_bytes);
    const ssize_t sent = ::send(ends[0], piece.data(), piece.size(), MSG_NOSIGNAL);
    if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
    turn();
    CHECK(turns < kMaxTurns);
  }
  ::shutdown(ends[0], SHUT_WR);
  for (; !ended; ++turns) {
    turn();
    CHECK(turns < kMaxTurns);
  }
  turn();
  ::close(ends[0]);
  CHECK(core.bodies.used_bytes() == 0);
  CHECK(answers.empty() || answers.starts_with("HTTP/1.1 "));
  CHECK(accepted.empty() || !answers.empty());
  return accepted;
}

}  // namespace
}  // namespace wader

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t piece_bytes = std::max<size_t>(data[0] % 64 + 1, bytes.size() / 512);
  CHECK(wader::accepted_of(bytes, bytes.size() + 1) == wader::accepted_of(bytes, piece_bytes));
  return 0;
}
