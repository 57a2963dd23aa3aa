#include "server/server.h"

#include <fmt/format.h>

#include <utility>

#include "server/service.h"

namespace wader {
namespace {

class ModelServer final : public Server {
 public:
  ~ModelServer() override {
    // What runs aside uses the model; the engine's last words go to http_.
    while (http_ && !http_->workers_idle(std::chrono::seconds(1))) {
    }
    service_.scheduler.reset();
  }

  Status open(OpenEngine open_engine, ServerOptions options) {
    log_ = std::move(options.log);
    std::vector<HttpRoute> routes;
    add_chat_route(service_, routes);
    add_completions_route(service_, routes);
    add_responses_route(service_, routes);
    add_model_routes(service_, routes);
    add_tokenize_routes(service_, routes);
    add_status_routes(service_, routes);
    add_dashboard_routes(service_, routes);
    add_page_routes(service_, routes);
    options.http.on_done = [this](const HttpRequest& request, int status, uint64_t sent_bytes,
                                  double seconds) { note(request, status, sent_bytes, seconds); };
    options.http.on_problem = [this](std::string_view problem) {
      if (log_) log_(fmt::format("problem=\"{}\"", problem));
    };
    ASSIGN_OR_RETURN(http_, HttpServer::listen(options.http, std::move(routes)));
    service_.http = http_.get();
    service_.request_timeout = options.request_timeout;
    service_.web_directory = std::move(options.web_directory);
    PassRecorder& recorder = service_.recorder;
    options.scheduler.on_pass = [&recorder](uint64_t request, uint32_t rows, bool prefill) {
      recorder.end_pass({request, rows, prefill});
    };
    const auto on_routing = [&recorder](uint32_t layer, std::span<const uint32_t> ids) {
      recorder.on_routing(layer, ids);
    };
    ASSIGN_OR_RETURN(service_.scheduler,
                     Scheduler::start([&] { return open_engine(on_routing); }, options.scheduler));
    recorder.attach(service_.scheduler->engine());
    ASSIGN_OR_RETURN(service_.model,
                     make_served_model(service_.scheduler->engine(), std::move(options.model_id)));
    return {};
  }

  std::string url() const override { return http_->url(); }
  const Engine& engine() const override { return service_.scheduler->engine(); }
  void run() override {
    http_->run();
    service_.scheduler->stop();
  }
  void stop(std::chrono::milliseconds grace) override { http_->stop(grace); }
  bool at_rest(std::chrono::milliseconds patience) override {
    return service_.scheduler->stopped(patience) && http_->workers_idle(patience);
  }

 private:
  void note(const HttpRequest& request, int status, uint64_t sent_bytes, double seconds) {
    const std::string_view route = request.route.empty() ? "none" : std::string_view(request.route);
    service_.metrics.count_request(route, status, seconds);
    if (log_)
      log_(fmt::format("request={} method={} route={} status={} sent_bytes={} seconds={:.3f}",
                       request.id, method_name(request.method), route, status, sent_bytes,
                       seconds));
  }

  std::function<void(std::string_view)> log_;
  std::unique_ptr<HttpServer> http_;
  Service service_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::start(OpenEngine open, ServerOptions options) {
  auto server = std::make_unique<ModelServer>();
  RETURN_IF_ERROR(server->open(std::move(open), std::move(options)));
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace wader
