#include "range/range_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/hash.h"
#include "io/file.h"

namespace wader {
namespace {

constexpr std::string_view kFileStart = R"({"version":)";
constexpr size_t kMaxTopics = 64, kMaxTopicBytes = 64;
// Ours take half of that; a Json takes up to eight times its text.
constexpr size_t kMaxFactsBytes = 64 << 10, kMaxLineBytes = 400;
constexpr uint64_t kMaxCount = uint64_t{1} << 48;
constexpr double kMaxCoordinate = 2;  // affinities lie within 1 of each other

Json optional_json(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::string expert_line(const ExpertRange& expert) {
  return fmt::format(
      R"({{"layer": {}, "expert": {}, "activations": {}, "specialisation": {}, "topic": {}, )"
      R"("position": [{}, {}, {}], "repeats": {}}})",
      expert.layer, expert.expert, expert.activations, expert.specialisation,
      expert.topic ? fmt::format("{}", *expert.topic) : "null", expert.position[0],
      expert.position[1], expert.position[2],
      expert.repeats ? (*expert.repeats ? "true" : "false") : "null");
}

Result<const Json*> json_array(const Json& object, std::string_view key, size_t size) {
  ASSIGN_OR_RETURN(const Json* value, json_member(object, key));
  if (!value->is_array() || value->size() != size)
    return corrupt_error("key '{}' must be an array of {}", key, size);
  return value;
}

// Numbers within [min, max].
Result<std::vector<double>> numbers(const Json& object, std::string_view key, size_t size,
                                    double min, double max) {
  ASSIGN_OR_RETURN(const Json* array, json_array(object, key, size));
  std::vector<double> out;
  for (const Json& value : *array) {
    if (!value.is_number()) return corrupt_error("key '{}' must hold numbers", key);
    out.push_back(value.get<double>());
    if (!(out.back() >= min && out.back() <= max))
      return corrupt_error("key '{}' must hold numbers from {} to {}", key, min, max);
  }
  return out;
}

Result<std::vector<uint64_t>> counts(const Json& object, std::string_view key, size_t size) {
  ASSIGN_OR_RETURN(const Json* array, json_array(object, key, size));
  std::vector<uint64_t> out;
  for (const Json& value : *array) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > kMaxCount)
      return corrupt_error("key '{}' must hold counts", key);
    out.push_back(value.get<uint64_t>());
  }
  return out;
}

Result<std::vector<std::string>> topic_names(const Json& json) {
  ASSIGN_OR_RETURN(const Json* array, json_member(json, "topics"));
  if (!array->is_array() || array->empty() || array->size() > kMaxTopics)
    return corrupt_error("key 'topics' must be an array of 1 to {} names", kMaxTopics);
  std::vector<std::string> names;
  for (const Json& name : *array) {
    if (!name.is_string() || name.get_ref<const std::string&>().size() > kMaxTopicBytes)
      return corrupt_error("key 'topics' must hold names of at most {} bytes", kMaxTopicBytes);
    names.push_back(name.get<std::string>());
  }
  return names;
}

Result<std::optional<double>> optional_share(const Json& object, std::string_view key) {
  ASSIGN_OR_RETURN(const Json* value, json_member(object, key));
  if (value->is_null()) return std::optional<double>();
  ASSIGN_OR_RETURN(const double share, json_number(object, key, 0, 1));
  return std::optional(share);
}

Result<ExpertRange> parse_expert(const Json& json, const RangeMap& map) {
  constexpr uint64_t kMax = std::numeric_limits<uint32_t>::max();
  ExpertRange out;
  ASSIGN_OR_RETURN(const uint64_t layer, json_uint(json, "layer", 0, kMax));
  ASSIGN_OR_RETURN(const uint64_t expert, json_uint(json, "expert", 0, kMax));
  ASSIGN_OR_RETURN(out.activations, json_uint(json, "activations", 0, kMaxCount));
  ASSIGN_OR_RETURN(out.specialisation, json_number(json, "specialisation", 0, 1));
  ASSIGN_OR_RETURN(const auto position,
                   numbers(json, "position", 3, -kMaxCoordinate, kMaxCoordinate));
  std::copy(position.begin(), position.end(), out.position.begin());
  out.layer = static_cast<uint32_t>(layer);
  out.expert = static_cast<uint32_t>(expert);
  if (json_has(json, "topic")) {
    ASSIGN_OR_RETURN(const uint64_t topic, json_uint(json, "topic", 0, map.topics.size() - 1));
    out.topic = static_cast<uint32_t>(topic);
  }
  if (json_has(json, "repeats")) {
    ASSIGN_OR_RETURN(out.repeats, json_bool(json, "repeats"));
  }
  const bool may_be_credited =
      out.activations > kActivationsOver && out.specialisation > kSpecialisationOver;
  if (out.topic.has_value() != may_be_credited || (out.repeats && !out.topic))
    return corrupt_error("layer {} expert {}: its credit contradicts its figures", layer, expert);
  return out;
}

Status parse_experts(const Json& json, const RangeShape& shape, RangeMap& map) {
  ASSIGN_OR_RETURN(const Json* array, json_array(json, "experts", shape.count()));
  for (const Json& item : *array) {
    ASSIGN_OR_RETURN(const ExpertRange expert, parse_expert(item, map));
    const size_t at = map.experts.size();
    const uint32_t layer = shape.layers[at / shape.experts];
    const auto number = static_cast<uint32_t>(at % shape.experts);
    if (expert.layer != layer || expert.expert != number)
      return corrupt_error("layer {} expert {} stands where layer {} expert {} must", expert.layer,
                           expert.expert, layer, number);
    map.experts.push_back(expert);
  }
  return {};
}

// The sums of the file must be those of its experts.
Status check_tally(const Json& json, const RangeMap& map) {
  const RangeTally sum = tally(map);
  for (const auto& [key, expected] :
       {std::pair("credited", sum.credited), {"tested", sum.tested}, {"repeated", sum.repeated}}) {
    ASSIGN_OR_RETURN(const uint64_t said, json_uint(json, key, 0, kMaxCount));
    if (said != expected)
      return corrupt_error("key '{}' is {}, its experts make {}", key, said, expected);
  }
  return {};
}

Result<RangeMap> parse(const Json& json, uint64_t model, const RangeShape& shape) {
  ASSIGN_OR_RETURN(const uint64_t version,
                   json_uint(json, "version", 0, std::numeric_limits<uint64_t>::max()));
  if (version != kRangeVersion)
    return unsupported_error("version {} of the range map, this program reads {}", version,
                             kRangeVersion);
  ASSIGN_OR_RETURN(const std::string identity, json_string(json, "model"));
  if (identity != digest_to_hex(model))
    return not_found_error("the range map of another model; `wader range` makes this one's");
  RangeMap map;
  map.model = model;
  ASSIGN_OR_RETURN(map.topics, topic_names(json));
  const size_t topics = map.topics.size();
  ASSIGN_OR_RETURN(map.tokens, counts(json, "tokens", topics));
  ASSIGN_OR_RETURN(map.held_out_tokens, counts(json, "held_out_tokens", topics));
  ASSIGN_OR_RETURN(const auto explained, numbers(json, "variance_explained", 3, 0, 1));
  std::copy(explained.begin(), explained.end(), map.variance_explained.begin());
  ASSIGN_OR_RETURN(const Json* chance, json_member(json, "by_chance"));
  if (!chance->is_object()) return corrupt_error("key 'by_chance' must be an object");
  const auto experts = static_cast<double>(shape.count());
  ASSIGN_OR_RETURN(map.by_chance.credited, json_number(*chance, "credited", 0, experts));
  ASSIGN_OR_RETURN(map.by_chance.repeated, json_number(*chance, "repeated", 0, experts));
  ASSIGN_OR_RETURN(map.by_chance.repeat_rate, optional_share(*chance, "repeat_rate"));
  RETURN_IF_ERROR(parse_experts(json, shape, map));
  RETURN_IF_ERROR(check_tally(json, map));
  return map;
}

}  // namespace

