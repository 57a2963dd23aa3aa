#include "range/range_map.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/check.h"
#include "range/principal_components.h"

namespace wader {
namespace {

double rounded(double value) {
  return std::round(value * 1e6) / 1e6 + 0.0;  // no −0
}

// What one expert's uses say. `affinities` is scratch of the caller.
struct Response {
  uint64_t activations = 0;
  double specialisation = 0;
  uint32_t leading = 0;  // topic of the largest affinity, the first of equals

  bool sampled() const { return activations > kActivationsOver; }
  bool credited() const { return sampled() && specialisation > kSpecialisationOver; }
};

Response response(std::span<const uint32_t> uses, std::span<const uint64_t> tokens,
                  std::span<double> affinities) {
  Response out;
  double sum = 0;
  for (size_t t = 0; t < uses.size(); ++t) {
    out.activations += uses[t];
    affinities[t] =
        tokens[t] > 0 ? static_cast<double>(uses[t]) / static_cast<double>(tokens[t]) : 0;
    sum += affinities[t];
  }
  if (!(sum > 0)) return out;
  for (double& affinity : affinities) affinity /= sum;
  out.specialisation = rounded(specialisation(affinities));
  out.leading = static_cast<uint32_t>(std::max_element(affinities.begin(), affinities.end()) -
                                      affinities.begin());
  return out;
}

std::span<const uint32_t> uses_of(const TopicCounts& counts, size_t expert) {
  const size_t topics = counts.tokens.size();
  return std::span(counts.uses).subspan(expert * topics, topics);
}

void check_counts(const TopicCounts& counts, const TopicCounts& held_out) {
  CHECK(!counts.tokens.empty() && held_out.tokens.size() == counts.tokens.size());
  CHECK(held_out.uses.size() == counts.uses.size());
  CHECK(counts.uses.size() % counts.tokens.size() == 0);
}

// Each expert's place, and what the components explain.
void place(RangeMap& map, const TopicCounts& counts, std::span<const double> affinities) {
  const size_t topics = counts.tokens.size();
  std::vector<double> sampled;
  for (size_t e = 0; e < map.experts.size(); ++e)
    if (map.experts[e].activations > kActivationsOver)
      sampled.insert(sampled.end(), affinities.begin() + static_cast<ptrdiff_t>(e * topics),
                     affinities.begin() + static_cast<ptrdiff_t>((e + 1) * topics));
  const PrincipalComponents components = principal_components(sampled, topics);
  for (size_t c = 0; c < 3; ++c) map.variance_explained[c] = rounded(components.explained[c]);
  for (size_t e = 0; e < map.experts.size(); ++e) {
    if (map.experts[e].activations == 0) continue;
    map.experts[e].position = project(components, affinities.subspan(e * topics, topics));
    for (double& x : map.experts[e].position) x = rounded(x);
  }
}

// The topics of uses, drawn anew: each is that of a token at random.
class Shuffler {
 public:
  Shuffler(std::span<const uint64_t> tokens, std::mt19937_64& random) : random_(random) {
    for (size_t t = 0; t < tokens.size(); ++t)
      topic_of_token_.insert(topic_of_token_.end(), tokens[t], static_cast<uint32_t>(t));
    CHECK(topic_of_token_.size() < (uint64_t{1} << 31));
    drawn_.resize(tokens.size());
  }
  std::span<const uint32_t> draw(uint64_t uses) {
    std::fill(drawn_.begin(), drawn_.end(), 0u);
    if (topic_of_token_.empty()) return drawn_;
    for (uint64_t u = 0; u < uses; ++u) {
      // The high half times the count of tokens: as good as uniform, a tenth of the time of a
      // division.
      const uint64_t token = (random_() >> 32) * topic_of_token_.size() >> 32;
      ++drawn_[topic_of_token_[token]];
    }
    return drawn_;
  }

