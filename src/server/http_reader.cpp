#include "server/http_reader.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>

#include "base/ascii.h"
#include "base/check.h"
#include "server/http_text.h"

namespace wader {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::beast::string_view;
using boost::system::error_code;

constexpr size_t kLastChunkBytes = 5;  // "0\r\n\r\n"

std::string_view std_view(string_view text) {
  return {text.data(), text.size()};
}

HttpMethod method_of(http::verb verb) {
  switch (verb) {
    case http::verb::get:
      return HttpMethod::get;
    case http::verb::head:
      return HttpMethod::head;
    case http::verb::post:
      return HttpMethod::post;
    case http::verb::options:
      return HttpMethod::options;
    default:
      return HttpMethod::other;
  }
}

void keep(SingleHeader& header, string_view value) {
  header.value.assign(value.data(), value.size());
  ++header.lines;
}

}  // namespace

struct HttpReader::Parser final : http::basic_parser<true> {
  Parser(uint64_t header_bytes, BodyBudget& bodies)
      : max_header_bytes(std::min<uint64_t>(header_bytes, 16 << 20)), budget(bodies) {
    header_limit(static_cast<uint32_t>(max_header_bytes));
    body_limit(boost::none);  // the head is judged first: see read_body()
  }
  ~Parser() override { budget.give_back(charged_bytes); }

  const uint64_t max_header_bytes;
  BodyBudget& budget;
  State state = State::head;
  HttpHead head;
  std::string body;
  uint64_t charged_bytes = 0;  // the body's capacity
  uint64_t max_body_bytes = 0;
  uint64_t head_bytes = 0;
  uint32_t header_lines = 0;
  SingleHeader transfer_encoding, content_length_lines;
  int status = 0;
  std::string_view problem;

  void fail(int with_status, std::string_view why, error_code& ec) {
    status = with_status;
    problem = why;
    ec = http::error::bad_value;
  }

  void on_request_impl(http::verb method, string_view, string_view target, int version,
                       error_code&) override {
    head.method = method_of(method);
    head.target.assign(target.data(), target.size());
    head.http_1_1 = version == 11;
  }
  void on_response_impl(int, string_view, int, error_code&) override {}

  void on_field_impl(http::field name, string_view name_text, string_view value,
                     error_code& ec) override;
  void on_header_impl(error_code& ec) override;
  void on_body_init_impl(boost::optional<uint64_t> const&, error_code&) override {}
  size_t on_body_impl(string_view bytes, error_code& ec) override { return append(bytes, ec); }
  void on_chunk_header_impl(uint64_t, string_view, error_code&) override {}
  size_t on_chunk_body_impl(uint64_t, string_view bytes, error_code& ec) override {
    return append(bytes, ec);
  }
  void on_finish_impl(error_code&) override {}

  size_t append(string_view bytes, error_code& ec);
  void translate(error_code ec);
};

void HttpReader::Parser::on_field_impl(http::field name, string_view name_text, string_view value,
                                       error_code& ec) {
  if (++header_lines > kMaxHeaderLines) return fail(431, "the request has too many headers", ec);
  if (state != State::head) return;  // trailers say nothing that we listen to
  switch (name) {
    case http::field::host:
      return keep(head.host, value);
    case http::field::origin:
      return keep(head.origin, value);
    case http::field::authorization:
      return keep(head.authorization, value);
    case http::field::content_type:
      return keep(head.content_type, value);
    case http::field::access_control_request_method:
      return keep(head.wanted_method, value);
    case http::field::access_control_request_headers:
      return keep(head.wanted_headers, value);
    case http::field::transfer_encoding:
      return keep(transfer_encoding, value);
    case http::field::content_length:
      return keep(content_length_lines, value);
    case http::field::expect:
      if (equal_ignoring_case(std_view(value), "100-continue"))
        head.expects_continue = true;
      else
        head.expects_other = true;
      return;
    default:
      if (equal_ignoring_case(std_view(name_text), "access-control-request-private-network"))
        keep(head.wanted_private_network, value);
  }
}

// Beast takes "Content-Length: 5, 5", and reads a request with an encoding that it does not know as
// one without a body. What follows would then be read as the next request.
void HttpReader::Parser::on_header_impl(error_code& ec) {
  if (content_length_lines.lines > 1 || content_length_lines.value.find(',') != std::string::npos)
    return fail(400, "Content-Length stands more than once", ec);
  if (transfer_encoding.lines > 0) {
    if (!head.http_1_1) return fail(400, "Transfer-Encoding needs HTTP/1.1", ec);
    if (transfer_encoding.lines > 1 || !equal_ignoring_case(transfer_encoding.value, "chunked"))
      return fail(400, "the only Transfer-Encoding that is understood is chunked", ec);
  }
  head.chunked = transfer_encoding.lines > 0;
  head.content_length = head.chunked ? 0 : content_length().value_or(0);
  head.keep_alive = head.http_1_1 && keep_alive();
}

