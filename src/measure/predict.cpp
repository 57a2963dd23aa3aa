#include "measure/predict.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "measure/active_work.h"

namespace wader {
namespace {

// docs/results.md: a decoded token takes 1.07 to 1.38 times the reading of its active bytes.
constexpr double kDecodeOverFloor = 1.2;
// Of the 8-bit peak in prefill: 45 to 48 % were measured.
constexpr double kPrefillPeakShare = 0.45;
constexpr uint32_t kUsualTokens = 512;

double share_of_experts(const ArchitectureSpec& spec, uint32_t slots) {
  const double experts = static_cast<double>(spec.moe_layer_count()) * spec.experts;
  return experts > 0 ? std::min(1.0, slots / experts) : 1;
}

// 0.66 gives 40 % of hits for 8 of 32 experts, 0.41 gives 32 % for 8 of 128. Between them in the
// logarithm of the number of experts; beyond them nobody has reported, and the nearer one stands.
double skewed_hit_rate(const ArchitectureSpec& spec, double share) {
  constexpr double kOf32 = 0.66, kOf128 = 0.41;
  const double doublings = std::log2(std::max(1u, spec.experts) / 32.0);
  return std::pow(share, std::clamp(kOf32 + (kOf128 - kOf32) / 2 * doublings, kOf128, kOf32));
}

// Misses are read while the layer's resident experts are computed, and stand in the way after that.
// What is read passes memory twice more: when it is written, and when its checksum is taken.
DecodePrediction predict_decode(const Manifest& manifest, const PredictionRequest& request,
                                const MachineSpeed& speed, double hit_rate) {
  const ArchitectureSpec& spec = manifest.spec;
  const ActiveBytes active = active_bytes(manifest, request.position, request.kv_dtype);
  const double wanted_bytes = static_cast<double>(spec.moe_layer_count()) * spec.experts_per_token *
                              static_cast<double>(manifest.experts.stride_bytes);
  const double read_bytes = (1 - hit_rate) * wanted_bytes;
  const double seconds_a_byte = kDecodeOverFloor / speed.memory_bytes_per_second;
  const double expert_seconds = static_cast<double>(active.experts) * seconds_a_byte;
  const double other_seconds = static_cast<double>(active.trunk + active.state) * seconds_a_byte +
                               2 * read_bytes / speed.memory_bytes_per_second;
  const double hidden_seconds = hit_rate * expert_seconds;
  const double wait_seconds =
      std::max(0.0, read_bytes / speed.disk_bytes_per_second - hidden_seconds);
  return {hit_rate, read_bytes, 1 / (other_seconds + expert_seconds + wait_seconds)};
}

// Distinct experts of one layer that `rows` tokens want, if all are equally likely: the most.
double distinct_experts(const ArchitectureSpec& spec, double rows) {
  if (spec.experts == 0) return 0;
  const double unwanted = 1 - static_cast<double>(spec.experts_per_token) / spec.experts;
  return spec.experts * (1 - std::pow(unwanted, rows));
}

// The first pass reads what it wants, the following ones what did not stay.
double prompt_read_bytes(const Manifest& manifest, const PredictionRequest& request) {
  const ArchitectureSpec& spec = manifest.spec;
  const double missed = 1 - share_of_experts(spec, request.slots);
  double experts = 0, seen = 0;
  for (uint32_t done = 0; done < request.prompt_tokens;) {
    const uint32_t rows = std::min(request.chunk, request.prompt_tokens - done);
    const double fresh = distinct_experts(spec, done + rows) - seen;
    experts += fresh + missed * (distinct_experts(spec, rows) - fresh);
    seen += fresh;
    done += rows;
  }
  return experts * spec.moe_layer_count() * static_cast<double>(manifest.experts.stride_bytes);
}

double expert_operations(const ArchitectureSpec& spec, uint64_t tokens) {
  ArchitectureSpec without = spec;
  without.experts_per_token = 0;
  return matrix_operations(spec, tokens) - matrix_operations(without, tokens);
}

}  // namespace

PredictionRequest prediction_request(const MemoryPlan& plan, DType kv_dtype) {
  const uint32_t tokens = std::min(kUsualTokens, plan.context);
  return {.slots = plan.slots,
          .chunk = plan.chunk,
          .kv_dtype = kv_dtype,
          .position = tokens - 1,
          .prompt_tokens = tokens};
}

Prediction predict(const Manifest& manifest, const PredictionRequest& request,
                   const MachineSpeed& speed) {
  CHECK(speed.disk_bytes_per_second > 0 && speed.memory_bytes_per_second > 0);
  CHECK(request.chunk >= 1 && request.prompt_tokens >= 1);
  const ArchitectureSpec& spec = manifest.spec;
  const double share = share_of_experts(spec, request.slots);
  Prediction out{predict_decode(manifest, request, speed, share),
                 predict_decode(manifest, request, speed, skewed_hit_rate(spec, share)),
                 prompt_read_bytes(manifest, request),
                 {}};
  if (speed.int8_operations_per_second) {
    const double rate = kPrefillPeakShare * *speed.int8_operations_per_second;
    const double experts = expert_operations(spec, request.prompt_tokens);
    const double others = matrix_operations(spec, request.prompt_tokens) - experts;
    // Experts are computed as they land, so the longer of the two is what they take.
    out.first_token_seconds =
        others / rate +
        std::max(experts / rate, out.first_prompt_read_bytes / speed.disk_bytes_per_second);
  }
  return out;
}

}  // namespace wader
