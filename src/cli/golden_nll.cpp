// The likelihood half of golden.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "cli/golden.h"

namespace wader {
namespace {

constexpr size_t kHeldoutTokens = 600;  // as the reference cut its texts
constexpr uint64_t kMaxTokens = 1u << 24;

GoldenLine nll_line(std::string name, uint64_t tokens, double got, double want, double limit) {
  const double relative = want != 0 ? (got - want) / want : got;
  return {std::move(name),
          "relative",
          tokens,
          std::fabs(relative),
          limit,
          fmt::format("{:.5f} nats, reference {:.5f} ({:+.3f} %)", got, want, 100 * relative)};
}

Result<GoldenLine> check_topic(const std::string& topic, const Json& entry, TokenId start,
                               const Tokenizer& tokenizer, Session& session,
                               const GoldenLimits& limits) {
  ASSIGN_OR_RETURN(const double want, json_number(entry, "nll_per_token", 0, 1e6));
  ASSIGN_OR_RETURN(const uint64_t want_tokens, json_uint(entry, "tokens", 1, kMaxTokens));
  ASSIGN_OR_RETURN(const Json* texts, json_member(entry, "texts"));
  if (!texts->is_array()) return invalid_argument_error("'texts' must be a list");
  double sum = 0;
  uint64_t tokens = 0;
  for (const Json& text : *texts) {
    if (!text.is_string()) return invalid_argument_error("'texts' must hold strings");
    std::vector<TokenId> ids = {start};
    RETURN_IF_ERROR(tokenizer.encode(text.get<std::string>(), Tokenizer::Markup::off, ids));
    ids.resize(std::min(ids.size(), 1 + kHeldoutTokens));
    ASSIGN_OR_RETURN(const double nll, sequence_nll(ids, session));
    sum += nll;
    tokens += ids.size() - 1;
  }
  GoldenLine line = nll_line("nll." + topic, tokens,
                             tokens > 0 ? sum / static_cast<double>(tokens) : 0, want, limits.nll);
  if (tokens != want_tokens) {
    line.error = std::numeric_limits<double>::infinity();
    line.detail =
        fmt::format("{} tokens, the reference has {}: the tokenizer differs", tokens, want_tokens);
  }
  return line;
}

}  // namespace

double negative_log_likelihood(std::span<const float> logits, int32_t id) {
  CHECK(id >= 0 && static_cast<size_t>(id) < logits.size());
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return most + std::log(sum) - logits[id];
}

Result<double> sequence_nll(std::span<const TokenId> tokens, Session& session) {
  double sum = 0;
  const auto add = [&](uint32_t position, std::span<const float> logits) {
    if (position + 1 < tokens.size()) sum += negative_log_likelihood(logits, tokens[position + 1]);
  };
  RETURN_IF_ERROR(session.evaluate(tokens, 0, add, nullptr));
  return sum;
}

Result<GoldenReport> check_nll(const NllInput& input, Session& session, const GoldenLimits& limits,
                               const std::function<void(const GoldenLine&)>& on_line) {
  GoldenReport report;
  const auto add = [&](GoldenLine line) {
    if (on_line) on_line(line);
    report.lines.push_back(std::move(line));
  };
  if (!input.json.is_object()) return invalid_argument_error("must be an object");
  for (const auto& [key, value] : input.json.items()) {
    if (!key.ends_with(".nll") || !value.is_number()) continue;
    const std::string prefix = key.substr(0, key.size() - std::string_view(".nll").size());
    ASSIGN_OR_RETURN(const auto ids, input.golden.ids(prefix + ".input_ids"));
    if (ids.size() < 2) return corrupt_error("{}.input_ids has nothing to predict", prefix);
    ASSIGN_OR_RETURN(const double nll, sequence_nll(ids, session));
    const auto predicted = static_cast<double>(ids.size() - 1);
    add(nll_line(key, ids.size() - 1, nll / predicted, value.get<double>(), limits.nll));
  }
  if (json_has(input.json, "heldout")) {
    const Json& topics = input.json.at("heldout");
    if (!topics.is_object()) return invalid_argument_error("'heldout' must be an object");
    if (input.tokenizer == nullptr)
      return unsupported_error("'heldout' texts need a model with a tokenizer");
    const std::optional<TokenId> start = input.tokenizer->added_token("<|startoftext|>");
    if (!start)
      return unsupported_error("the tokenizer has no <|startoftext|> to begin the texts with");
    for (const auto& [topic, entry] : topics.items()) {
      auto line = check_topic(topic, entry, *start, *input.tokenizer, session, limits);
      if (!line.ok()) return std::move(line).error().within(topic);
      add(*std::move(line));
    }
  }
  if (report.lines.empty()) return corrupt_error("no likelihoods to compare");
  return report;
}

}  // namespace wader
