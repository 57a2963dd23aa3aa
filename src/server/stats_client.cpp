#include "server/stats_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include "base/ascii.h"
#include "base/error.h"
#include "base/json.h"
#include "server/http_text.h"

namespace wader {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using State = StatsReply::State;

constexpr std::string_view kStatsPath = "/wader/stats";
constexpr uint32_t kMaxHeaderBytes = 16 << 10;
constexpr std::chrono::milliseconds kAskInterval{100};  // between two calls of go_on()
constexpr size_t kShownBytes = 200;                     // of what a server says about an error

// The message of an error in OpenAI's form, or nothing.
std::string message_in(std::string_view body) {
  const auto json = parse_json(body, "answer");
  if (!json.ok() || !json->is_object() || !json_has(*json, "error")) return {};
  const Json& error = (*json)["error"];
  if (!error.is_object() || !json_has(error, "message")) return {};
  const auto message = json_string(error, "message");
  return message.ok() ? message->substr(0, kShownBytes) : std::string();
}

bool is_stats(std::string_view body) {
  const auto json = parse_json(body, "answer");
  return json.ok() && json->is_object() &&
         std::ranges::all_of(
             std::initializer_list<const char*>{"model", "plan", "now", "counters"},
             [&](const char* key) { return json_has(*json, key) && (*json)[key].is_object(); });
}

// Runs what was started on `io` to its end. False when the caller wants it no more.
bool finish(asio::io_context& io, const std::function<bool()>& go_on) {
  io.restart();
  while (!io.stopped()) {
    io.run_for(kAskInterval);
    if (!io.stopped() && !go_on()) return false;
  }
  return true;
}

StatsReply no_answer(const ServerUrl& url, error_code ec, std::chrono::milliseconds timeout) {
  if (ec == beast::error::timeout)
    return {State::silent,
            fmt::format("{} took the connection and gives no answer within {:.3g} s; a server that "
                        "loads its model answers when that is done",
                        url.text(), static_cast<double>(timeout.count()) / 1000)};
  if (ec == http::error::body_limit || ec == http::error::header_limit ||
      ec == http::error::buffer_overflow)
    return {State::refused, fmt::format("{} is not a Wader server: its {} is over {} bytes",
                                        url.text(), kStatsPath, kMaxStatsBytes)};
  const bool cut = ec == http::error::end_of_stream || ec == http::error::partial_message;
  if (!cut && ec.category() == http::make_error_code(http::error::end_of_stream).category())
    return {State::refused,
            fmt::format("{} is not a Wader server: what it answers is not HTTP ({})", url.text(),
                        ec.message())};
  return {State::silent, fmt::format("{} broke the connection off before a whole answer ({})",
                                     url.text(), ec.message())};
}

StatsReply no_connection(const ServerUrl& url, error_code ec) {
  if (ec == asio::error::connection_refused)
    return {State::absent,
            fmt::format("nothing listens at {}\nstart a server with: wader serve", url.text())};
  return {State::absent,
          fmt::format(
              "{} cannot be reached: {}\nstart a server with: wader serve", url.text(),
              ec == beast::error::timeout ? std::string("no connection in time") : ec.message())};
}

std::string_view without_end(std::string_view text, std::string_view end) {
  if (text.ends_with(end)) text.remove_suffix(end.size());
  return text;
}

}  // namespace

std::string ServerUrl::text() const {
  return fmt::format("http://{}:{}{}", host, port, path);
}

Result<ServerUrl> parse_server_url(std::string_view text) {
  constexpr std::string_view kHttp = "http://";
  const auto wrong = [&] {
    return invalid_argument_error(
        "'{}' is not the address of a server; write it as http://127.0.0.1:8080", text);
  };
  const std::string scheme = lower_ascii(text.substr(0, std::min(text.find("://"), text.size())));
  if (scheme == "https")
    return invalid_argument_error(
        "{}: https is not spoken here\n"
        "give the server's own http:// address, or that of a tunnel to it: "
        "ssh -L 8080:127.0.0.1:8080 HOST",
        text);
  const bool is_url = scheme == "http" && text.find("://") != text.npos;
  const std::string_view rest = is_url ? text.substr(kHttp.size()) : text;
  const size_t slash = std::min(rest.find('/'), rest.size());
  const auto authority = parse_authority(rest.substr(0, slash));
  if (!authority) return wrong();
  ServerUrl url;
  url.host = authority->host;
  url.port = authority->port.value_or(is_url ? 80 : 8080);
  std::string_view path = without_end(rest.substr(slash), "/");
  path = without_end(without_end(without_end(path, "/v1"), kStatsPath), "/");
  const bool plain =
      std::ranges::all_of(path, [](char c) { return c > ' ' && c <= '~' && c != '?' && c != '#'; });
  if (!plain) return wrong();
  url.path = path;
  return url;
}

