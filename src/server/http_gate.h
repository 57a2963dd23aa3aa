// The gate between a request's head and its handler: every refusal that needs no body, in one
// order. Pure.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/http_access.h"
#include "server/http_router.h"

namespace wader {

struct GateDecision {
  // The answer where there is no handler to ask: a refusal, or that to OPTIONS.
  std::optional<HttpResponse> answer;
  const HttpRoute* route = nullptr;  // where there is none
  std::string path, query;           // as far as known
  std::vector<std::pair<std::string, std::string>> path_values;
  HttpHeaders headers;  // that every answer to this request carries
};

GateDecision pass_gate(const HttpHead& head, const HttpRouter& router, const HttpGuard& guard);

}  // namespace wader
