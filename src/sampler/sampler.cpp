#include "sampler/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace wader {
namespace {

constexpr double kMinRepetitionPenalty = 0.01, kMaxRepetitionPenalty = 100;

Status check_range(std::string_view flag, double value, double min, double max) {
  if (value >= min && value <= max) return {};  // false for NaN
  return invalid_argument_error("{} must be from {} to {}, not {}", flag, min, max, value);
}

uint64_t splitmix64(uint64_t& state) {  // Steele et al. 2014; the seeding xoshiro's authors advise
  state += 0x9e3779b97f4a7c15u;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

uint64_t rotate_left(uint64_t x, int k) {
  return (x << k) | (x >> (64 - k));
}

bool penalties_on(const SamplingParams& p) {
  return p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0;
}

Status number_or_default(const Json& config, std::string_view key, double min, double max,
                         double& value) {
  if (!json_has(config, key)) return {};
  ASSIGN_OR_RETURN(value, json_number(config, key, min, max));
  return {};
}

// Files write 0 and -1 for "off".
Status top_k_or_default(const Json& config, uint32_t& value) {
  if (!json_has(config, "top_k")) return {};
  const Json& json = config.at("top_k");
  if (!json.is_number_integer()) {
    return invalid_argument_error("key 'top_k' must be a whole number, not {}", json_text(json));
  }
  constexpr uint64_t kMax = std::numeric_limits<uint32_t>::max();
  value = json.is_number_unsigned()
              ? static_cast<uint32_t>(std::min<uint64_t>(json.get<uint64_t>(), kMax))
              : 0;
  return {};
}

}  // namespace

Status validate_sampling(const SamplingParams& params) {
  constexpr double kMax = std::numeric_limits<double>::max();
  if (!(params.temperature >= 0 && params.temperature <= kMax)) {
    return invalid_argument_error("--temperature must be 0 or more, not {}", params.temperature);
  }
  RETURN_IF_ERROR(check_range("--top-p", params.top_p, 0, 1));
  RETURN_IF_ERROR(check_range("--min-p", params.min_p, 0, 1));
  RETURN_IF_ERROR(check_range("--repetition-penalty", params.repetition_penalty,
                              kMinRepetitionPenalty, kMaxRepetitionPenalty));
  RETURN_IF_ERROR(check_range("--presence-penalty", params.presence_penalty, -2, 2));
  return check_range("--frequency-penalty", params.frequency_penalty, -2, 2);
}

Result<SamplingParams> sampling_from_generation_config(const Json& config) {
  if (!config.is_object()) {
    return invalid_argument_error("generation_config.json: must be an object");
  }
  SamplingParams params;
  const auto read = [&]() -> Status {
    constexpr double kMax = std::numeric_limits<double>::max();
    RETURN_IF_ERROR(number_or_default(config, "temperature", 0, kMax, params.temperature));
    RETURN_IF_ERROR(top_k_or_default(config, params.top_k));
    RETURN_IF_ERROR(number_or_default(config, "top_p", 0, 1, params.top_p));
    RETURN_IF_ERROR(number_or_default(config, "min_p", 0, 1, params.min_p));
    RETURN_IF_ERROR(number_or_default(config, "repetition_penalty", kMinRepetitionPenalty,
                                      kMaxRepetitionPenalty, params.repetition_penalty));
    if (json_has(config, "do_sample")) {
      ASSIGN_OR_RETURN(const bool do_sample, json_bool(config, "do_sample"));
      if (!do_sample) params.temperature = 0;
    }
    return {};
  };
  if (Status status = read(); !status) {
    return std::move(status).error().within("generation_config.json");
  }
  return params;
}

Result<std::vector<int32_t>> eos_from_generation_config(const Json& config) {
  std::vector<int32_t> ids;
  if (!config.is_object() || !json_has(config, "eos_token_id")) return ids;
  const Json& value = config.at("eos_token_id");
  const auto add = [&](const Json& id) {
    const bool good = id.is_number_unsigned() &&
                      id.get<uint64_t>() <= uint64_t{std::numeric_limits<int32_t>::max()};
    if (good) ids.push_back(static_cast<int32_t>(id.get<uint64_t>()));
    return good;
  };
  const bool good = value.is_array() ? std::all_of(value.begin(), value.end(), add) : add(value);
  if (!good) {
    return invalid_argument_error(
        "generation_config.json: key 'eos_token_id' must be a token id or a list of them");
  }
  return ids;
}

Sampler::Sampler(const SamplingParams& params, uint32_t vocab_rows)
    : params_(params), vocab_rows_(vocab_rows) {
  CHECK(vocab_rows > 0 && vocab_rows <= uint32_t{std::numeric_limits<int32_t>::max()});
  uint64_t state = params.seed;
  for (uint64_t& word : rng_) word = splitmix64(state);
  const bool greedy = params_.temperature == 0;
  if (penalties_on(params_)) {
    penalised_.resize(vocab_rows);
    output_counts_.resize(vocab_rows);
    seen_.resize(vocab_rows);
  }
  if (!greedy) weights_.resize(vocab_rows);
  if (!greedy && ((params_.top_k > 0 && params_.top_k < vocab_rows) || params_.top_p < 1)) {
    order_.resize(vocab_rows);
  }
}

void Sampler::observe_prompt(std::span<const int32_t> ids) {
  if (seen_.empty()) return;
  for (const int32_t id : ids) {
    if (id >= 0 && static_cast<uint32_t>(id) < vocab_rows_) seen_[id] = true;
  }
}

void Sampler::observe_output(int32_t id) {
  if (seen_.empty() || id < 0 || static_cast<uint32_t>(id) >= vocab_rows_) return;
  seen_[id] = true;
  ++output_counts_[id];
}

// Repetition (Keskar et al. 2019): divides positive logits and multiplies negative ones. Presence
// and frequency are subtracted, as OpenAI's API defines them.
std::span<const float> Sampler::penalised(std::span<const float> logits) {
  if (penalised_.empty()) return logits;
  constexpr double kMax = std::numeric_limits<float>::max();
  for (uint32_t i = 0; i < vocab_rows_; ++i) {
    penalised_[i] = logits[i];
    if (!seen_[i] || !std::isfinite(logits[i])) continue;
    double logit = logits[i];
    logit = logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
    if (const uint32_t count = output_counts_[i]; count > 0) {
      logit -= params_.presence_penalty + params_.frequency_penalty * count;
    }
    penalised_[i] = static_cast<float>(std::clamp(logit, -kMax, kMax));
  }
  return penalised_;
}

Result<int32_t> Sampler::sample(std::span<const float> logits) {
  CHECK(logits.size() == vocab_rows_);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] <= std::numeric_limits<float>::max()) continue;  // false for NaN and +infinity
    return corrupt_error("the logit of token {} is {}", i, logits[i]);
  }
  logits_ = penalised(logits);
  const auto best = std::max_element(logits_.begin(), logits_.end());  // the first of equals
  if (!std::isfinite(*best)) return corrupt_error("no logit of {} is finite", logits.size());
  if (params_.temperature == 0) return static_cast<int32_t>(best - logits_.begin());
  return draw(*best);
}

