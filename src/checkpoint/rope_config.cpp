#include "checkpoint/rope_config.h"

#include <array>
#include <cmath>
#include <optional>
#include <tuple>

#include "base/error.h"

namespace wader {
namespace {

// What one place of the config says.
struct Settings {
  Rope rope{};
  std::optional<double> partial_rotary = {};
  std::optional<uint64_t> mrope_pairs = {};  // sum of the sections

  bool operator==(const Settings& other) const {
    const auto fields = [](const Settings& s) {
      const Yarn y = s.rope.yarn.value_or(Yarn{});
      return std::tuple(s.rope.theta, s.rope.yarn.has_value(), y.factor, y.original_context,
                        y.beta_fast, y.beta_slow, y.truncate, y.attention_factor);
    };
    return fields(*this) == fields(other);
  }
};

Result<Yarn> read_yarn(Section& rope, std::string_view name, RopeRule rule) {
  Yarn yarn{};
  ASSIGN_OR_RETURN(yarn.factor, rope.number("factor", 1, 1e6));
  ASSIGN_OR_RETURN(yarn.original_context, rope.number("original_max_position_embeddings", 1, 1e9));
  ASSIGN_OR_RETURN(yarn.beta_fast, rope.number_or("beta_fast", 0, 1e6, 32));
  ASSIGN_OR_RETURN(yarn.beta_slow, rope.number_or("beta_slow", 0, 1e6, 1));
  if (yarn.beta_fast <= yarn.beta_slow)
    return invalid_argument_error("beta_fast {} must be over beta_slow {}", yarn.beta_fast,
                                  yarn.beta_slow);
  ASSIGN_OR_RETURN(yarn.attention_factor,
                   rope.number_or("attention_factor", 0, 1e6, 0.1 * std::log(yarn.factor) + 1));
  if (rule == RopeRule::explicit_yarn && !rope.has("truncate"))
    return unsupported_error(
        "{} has no 'truncate': whether the YaRN range is rounded is never guessed (released "
        "GPT-OSS models have \"truncate\": false)",
        name);
  ASSIGN_OR_RETURN(yarn.truncate, rope.boolean_or("truncate", true));
  return yarn;
}

// "default" or "yarn", as the family allows.
Result<bool> is_yarn(Section& section, std::string_view name, RopeRule rule) {
  std::optional<bool> yarn;
  for (const std::string_view key : {"rope_type", "type"}) {
    if (!section.has(key)) continue;
    ASSIGN_OR_RETURN(const std::string type, section.string(key));
    const bool plain = type == "default" && rule == RopeRule::plain_or_yarn;
    if (!plain && type != "yarn")
      return unsupported_error(
          "{} is {}; only {} supported", key, in_quotes(type),
          rule == RopeRule::plain_or_yarn ? "'default' and 'yarn' are" : "'yarn' is");
    if (yarn && *yarn != (type == "yarn"))
      return invalid_argument_error("{}'s rope_type and type contradict each other", name);
    yarn = type == "yarn";
  }
  if (!yarn) return invalid_argument_error("{} has no rope_type", name);
  return *yarn;
}

Result<std::optional<uint64_t>> read_mrope(Section& section) {
  ASSIGN_OR_RETURN([[maybe_unused]] const bool interleaved,
                   section.boolean_or("mrope_interleaved", false));
  if (!section.has("mrope_section")) return std::optional<uint64_t>{};
  ASSIGN_OR_RETURN(const Json* sections, section.array("mrope_section"));
  uint64_t sum = 0;
  for (const Json& pairs : *sections) {
    if (!pairs.is_number_unsigned() || pairs.get<uint64_t>() > 4096)
      return invalid_argument_error("mrope_section must hold whole numbers up to 4096");
    sum += pairs.get<uint64_t>();
  }
  return std::optional(sum);
}

Result<std::optional<double>> read_partial_rotary(Section& section) {
  if (!section.has("partial_rotary_factor")) return std::optional<double>{};
  ASSIGN_OR_RETURN(const double share, section.number("partial_rotary_factor", 0, 1));
  return std::optional(share);
}

// The settings under `key`, with theta inside or beside them.
Result<Settings> read_settings(Section& config, std::string_view key, const Family& family) {
  ASSIGN_OR_RETURN(const Json* json, config.object(key));
  Section section(*json, fmt::format("{}'s {}", config.name(), key));
  Settings settings;
  const bool inside = section.has("rope_theta"), beside = config.has("rope_theta");
  ASSIGN_OR_RETURN(settings.rope.theta, (inside ? section : config).number("rope_theta", 1, 1e12));
  if (inside && beside) {
    ASSIGN_OR_RETURN(const double other, config.number("rope_theta", 1, 1e12));
    if (other != settings.rope.theta)
      return invalid_argument_error("rope_theta is {} in {} and {} beside it; they must agree",
                                    settings.rope.theta, key, other);
  }
  ASSIGN_OR_RETURN(const bool yarn, is_yarn(section, key, family.rope));
  if (yarn) {
    ASSIGN_OR_RETURN(settings.rope.yarn, read_yarn(section, key, family.rope));
  }
  if (family.rope == RopeRule::plain_or_yarn) {
    ASSIGN_OR_RETURN(settings.partial_rotary, read_partial_rotary(section));
    ASSIGN_OR_RETURN(settings.mrope_pairs, read_mrope(section));
  }
  RETURN_IF_ERROR(section.refuse_unread());
  return settings;
}

Result<Settings> read_both_places(Section& config, const Family& family) {
  const bool scaling = config.has("rope_scaling"), parameters = config.has("rope_parameters");
  if (!scaling && !parameters) {
    if (family.rope == RopeRule::explicit_yarn)
      return invalid_argument_error(
          "there is neither 'rope_scaling' nor 'rope_parameters'; the settings of the rotary "
          "embedding are never guessed");
    Settings plain;
    ASSIGN_OR_RETURN(plain.rope.theta, config.number("rope_theta", 1, 1e12));
    return plain;
  }
  ASSIGN_OR_RETURN(Settings settings,
                   read_settings(config, scaling ? "rope_scaling" : "rope_parameters", family));
  if (!scaling || !parameters) return settings;
  ASSIGN_OR_RETURN(const Settings other, read_settings(config, "rope_parameters", family));
  if (settings != other)
    return invalid_argument_error("rope_scaling and rope_parameters contradict each other");
  if (!settings.partial_rotary) settings.partial_rotary = other.partial_rotary;
  if (!settings.mrope_pairs) settings.mrope_pairs = other.mrope_pairs;
  return settings;
}

// GPT-OSS's own name for the length before YaRN; the settings repeat it.
Status check_initial_context(Section& config, const Rope& rope) {
  if (!rope.yarn || !config.has("initial_context_length")) return {};
  ASSIGN_OR_RETURN(const uint64_t initial, config.whole("initial_context_length", 1, UINT32_MAX));
  if (static_cast<double>(initial) == rope.yarn->original_context) return {};
  return invalid_argument_error(
      "initial_context_length is {}, original_max_position_embeddings {}; they must agree", initial,
      rope.yarn->original_context);
}

}  // namespace

Status read_rope(Section& config, const Family& family, ArchitectureSpec& spec) {
  ASSIGN_OR_RETURN(const Settings settings, read_both_places(config, family));
  spec.rope = settings.rope;
  double share = settings.partial_rotary.value_or(family.partial_rotary);
  if (family.rope == RopeRule::plain_or_yarn) {
    ASSIGN_OR_RETURN(const std::optional<double> outside, read_partial_rotary(config));
    if (outside && settings.partial_rotary && *outside != *settings.partial_rotary)
      return invalid_argument_error(
          "partial_rotary_factor is {} and {} with the rope settings; they must agree", *outside,
          *settings.partial_rotary);
    if (outside) share = *outside;
  }
  const double dims = share * spec.head_dim;
  if (dims < 2 || std::fmod(dims, 2) != 0)
    return invalid_argument_error(
        "partial_rotary_factor {} of a head of {} is {} dims; an even number of them can rotate",
        share, spec.head_dim, dims);
  spec.rotary_dim = static_cast<uint32_t>(dims);
  if (settings.mrope_pairs && *settings.mrope_pairs != spec.rotary_dim / 2)
    return invalid_argument_error("mrope_section has {} pairs, the rotated part of a head {}",
                                  *settings.mrope_pairs, spec.rotary_dim / 2);
  return check_initial_context(config, spec.rope);
}

}  // namespace wader
