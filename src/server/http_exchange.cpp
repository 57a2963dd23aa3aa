#include "server/http_exchange.h"

#include <fmt/format.h>

#include <exception>

namespace wader {

std::string_view HttpCore::date() {
  const std::time_t now = std::time(nullptr);
  if (now != date_unix_s_) {
    date_ = http_date(now);
    date_unix_s_ = now;
  }
  return date_;
}

void HttpCore::problem(std::string_view text) noexcept {
  try {
    if (on_problem) on_problem(text);
  } catch (...) {  // a log that fails must not take the server with it
  }
}

Exchange::Exchange(HttpCore& core, HttpStream& stream) : core_(core), stream_(stream) {
  request_.id = ++core_.last_request_id;
  request_.received = HttpStream::Clock::now();
}

void Exchange::set_form(const HttpHead& head) {
  request_.method = head.method;
  head_only_ = head.method == HttpMethod::head;
  http_1_1_ = head.http_1_1;
  keep_alive_ = keep_alive_ && head.keep_alive;
}

bool Exchange::may_answer(std::string_view with) {
  if (!answered()) return true;
  core_.problem(fmt::format("request {} to {}: {} after the answer had begun; left out",
                            request_.id, request_.path, with));
  keep_alive_ = false;
  return false;
}

std::string Exchange::head_text(const HttpResponse& response, HttpFraming framing) {
  if (core_.stopping || stream_.flooded()) keep_alive_ = false;
  status_ = response.status;
  HttpHeadFacts facts;
  facts.framing = framing;
  facts.keep_alive = keep_alive();
  facts.request_id = request_.id;
  facts.date = core_.date();
  return http_head(response, headers_, facts);
}

Task<> Exchange::send(HttpResponse response) {
  if (!may_answer("send()")) co_return;
  std::string text = head_text(response, HttpFraming::length);
  if (!head_only_ && !is_without_body(response.status)) text += response.body;
  // Also when the client is gone: it may have closed its sending half alone.
  const bool sent = co_await stream_.write(text, core_.limits.write_timeout);
  if (!sent) client_gone();
}

Task<> Exchange::begin_stream(HttpResponse head) {
  if (!may_answer("begin_stream()")) co_return;
  if (!http_1_1_) keep_alive_ = false;
  const std::string text = head_text(head, http_1_1_ ? HttpFraming::chunked : HttpFraming::close);
  streaming_ = true;
  const bool sent = co_await stream_.write(text, core_.limits.write_timeout);
  if (!sent) client_gone();
}

Task<bool> Exchange::write(std::string text) {
  if (!streaming_) {
    core_.problem(fmt::format("request {} to {}: write() before begin_stream(); left out",
                              request_.id, request_.path));
    keep_alive_ = false;
    co_return false;
  }
  if (gone_ || head_only_) co_return false;
  if (text.empty()) co_return true;  // an empty chunk would be the last
  const std::string bytes = http_1_1_ ? http_chunk(text) : std::move(text);
  const bool sent = co_await stream_.write(bytes, core_.limits.write_timeout);
  if (!sent) client_gone();
  co_return !gone_;
}

Task<> Exchange::finish() {
  if (!streaming_ || gone_ || head_only_ || !http_1_1_) co_return;
  const bool sent = co_await stream_.write(kLastChunk, core_.limits.write_timeout);
  if (!sent) client_gone();
}

void Exchange::on_gone(std::function<void()> action) {
  on_gone_ = std::move(action);
  if (gone_) {
    gone_ = false;
    client_gone();
  }
}

void Exchange::client_gone() noexcept {
  if (gone_) return;
  gone_ = true;
  // A write that waits for a slow client need not; a whole answer still goes out as far as it can.
  if (streaming_) stream_.cancel();
  const auto action = std::move(on_gone_);
  on_gone_ = nullptr;
  try {
    if (action) action();
  } catch (const std::exception& error) {
    core_.problem(error.what());
  } catch (...) {
    core_.problem("on_gone threw what is no std::exception");
  }
}

}  // namespace wader
