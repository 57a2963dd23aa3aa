#include "range/range_probe.h"

#include <gtest/gtest.h>

#include <set>

#include "arch/arch_testing.h"
#include "io/file.h"
#include "range/probes.h"

namespace wader {
namespace {

TEST(Probes, AreTheFilesOfTheTree) {
  std::set<std::string_view> names, texts;
  for (const RangeTopic& topic : range_topics()) {
    EXPECT_TRUE(names.insert(topic.name).second) << topic.name;
    for (size_t sample : {0, 1}) {
      std::string file(topic.name);
      for (char& c : file) c = c == ' ' ? '-' : c;
      file = WADER_SOURCE_DIR "/src/range/probes/" + file + (sample == 0 ? "-1.txt" : "-2.txt");
      EXPECT_EQ(topic.texts[sample], read_text_file(file, 1u << 20).value()) << file;
      EXPECT_TRUE(texts.insert(topic.texts[sample]).second) << file;
      EXPECT_GT(topic.texts[sample].size(), 1200u) << file;
    }
  }
}

TEST(Probes, BecomePromptsThatFitTheContext) {
  const auto tokenizer = Tokenizer::load(WADER_SOURCE_DIR "/models/demo/tokenizer.json").value();
  const auto whole = probe_prompts(tokenizer, 100000).value();
  ASSERT_EQ(whole.size(), 2 * kRangeTopics);
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i].topic, i % kRangeTopics);
    EXPECT_EQ(whole[i].held_out, i >= kRangeTopics);
    EXPECT_FALSE(whole[i].cut);
    const std::string_view text = range_topics()[whole[i].topic].texts[whole[i].held_out ? 1 : 0];
    EXPECT_EQ(whole[i].text_bytes, text.size());
    EXPECT_EQ(tokenizer.decode(whole[i].tokens, true), text);
  }
  for (const ProbePrompt& prompt : probe_prompts(tokenizer, 100).value()) {
    EXPECT_EQ(prompt.tokens.size(), 100u);
    EXPECT_TRUE(prompt.cut);
  }
}

TEST(RoutingCounts, CountByTopicAndSet) {
  const ArchitectureSpec spec = testing::small_hybrid_spec();  // its layer 0 is dense
  RoutingCounts counts(spec);
  const RangeShape shape = range_shape(spec);
  ASSERT_EQ(shape.layers, (std::vector<uint32_t>{1, 2}));
  ProbePrompt prompt;
  prompt.topic = 3;
  counts.begin(prompt);
  const std::vector<uint32_t> ids = {1, 2, 1, 0, 2, 1};  // three rows
  for (const uint32_t layer : shape.layers) counts.add(layer, ids);
  prompt.topic = 4;
  prompt.held_out = true;
  counts.begin(prompt);
  counts.add(shape.layers[1], ids);
  EXPECT_EQ(counts.counts().tokens[3], 3u);
  EXPECT_EQ(counts.held_out().tokens[4], 0u);  // counted at the first layer alone
  const auto uses = [&](const TopicCounts& set, size_t layer, size_t expert, size_t topic) {
    return set.uses[(layer * spec.experts + expert) * kRangeTopics + topic];
  };
  for (size_t layer = 0; layer < shape.layers.size(); ++layer) {
    EXPECT_EQ(uses(counts.counts(), layer, 0, 3), 1u);
    EXPECT_EQ(uses(counts.counts(), layer, 1, 3), 3u);
    EXPECT_EQ(uses(counts.counts(), layer, 2, 3), 2u);
    EXPECT_EQ(uses(counts.counts(), layer, 1, 4), 0u);
    EXPECT_EQ(uses(counts.held_out(), layer, 1, 4), layer == 1 ? 3u : 0u);
  }
  const RangeMap map = finish_range(counts, 9);
  EXPECT_EQ(map.model, 9u);
  EXPECT_EQ(map.topics.size(), kRangeTopics);
  EXPECT_EQ(map.experts.size(), shape.count());
}

}  // namespace
}  // namespace wader