bool Sampler::kept(int32_t id, Cut cut) const {
  return logits_[id] > cut.logit || (logits_[id] == cut.logit && id <= cut.id);
}

int32_t Sampler::draw(float max_logit) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  Cut cut{kLowest, static_cast<int32_t>(vocab_rows_ - 1)};  // keeps all
  if (params_.top_k > 0 && params_.top_k < vocab_rows_) cut = cut_top_k();

  // The difference is divided, not each logit: at a denormal temperature it is −infinity or 0,
  // never NaN.
  double total = 0;
  for (uint32_t i = 0; i < vocab_rows_; ++i) {
    const double x = (double{logits_[i]} - max_logit) / params_.temperature;
    // Below e^-87 a weight is under FLT_MIN: no draw of 53 bits can tell it from zero.
    weights_[i] =
        x < -87 || !kept(static_cast<int32_t>(i), cut) ? 0 : std::exp(static_cast<float>(x));
    total += weights_[i];
  }
  if (params_.top_p < 1) cut_top_p(total, cut);

  // min-p: the best token has weight 1, so the limit on the ratio is a limit on the weight.
  const auto min_weight = static_cast<float>(params_.min_p);
  double mass = 0;
  for (uint32_t i = 0; i < vocab_rows_; ++i) {
    if (weights_[i] < min_weight || !kept(static_cast<int32_t>(i), cut)) weights_[i] = 0;
    mass += weights_[i];
  }
  const double target =
      next_uniform() * mass;  // < mass: (1 − 2^-53) · mass never rounds up to mass
  double sum = 0;
  for (uint32_t i = 0; i < vocab_rows_; ++i) {
    sum += weights_[i];
    if (sum > target) return static_cast<int32_t>(i);
  }
  UNREACHABLE("no such case");  // the last sum is `mass`, added in the same order
}

Sampler::Cut Sampler::cut_top_k() {
  std::iota(order_.begin(), order_.end(), 0);
  const auto before = [this](int32_t a, int32_t b) {
    return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b;
  };
  const auto last = order_.begin() + params_.top_k - 1;
  std::nth_element(order_.begin(), last, order_.end(), before);
  return {logits_[*last], *last};
}

// Keeps the fewest of the likeliest tokens whose weights reach top_p of `total` (at least one).
void Sampler::cut_top_p(double total, Cut& cut) {
  // Tokens below (1 − p) / vocab hold less than 1 − p together, so the nucleus needs none of them.
  // Half of that bound covers rounding. A peaked distribution over 201,088 tokens leaves a few
  // hundred to sort.
  const double floor = 0.5 * (1 - params_.top_p) * total / vocab_rows_;
  size_t count = 0;
  for (uint32_t i = 0; i < vocab_rows_; ++i) {
    if (weights_[i] > 0 && weights_[i] >= floor) order_[count++] = static_cast<int32_t>(i);
  }
  const auto before = [this](int32_t a, int32_t b) {
    return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b;
  };
  double sum = 0;
  const auto begin = order_.begin(), end = begin + static_cast<std::ptrdiff_t>(count);
  std::ptrdiff_t step = 64;
  for (auto from = begin; from != end; step *= 4) {
    const auto to = end - from > step ? from + step : end;
    if (to != end) std::nth_element(from, to, end, before);
    std::sort(from, to, before);
    for (; from != to; ++from) {
      sum += weights_[*from];
      if (sum < params_.top_p * total) continue;
      cut = {logits_[*from], *from};
      return;
    }
  }
}

double Sampler::next_uniform() {
  const uint64_t result = rotate_left(rng_[1] * 5, 7) * 9;
  const uint64_t t = rng_[1] << 17;
  rng_[2] ^= rng_[0];
  rng_[3] ^= rng_[1];
  rng_[1] ^= rng_[2];
  rng_[0] ^= rng_[3];
  rng_[2] ^= t;
  rng_[3] = rotate_left(rng_[3], 45);
  return static_cast<double>(result >> 11) * 0x1p-53;
}

}  // namespace wader
