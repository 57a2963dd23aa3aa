#include "sampler/logprobs.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace wader {

GeneratedToken token_with_logprobs(int32_t id, std::span<const float> logits, uint32_t top) {
  CHECK(id >= 0 && static_cast<size_t>(id) < logits.size());
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  const double log_sum = std::log(sum);
  const auto logprob = [&](int32_t i) { return static_cast<float>((logits[i] - max) - log_sum); };

  GeneratedToken token{.id = id, .logprob = logprob(id)};
  const auto better = [&](const TokenLogprob& a, const TokenLogprob& b) {
    return logits[a.id] != logits[b.id] ? logits[a.id] > logits[b.id] : a.id < b.id;
  };
  const size_t count = std::min<size_t>(top, logits.size());
  std::vector<TokenLogprob>& best = token.top;  // a heap with the worst of the best in front
  best.reserve(count + 1);
  for (size_t i = 0; i < logits.size() && count > 0; ++i) {
    if (best.size() == count && logits[i] <= logits[best.front().id]) continue;
    best.push_back({static_cast<int32_t>(i), 0});
    std::push_heap(best.begin(), best.end(), better);
    if (best.size() <= count) continue;
    std::pop_heap(best.begin(), best.end(), better);
    best.pop_back();
  }
  std::sort(best.begin(), best.end(), better);
  for (TokenLogprob& entry : best) entry.logprob = logprob(entry.id);
  return token;
}

}  // namespace wader
