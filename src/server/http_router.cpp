#include "server/http_router.h"

#include <algorithm>

#include "base/error.h"

namespace wader {
namespace {

// The next segment of "/a/b", which is taken off: "a".
std::string_view take_segment(std::string_view& path) {
  path.remove_prefix(1);
  const size_t end = std::min(path.find('/'), path.size());
  const std::string_view segment = path.substr(0, end);
  path.remove_prefix(end);
  return segment;
}

std::string_view name_of(HttpMethod method) {
  return method == HttpMethod::post ? "POST" : "GET";
}

}  // namespace

std::string_view HttpRequest::path_value(std::string_view name) const {
  for (const auto& [key, value] : path_values)
    if (key == name) return value;
  return {};
}

Result<std::vector<HttpRouter::Segment>> HttpRouter::parse_pattern(std::string_view pattern) {
  std::vector<Segment> segments;
  std::string_view rest = pattern;
  const auto wrong = [&](std::string_view why) {
    return invalid_argument_error("route {}: {}", pattern, why);
  };
  if (!rest.starts_with('/')) return wrong("does not begin with '/'");
  while (!rest.empty()) {
    const std::string_view text = take_segment(rest);
    Segment segment{Segment::Kind::literal, std::string(text)};
    if (text.starts_with('{') && text.ends_with('}')) {
      segment.kind = text.ends_with("...}") ? Segment::Kind::rest : Segment::Kind::name;
      segment.text = text.substr(1, text.size() - (segment.kind == Segment::Kind::rest ? 5 : 2));
      if (segment.text.empty()) return wrong("has a value without a name");
      if (segment.kind == Segment::Kind::rest && !rest.empty())
        return wrong("goes on after {name...}");
    }
    if (segment.text.find_first_of("{}") != std::string::npos)
      return wrong("has a brace inside a segment");
    segments.push_back(std::move(segment));
  }
  return segments;
}

Result<HttpRouter> HttpRouter::make(std::vector<HttpRoute> routes) {
  HttpRouter router;
  for (HttpRoute& route : routes) {
    if (route.method != HttpMethod::get && route.method != HttpMethod::post)
      return invalid_argument_error("route {}: only GET and POST have handlers", route.pattern);
    if (!route.handler) return invalid_argument_error("route {}: has no handler", route.pattern);
    ASSIGN_OR_RETURN(auto segments, parse_pattern(route.pattern));
    for (const Entry& other : router.entries_)
      if (other.route.pattern == route.pattern && other.route.method == route.method)
        return invalid_argument_error("route {} {} stands twice", name_of(route.method),
                                      route.pattern);
    router.entries_.push_back({std::move(route), std::move(segments)});
  }
  // With the best kinds first, the first match of find() is the best.
  std::stable_sort(router.entries_.begin(), router.entries_.end(),
                   [](const Entry& a, const Entry& b) { return kinds(a) < kinds(b); });
  return router;
}

std::vector<HttpRouter::Segment::Kind> HttpRouter::kinds(const Entry& entry) {
  std::vector<Segment::Kind> kinds;
  for (const Segment& segment : entry.segments) kinds.push_back(segment.kind);
  return kinds;
}

bool HttpRouter::match(const Entry& entry, std::string_view path, Match* values) {
  for (const Segment& segment : entry.segments) {
    if (path.empty()) return false;
    std::string_view text;
    if (segment.kind == Segment::Kind::rest) {
      text = path.substr(1);
      path = {};
    } else {
      text = take_segment(path);
    }
    if (segment.kind == Segment::Kind::literal) {
      if (text != segment.text) return false;
      continue;
    }
    if (text.empty()) return false;
    if (values != nullptr) values->path_values.emplace_back(segment.text, text);
  }
  return path.empty();
}

HttpRouter::Match HttpRouter::find(HttpMethod method, std::string_view path) const {
  Match found;
  if (!path.starts_with('/')) return found;
  const HttpMethod wanted = method == HttpMethod::head ? HttpMethod::get : method;
  bool get = false, post = false;
  const std::vector<Segment>* pattern = nullptr;
  for (const Entry& entry : entries_) {
    if (!match(entry, path, nullptr)) continue;
    // The methods of a path are those of its best pattern; a worse one is another resource.
    const auto same = [](const Segment& a, const Segment& b) {
      return a.kind == b.kind && (a.kind != Segment::Kind::literal || a.text == b.text);
    };
    if (pattern == nullptr) pattern = &entry.segments;
    if (!std::equal(pattern->begin(), pattern->end(), entry.segments.begin(), entry.segments.end(),
                    same))
      continue;
    (entry.route.method == HttpMethod::post ? post : get) = true;
    if (entry.route.method != wanted || found.route != nullptr) continue;
    match(entry, path, &found);
    found.route = &entry.route;
  }
  if (get) found.allow += "GET, HEAD, ";
  if (post) found.allow += "POST, ";
  if (get || post) found.allow += "OPTIONS";
  return found;
}

}  // namespace wader
