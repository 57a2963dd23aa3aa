#include "sampler/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "base/error.h"

namespace wader {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
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

bool changes_logits(const SamplingParams& p) {
  return p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0 ||
         !p.logit_bias.empty();
}

bool top_k_on(const SamplingParams& p, uint32_t vocab_rows) {
  return p.top_k > 0 && p.top_k < vocab_rows;
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
  for (const auto& [id, bias] : params.logit_bias)
    RETURN_IF_ERROR(check_range(fmt::format("the bias of token {}", id), bias, -100, 100));
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
  for (const auto& [id, bias] : params.logit_bias)
    CHECK(id >= 0 && static_cast<uint32_t>(id) < vocab_rows);
  uint64_t state = params.seed;
  for (uint64_t& word : rng_) word = splitmix64(state);
  tail_.fill(kLowest);
  if (changes_logits(params_)) {
    penalised_.resize(vocab_rows);
    output_counts_.resize(vocab_rows);
    seen_.resize(blocks());
  }
  if (params_.temperature == 0) return;
  maxima_.resize(blocks());
  weights_.resize(size_t{blocks()} * kLogitBlock);
  sums_.resize(blocks());
  if (top_k_on(params_, vocab_rows) || params_.top_p < 1) listed_.resize(vocab_rows);
}

uint32_t Sampler::blocks() const {
  return (vocab_rows_ + kLogitBlock - 1) / kLogitBlock;
}

const float* Sampler::block(uint32_t b) const {
  const size_t from = size_t{b} * kLogitBlock;
  return from + kLogitBlock <= vocab_rows_ ? logits_.data() + from : tail_.data();
}

void Sampler::observe_prompt(std::span<const int32_t> ids) {
  if (seen_.empty()) return;
  for (const int32_t id : ids) {
    if (id < 0 || static_cast<uint32_t>(id) >= vocab_rows_) continue;
    seen_[id / kLogitBlock] |= uint64_t{1} << (id % kLogitBlock);
  }
}

void Sampler::observe_output(int32_t id) {
  if (seen_.empty() || id < 0 || static_cast<uint32_t>(id) >= vocab_rows_) return;
  observe_prompt({&id, 1});
  ++output_counts_[id];
}

// Repetition (Keskar et al. 2019): divides positive logits and multiplies negative ones. Presence
// and frequency are subtracted, as OpenAI's API defines them.
std::span<const float> Sampler::penalised(std::span<const float> logits) {
  if (penalised_.empty()) return logits;
  constexpr double kMax = std::numeric_limits<float>::max();
  std::copy(logits.begin(), logits.end(), penalised_.begin());
  for (uint32_t b = 0; b < blocks(); ++b) {
    for (uint64_t bits = seen_[b]; bits != 0; bits &= bits - 1) {
      const uint32_t i = b * kLogitBlock + static_cast<uint32_t>(std::countr_zero(bits));
      if (!std::isfinite(logits[i])) continue;  // refused by sample(), or never drawn
      double logit = logits[i];
      logit = logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
      if (const uint32_t count = output_counts_[i]; count > 0) {
        logit -= params_.presence_penalty + params_.frequency_penalty * count;
      }
      penalised_[i] = static_cast<float>(std::clamp(logit, -kMax, kMax));
    }
  }
  for (const auto& [id, bias] : params_.logit_bias)
    if (std::isfinite(penalised_[id]))
      penalised_[id] = static_cast<float>(std::clamp(double{penalised_[id]} + bias, -kMax, kMax));
  return penalised_;
}

Result<int32_t> Sampler::sample(std::span<const float> logits) {
  CHECK(logits.size() == vocab_rows_);
  logits_ = penalised(logits);
  const size_t short_block = vocab_rows_ % kLogitBlock;
  std::copy(logits_.end() - static_cast<std::ptrdiff_t>(short_block), logits_.end(), tail_.begin());
  float best = kLowest;
  uint32_t best_block = 0;
  for (uint32_t b = 0; b < blocks(); ++b) {
    const BlockMax found = block_max(block(b));
    if (!found.clean) {
      uint32_t i = b * kLogitBlock;
      while (logits_[i] <= std::numeric_limits<float>::max()) ++i;
      return corrupt_error("the logit of token {} is {}", i, logits_[i]);
    }
    if (!maxima_.empty()) maxima_[b] = found.max;
    if (found.max > best) best = found.max, best_block = b;
  }
  if (best == kLowest) return corrupt_error("no logit of {} is finite", logits.size());
  if (params_.temperature > 0) return draw(best);
  const float* in = block(best_block);  // the first of equals
  return static_cast<int32_t>(best_block * kLogitBlock +
                              (std::find(in, in + kLogitBlock, best) - in));
}

int32_t Sampler::draw(float max_logit) {
  Cut cut{kLowest, static_cast<int32_t>(vocab_rows_ - 1)};  // keeps all
  if (top_k_on(params_, vocab_rows_)) cut = cut_top_k();
  double total = weigh(max_logit, cut);
  if (params_.top_p < 1) total = keep(cut_top_p(total));

  const double target = next_uniform() * total;  // < total: (1 − 2^-53) · total never rounds up
  // The last `before` is total, added in the same order, so some block takes `before` past target.
  double before = 0;
  uint32_t b = 0;
  while (before + sums_[b] <= target) before += sums_[b++];
  // Its sum is not 0, so it has a weight that is not. Its weights one by one may add up to less
  // than its sum by rounding, and target lie between the two: then the last of them is drawn.
  int32_t drawn = -1;
  for (uint32_t i = b * kLogitBlock; i < (b + 1) * kLogitBlock && before <= target; ++i) {
    if (weights_[i] == 0) continue;
    before += weights_[i];
    drawn = static_cast<int32_t>(i);
  }
  CHECK(drawn >= 0);
  return drawn;
}

// Fills weights_ and sums_ with what `cut` keeps, and min-p too unless top-p comes before it.
// Returns the sum of all. Whole blocks out of reach are not even computed.
double Sampler::weigh(float max_logit, Cut cut) {
  // min-p: the best token has weight 1, so the limit on the ratio is a limit on the weight.
  const float min_weight = params_.top_p < 1 ? 0 : static_cast<float>(params_.min_p);
  // 0.01 is far above the rounding of any weight, and far below what would cost time.
  const double lowest = std::max<double>(kLowestExponent, std::log(min_weight)) - 0.01;
  double total = 0;
  for (uint32_t b = 0; b < blocks(); ++b) {
    sums_[b] = 0;
    if (maxima_[b] < cut.logit) continue;
    if ((double{maxima_[b]} - max_logit) / params_.temperature < lowest) continue;
    float* weights = weights_.data() + size_t{b} * kLogitBlock;
    weigh_block(block(b), max_logit, params_.temperature, weights);
    sums_[b] =
        keep_in_block(block(b), static_cast<int32_t>(b * kLogitBlock), cut, min_weight, weights);
    total += sums_[b];
  }
  return total;
}

// Takes what `cut` and min-p leave out from weights_ and sums_. Returns the sum of the rest.
double Sampler::keep(Cut cut) {
  double total = 0;
  for (uint32_t b = 0; b < blocks(); ++b) {
    if (maxima_[b] < cut.logit) sums_[b] = 0;
    if (sums_[b] == 0) continue;
    sums_[b] =
        keep_in_block(block(b), static_cast<int32_t>(b * kLogitBlock), cut,
                      static_cast<float>(params_.min_p), weights_.data() + size_t{b} * kLogitBlock);
    total += sums_[b];
  }
  return total;
}

Cut Sampler::cut_top_k() {
  // The top_k blocks with the largest maxima hold top_k tokens at or above the least of these
  // maxima, so no token below it is among the top_k. Of 201,088 that leaves some 30 for top_k 20.
  float floor = -std::numeric_limits<float>::max();
  if (params_.top_k <= blocks()) {
    std::copy(maxima_.begin(), maxima_.end(), sums_.begin());  // not in use yet
    const auto last = sums_.begin() + params_.top_k - 1;
    std::nth_element(sums_.begin(), last, sums_.end(), std::greater<>());
    floor = std::max(floor, static_cast<float>(*last));
  }
  size_t count = 0;
  for (uint32_t b = 0; b < blocks(); ++b) {
    if (maxima_[b] < floor) continue;
    const uint32_t end = std::min((b + 1) * kLogitBlock, vocab_rows_);
    for (uint32_t i = b * kLogitBlock; i < end; ++i) {
      listed_[count] = static_cast<int32_t>(i);
      count += logits_[i] >= floor ? 1 : 0;
    }
  }
  return cut_listed(count, params_.top_k, [](int32_t) { return 1.0; });
}

// Keeps the fewest of the likeliest tokens whose weights reach top_p of `total` (at least one).
Cut Sampler::cut_top_p(double total) {
  // Tokens below (1 − p) / vocab hold less than 1 − p together, so the nucleus needs none of them.
  // Half of that bound covers rounding. A peaked distribution over 201,088 tokens leaves a few
  // hundred.
  const auto floor = static_cast<float>(0.5 * (1 - params_.top_p) * total / vocab_rows_);
  size_t count = 0;
  for (uint32_t b = 0; b < blocks(); ++b) {
    if (sums_[b] < floor) continue;
    const uint32_t end = std::min((b + 1) * kLogitBlock, vocab_rows_);
    for (uint32_t i = b * kLogitBlock; i < end; ++i) {
      listed_[count] = static_cast<int32_t>(i);
      count += weights_[i] >= floor ? 1 : 0;
    }
  }
  return cut_listed(count, params_.top_p * total,
                    [this](int32_t id) { return double{weights_[id]}; });
}

// Of the first `count` of listed_ (at least one, ids ascending, logits finite): the last of the
// fewest that come first in the order and whose measures add up to `target`; of all if they do not.
// A selection by bins of equal width: each round keeps the one bin in which the sum gets there, two
// or three rounds as a rule where sorting would move every token many times. A round makes the
// range 1,023 times smaller and finite floats span 2^278, so no logits need more than 28.
template <typename Measure>
Cut Sampler::cut_listed(size_t count, double target, Measure measure) {
  constexpr int kBins = 1024;
  constexpr size_t kFewEnoughToSort = 64;
  std::array<double, kBins> bins;
  double sum = 0;  // of the tokens before those listed; < target, or 0
  bool ties = false;
  while (count > kFewEnoughToSort) {
    float low = logits_[listed_[0]], high = low;
    for (size_t j = 1; j < count; ++j) {
      low = std::min(low, logits_[listed_[j]]);
      high = std::max(high, logits_[listed_[j]]);
    }
    ties = low == high;
    if (ties) break;
    // From 0 for `high` to kBins − 2 or − 1 for `low`: a round with two logits divides them.
    const double bins_a_logit = (kBins - 1) / (double{high} - double{low});
    const auto bin_of = [&](int32_t id) {
      return static_cast<int>((double{high} - double{logits_[id]}) * bins_a_logit);
    };
    bins.fill(0);
    for (size_t j = 0; j < count; ++j) bins[bin_of(listed_[j])] += measure(listed_[j]);
    int bin = 0;  // ends at one that is not empty: an empty one cannot take the sum to target
    const int last_bin = static_cast<int>((double{high} - double{low}) * bins_a_logit);
    while (bin < last_bin && sum + bins[bin] < target) sum += bins[bin++];
    size_t left = 0;
    for (size_t j = 0; j < count; ++j) {
      const int32_t id = listed_[j];
      listed_[left] = id;
      left += bin_of(id) == bin ? 1 : 0;
    }
    count = left;
  }
  const auto first = listed_.begin();
  if (!ties) {  // tied ones are in their order already
    std::sort(first, first + static_cast<std::ptrdiff_t>(count), [this](int32_t a, int32_t b) {
      return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b;
    });
  }
  size_t j = 0;
  while (j + 1 < count && sum + measure(listed_[j]) < target) sum += measure(listed_[j++]);
  return {logits_[listed_[j]], listed_[j]};
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
