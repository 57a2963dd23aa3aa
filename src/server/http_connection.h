// One connection: requests one after the other, each read within the limits, judged by the gate,
// handled and answered. A pipelined request waits in the inbox until the one before has its answer.
#pragma once

#include <memory>
#include <string>

#include "server/http_exchange.h"

namespace wader {

class HttpConnection {
 public:
  // `core` outlives the connection.
  HttpConnection(HttpStream::Socket socket, HttpCore& core);

  // Serves until the client or the server ends it. Never throws.
  static Task<> serve(std::shared_ptr<HttpConnection> self);

  // No further request; what is being handled goes on.
  void stop_soon();
  // The handler that runs is told that its client is gone.
  void cut();

 private:
  class Handling;

  Task<bool> serve_next();
  Task<bool> serve_request();
  Task<bool> receive(Exchange& exchange, HttpReader& reader, GateDecision& decision);
  Task<bool> advance(HttpReader& reader, HttpReader::State from, HttpStream::Clock::time_point end);
  Task<> handle(Exchange& exchange, const HttpHandler& handler);
  Task<> settle(Exchange& exchange);
  bool refused(Exchange& exchange, GateDecision& decision, HttpResponse response);
  bool failed(Exchange& exchange, const HttpReader& reader, GateDecision& decision);

  HttpCore& core_;
  std::shared_ptr<HttpStream> stream_;
  std::string inbox_;             // bytes that no request has taken yet
  Exchange* handling_ = nullptr;  // while a handler runs
};

}  // namespace wader
