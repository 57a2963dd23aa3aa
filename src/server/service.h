// Service: what the endpoints share, and one function for each group of routes. All handlers run in
// the network's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "server/conversation_dates.h"
#include "server/event_hub.h"
#include "server/http.h"
#include "server/install_jobs.h"
#include "server/metrics.h"
#include "server/model_opener.h"
#include "server/served_model.h"

namespace wader {

struct Service {
  // Set before the network runs:
  HttpServer* http = nullptr;
  std::chrono::seconds request_timeout{0};      // 0: none
  std::filesystem::path web_directory = {};     // pages from there instead of the program's own
  std::filesystem::path models_directory = {};  // of those that are installed
  ModelOpener opener = {};
  SchedulerOptions scheduler_options = {};
  std::function<void(std::string_view)> log = {};  // ServerOptions::log; may be empty
  std::string fixed_id = {};  // under which every model is served; empty: its own name

  Metrics metrics = {};
  EventHub hub = {};
  const std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  ConversationDates dates = ConversationDates();

  std::shared_ptr<ServedModel> model = nullptr;    // none while `loading`, or where that failed
  std::shared_ptr<ServedModel> leaving = nullptr;  // its last requests are ending
  std::string loading = {};                        // the name of the model that is to be served
  std::string problem = {};                        // why there is no model
  std::set<std::string> removing = {};             // names of models
  uint32_t previews = 0;                           // at work
  bool builds_range = false;
  std::mutex range_file = {};  // its text is checked by one worker at a time
  InstallJobs installs = InstallJobs(hub);

  const int64_t started_unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                                      std::chrono::system_clock::now().time_since_epoch())
                                      .count();  // tells one run of the server from the next
  double uptime_seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  }
};

// The model's requests go to it, and hold it until they are answered; while there is none, 503.
using ModelHandler = Task<> (*)(Service&, ServedModel&, HttpExchange&);
HttpHandler with_model(Service& service, ModelHandler handle);
HttpHandler with_service(Service& service, Task<> (*handle)(Service&, HttpExchange&));

void add_chat_route(Service& service, std::vector<HttpRoute>& routes);
void add_completions_route(Service& service, std::vector<HttpRoute>& routes);
void add_responses_route(Service& service, std::vector<HttpRoute>& routes);
void add_model_routes(Service& service, std::vector<HttpRoute>& routes);
void add_tokenize_routes(Service& service, std::vector<HttpRoute>& routes);
void add_status_routes(Service& service,
                       std::vector<HttpRoute>& routes);  // health, metrics, OpenAPI
void add_page_routes(Service& service, std::vector<HttpRoute>& routes);
void add_dashboard_routes(Service& service, std::vector<HttpRoute>& routes);  // stats, events
void add_range_routes(Service& service, std::vector<HttpRoute>& routes);
void add_library_routes(Service& service, std::vector<HttpRoute>& routes);  // /wader/models

HttpResponse json_response(const Json& json);
HttpResponse error_response(const ApiError& error);

}  // namespace wader