size_t HttpReader::Parser::append(string_view bytes, error_code& ec) {
  const uint64_t needed = body.size() + bytes.size();
  if (needed > max_body_bytes) {
    fail(413, "the body is larger than this server takes", ec);
    return 0;
  }
  if (needed > charged_bytes) {
    const uint64_t most = head.chunked ? max_body_bytes : head.content_length;
    const uint64_t capacity =
        std::max(needed, std::min(std::max<uint64_t>(charged_bytes * 2, 16 << 10), most));
    if (!budget.take(capacity - charged_bytes)) {
      fail(503, "too many large requests at once; try again", ec);
      return 0;
    }
    charged_bytes = capacity;
    body.reserve(capacity);
  }
  body.append(bytes.data(), bytes.size());
  return bytes.size();
}

void HttpReader::Parser::translate(error_code ec) {
  state = State::failed;
  if (status != 0) return;
  status = 400;
  problem = "this is not an HTTP/1.1 request";
  if (ec == http::error::header_limit) {
    status = 431;
    problem = "the request's headers are larger than this server takes";
  } else if (ec == http::error::body_limit) {
    status = 413;
    problem = "the body is larger than this server takes";
  } else if (ec == http::error::bad_version) {
    status = 505;
    problem = "this server speaks HTTP/1.1 without TLS";
  } else if (ec == http::error::bad_content_length || ec == http::error::multiple_content_length) {
    problem = "Content-Length is not one number";
  } else if (ec == http::error::bad_transfer_encoding) {
    problem = "Transfer-Encoding stands twice, or beside Content-Length";
  } else if (ec == http::error::bad_chunk || ec == http::error::bad_chunk_extension) {
    problem = "the body is not chunked as its header says";
  }
}

HttpReader::HttpReader(uint64_t max_header_bytes, BodyBudget& budget)
    : parser_(std::make_unique<Parser>(max_header_bytes, budget)) {}
HttpReader::~HttpReader() = default;

HttpReader::State HttpReader::state() const {
  return parser_->state;
}

size_t HttpReader::feed(std::string_view bytes) {
  Parser& parser = *parser_;
  size_t taken = 0;
  // An empty line before the request line is skipped (RFC 9112 section 2.2).
  while (parser.state == State::head && !parser.got_some() && bytes.substr(taken, 2) == "\r\n") {
    taken += 2;
    parser.head_bytes += 2;
  }
  if (parser.head_bytes > parser.max_header_bytes) parser.translate(http::error::header_limit);
  if (parser.state == State::head && !parser.got_some() && bytes.substr(taken) == "\r")
    return taken;
  while (parser.state == State::head || parser.state == State::body) {
    const std::string_view rest = bytes.substr(taken);
    if (rest.empty()) break;
    // Beast asserts this much where the last chunk comes in pieces; no chunked body ends in less.
    if (parser.state == State::body && parser.head.chunked && rest.size() < kLastChunkBytes) break;
    error_code ec;
    const size_t used = parser.put({rest.data(), rest.size()}, ec);
    taken += used;
    if (parser.state == State::head) {
      parser.head_bytes += used;
      const uint64_t seen = parser.head_bytes + (parser.is_header_done() ? 0 : rest.size() - used);
      if (seen > parser.max_header_bytes && (!ec || ec == http::error::need_more))
        ec = http::error::header_limit;
    } else if (ec == http::error::need_more && rest.size() - used > parser.max_header_bytes) {
      ec = http::error::bad_chunk;  // one line of chunk extensions, or trailers, without an end
    }
    if (ec == http::error::need_more) break;
    if (ec) {
      parser.translate(ec);
      break;
    }
    if (parser.state == State::head && parser.is_header_done()) parser.state = State::head_done;
    if (parser.state == State::body && parser.is_done()) parser.state = State::done;
  }
  return taken;
}

void HttpReader::read_body(uint64_t max_body_bytes) {
  Parser& parser = *parser_;
  CHECK(parser.state == State::head_done);
  parser.max_body_bytes = max_body_bytes;
  parser.body_limit(max_body_bytes);  // of what is chunked
  parser.state = parser.is_done() ? State::done : State::body;
  if (parser.head.content_length > max_body_bytes) parser.translate(http::error::body_limit);
}

const HttpHead& HttpReader::head() const {
  return parser_->head;
}
std::string& HttpReader::body() {
  return parser_->body;
}
int HttpReader::status() const {
  return parser_->status;
}
std::string_view HttpReader::problem() const {
  return parser_->problem;
}

}  // namespace wader
