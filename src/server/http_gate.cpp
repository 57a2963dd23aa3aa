#include "server/http_gate.h"

#include "server/http_text.h"

namespace wader {
namespace {

HttpResponse with_header(HttpResponse response, std::string name, std::string value) {
  response.headers.emplace_back(std::move(name), std::move(value));
  return response;
}

HttpResponse no_content() {
  HttpResponse response;
  response.status = 204;
  response.content_type.clear();
  return response;
}

// What no request may have, whoever sent it.
std::optional<HttpResponse> refuse_form(const HttpHead& head) {
  if (head.host.lines > 1) return error_response(400, "there is more than one Host header");
  if (head.host.lines == 0 && head.http_1_1)
    return error_response(400, "there is no Host header, which HTTP/1.1 requires");
  if (head.origin.lines > 1 || head.authorization.lines > 1 || head.content_type.lines > 1)
    return error_response(400, "Origin, Authorization or Content-Type stands more than once");
  if (head.expects_other)
    return error_response(417, "of expectations, only 100-continue is understood");
  return std::nullopt;
}

std::optional<HttpResponse> refuse_stranger(const HttpHead& head, const Target& target,
                                            const HttpGuard& guard) {
  if (!guard.host_allowed(head.host.value) ||
      (!target.authority.empty() && !guard.host_allowed(target.authority)))
    return error_response(
        403,
        "this server answers to localhost, 127.0.0.1 and [::1] with its own port, "
        "and to what it was started to allow (--allow-host NAME or NAME:PORT); "
        "the Host header has another name or port");
  if (head.origin.lines == 1 && !guard.origin_allowed(head.origin.value, head.host.value))
    return error_response(403,
                          "pages of this origin may not use the server; it answers to its own "
                          "pages and to origins that it was started to allow");
  return std::nullopt;
}

HttpResponse answer_options(const HttpHead& head, const HttpGuard& guard, const std::string& allow,
                            HttpHeaders& cors) {
  HttpResponse response = no_content();
  if (head.origin.lines == 1 && head.wanted_method.lines > 0) {
    response.headers = guard.preflight(head);
    cors.clear();  // they are among these
  } else {
    response.headers.emplace_back("Allow", allow);
  }
  return response;
}

}  // namespace

GateDecision pass_gate(const HttpHead& head, const HttpRouter& router, const HttpGuard& guard) {
  GateDecision decision;
  const auto answer = [&](HttpResponse response) {
    decision.answer = std::move(response);
    return std::move(decision);
  };
  const auto target = parse_target(head.target);
  if (target) {
    decision.path = target->path;
    decision.query = target->query;
  }
  if (auto refusal = refuse_form(head)) return answer(*std::move(refusal));
  if (!target) return answer(error_response(400, "the request's target is no path"));
  if (auto refusal = refuse_stranger(head, *target, guard)) return answer(*std::move(refusal));
  if (head.origin.lines == 1) decision.headers = guard.cors(head.origin.value);

  auto match = router.find(head.method, target->path);
  if (head.method == HttpMethod::options) {
    // A preflight carries no key, and is answered for any path: the request itself finds the 404.
    const bool preflight = head.origin.lines == 1 && head.wanted_method.lines > 0;
    if (match.allow.empty() && target->path != "*" && !preflight)
      return answer(error_response(404, "there is nothing at this path"));
    const std::string allow = match.allow.empty() ? "GET, HEAD, POST, OPTIONS" : match.allow;
    return answer(answer_options(head, guard, allow, decision.headers));
  }
  const bool open = match.route != nullptr && match.route->open;
  if (!open && !guard.key_matches(head.authorization.value))
    return answer(with_header(
        error_response(401, "a key is needed: Authorization: Bearer KEY", {}, "invalid_api_key"),
        "WWW-Authenticate", "Bearer"));
  if (match.allow.empty()) return answer(error_response(404, "there is nothing at this path"));
  if (match.route == nullptr)
    return answer(with_header(error_response(405, "this path has other methods: see Allow"),
                              "Allow", match.allow));
  if (match.route->own_pages && head.origin.lines == 1 &&
      !guard.is_own_origin(head.origin.value, head.host.value))
    return answer(error_response(403, "of pages, only the server's own may do this"));
  if (match.route->method == HttpMethod::post && !is_json_type(head.content_type.value))
    return answer(error_response(415, "the body must come as Content-Type: application/json"));
  if (match.route->method == HttpMethod::get && head.has_body())
    return answer(error_response(400, "GET and HEAD take no body"));
  decision.route = match.route;
  decision.path_values = std::move(match.path_values);
  return decision;
}

}  // namespace wader
