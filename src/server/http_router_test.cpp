#include "server/http_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wader {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

HttpRoute route(HttpMethod method, std::string pattern) {
  HttpRoute result;
  result.method = method;
  result.pattern = std::move(pattern);
  result.handler = [](HttpExchange&) -> Task<> { co_return; };
  return result;
}

HttpRouter sample() {
  std::vector<HttpRoute> routes;
  routes.push_back(route(HttpMethod::get, "/{page...}"));
  routes.push_back(route(HttpMethod::get, "/v1/models/{id...}"));
  routes.push_back(route(HttpMethod::get, "/v1/models"));
  routes.push_back(route(HttpMethod::get, "/v1/jobs/{id}"));
  routes.push_back(route(HttpMethod::post, "/v1/jobs/{id}"));
  routes.push_back(route(HttpMethod::post, "/v1/jobs/{id}/cancel"));
  routes.push_back(route(HttpMethod::post, "/v1/jobs/all"));
  routes.push_back(route(HttpMethod::get, "/"));
  return HttpRouter::make(std::move(routes)).value();
}

std::string pattern_of(HttpMethod method, std::string_view path) {
  static const HttpRouter router = sample();
  const auto match = router.find(method, path);
  return match.route == nullptr ? "-" + match.allow : match.route->pattern;
}

TEST(HttpRouter, TheBestPatternWins) {
  EXPECT_EQ(pattern_of(HttpMethod::get, "/v1/models"), "/v1/models");
  EXPECT_EQ(pattern_of(HttpMethod::head, "/v1/models"), "/v1/models");
  EXPECT_EQ(pattern_of(HttpMethod::get, "/v1/models/org/name"), "/v1/models/{id...}");
  EXPECT_EQ(pattern_of(HttpMethod::post, "/v1/jobs/all"), "/v1/jobs/all");
  EXPECT_EQ(pattern_of(HttpMethod::post, "/v1/jobs/7"), "/v1/jobs/{id}");
  EXPECT_EQ(pattern_of(HttpMethod::post, "/v1/jobs/all/cancel"), "/v1/jobs/{id}/cancel");
  EXPECT_EQ(pattern_of(HttpMethod::get, "/"), "/");
  EXPECT_EQ(pattern_of(HttpMethod::get, "/style.css"), "/{page...}");
}

TEST(HttpRouter, ValuesOfThePath) {
  const HttpRouter router = sample();
  EXPECT_THAT(router.find(HttpMethod::get, "/v1/models/org/na me").path_values,
              ElementsAre(Pair("id", "org/na me")));
  EXPECT_THAT(router.find(HttpMethod::get, "/v1/jobs/7").path_values, ElementsAre(Pair("id", "7")));
  EXPECT_THAT(router.find(HttpMethod::get, "/").path_values, IsEmpty());
  HttpRequest request;
  request.path_values = {{"id", "7"}};
  EXPECT_EQ(request.path_value("id"), "7");
  EXPECT_EQ(request.path_value("other"), "");
}

TEST(HttpRouter, AllowNamesTheMethodsOfThatPathAlone) {
  EXPECT_EQ(pattern_of(HttpMethod::post, "/v1/models"), "-GET, HEAD, OPTIONS");
  EXPECT_EQ(pattern_of(HttpMethod::other, "/v1/jobs/7"), "-GET, HEAD, POST, OPTIONS");
  EXPECT_EQ(pattern_of(HttpMethod::get, "/v1/jobs/7/cancel"), "-POST, OPTIONS");
}

TEST(HttpRouter, PathsThatAreNone) {
  std::vector<HttpRoute> routes;
  routes.push_back(route(HttpMethod::get, "/a/{name}"));
  routes.push_back(route(HttpMethod::get, "/b/{rest...}"));
  const auto router = HttpRouter::make(std::move(routes)).value();
  for (const auto path : {"", "*", "a/b", "/", "/a", "/a/", "/a/b/", "/a/b/c", "/A/b", "/b", "/b/"})
    EXPECT_EQ(router.find(HttpMethod::get, path).allow, "") << path;
  EXPECT_EQ(router.find(HttpMethod::get, "/b//").path_values[0].second, "/");
}

TEST(HttpRouter, RoutesThatMakeNoSense) {
  const auto error_of = [](std::vector<HttpRoute> routes) {
    return HttpRouter::make(std::move(routes)).error().message;
  };
  for (const auto bad : {"", "a", "/{}", "/{...}", "/{a...}/b", "/x{a}", "/{a}x", "/{a"})
    EXPECT_THAT(error_of({route(HttpMethod::get, bad)}), HasSubstr("route")) << bad;
  EXPECT_THAT(error_of({route(HttpMethod::head, "/a")}), HasSubstr("only GET and POST"));
  EXPECT_THAT(error_of({route(HttpMethod::get, "/a"), route(HttpMethod::get, "/a")}),
              HasSubstr("GET /a stands twice"));
  HttpRoute without;
  without.pattern = "/a";
  EXPECT_THAT(error_of({without}), HasSubstr("no handler"));
}

}  // namespace
}  // namespace wader
