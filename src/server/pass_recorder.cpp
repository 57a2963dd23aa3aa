#include "server/pass_recorder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/json.h"
#include "server/http_text.h"

namespace wader {
namespace {

// More than a page draws, so that a replay of a fast model has most of its tokens.
constexpr std::chrono::milliseconds kFrameInterval{4};
constexpr std::chrono::milliseconds kResidentsInterval{500};

void set_bit(std::vector<uint8_t>& bits, size_t i) {
  bits[i / 8] = static_cast<uint8_t>(bits[i / 8] | 1u << i % 8);
}

}  // namespace

void PassRecorder::attach(const Engine& engine, std::string_view model) {
  engine_ = &engine;
  const ArchitectureSpec& spec = engine.container().spec();
  index_of_layer_.assign(spec.layer_count(), 0);
  for (uint32_t layer = 0; layer < spec.layer_count(); ++layer) {
    if (spec.layers[layer].ffn != FfnKind::moe) continue;
    index_of_layer_[layer] = static_cast<uint32_t>(moe_layers_.size());
    moe_layers_.push_back(layer);
  }
  experts_ = spec.experts;
  experts_per_token_ = spec.experts_per_token;
  ids_.assign(moe_layers_.size() * experts_per_token_, 0);
  read_.assign((ids_.size() + 7) / 8, 0);
  const Json hello = {{"model", model},
                      {"moe_layers", moe_layers_},
                      {"experts", experts_},
                      {"experts_per_token", experts_per_token_}};
  hub_.tell("hello", hello);
  publish_residents();
}

void PassRecorder::on_routing(uint32_t layer, std::span<const uint32_t> ids) {
  if (layer == moe_layers_.front()) {
    recording_ = hub_.watched() && Clock::now() - last_frame_ >= kFrameInterval;
    if (recording_) std::fill(read_.begin(), read_.end(), uint8_t{0});
  }
  if (!recording_) return;
  CHECK(ids.size() >= experts_per_token_);
  const std::span<const uint32_t> last = ids.last(experts_per_token_);
  const size_t at = size_t{index_of_layer_[layer]} * experts_per_token_;
  for (size_t i = 0; i < last.size(); ++i) {
    ids_[at + i] = static_cast<uint16_t>(last[i]);
    if (!engine_->is_resident(layer, last[i])) set_bit(read_, at + i);
  }
}

void PassRecorder::end_pass(const PassFacts& facts) {
  ++passes_;
  if (!recording_) return;
  recording_ = false;
  const auto now = Clock::now();
  last_frame_ = now;
  publish_frame(facts);
  if (now - last_residents_ < kResidentsInterval) return;
  publish_residents();
}

void PassRecorder::publish_frame(const PassFacts& facts) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(last_frame_ - start_);
  const auto* bytes = reinterpret_cast<const uint8_t*>(ids_.data());
  hub_.publish({fmt::format("event: pass\ndata: {{\"n\":{},\"ms\":{},\"request\":{},\"rows\":{},"
                            "\"prefill\":{},\"ids\":\"{}\",\"read\":\"{}\"",
                            passes_, ms.count(), facts.request, facts.rows, facts.prefill,
                            base64({bytes, ids_.size() * sizeof(uint16_t)}), base64(read_)),
                true});
}

void PassRecorder::publish_residents() {
  last_residents_ = Clock::now();
  std::vector<uint8_t> bits((moe_layers_.size() * experts_ + 7) / 8, 0);
  for (size_t l = 0; l < moe_layers_.size(); ++l)
    for (uint32_t e = 0; e < experts_; ++e)
      if (engine_->is_resident(moe_layers_[l], e)) set_bit(bits, l * experts_ + e);
  hub_.tell("resident", {{"bits", base64(bits)}});
}

}  // namespace wader
