// PassRecorder: makes events of the engine's passes for the hub. Lives in the engine's thread; does
// next to nothing while nobody watches. Builds at most 250 frames a second: at more, frames are
// skipped, never waited for.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "server/event_hub.h"

namespace wader {

// What a pass was for.
struct PassFacts {
  uint64_t request = 0;
  uint32_t rows = 0;
  bool prefill = false;
};

class PassRecorder {
 public:
  explicit PassRecorder(EventHub& hub) : hub_(hub) {}

  // Before the first pass; says what the model is and which experts are in memory. `model`: the
  // name it is served under.
  void attach(const Engine& engine, std::string_view model);
  // For EngineOptions::on_routing: before the layer's experts are fetched.
  void on_routing(uint32_t layer, std::span<const uint32_t> ids);
  void end_pass(const PassFacts& facts);
  // Also where nobody watches: who comes later is told.
  void publish_residents();

 private:
  using Clock = std::chrono::steady_clock;
  void publish_frame(const PassFacts& facts);

  EventHub& hub_;
  const Engine* engine_ = nullptr;
  // Moe layers in order, what the layers of masks and ids are; and for each layer its place there.
  std::vector<uint32_t> moe_layers_, index_of_layer_;
  uint32_t experts_ = 0, experts_per_token_ = 0;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point last_frame_ = {}, last_residents_ = {};
  bool recording_ = false;  // this pass
  uint64_t passes_ = 0;
  std::vector<uint16_t> ids_;  // (moe layers, k)
  std::vector<uint8_t> read_;  // a bit each of ids_
};

}  // namespace wader
