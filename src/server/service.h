// Service: what the endpoints share, and one function for each group of routes. All handlers run in
// the network's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "server/conversation_dates.h"
#include "server/event_hub.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/pass_recorder.h"
#include "server/scheduler.h"
#include "server/served_model.h"

namespace wader {

struct Service {
  // Set before the network runs:
  HttpServer* http = nullptr;
  std::unique_ptr<Scheduler> scheduler = nullptr;
  ServedModel model = {};
  std::chrono::seconds request_timeout{0};   // 0: none
  std::filesystem::path web_directory = {};  // pages from there instead of the program's own

  Metrics metrics = {};
  EventHub hub = {};
  PassRecorder recorder = PassRecorder(hub);
  const std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();

  double uptime_seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  }
  ConversationDates dates = ConversationDates();
};

void add_chat_route(Service& service, std::vector<HttpRoute>& routes);
void add_completions_route(Service& service, std::vector<HttpRoute>& routes);
void add_responses_route(Service& service, std::vector<HttpRoute>& routes);
void add_model_routes(Service& service, std::vector<HttpRoute>& routes);
void add_tokenize_routes(Service& service, std::vector<HttpRoute>& routes);
void add_status_routes(Service& service,
                       std::vector<HttpRoute>& routes);  // health, metrics, OpenAPI
void add_page_routes(Service& service, std::vector<HttpRoute>& routes);
void add_dashboard_routes(Service& service, std::vector<HttpRoute>& routes);

HttpResponse json_response(const Json& json);
HttpResponse error_response(const ApiError& error);

}  // namespace wader
