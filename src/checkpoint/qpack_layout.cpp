#include "checkpoint/qpack_layout.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "checkpoint/config_section.h"
#include "checkpoint/file_checks.h"
#include "checkpoint/index.h"

namespace wader {
namespace {

constexpr uint64_t kMaxCount = 1u << 20, kMaxBytes = uint64_t{1} << 50;

Result<QpackManifest> read_manifest(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, parse_json(text, "manifest.json"));
  if (!json.is_object()) return corrupt_error("not an object");
  Section manifest(json, "manifest.json");
  ASSIGN_OR_RETURN(const std::string magic, manifest.string("magic"));
  if (magic != "QPACK") return corrupt_error("magic is {}, not 'QPACK'", in_quotes(magic));
  ASSIGN_OR_RETURN(const uint64_t version, manifest.whole("version", 0, UINT32_MAX));
  if (version != 1) return unsupported_error("version {} is not known, only 1", version);
  QpackManifest out;
  for (const auto& [key, field] :
       {std::pair("quantBits", &out.bits), std::pair("quantGroupSize", &out.group)}) {
    if (!manifest.has(key)) continue;
    ASSIGN_OR_RETURN(*field, manifest.whole(key, 1, kMaxCount));
  }
  ASSIGN_OR_RETURN(const Json* files, manifest.object("files"));
  for (const auto& [name, bytes] : files->items()) {
    RETURN_IF_ERROR(check_relative_name(name));
    if (!bytes.is_number_unsigned())
      return corrupt_error("the size of {} is not a whole number", in_quotes(name));
    out.files.push_back({name, bytes.get<uint64_t>()});
  }
  return out;
}

Result<QpackSection> read_section(const Json& json, uint64_t stride_bytes) {
  if (!json.is_object()) return corrupt_error("a section is not an object");
  Section section(json, "layout.json's section");
  QpackSection out{};
  ASSIGN_OR_RETURN(out.name, section.string("name"));
  constexpr std::string_view kBefore = "switch_mlp.";
  if (const size_t at = out.name.rfind(kBefore); at != std::string::npos)
    out.name.erase(0, at + kBefore.size());
  const auto refuse = [&](std::string_view why) {
    return corrupt_error("section {} {}", in_quotes(out.name), why);
  };
  constexpr std::array<std::pair<std::string_view, DType>, 4> kDTypes = {
      {{"U32", DType::u32}, {"BF16", DType::bf16}, {"F16", DType::f16}, {"F32", DType::f32}}};
  ASSIGN_OR_RETURN(const std::string dtype, section.string("dtype"));
  const auto known = std::find_if(kDTypes.begin(), kDTypes.end(),
                                  [&](const auto& entry) { return entry.first == dtype; });
  if (known == kDTypes.end()) return refuse("has the unknown dtype " + in_quotes(dtype));
  out.dtype = known->second;
  ASSIGN_OR_RETURN(const Json* shape, section.array("shape"));
  if (shape->size() != 2 || !(*shape)[0].is_number_unsigned() || !(*shape)[1].is_number_unsigned())
    return refuse("must have a shape of two whole numbers");
  out.rows = (*shape)[0].get<uint64_t>(), out.cols = (*shape)[1].get<uint64_t>();
  ASSIGN_OR_RETURN(out.offset_bytes, section.whole("offset", 0, kMaxBytes));
  ASSIGN_OR_RETURN(out.bytes, section.whole("size", 0, kMaxBytes));
  if (out.rows == 0 || out.cols == 0) return refuse("is empty");
  const auto values = checked_mul(out.rows, out.cols);
  const auto bytes = values ? checked_mul(*values, dtype_bytes(out.dtype)) : values;
  if (!bytes || *bytes != out.bytes)
    return refuse(fmt::format("has {} bytes, which [{}, {}] of {} does not take", out.bytes,
                              out.rows, out.cols, dtype));
  if (!in_file(out.offset_bytes, out.bytes, stride_bytes))
    return refuse(fmt::format("ends past the stride of {} bytes", stride_bytes));
  return out;
}

Result<QpackLayout> read_layout(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, parse_json(text, "layout.json"));
  if (!json.is_object()) return corrupt_error("not an object");
  Section layout(json, "layout.json");
  QpackLayout out{};
  ASSIGN_OR_RETURN(out.experts, layout.whole("expertCount", 1, kMaxCount));
  ASSIGN_OR_RETURN(out.layers, layout.whole("layerCount", 1, kMaxCount));
  ASSIGN_OR_RETURN(out.stride_bytes, layout.whole("expertStride", 1, kMaxBytes / kMaxCount));
  ASSIGN_OR_RETURN(const Json* sections, layout.array("sections"));
  if (sections->size() > 9)
    return corrupt_error("there are {} sections; 9 are known", sections->size());
  std::vector<NamedSpan> spans;
  for (const Json& section : *sections) {
    ASSIGN_OR_RETURN(QpackSection read, read_section(section, out.stride_bytes));
    if (out.find(read.name) != nullptr)
      return corrupt_error("section {} is there twice", in_quotes(read.name));
    spans.push_back({read.name, read.offset_bytes, read.bytes});
    out.sections.push_back(std::move(read));
  }
  RETURN_IF_ERROR(check_disjoint(std::move(spans)));
  ASSIGN_OR_RETURN(const Json* linear, layout.array("linearLayers"));
  if (linear->size() != out.layers)
    return corrupt_error("linearLayers has {} entries, layerCount is {}", linear->size(),
                         out.layers);
  for (const Json& is_linear : *linear) {
    if (!is_linear.is_boolean()) return corrupt_error("linearLayers must hold true and false");
    out.linear_layers.push_back(is_linear.get<bool>());
  }
  return out;
}

}  // namespace

const QpackSection* QpackLayout::find(std::string_view name) const {
  for (const QpackSection& section : sections)
    if (section.name == name) return &section;
  return nullptr;
}

Result<QpackManifest> parse_qpack_manifest(std::string_view text) {
  auto manifest = read_manifest(text);
  if (!manifest.ok()) return named_error(std::move(manifest).error(), "manifest.json");
  return manifest;
}

Result<QpackLayout> parse_qpack_layout(std::string_view text) {
  auto layout = read_layout(text);
  if (!layout.ok()) return named_error(std::move(layout).error(), "layout.json");
  return layout;
}

std::string qpack_layer_file(uint64_t layer) {
  return fmt::format("packed_experts/layer_{:02}.bin", layer);
}

}  // namespace wader
