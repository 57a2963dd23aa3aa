#include "range/probes.h"

#include <algorithm>
#include <span>
#include <string>

#include "base/check.h"
#include "base/embedded_file.h"

namespace wader {

std::span<const EmbeddedFile> range_probe_files();  // made by wader_embed()

namespace {

constexpr std::array<std::string_view, kRangeTopics> kNames = {
    "python",  "sql",      "maths proofs", "poetry", "contracts", "clinical notes",
    "chinese", "japanese", "russian",      "json",   "chat",      "history"};

std::string_view text_of(std::string_view topic, char sample) {
  std::string name(topic);
  std::replace(name.begin(), name.end(), ' ', '-');
  name += '-';
  name += sample;
  name += ".txt";
  for (const EmbeddedFile& file : range_probe_files())
    if (file.name == name) return file.bytes;
  UNREACHABLE("a topic without its text");
}

std::array<RangeTopic, kRangeTopics> all_topics() {
  std::array<RangeTopic, kRangeTopics> topics;
  for (size_t t = 0; t < kRangeTopics; ++t)
    topics[t] = {kNames[t], {text_of(kNames[t], '1'), text_of(kNames[t], '2')}};
  return topics;
}

}  // namespace

const std::array<RangeTopic, kRangeTopics>& range_topics() {
  static const auto topics = all_topics();
  return topics;
}

}  // namespace wader
