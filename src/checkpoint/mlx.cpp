#include "checkpoint/mlx.h"

#include "base/error.h"
#include "checkpoint/json_events.h"
#include "checkpoint/text_name.h"

namespace wader {
namespace {

constexpr uint64_t kMaxSetting = 65535;  // far above any bits or group size

// The settings of `json`; for those that it lacks, MLX's own defaults count and not what the rest
// of the checkpoint has. Other keys are left to the caller.
Result<MlxSettings> read_settings(const Json& json) {
  MlxSettings settings;
  if (json_has(json, "mode")) {
    ASSIGN_OR_RETURN(settings.mode, json_string(json, "mode"));
  }
  settings.bits = 4;
  settings.group = settings.mode == "affine" ? 64 : 32;
  if (json_has(json, "bits")) {
    ASSIGN_OR_RETURN(settings.bits, json_uint(json, "bits", 1, kMaxSetting));
  }
  if (json_has(json, "group_size")) {
    ASSIGN_OR_RETURN(settings.group, json_uint(json, "group_size", 1, kMaxSetting));
  }
  return settings;
}

bool is_setting(std::string_view key) {
  return key == "bits" || key == "group_size" || key == "mode";
}

Result<MlxSettings> read_override(const std::string& key, const Json& value,
                                  const MlxSettings& usual) {
  if (value.is_boolean()) {
    MlxSettings settings = usual;
    settings.quantised = value.get<bool>();
    return settings;
  }
  if (!value.is_object())
    return unsupported_error("quantization has {}, which is neither a setting nor a tensor's",
                             in_quotes(key));
  for (const auto& [name, unused] : value.items())
    if (!is_setting(name))
      return unsupported_error("quantization's {} has {}, which this version does not know",
                               in_quotes(key), in_quotes(name));
  auto settings = read_settings(value);
  if (!settings.ok())
    return std::move(settings).error().within("quantization of " + in_quotes(key));
  return settings;
}

}  // namespace

Result<MatrixFormat> MlxQuantisation::format(std::string_view stem, DType scales) const {
  if (!present)
    return corrupt_error(
        "tensor {} has scales, but config.json has no 'quantization' that says "
        "what they mean",
        in_quotes(stem));
  const auto own = of_tensor.find(std::string(stem));
  const MlxSettings& settings = own == of_tensor.end() ? usual : own->second;
  if (!settings.quantised)
    return corrupt_error(
        "tensor {} has scales, but config.json's quantization says that it is not "
        "quantised",
        in_quotes(stem));
  const auto refuse = [&](std::string_view what, std::string_view can) {
    return unsupported_error("tensor {} is quantised with {}; {} can be read", in_quotes(stem),
                             what, can);
  };
  if (settings.mode == "mxfp4") {
    if (settings.bits == 4 && settings.group == kMxfp4Block) return MatrixFormat(DType::mxfp4);
    return refuse(fmt::format("mode mxfp4, {} bits in groups of {}", settings.bits, settings.group),
                  "4 bits in groups of 32");
  }
  if (settings.mode != "affine")
    return refuse(fmt::format("mode {}", in_quotes(settings.mode)), "affine and mxfp4");
  if (settings.bits != 4 && settings.bits != 8)
    return refuse(fmt::format("{} bits", settings.bits), "4 and 8 bits");
  if (settings.group != 32 && settings.group != 64 && settings.group != 128)
    return refuse(fmt::format("groups of {}", settings.group), "groups of 32, 64 and 128");
  return MatrixFormat(settings.bits == 4 ? DType::affine4 : DType::affine8,
                      static_cast<uint16_t>(settings.group), scales);
}

Result<MlxQuantisation> mlx_quantisation(const Json& json) {
  if (!json.is_object()) return invalid_argument_error("quantization must be an object");
  MlxQuantisation out;
  out.present = true;
  auto usual = read_settings(json);
  if (!usual.ok()) return std::move(usual).error().within("quantization");
  if (!json_has(json, "bits") || !json_has(json, "group_size"))
    return invalid_argument_error("quantization must have 'bits' and 'group_size'");
  out.usual = *std::move(usual);
  for (const auto& [key, value] : json.items()) {
    if (is_setting(key) || value.is_null()) continue;
    ASSIGN_OR_RETURN(MlxSettings settings, read_override(key, value, out.usual));
    std::string name = text_name(key);
    if (name.ends_with(".weight")) name.resize(name.size() - 7);
    const auto [place, is_new] = out.of_tensor.emplace(std::move(name), settings);
    if (!is_new && place->second != settings)
      return invalid_argument_error("quantization names {} twice, with different settings",
                                    in_quotes(place->first));
  }
  return out;
}

}  // namespace wader