StatsReply judge_stats_answer(const ServerUrl& url, int status, std::string body, bool sent_key) {
  const std::string where = url.text();
  if (status == 200) {
    if (is_stats(body)) return {State::stats, std::move(body)};
    return {State::refused,
            fmt::format("{} is not a Wader server: its {} is something else", where, kStatsPath)};
  }
  if (status == 401)
    return {State::refused,
            fmt::format("{} {}\ngive the key that it was started with: --api-key-file FILE, or the "
                        "environment variable WADER_API_KEY",
                        where, sent_key ? "does not take this key" : "needs a key")};
  const std::string message = message_in(body);
  if (status == 503)
    return {State::loading,
            fmt::format("{} is not ready: {}", where,
                        message.empty() ? "a model is being loaded" : std::string_view(message))};
  if (status == 403)
    return {State::refused,
            fmt::format("{} refuses: {}", where, message.empty() ? "403" : message)};
  // A proxy whose server is gone says so with one of these.
  if (status >= 500)
    return {State::silent,
            fmt::format("{} answers {}{}{}", where, status, message.empty() ? "" : ": ", message)};
  return {State::refused,
          fmt::format("{} is not a Wader server, or one of an earlier version: {} gives {}", where,
                      kStatsPath, status)};
}

Result<StatsClient> StatsClient::create(ServerUrl url, std::optional<std::string> api_key) {
  StatsClient client;
  std::string name = url.host;
  if (name.starts_with('[')) name = name.substr(1, name.size() - 2);
  error_code ec;
  if (asio::ip::make_address(name, ec); !ec) {
    client.addresses_.push_back(name);
  } else {
    asio::io_context io;
    for (const auto& entry : tcp::resolver(io).resolve(name, "", ec))
      client.addresses_.push_back(entry.endpoint().address().to_string());
    if (ec || client.addresses_.empty())
      return not_found_error("{}: the host is not known: {}", url.text(), ec.message());
  }
  client.url_ = std::move(url);
  client.api_key_ = std::move(api_key);
  return client;
}

StatsReply StatsClient::ask(const std::function<bool()>& go_on,
                            std::chrono::milliseconds timeout) const {
  const StatsReply stopped = {State::stopped, ""};
  error_code ec;
  std::vector<tcp::endpoint> endpoints;
  for (const std::string& address : addresses_)
    endpoints.emplace_back(asio::ip::make_address(address, ec), url_.port);
  http::request<http::empty_body> question(http::verb::get, url_.path + std::string(kStatsPath),
                                           11);
  question.set(http::field::host, fmt::format("{}:{}", url_.host, url_.port));
  question.set(http::field::accept, "application/json");
  question.set(http::field::connection, "close");
  if (api_key_) question.set(http::field::authorization, "Bearer " + *api_key_);
  beast::flat_buffer buffer(kMaxHeaderBytes + kMaxStatsBytes);
  http::response_parser<http::string_body> parser;
  parser.header_limit(kMaxHeaderBytes);
  parser.body_limit(kMaxStatsBytes);

  // Each operation runs to its end before the next one starts; one that is given up dies with `io`,
  // before what it refers to.
  asio::io_context io(1);
  beast::tcp_stream stream(io);
  stream.expires_after(timeout);
  stream.async_connect(endpoints, [&](error_code result, const tcp::endpoint&) { ec = result; });
  if (!finish(io, go_on)) return stopped;
  if (ec) return no_connection(url_, ec);
  http::async_write(stream, question, [&](error_code result, size_t) { ec = result; });
  if (!finish(io, go_on)) return stopped;
  // A server that closes at once may have answered before it.
  if (ec == beast::error::timeout) return no_answer(url_, ec, timeout);
  http::async_read(stream, buffer, parser, [&](error_code result, size_t) { ec = result; });
  if (!finish(io, go_on)) return stopped;
  if (ec) return no_answer(url_, ec, timeout);
  return judge_stats_answer(url_, static_cast<int>(parser.get().result_int()),
                            std::move(parser.get().body()), api_key_.has_value());
}

}  // namespace wader
