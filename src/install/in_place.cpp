#include "install/in_place.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/error.h"
#include "container/manifest.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWayOut = "make a container of it with `wader install`";

struct Place {
  uint32_t file;
  uint64_t offset_bytes;
};

// Where a plane stands whose rows follow each other, in the order of `pieces`; nothing when they
// do not.
std::optional<Place> place_of(const std::vector<SourceRows>& pieces, SourcePlane SourceRows::*plane,
                              uint64_t row_bytes) {
  const SourcePlane& first = pieces.front().*plane;
  uint64_t rows = 0;
  for (const SourceRows& piece : pieces) {
    const SourcePlane& at = piece.*plane;
    const bool follows = at.file == first.file && piece.to_row == rows &&
                         at.offset_bytes == first.offset_bytes + rows * row_bytes;
    const bool dense = piece.rows == 1 || (piece.to_step == 1 && at.stride_bytes == row_bytes);
    if (!follows || !dense) return {};
    rows += piece.rows;
  }
  return Place{first.file, first.offset_bytes};
}

Error not_in_place(const InstallPlan& plan, std::string_view what, std::string_view why) {
  return unsupported_error("{}: {} {}, so that experts cannot be used in place; {}",
                           plan.checkpoint->directory().string(), what, why, kWayOut);
}

// The places of one part's sections, in the order of the record.
Status add_places(const InstallPlan& plan, const InstallPlan::ExpertPart& part,
                  std::vector<Place>& places) {
  const TensorSource& source = part.source;
  const std::string what =
      fmt::format("the experts' {}{}", part.matrix == ExpertMatrix::gate_up ? "gate_up" : "down",
                  part.is_bias ? " bias" : "");
  const MatrixFormat wanted = part.is_bias ? MatrixFormat(DType::bf16)
                                           : plan.container.manifest.experts.format.of(part.matrix);
  for (const SourceRows& piece : source.pieces) {
    if (piece.format != wanted || source.add != 0)
      return not_in_place(plan, what,
                          fmt::format("is {} here and {} in a record", format_name(piece.format),
                                      format_name(wanted)));
    if (piece.paired_scales)
      return not_in_place(plan, what, "has its scales and biases in pairs here");
  }
  const RowBytes row = row_bytes(wanted, source.cols).value();
  std::vector<SourceRows> pieces = source.pieces;
  std::sort(pieces.begin(), pieces.end(),
            [](const SourceRows& a, const SourceRows& b) { return a.to_row < b.to_row; });
  const std::array<std::pair<SourcePlane SourceRows::*, uint64_t>, 3> planes = {
      {{&SourceRows::codes, row.codes},
       {&SourceRows::scales, row.scales},
       {&SourceRows::biases, row.biases}}};
  for (const auto& [plane, bytes] : planes) {
    if (bytes == 0) continue;
    const auto place = place_of(pieces, plane, bytes);
    if (!place)
      return not_in_place(plan, what,
                          "does not have its rows here in the order of a record (gate and up rows "
                          "take turns there)");
    places.push_back(*place);
  }
  return {};
}

Result<std::vector<Place>> places_of(const InstallPlan& plan, uint32_t layer, uint32_t expert) {
  ASSIGN_OR_RETURN(const auto parts, plan.expert_parts(layer, expert));
  std::vector<Place> places;
  for (const InstallPlan::ExpertPart& part : parts) RETURN_IF_ERROR(add_places(plan, part, places));
  CHECK(places.size() == plan.container.manifest.experts.sections.size());
  return places;
}

Result<std::vector<SourceRun>> runs_of(const InstallPlan& plan, uint32_t layer) {
  ASSIGN_OR_RETURN(const std::vector<Place> first, places_of(plan, layer, 0));
  std::vector<SourceRun> runs;
  for (const Place& place : first) runs.push_back({place.file, place.offset_bytes, 0});
  for (uint32_t expert = 1; expert < plan.container.manifest.spec.experts; ++expert) {
    ASSIGN_OR_RETURN(const std::vector<Place> places, places_of(plan, layer, expert));
    for (size_t i = 0; i < runs.size(); ++i) {
      const Place& place = places[i];
      if (expert == 1 && place.offset_bytes >= runs[i].offset_bytes)
        runs[i].step_bytes = place.offset_bytes - runs[i].offset_bytes;
      if (place.file != runs[i].file ||
          place.offset_bytes != runs[i].offset_bytes + expert * runs[i].step_bytes)
        return not_in_place(plan, fmt::format("layer {}", layer),
                            "does not have its experts one behind the other here");
    }
  }
  return runs;
}

}  // namespace

Result<InPlaceSource> find_in_place(const InstallPlan& plan) {
  if (plan.hub)
    return unsupported_error("{}: only a local directory is used in place; {}",
                             plan.container.manifest.source, kWayOut);
  InPlaceSource source;
  std::error_code error;
  source.directory = fs::canonical(plan.checkpoint->directory(), error);
  if (error) return errno_error(error.value(), plan.checkpoint->directory().string());
  for (size_t i = 0; i < plan.stamps.size(); ++i) {
    const fs::path path = plan.checkpoint->files()[i]->path();
    ASSIGN_OR_RETURN(SourceFile file, look_at_source(path));
    if (file.bytes != plan.stamps[i].bytes || file.modified_ns != plan.stamps[i].modified_ns)
      return corrupt_error("{} changed while it was being installed", path.string());
    file.name = path.lexically_relative(plan.checkpoint->directory()).string();
    source.files.push_back(std::move(file));
  }
  const Manifest& manifest = plan.container.manifest;
  for (uint32_t layer = 0; layer < manifest.spec.layer_count(); ++layer) {
    if (!has_experts(manifest.spec, layer)) continue;
    ASSIGN_OR_RETURN(std::vector<SourceRun> runs, runs_of(plan, layer));
    source.layers.push_back(std::move(runs));
  }
  // A path that JSON cannot hold would be found again by nobody.
  const auto read = parse_in_place(in_place_to_text(source), manifest);
  if (!read.ok()) return read.error();
  if (*read != source)
    return unsupported_error("{}: a path that is not UTF-8 cannot be kept for a later run; {}",
                             source.directory.string(), kWayOut);
  return source;
}

}  // namespace wader
