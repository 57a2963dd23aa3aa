#include "base/json.h"
#include "server/http.h"

namespace wader {

std::string_view method_name(HttpMethod method) {
  switch (method) {
    case HttpMethod::get:
      return "GET";
    case HttpMethod::head:
      return "HEAD";
    case HttpMethod::post:
      return "POST";
    case HttpMethod::options:
      return "OPTIONS";
    case HttpMethod::other:
      return "other";
  }
  UNREACHABLE("no such case");
}

HttpResponse error_response(int status, std::string_view message, std::string_view param,
                            std::string_view code) {
  const auto or_null = [](std::string_view text) { return text.empty() ? Json() : Json(text); };
  std::string_view type = "invalid_request_error";
  if (status == 401) type = "authentication_error";
  if (status == 403) type = "permission_error";
  if (status == 429) type = "rate_limit_error";
  if (status >= 500) type = "server_error";
  const Json error = {
      {"message", message}, {"type", type}, {"param", or_null(param)}, {"code", or_null(code)}};
  HttpResponse response;
  response.status = status;
  response.body = json_text(Json{{"error", error}});
  return response;
}

}  // namespace wader
