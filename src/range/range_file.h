// The range map as a file, range.json beside a model: for people, the dashboard and other programs.
//
//   {"version": 1, "model": "16 hex digits of the container's identity",
//    "topics": [names], "tokens": [of each topic's first text], "held_out_tokens": [of its second],
//    "activations_over": 24, "specialisation_over": 0.35, "variance_explained": [3 shares],
//    "credited": n, "tested": n, "repeated": n, "repeat_rate": share or null,
//    "by_chance": {"credited": mean, "repeated": mean, "repeat_rate": share or null},
//    "experts": [{"layer", "expert", "activations", "specialisation", "topic": index or null,
//                 "position": [x, y, z], "repeats": true, false or null}, …]}
//
// One expert a line, by layer and expert, every one of the model. What range_map.h says of a figure
// holds here. A file says which container it is of: one of another is refused, never shown.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "container/manifest.h"
#include "range/range_map.h"

namespace wader {

constexpr uint64_t kRangeVersion = 1;
constexpr uint64_t kMaxRangeFileBytes = uint64_t{32} << 20;  // 24,576 experts are 4 MiB

// What the file says but for its experts.
Json range_facts(const RangeMap& map);
std::string range_to_text(const RangeMap& map);

// Takes untrusted text. Refuses other versions, the map of another model (not_found: a map of this
// one is not there), experts that are not exactly those of `shape`, and figures that contradict
// each other. Unknown keys are ignored. `what` names the text in errors.
Result<RangeMap> parse_range(std::string_view text, uint64_t model, const RangeShape& shape,
                             std::string_view what);
// The text of the directory's range.json, checked. not_found where there is none of this model.
// Takes what range_memory_bytes() counts: one call at a time.
Result<std::string> read_range_text(const std::filesystem::path& container, uint64_t model,
                                    const RangeShape& shape);
// Before minutes of work are put into what cannot be kept: whether `file` can be written, and is a
// map where it is there.
Status check_range_writable(const std::filesystem::path& file);

}  // namespace wader
