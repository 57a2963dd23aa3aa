#include "drift.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace wader::bench {
namespace {

// Our own normal numbers: std::normal_distribution differs between libraries.
class Normal {
 public:
  explicit Normal(uint64_t seed) : random_(seed) {}
  double operator()() {
    const double u = (static_cast<double>(random_() >> 11) + 0.5) * 0x1p-53;
    const double v = static_cast<double>(random_() >> 11) * 0x1p-53;
    return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
  }

 private:
  std::mt19937_64 random_;
};

class Router {
 public:
  explicit Router(const DriftOptions& options)
      : options_(options),
        normal_(options.seed),
        popularity_(size_t{options.shape.layers} * options.shape.experts),
        topic_(popularity_.size()),
        scores_(options.shape.experts),
        order_(options.shape.experts) {
    for (double& p : popularity_) p = options.popularity * normal_();
    new_topic();
  }
  void new_topic() {
    for (double& t : topic_) t = options_.topic * normal_();
  }
  // The next token's experts, (layers, k).
  std::vector<uint16_t> token() {
    const uint32_t experts = options_.shape.experts, k = options_.shape.experts_per_token;
    const double kept = std::exp(-1 / options_.topic_tokens);
    const double moved = options_.topic * std::sqrt(1 - kept * kept);
    std::vector<uint16_t> ids;
    for (uint32_t layer = 0; layer < options_.shape.layers; ++layer) {
      for (uint32_t e = 0; e < experts; ++e) {
        double& topic = topic_[size_t{layer} * experts + e];
        topic = kept * topic + moved * normal_();
        scores_[e] = popularity_[size_t{layer} * experts + e] + topic + normal_();
      }
      std::iota(order_.begin(), order_.end(), uint16_t{0});
      std::partial_sort(order_.begin(), order_.begin() + k, order_.end(),
                        [&](uint16_t a, uint16_t b) { return scores_[a] > scores_[b]; });
      ids.insert(ids.end(), order_.begin(), order_.begin() + k);
    }
    return ids;
  }

 private:
  const DriftOptions& options_;
  Normal normal_;
  std::vector<double> popularity_, topic_, scores_;
  std::vector<uint16_t> order_;
};

}  // namespace

RoutingTrace drifting_trace(const DriftOptions& options) {
  RoutingTrace trace;
  trace.shape = options.shape;
  Router router(options);
  const uint32_t layers = options.shape.layers, k = options.shape.experts_per_token;
  for (uint32_t prompt = 0; prompt < options.prompts; ++prompt) {
    if (prompt > 0) router.new_topic();
    for (uint32_t at = 0; at < options.prompt_tokens; at += options.chunk) {
      const uint32_t rows = std::min(options.chunk, options.prompt_tokens - at);
      std::vector<uint16_t> ids(size_t{rows} * layers * k);  // (layers, rows, k)
      for (uint32_t row = 0; row < rows; ++row) {
        const auto token = router.token();
        for (uint32_t layer = 0; layer < layers; ++layer)
          std::copy_n(token.begin() + layer * k, k,
                      ids.begin() + static_cast<ptrdiff_t>((size_t{layer} * rows + row) * k));
      }
      trace.append(rows, at == 0, ids);
    }
    for (uint32_t t = 0; t < options.decode_tokens; ++t) trace.append(1, false, router.token());
  }
  return trace;
}

double adjacent_share(const RoutingTrace& trace) {
  uint64_t shared = 0, all = 0;
  for (size_t p = 1; p < trace.passes.size(); ++p) {
    if (trace.passes[p].rows != 1 || trace.passes[p - 1].rows != 1) continue;
    if (trace.passes[p].begins_prompt) continue;
    for (uint32_t layer = 0; layer < trace.shape.layers; ++layer) {
      const auto before = trace.ids_of(trace.passes[p - 1], layer);
      for (const uint16_t id : trace.ids_of(trace.passes[p], layer)) {
        shared += std::find(before.begin(), before.end(), id) != before.end() ? 1 : 0;
        ++all;
      }
    }
  }
  return all > 0 ? static_cast<double>(shared) / static_cast<double>(all) : 0;
}

}  // namespace wader::bench
