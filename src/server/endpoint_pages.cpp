// GET /, /app/{name...}: the dashboard's pages, from the program itself or from --web-dir.
#include <algorithm>
#include <array>

#include "io/file.h"
#include "server/service.h"
#include "server/web_files.h"

namespace wader {
namespace {

constexpr std::string_view kIndex = "index.html";
constexpr uint64_t kMaxPageBytes = 8 << 20;

std::string_view type_of(std::string_view name) {
  constexpr std::array<std::array<std::string_view, 2>, 5> kTypes = {{
      {".html", "text/html; charset=utf-8"},
      {".css", "text/css; charset=utf-8"},
      {".js", "text/javascript; charset=utf-8"},
      {".svg", "image/svg+xml"},
      {".png", "image/png"},
  }};
  for (const auto& [suffix, type] : kTypes)
    if (name.ends_with(suffix)) return type;
  return "application/octet-stream";
}

// Nothing from elsewhere, nothing inline, no markup made from text; no other page may frame it.
constexpr std::string_view kPolicy =
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'; require-trusted-types-for 'script'";

HttpResponse page(std::string_view name, std::string bytes) {
  HttpResponse response;
  response.content_type = type_of(name);
  response.body = std::move(bytes);
  response.headers = {{"Cache-Control", "no-cache"},  // the next version of the program has others
                      {"Content-Security-Policy", std::string(kPolicy)},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cross-Origin-Opener-Policy", "same-origin"}};
  return response;
}

HttpResponse find_page(const Service& service, std::string_view name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' ||
           c == '/';
  });
  // Below the directory, whatever it says: no segment is empty or begins with a dot.
  const bool inside = !name.empty() && name.front() != '.' && name.front() != '/' &&
                      name.find("/.") == name.npos && name.find("//") == name.npos;
  if (!plain || !inside) return error_response(404, "there is no such page");
  if (!service.web_directory.empty()) {
    auto text = read_text_file(service.web_directory / name, kMaxPageBytes);
    return text.ok() ? page(name, std::move(*text)) : error_response(404, text.error().message);
  }
  for (const EmbeddedFile& file : embedded_web_files())
    if (file.name == name) return page(name, std::string(file.bytes));
  return error_response(404, "there is no such page");
}

Task<> index(Service& service, HttpExchange& exchange) {
  co_await exchange.send(find_page(service, kIndex));
}

Task<> file(Service& service, HttpExchange& exchange) {
  co_await exchange.send(find_page(service, exchange.request().path_value("name")));
}

}  // namespace

// Open to those without a key: the pages ask for it.
void add_page_routes(Service& service, std::vector<HttpRoute>& routes) {
  routes.push_back({HttpMethod::get, "/", with_service(service, index), true});
  routes.push_back({HttpMethod::get, "/app/{name...}", with_service(service, file), true});
}

}  // namespace wader
