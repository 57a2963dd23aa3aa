// The range map: what each expert responds to. Pure functions of counts; no model is in sight.
//
// An expert's *affinity* to a topic is how often a token of that topic used it, over the sum of
// that over all topics: a topic with more tokens weighs no more. Its *specialisation* is 1 − H /
// ln(topics) with H the entropy of its affinities: 0 when all topics use it alike, 1 when one alone
// does. It is *credited* with the topic of its largest affinity only where it was used more than
// kActivationsOver times and its specialisation is over kSpecialisationOver. Counts of other
// texts, held out, tell whether a credit *repeats*: whether the same topic leads there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace wader {

// 24 draws at random from 12 topics look specialised by 0.09 on average; see shuffled_range().
constexpr uint64_t kActivationsOver = 24;
constexpr double kSpecialisationOver = 0.35;

// How often each expert was used by tokens of each topic.
struct TopicCounts {
  std::vector<uint64_t> tokens;  // (topics)
  std::vector<uint32_t> uses;    // (layers, experts, topics); a token uses an expert once at most
};

struct RangeShape {
  std::vector<uint32_t> layers;  // numbers of the layers with routed experts, rising
  uint32_t experts = 0;          // of each

  size_t count() const { return layers.size() * experts; }
};

struct ExpertRange {
  uint32_t layer = 0, expert = 0;
  uint64_t activations = 0;  // of the counts that built the map
  double specialisation = 0;
  std::optional<uint32_t> topic = {};  // that it is credited with
  // Along the principal components of the affinities of all experts that were used often enough;
  // one that was never used stands in the middle.
  std::array<double, 3> position{};
  // Whether the credit repeats; none without a credit, or where the held-out texts used it
  // kActivationsOver times or less.
  std::optional<bool> repeats = {};

  bool operator==(const ExpertRange&) const = default;
};

// What chance would give.
struct RangeByChance {
  // Means over maps of the same counts in which each token's topic is drawn at random.
  double credited = 0, repeated = 0;
  // How often credits would repeat if the topic that leads in the held-out texts had nothing to do
  // with the credited one (Cohen's expected agreement); none where nothing was tested.
  std::optional<double> repeat_rate = {};

  bool operator==(const RangeByChance&) const = default;
};

struct RangeMap {
  uint64_t model = 0;  // Container::identity()
  std::vector<std::string> topics;
  std::vector<uint64_t> tokens, held_out_tokens;  // (topics)
  std::array<double, 3> variance_explained{};
  std::vector<ExpertRange> experts;  // every one, by layer and expert
  RangeByChance by_chance;

  bool operator==(const RangeMap&) const = default;
};

// How many experts are credited, how many of those credits could be tested, and how many repeat.
struct RangeTally {
  uint32_t credited = 0, tested = 0, repeated = 0;

  std::optional<double> repeat_rate() const;  // of those tested
};
RangeTally tally(const RangeMap& map);                  // of all topics
RangeTally tally(const RangeMap& map, uint32_t topic);  // of the credits of one

// Of affinities, which sum to 1, or of none (all zero, or a single topic): then 0.
double specialisation(std::span<const double> affinities);

// All figures but by_chance's credited and repeated, and but `model`. Numbers are rounded to six
// decimals, so that a map and its file are equal.
RangeMap build_range_map(const RangeShape& shape, std::vector<std::string> topics,
                         const TopicCounts& counts, const TopicCounts& held_out);

// by_chance's credited and repeated: means over `shuffles` maps in which every use keeps its expert
// and gets the topic of a token drawn at random. For an expert that is exactly what drawing each
// token's topic would be, since all its uses are of different tokens; so are the means.
RangeByChance shuffled_range(const TopicCounts& counts, const TopicCounts& held_out,
                             uint32_t shuffles, uint64_t seed);

}  // namespace wader
