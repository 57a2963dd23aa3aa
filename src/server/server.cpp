#include "server/server.h"

#include <fmt/format.h>

#include <utility>

#include "server/model_switch.h"
#include "server/service.h"

namespace wader {
namespace {

class ModelServer final : public Server {
 public:
  ~ModelServer() override {
    // What runs aside uses the model; the engine's last words go to http_, whose coroutines may
    // hold the model longer than this does.
    while (http_ && !http_->workers_idle(std::chrono::seconds(1))) {
    }
    stop_engines();
    while (!engines_stopped(std::chrono::seconds(1))) {
    }
    http_.reset();
  }

  Status open(const std::filesystem::path& container, ModelOpener opener, ServerOptions options) {
    service_.log = std::move(options.log);
    std::vector<HttpRoute> routes;
    add_chat_route(service_, routes);
    add_completions_route(service_, routes);
    add_responses_route(service_, routes);
    add_model_routes(service_, routes);
    add_tokenize_routes(service_, routes);
    add_status_routes(service_, routes);
    add_dashboard_routes(service_, routes);
    add_range_routes(service_, routes);
    add_library_routes(service_, routes);
    add_page_routes(service_, routes);
    options.http.on_done = [this](const HttpRequest& request, int status, uint64_t sent_bytes,
                                  double seconds) { note(request, status, sent_bytes, seconds); };
    options.http.on_problem = [this](std::string_view problem) {
      if (service_.log) service_.log(fmt::format("problem=\"{}\"", problem));
    };
    ASSIGN_OR_RETURN(http_, HttpServer::listen(options.http, std::move(routes)));
    service_.http = http_.get();
    service_.request_timeout = options.request_timeout;
    service_.web_directory = std::move(options.web_directory);
    service_.models_directory = std::move(options.models_directory);
    service_.fixed_id = std::move(options.fixed_id);
    service_.scheduler_options = options.scheduler;
    service_.opener = std::move(opener);
    ASSIGN_OR_RETURN(service_.model, open_served_model(service_, container));
    return {};
  }

  std::string url() const override { return http_->url(); }
  const Engine& engine() const override { return service_.model->engine(); }
  const std::string& model_id() const override { return service_.model->facts.id; }
  void run() override {
    http_->run();
    stop_engines();
  }
  void stop(std::chrono::milliseconds grace) override { http_->stop(grace); }
  bool at_rest(std::chrono::milliseconds patience) override {
    return http_->workers_idle(patience) && engines_stopped(patience);
  }

 private:
  void note(const HttpRequest& request, int status, uint64_t sent_bytes, double seconds) {
    const std::string_view route = request.route.empty() ? "none" : std::string_view(request.route);
    service_.metrics.count_request(route, status, seconds);
    if (service_.log)
      service_.log(
          fmt::format("request={} method={} route={} status={} sent_bytes={} seconds={:.3f}",
                      request.id, method_name(request.method), route, status, sent_bytes, seconds));
  }

  void stop_engines() {
    for (const auto& model : {service_.model, service_.leaving})
      if (model) model->scheduler->stop();
  }
  bool engines_stopped(std::chrono::milliseconds patience) const {
    bool stopped = true;
    for (const auto& model : {service_.model, service_.leaving})
      stopped = stopped && (!model || model->scheduler->stopped(patience));
    return stopped;
  }

  Service service_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::start(const std::filesystem::path& container,
                                              ModelOpener opener, ServerOptions options) {
  auto server = std::make_unique<ModelServer>();
  RETURN_IF_ERROR(server->open(container, std::move(opener), std::move(options)));
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace wader