 private:
  std::mt19937_64& random_;
  std::vector<uint32_t> topic_of_token_;
  std::vector<uint32_t> drawn_;
};

uint64_t activations_of(const TopicCounts& counts, size_t expert) {
  uint64_t sum = 0;
  for (const uint32_t uses : uses_of(counts, expert)) sum += uses;
  return sum;
}

}  // namespace

std::optional<double> RangeTally::repeat_rate() const {
  if (tested == 0) return std::nullopt;
  return static_cast<double>(repeated) / tested;
}

RangeTally tally(const RangeMap& map) {
  RangeTally sum;
  for (uint32_t t = 0; t < map.topics.size(); ++t) {
    const RangeTally one = tally(map, t);
    sum.credited += one.credited;
    sum.tested += one.tested;
    sum.repeated += one.repeated;
  }
  return sum;
}

RangeTally tally(const RangeMap& map, uint32_t topic) {
  RangeTally sum;
  for (const ExpertRange& expert : map.experts) {
    if (expert.topic != topic) continue;
    ++sum.credited;
    sum.tested += expert.repeats.has_value() ? 1 : 0;
    sum.repeated += expert.repeats.value_or(false) ? 1 : 0;
  }
  return sum;
}

double specialisation(std::span<const double> affinities) {
  if (affinities.size() < 2) return 0;
  double entropy = 0, sum = 0;
  for (const double affinity : affinities) {
    sum += affinity;
    if (affinity > 0) entropy -= affinity * std::log(affinity);
  }
  if (!(sum > 0)) return 0;
  return std::clamp(1 - entropy / std::log(static_cast<double>(affinities.size())), 0.0, 1.0);
}

RangeMap build_range_map(const RangeShape& shape, std::vector<std::string> topics,
                         const TopicCounts& counts, const TopicCounts& held_out) {
  check_counts(counts, held_out);
  const size_t width = topics.size();
  CHECK(counts.tokens.size() == width && counts.uses.size() == shape.count() * width);
  RangeMap map;
  map.topics = std::move(topics);
  map.tokens = counts.tokens;
  map.held_out_tokens = held_out.tokens;
  map.experts.resize(shape.count());
  std::vector<double> affinities(counts.uses.size()), scratch(width);
  std::vector<double> credits(width), leads(width);  // of the experts tested, by topic
  for (size_t e = 0; e < map.experts.size(); ++e) {
    const Response seen = response(uses_of(counts, e), counts.tokens,
                                   std::span(affinities).subspan(e * width, width));
    ExpertRange& expert = map.experts[e];
    expert.layer = shape.layers[e / shape.experts];
    expert.expert = static_cast<uint32_t>(e % shape.experts);
    expert.activations = seen.activations;
    expert.specialisation = seen.specialisation;
    if (!seen.credited()) continue;
    expert.topic = seen.leading;
    const Response again = response(uses_of(held_out, e), held_out.tokens, scratch);
    if (!again.sampled()) continue;
    expert.repeats = again.leading == seen.leading;
    ++credits[seen.leading];
    ++leads[again.leading];
  }
  place(map, counts, affinities);
  if (const double tested = tally(map).tested; tested > 0) {
    double agree = 0;
    for (size_t t = 0; t < width; ++t) agree += credits[t] / tested * (leads[t] / tested);
    map.by_chance.repeat_rate = rounded(agree);
  }
  return map;
}

RangeByChance shuffled_range(const TopicCounts& counts, const TopicCounts& held_out,
                             uint32_t shuffles, uint64_t seed) {
  check_counts(counts, held_out);
  CHECK(shuffles > 0);
  const size_t experts = counts.uses.size() / counts.tokens.size();
  std::mt19937_64 random(seed);
  Shuffler first(counts.tokens, random), second(held_out.tokens, random);
  std::vector<double> scratch(counts.tokens.size());
  uint64_t credited = 0, repeated = 0;
  for (size_t e = 0; e < experts; ++e) {
    const uint64_t activations = activations_of(counts, e), again = activations_of(held_out, e);
    if (activations <= kActivationsOver) continue;  // credited in no shuffle
    for (uint32_t s = 0; s < shuffles; ++s) {
      const Response seen = response(first.draw(activations), counts.tokens, scratch);
      if (!seen.credited()) continue;
      ++credited;
      if (again <= kActivationsOver) continue;
      const Response repeat = response(second.draw(again), held_out.tokens, scratch);
      repeated += repeat.leading == seen.leading ? 1 : 0;
    }
  }
  RangeByChance out;
  out.credited = rounded(static_cast<double>(credited) / shuffles);
  out.repeated = rounded(static_cast<double>(repeated) / shuffles);
  return out;
}

}  // namespace wader
