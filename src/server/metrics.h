// Metrics: what /metrics shows, in Prometheus' text form. Recorded in the network's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/generation.h"
#include "server/scheduler.h"

namespace wader {

class Metrics {
 public:
  Metrics();
  ~Metrics();

  void count_request(std::string_view route, int status, double seconds);
  // Of one choice.
  void count_first_token(double seconds);
  void count_token_gap(double seconds);
  void count_generation(const GenerationResult& result);

  std::string text(const SchedulerStats& stats, uint64_t budget_bytes, uint32_t connections);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace wader
