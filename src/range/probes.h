// The probes: for each of twelve topics two texts, written for this project. The first ones build
// the map, the second ones test it. Within a topic the two differ in subject, so that what repeats
// is the topic and not its subject. The texts are src/range/probes/NAME-1.txt and NAME-2.txt.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace wader {

constexpr size_t kRangeTopics = 12;

struct RangeTopic {
  std::string_view name;                  // "maths proofs"
  std::array<std::string_view, 2> texts;  // the first builds, the second tests
};

// In the order in which maps number them.
const std::array<RangeTopic, kRangeTopics>& range_topics();

}  // namespace wader
