#include "install/source_order.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "container/manifest.h"

namespace wader {
namespace {

using Place = std::pair<uint32_t, uint64_t>;  // file, offset

Place place_of(const TensorSource& source) {
  Place first{UINT32_MAX, UINT64_MAX};
  for (const SourceRows& piece : source.pieces)
    first = std::min(first, {piece.codes.file, piece.codes.offset_bytes});
  return first;
}

std::vector<uint32_t> order_of(const std::vector<Place>& places) {
  std::vector<uint32_t> order(places.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return places[a] < places[b]; });
  return order;
}

}  // namespace

Status order_by_source(InstallPlan& plan) {
  const ArchitectureSpec& spec = plan.container.manifest.spec;
  std::vector<Place> tensors;
  for (const TensorSource& source : plan.trunk_sources) tensors.push_back(place_of(source));
  plan.container.trunk_order = order_of(tensors);

  std::vector<std::pair<Place, uint32_t>> layers;
  for (uint32_t layer = 0; layer < spec.layer_count(); ++layer) {
    if (!has_experts(spec, layer)) continue;
    std::vector<Place> experts;
    for (uint32_t expert = 0; expert < spec.experts; ++expert) {
      ASSIGN_OR_RETURN(const auto parts, plan.expert_parts(layer, expert));
      Place first{UINT32_MAX, UINT64_MAX};
      for (const InstallPlan::ExpertPart& part : parts)
        if (!part.is_bias) first = std::min(first, place_of(part.source));
      experts.push_back(first);
    }
    layers.emplace_back(*std::min_element(experts.begin(), experts.end()), layer);
    plan.container.expert_order[layer] = order_of(experts);
  }
  std::sort(layers.begin(), layers.end());

  plan.steps.clear();
  size_t done = 0;
  for (const auto& [place, layer] : layers) {
    const size_t before = done;
    while (done < tensors.size() && tensors[plan.container.trunk_order[done]] < place) ++done;
    if (done > before) plan.steps.push_back({std::nullopt, before, done});
    plan.steps.push_back({layer, 0, 0});
  }
  // Also where none is left: the trunk's file ends there.
  plan.steps.push_back({std::nullopt, done, tensors.size()});
  return {};
}

}  // namespace wader
