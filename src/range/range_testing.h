// For tests: a router's choices as they might be. In one layer, some experts have a favourite
// topic, the rest have none; a token uses k different ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "range/range_map.h"

namespace wader::testing_range {

struct Token {
  uint32_t topic;
  std::vector<uint32_t> experts;  // distinct
};

class Model {
 public:
  // Half of the experts are specialists, of topics in turn. Each token uses kPicks.
  static constexpr uint32_t kPicks = 4;
  Model(uint32_t topics, uint32_t experts, uint64_t seed)
      : topics_(topics), experts_(experts), random_(seed) {}

  uint32_t specialists() const { return experts_ / 2; }
  std::optional<uint32_t> favourite(uint32_t expert) const {
    return expert < specialists() ? std::optional(expert % topics_) : std::nullopt;
  }
  // `tokens` of each topic.
  std::vector<Token> texts(uint32_t tokens) {
    std::vector<Token> out;
    for (uint32_t topic = 0; topic < topics_; ++topic)
      for (uint32_t i = 0; i < tokens; ++i) out.push_back(token(topic));
    return out;
  }
  // The same tokens, each with the topic of one drawn at random.
  std::vector<Token> shuffled(const std::vector<Token>& tokens) {
    std::vector<Token> out = tokens;
    for (Token& token : out) token.topic = tokens[random_() % tokens.size()].topic;
    return out;
  }
  TopicCounts count(const std::vector<Token>& tokens) const {
    TopicCounts counts{std::vector<uint64_t>(topics_),
                       std::vector<uint32_t>(size_t{experts_} * topics_)};
    for (const Token& token : tokens) {
      ++counts.tokens[token.topic];
      for (const uint32_t expert : token.experts) ++counts.uses[expert * topics_ + token.topic];
    }
    return counts;
  }

 private:
  Token token(uint32_t topic) {
    Token out{topic, {}};
    while (out.experts.size() < kPicks) {
      const auto expert = static_cast<uint32_t>(random_() % experts_);
      const bool taken =
          std::find(out.experts.begin(), out.experts.end(), expert) != out.experts.end();
      // A specialist takes one in fifty of the foreign tokens that come to it.
      const bool wants = favourite(expert).value_or(topic) == topic || random_() % 50 == 0;
      if (!taken && wants) out.experts.push_back(expert);
    }
    return out;
  }

  uint32_t topics_, experts_;
  std::mt19937_64 random_;
};

}  // namespace wader::testing_range