Json range_facts(const RangeMap& map) {
  const RangeTally sum = tally(map);
  return {{"version", kRangeVersion},
          {"model", digest_to_hex(map.model)},
          {"topics", map.topics},
          {"tokens", map.tokens},
          {"held_out_tokens", map.held_out_tokens},
          {"activations_over", kActivationsOver},
          {"specialisation_over", kSpecialisationOver},
          {"variance_explained", map.variance_explained},
          {"credited", sum.credited},
          {"tested", sum.tested},
          {"repeated", sum.repeated},
          {"repeat_rate", optional_json(sum.repeat_rate())},
          {"by_chance",
           {{"credited", map.by_chance.credited},
            {"repeated", map.by_chance.repeated},
            {"repeat_rate", optional_json(map.by_chance.repeat_rate)}}}};
}

std::string range_to_text(const RangeMap& map) {
  // By hand from here: a Json of 24,576 experts would take 30 MB, which are in no plan.
  std::string text = json_text(range_facts(map));
  text.pop_back();
  text += ",\n\"experts\":[";
  for (size_t e = 0; e < map.experts.size(); ++e) {
    text += e == 0 ? "\n" : ",\n";
    text += expert_line(map.experts[e]);
  }
  text += "\n]}\n";
  return text;
}

Result<RangeMap> parse_range(std::string_view text, uint64_t model, const RangeShape& shape,
                             std::string_view what) {
  if (text.size() > kMaxFactsBytes + shape.count() * kMaxLineBytes)
    return corrupt_error("{}: is longer than a map of this model", what);
  ASSIGN_OR_RETURN(const Json json, parse_json(text, what));
  if (!json.is_object()) return corrupt_error("{}: must be an object", what);
  auto map = parse(json, model, shape);
  if (map.ok()) return map;
  Error error = std::move(map).error().within(what);
  // Of a file, not of the user's wish.
  if (error.code == ErrorCode::invalid_argument) error.code = ErrorCode::corrupt;
  return error;
}

Result<std::string> read_range_text(const std::filesystem::path& container, uint64_t model,
                                    const RangeShape& shape) {
  const std::filesystem::path path = container / kRangeFile;
  ASSIGN_OR_RETURN(std::string text, read_text_file(path, kMaxRangeFileBytes));
  RETURN_IF_ERROR(parse_range(text, model, shape, path.string()));
  return text;
}

namespace {

// Or has nothing in it.
bool begins_as_a_map(const std::filesystem::path& path) {
  const auto file = File::open(path, File::Mode::read);
  if (!file.ok()) return false;
  const auto size = file->size();
  if (size.ok() && *size == 0) return true;
  std::string start(kFileStart.size(), '\0');
  return file->read_at(0, std::as_writable_bytes(std::span(start))).ok() && start == kFileStart;
}

}  // namespace

Status check_range_writable(const std::filesystem::path& file) {
  std::error_code ignored;
  const auto there = std::filesystem::symlink_status(file, ignored).type();
  if (there != std::filesystem::file_type::not_found) {
    if (there != std::filesystem::file_type::regular || !begins_as_a_map(file))
      return already_exists_error("{} is there, and no range map: it would be lost", file.string());
  }
  const std::filesystem::path parent = file.has_parent_path() ? file.parent_path() : ".";
  if (access(parent.c_str(), W_OK) == 0) return {};
  return errno_error(errno, file.string());
}

}  // namespace wader
