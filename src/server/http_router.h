// Which route a path belongs to. Pure. A literal segment wins over {name}, and {name} over
// {name...}, whatever the order of the routes.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http.h"

namespace wader {

class HttpRouter {
 public:
  // invalid_argument names the route: a pattern that is no path, two routes for one method and
  // pattern, or a method other than get and post.
  static Result<HttpRouter> make(std::vector<HttpRoute> routes);

  struct Match {
    const HttpRoute* route = nullptr;  // null: no such path, or not with this method
    std::string allow;                 // "GET, HEAD, OPTIONS" of the path; empty: no such path
    std::vector<std::pair<std::string, std::string>> path_values;
  };
  // `path` is decoded. HEAD finds the route of GET.
  Match find(HttpMethod method, std::string_view path) const;

 private:
  struct Segment {
    enum class Kind : uint8_t { literal, name, rest } kind;  // the best first
    std::string text;
  };
  struct Entry {
    HttpRoute route;
    std::vector<Segment> segments;
  };
  static Result<std::vector<Segment>> parse_pattern(std::string_view pattern);
  static bool match(const Entry& entry, std::string_view path, Match* values);
  static std::vector<Segment::Kind> kinds(const Entry& entry);

  std::vector<Entry> entries_;
};

}  // namespace wader
