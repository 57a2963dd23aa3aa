#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "checkpoint/safetensors_writer.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/golden.h"
#include "cli/options.h"
#include "cli/text.h"

namespace wader {
namespace {

struct Candidate {
  int32_t id;
  float logit;
  double probability;
};

std::vector<Candidate> top_candidates(std::span<const float> logits, uint64_t count) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto last =
      order.begin() + static_cast<std::ptrdiff_t>(std::min<uint64_t>(count, order.size()));
  std::partial_sort(order.begin(), last, order.end(), [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  std::vector<Candidate> out;
  for (auto it = order.begin(); it != last; ++it) {
    out.push_back({*it, logits[*it], std::exp(-negative_log_likelihood(logits, *it))});
  }
  return out;
}

void print_candidates(const Args& args, const std::vector<Candidate>& candidates,
                      const Tokenizer* tokenizer) {
  const auto text_of = [&](int32_t id) {
    return tokenizer != nullptr ? terminal_safe_line(tokenizer->bytes_of(id)) : std::string();
  };
  if (args.has("--json")) {
    Json list = Json::array();
    for (const Candidate& c : candidates) {
      list.push_back({{"id", c.id}, {"logit", c.logit}, {"probability", c.probability}});
      if (tokenizer != nullptr) list.back()["text"] = text_of(c.id);
    }
    print_json({{"top", list}});
    return;
  }
  for (const Candidate& c : candidates) {
    print(fmt::format("{:>7} {:>10.4f} {:>8.4f} %", c.id, c.logit, 100 * c.probability));
    print(tokenizer != nullptr ? fmt::format("  '{}'\n", text_of(c.id)) : "\n");
  }
}

uint64_t capture_bytes(const ArchitectureSpec& spec, uint64_t tokens) {
  return (spec.layer_count() + 1) * tokens * spec.hidden * 4 +
         uint64_t{spec.layer_count()} * tokens * spec.experts_per_token * 8;
}

Result<SafetensorsWriter> create_output(const std::string& path, const ArchitectureSpec& spec,
                                        uint64_t tokens) {
  const uint64_t layers = spec.layer_count();
  return SafetensorsWriter::create(
      path, {{"logits", DType::f32, {tokens, spec.vocab_rows}},
             {"hidden", DType::f32, {layers + 1, tokens, spec.hidden}},
             {"router_weights", DType::f32, {layers, tokens, spec.experts_per_token}},
             {"router_indices", DType::i32, {layers, tokens, spec.experts_per_token}}});
}

// Rows of logits go to the file as they come; hidden states and routing are held until the end.
Status write_all(Session& session, std::span<const int32_t> tokens, SafetensorsWriter& writer) {
  Capture capture;
  Status written;
  const auto on_logits = [&](uint32_t position, std::span<const float> row) {
    if (written.ok())
      written = writer.write("logits", uint64_t{position} * row.size_bytes(), std::as_bytes(row));
  };
  RETURN_IF_ERROR(session.evaluate(tokens, 0, on_logits, &capture));
  RETURN_IF_ERROR(std::move(written));
  RETURN_IF_ERROR(writer.write("hidden", 0, std::as_bytes(std::span(capture.hidden))));
  RETURN_IF_ERROR(
      writer.write("router_weights", 0, std::as_bytes(std::span(capture.router_weights))));
  RETURN_IF_ERROR(
      writer.write("router_indices", 0, std::as_bytes(std::span(capture.router_indices))));
  return writer.finish();
}

}  // namespace

Result<int> run_logits(const Args& args) {
  ASSIGN_OR_RETURN(EngineOptions options, engine_options(args));
  ASSIGN_OR_RETURN(const uint64_t top, args.whole("--top", 1, 1'000'000'000, 10));
  if (!args.has("--tokens")) return invalid_argument_error("wader logits needs --tokens IDS");
  if (args.has("--output") && args.text("--output").empty()) {
    return invalid_argument_error("--output must name a file");
  }
  ASSIGN_OR_RETURN(const Container container, open_container(args));
  const ArchitectureSpec& spec = container.spec();
  ASSIGN_OR_RETURN(const auto tokens, token_ids_flag(args, "--tokens", spec.vocab_rows));
  if (tokens.size() > spec.max_context) {
    return over_budget_error("{} tokens are more than the model's context of {}", tokens.size(),
                             spec.max_context);
  }
  if (options.context == 0) options.context = static_cast<uint32_t>(tokens.size());
  options.extra_bytes =
      args.has("--output") ? capture_bytes(spec, tokens.size()) : uint64_t{spec.vocab_rows} * 8;
  ASSIGN_OR_RETURN(const auto engine, open_engine(container, options));
  ASSIGN_OR_RETURN(const auto session, engine->new_session());

  if (args.has("--output")) {
    ASSIGN_OR_RETURN(SafetensorsWriter writer,
                     create_output(args.text("--output"), spec, tokens.size()));
    RETURN_IF_ERROR(write_all(*session, tokens, writer));
    return 0;
  }
  std::vector<Candidate> candidates;
  const auto on_logits = [&](uint32_t, std::span<const float> row) {
    candidates = top_candidates(row, top);
  };
  RETURN_IF_ERROR(
      session->evaluate(tokens, static_cast<uint32_t>(tokens.size()) - 1, on_logits, nullptr));
  print_candidates(args, candidates, engine->tokenizer());
  return 0;
}

}  // namespace wader
