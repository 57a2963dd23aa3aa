// /wader/models: what is installed and what is being installed; loading, installing, removing.
#include <fmt/format.h>

#include "base/on_exit.h"
#include "install/disk_room.h"
#include "install/models.h"
#include "model/plan_json.h"
#include "server/child_process.h"
#include "server/library_request.h"
#include "server/model_switch.h"
#include "server/service.h"

namespace wader {
namespace {

constexpr uint32_t kMaxInstalls = 4, kMaxPreviews = 4;  // at once
constexpr uint64_t kMaxBodyBytes = 64 << 10;

// Of the model that is served; empty where there is none.
std::filesystem::path served_path(const Service& service) {
  return service.model ? service.model->container : std::filesystem::path();
}

bool is_same(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code ignored;
  return std::filesystem::equivalent(a, b, ignored);
}

Json model_json(const InstalledModel& model, const std::filesystem::path& served) {
  Json json = installed_model_json(model);
  json["serving"] = is_same(model.path, served);
  return json;
}

Task<> list(Service& service, HttpExchange& exchange) {
  const std::filesystem::path served = served_path(service);
  Json models = Json::array();
  Json free = nullptr;
  co_await service.http->run_aside([&] {
    for (const InstalledModel& model : list_models(service.models_directory))
      models.push_back(model_json(model, served));
    if (const auto bytes = free_bytes_of(service.models_directory); bytes.ok()) free = *bytes;
  });
  Json installs = Json::array();
  for (const auto& job : service.installs.jobs()) installs.push_back(install_job_json(*job));
  const auto name_or_null = [](const std::string& name) {
    return name.empty() ? Json(nullptr) : Json(name);
  };
  const Json body = {{"directory", service.models_directory.string()},
                     {"free_bytes", free},
                     {"serving", name_or_null(served.stem().string())},
                     {"loading", name_or_null(service.loading)},
                     {"problem", name_or_null(service.problem)},
                     {"models", models},
                     {"installs", installs}};
  co_await exchange.send(json_response(body));
}

std::filesystem::path path_of(const Service& service, std::string_view name) {
  return service.models_directory / fmt::format("{}.wader", name);
}

// Of the model that the request's path names, installed whole or in part.
std::optional<std::filesystem::path> asked_path(const Service& service,
                                                const HttpExchange& exchange) {
  const std::string_view name = exchange.request().path_value("name");
  if (name.empty() || name.starts_with('.') || name.find('/') != name.npos) return {};
  const std::filesystem::path path = path_of(service, name);
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return {};
  return path;
}

HttpResponse no_such_model(const HttpExchange& exchange) {
  return error_response(
      404, fmt::format("no model '{}' is installed", exchange.request().path_value("name")));
}

// What is wrong with asking about that model now.
std::optional<HttpResponse> refuse(const Service& service, const HttpExchange& exchange,
                                   const std::optional<std::filesystem::path>& path) {
  if (!path) return no_such_model(exchange);
  const std::string name = path->stem().string();
  if (!service.loading.empty())
    return error_response(409, fmt::format("{} is being loaded", service.loading));
  if (service.installs.works_on(name))
    return error_response(409, fmt::format("{} is being installed", name));
  if (service.removing.contains(name))
    return error_response(409, fmt::format("{} is being removed", name));
  return {};
}

// With changing it: its body comes first.
std::optional<HttpResponse> refuse_change(const Service& service, const HttpExchange& exchange,
                                          const std::optional<std::filesystem::path>& path) {
  if (const auto error = check_empty_body(exchange.request().body)) return error_response(*error);
  return refuse(service, exchange, path);
}

Task<> plan(Service& service, HttpExchange& exchange) {
  const auto path = asked_path(service, exchange);
  if (auto refusal = refuse(service, exchange, path)) {
    co_await exchange.send(*std::move(refusal));
    co_return;
  }
  Json body = {{"name", path->stem().string()}};
  co_await service.http->run_aside([&] {
    const auto plan = service.opener.plan(*path);
    body["fits"] = plan.ok();
    if (plan.ok()) {
      body["context"] = plan->context;
      body["plan"] = plan_json(*plan);
    } else {
      body["problem"] = plan.error().message;
    }
  });
  co_await exchange.send(json_response(body));
}

Task<> load(Service& service, HttpExchange& exchange) {
  const auto path = asked_path(service, exchange);
  HttpResponse response;
  if (auto refusal = refuse_change(service, exchange, path))
    response = *std::move(refusal);
  else if (is_same(served_path(service), *path))
    response = json_response({{"serving", path->stem().string()}});
  else
    response = co_await switch_model(service, *path);
  co_await exchange.send(std::move(response));
}

Task<> remove(Service& service, HttpExchange& exchange) {
  const auto path = asked_path(service, exchange);
  auto refusal = refuse_change(service, exchange, path);
  if (!refusal && is_same(served_path(service), *path))
    refusal = error_response(
        409, fmt::format("{} is served: load another model first", path->stem().string()));
  if (refusal) {
    co_await exchange.send(*std::move(refusal));
    co_return;
  }
  Status status;
  {
    const std::string name = path->stem().string();
    service.removing.insert(name);
    const OnExit removed([&] { service.removing.erase(name); });
    co_await service.http->run_aside([&] { status = remove_model(*path); });
  }
  if (status.ok()) service.installs.forget(path->stem().string());
  HttpResponse response =
      status.ok() ? json_response(Json::object()) : error_response(409, status.error().message);
  co_await exchange.send(std::move(response));
}

Task<> pause(Service& service, HttpExchange& exchange) {
  const std::string_view name = exchange.request().path_value("name");
  HttpResponse response = json_response({{"name", name}});
  response.status = 202;
  if (const auto error = check_empty_body(exchange.request().body))
    response = error_response(*error);
  else if (!service.installs.pause(name))
    response = error_response(409, fmt::format("'{}' is not being installed", name));
  co_await exchange.send(std::move(response));
}

// The request, or its refusal as `response`.
std::optional<InstallRequest> install_request(const HttpExchange& exchange,
                                              HttpResponse& response) {
  ApiResult<InstallRequest> request = read_request(exchange.request().body, parse_install);
  if (const auto* error = std::get_if<ApiError>(&request)) {
    response = error_response(*error);
    return {};
  }
  return std::get<InstallRequest>(std::move(request));
}

std::optional<HttpResponse> refuse_install(const Service& service, const InstallRequest& request) {
  if (service.installs.works_on(request.name))
    return error_response(409, fmt::format("{} is being installed", request.name));
  if (service.removing.contains(request.name))
    return error_response(409, fmt::format("{} is being removed", request.name));
  if (service.installs.working() < kMaxInstalls) return {};
  return error_response(
      409, fmt::format("{} models are being installed: wait for one or pause it", kMaxInstalls));
}

// What has been fetched of another source would be dropped without a word.
std::optional<HttpResponse> refuse_replacement(const Service& service,
                                               const InstallRequest& request) {
  const InstalledModel there = describe_model(path_of(service, request.name));
  if (there.state != InstalledModel::State::unfinished || there.source.empty() ||
      there.source == request.source)
    return {};
  return error_response(409, fmt::format("{} is being made of {}, and unfinished: go on with that, "
                                         "or remove it first",
                                         there.name, there.source));
}

Task<> install(Service& service, HttpExchange& exchange) {
  HttpResponse response;
  std::optional<InstallRequest> request = install_request(exchange, response);
  if (request) {
    std::optional<HttpResponse> refusal;
    co_await service.http->run_aside([&] { refusal = refuse_replacement(service, *request); });
    if (!refusal) refusal = refuse_install(service, *request);
    if (refusal) {
      response = *std::move(refusal);
    } else {
      response = json_response({{"name", request->name}});
      response.status = 202;
      service.installs.start(service.http->executor(), request->name, request->source,
                             request->arguments);
    }
  }
  co_await exchange.send(std::move(response));
}

// `wader install SOURCE --dry-run` in a process of its own.
Task<HttpResponse> look(Service& service, HttpExchange& exchange, InstallRequest request) {
  std::vector<std::string> arguments = std::move(request.arguments);
  arguments.insert(arguments.begin(), {"install", request.source, "--dry-run", "--json"});
  auto started = ChildProcess::start(service.http->executor(), arguments);
  if (!started.ok()) co_return error_response(500, started.error().message);
  const std::shared_ptr<ChildProcess> process = std::move(started).value();
  ChildProcess& child = *process;
  exchange.on_gone([process] { process->interrupt(); });  // a silent hub is asked for long
  std::string last;
  while (std::optional<std::string> line = co_await child.next_line()) last = *std::move(line);
  const int status = co_await child.wait();
  auto plan = parse_json(last, "install");
  if (status != 0 || !plan.ok() || !plan->is_object()) {
    const std::string error = last_error(child.errors());
    co_return error_response(
        502, error.empty() ? fmt::format("wader install ended with {}", status) : error);
  }
  plan->erase("event");
  co_return json_response(*plan);
}

Task<> preview(Service& service, HttpExchange& exchange) {
  HttpResponse response;
  std::optional<InstallRequest> request = install_request(exchange, response);
  if (request && service.previews >= kMaxPreviews) {
    response = error_response(429, "other sources are being looked at; try again later");
  } else if (request) {
    ++service.previews;
    const OnExit looked([&] { --service.previews; });
    response = co_await look(service, exchange, *std::move(request));
  }
  co_await exchange.send(std::move(response));
}

}  // namespace

void add_library_routes(Service& service, std::vector<HttpRoute>& routes) {
  const auto add = [&](HttpMethod method, std::string pattern,
                       Task<> (*handle)(Service&, HttpExchange&)) {
    HttpRoute route{method, std::move(pattern), with_service(service, handle), false,
                    kMaxBodyBytes};
    route.own_pages = method == HttpMethod::post;
    routes.push_back(std::move(route));
  };
  add(HttpMethod::get, "/wader/models", list);
  add(HttpMethod::post, "/wader/models", install);
  add(HttpMethod::post, "/wader/models/preview", preview);
  add(HttpMethod::get, "/wader/models/{name}/plan", plan);
  add(HttpMethod::post, "/wader/models/{name}/load", load);
  add(HttpMethod::post, "/wader/models/{name}/pause", pause);
  add(HttpMethod::post, "/wader/models/{name}/remove", remove);
}

}  // namespace wader
