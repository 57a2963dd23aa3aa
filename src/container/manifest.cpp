#include "container/manifest.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "base/ascii.h"
#include "base/error.h"
#include "base/hash.h"

namespace wader {
namespace {

constexpr std::string_view kFormatName = "wader";
constexpr int kMaxManifestDepth = 16;
constexpr uint64_t kMaxTextBytes = 4096;  // of source and revision
constexpr uint64_t kMaxTotalBytes = 1ull << 62;
constexpr std::string_view kNoDigest = "0000000000000000";

Status refuse_unknown_keys(const Json& object, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      return corrupt_error("key '{}' is not known", key);
  return {};
}

Json shape_to_json(const std::vector<uint64_t>& shape) {
  Json out = Json::array();
  for (uint64_t dim : shape) out.push_back(dim);
  return out;
}

// A tensor's or section's entry: the five keys that both have.
struct Entry {
  std::string name;
  MatrixFormat format;
  std::vector<uint64_t> shape;
  uint64_t offset_bytes, bytes;
};

Json entry_to_json(const Entry& entry) {
  return {{"name", entry.name},
          {"dtype", format_name(entry.format)},
          {"shape", shape_to_json(entry.shape)},
          {"offset", entry.offset_bytes},
          {"bytes", entry.bytes}};
}

Result<Entry> entry_from_json(const Json& json) {
  Entry entry{};
  ASSIGN_OR_RETURN(entry.name, json_string(json, "name"));
  RETURN_IF_ERROR(refuse_unknown_keys(json, {"name", "dtype", "shape", "offset", "bytes"}));
  ASSIGN_OR_RETURN(const std::string dtype, json_string(json, "dtype"));
  const auto known = format_from_name(dtype);
  if (!known) return corrupt_error("dtype '{}' is not known", dtype);
  entry.format = *known;
  ASSIGN_OR_RETURN(const Json* shape, json_member(json, "shape"));
  if (!shape->is_array() || shape->size() > 8)
    return corrupt_error("key 'shape' must be an array of sizes");
  for (const Json& dim : *shape) {
    if (!dim.is_number_unsigned()) return corrupt_error("key 'shape' must hold whole numbers");
    entry.shape.push_back(dim.get<uint64_t>());
  }
  ASSIGN_OR_RETURN(entry.offset_bytes, json_uint(json, "offset", 0, kMaxTotalBytes));
  ASSIGN_OR_RETURN(entry.bytes, json_uint(json, "bytes", 0, kMaxTotalBytes));
  return entry;
}

std::string shape_text(const std::vector<uint64_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

// validate_spec bounds every dim: no product comes near 2^63.
uint64_t trunk_tensor_bytes(const TrunkTensorSpec& tensor, const MatrixFormat& format) {
  return matrix_bytes(format, tensor.rows(), tensor.cols()).value();
}

// One trunk entry against what the spec and the tensor before it leave as the only possibility.
Status check_trunk_entry(const Entry& entry, const TrunkTensorSpec& expected,
                         uint64_t offset_bytes) {
  if (entry.name != expected.name)
    return corrupt_error("trunk tensor '{}' stands where the spec has '{}'", entry.name,
                         expected.name);
  if (entry.shape != expected.shape)
    return corrupt_error("trunk tensor '{}' has shape {}, the spec has {}", entry.name,
                         shape_text(entry.shape), shape_text(expected.shape));
  if (!trunk_format_allowed(expected, entry.format))
    return corrupt_error("trunk tensor '{}' cannot be {}", entry.name, format_name(entry.format));
  if (entry.offset_bytes != offset_bytes)
    return corrupt_error("trunk tensor '{}' is at byte {}, it must be at {}", entry.name,
                         entry.offset_bytes, offset_bytes);
  const uint64_t bytes = trunk_tensor_bytes(expected, entry.format);
  if (entry.bytes != bytes)
    return corrupt_error("trunk tensor '{}' has {} bytes, its shape needs {}", entry.name,
                         entry.bytes, bytes);
  return {};
}

Result<std::vector<TrunkTensor>> trunk_from_json(const Json& json, const ArchitectureSpec& spec) {
  if (!json.is_array()) return corrupt_error("key 'trunk' must be an array");
  const std::vector<TrunkTensorSpec> expected = trunk_tensors(spec);
  if (json.size() != expected.size())
    return corrupt_error("{} trunk tensors, the spec has {}", json.size(), expected.size());
  std::vector<TrunkTensor> trunk;
  trunk.reserve(expected.size());
  uint64_t end = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    auto entry = entry_from_json(json[i]);
    if (!entry.ok()) return std::move(entry).error().within(fmt::format("trunk tensor {}", i));
    RETURN_IF_ERROR(check_trunk_entry(*entry, expected[i], align_up(end, kSectionAlignment)));
    end = entry->offset_bytes + entry->bytes;
    trunk.push_back({std::move(entry->name), entry->format, std::move(entry->shape),
                     entry->offset_bytes, entry->bytes});
  }
  return trunk;
}

Json experts_to_json(const ExpertLayout& layout) {
  Json sections = Json::array();
  for (const ExpertSection& s : layout.sections)
    sections.push_back(entry_to_json({s.name, s.dtype, s.shape, s.offset_bytes, s.bytes}));
  return {{"format",
           {{"gate_up", format_name(layout.format.gate_up)},
            {"down", format_name(layout.format.down)}}},
          {"payload", layout.payload_bytes},
          {"stride", layout.stride_bytes},
          {"sections", std::move(sections)}};
}

Result<ExpertFormat> expert_format_from_json(const Json& json) {
  ExpertFormat format;
  for (const auto& [key, member] :
       {std::pair("gate_up", &ExpertFormat::gate_up), std::pair("down", &ExpertFormat::down)}) {
    ASSIGN_OR_RETURN(const std::string name, json_string(json, key));
    const auto known = format_from_name(name);
    if (!known) return corrupt_error("format '{}' is not known", name);
    format.*member = *known;
  }
  RETURN_IF_ERROR(refuse_unknown_keys(json, {"gate_up", "down"}));
  return format;
}

Result<ExpertLayout> experts_from_json(const Json& json, const ArchitectureSpec& spec) {
  ASSIGN_OR_RETURN(const Json* format_json, json_member(json, "format"));
  ASSIGN_OR_RETURN(const ExpertFormat format, expert_format_from_json(*format_json));
  RETURN_IF_ERROR(check_expert_format(spec, format));
  ExpertLayout expected = expert_layout(spec, format);
  // The one product of dims that their bounds alone do not keep under 2^63.
  const auto layer_bytes = checked_mul(expected.stride_bytes, spec.experts);
  const auto bytes = checked_mul(layer_bytes.value_or(kMaxTotalBytes + 1), spec.moe_layer_count());
  if (!bytes || *bytes > kMaxTotalBytes) return corrupt_error("more than 2^62 bytes");
  ASSIGN_OR_RETURN(const uint64_t payload, json_uint(json, "payload", 0, kMaxTotalBytes));
  ASSIGN_OR_RETURN(const uint64_t stride, json_uint(json, "stride", 0, kMaxTotalBytes));
  ASSIGN_OR_RETURN(const Json* sections, json_member(json, "sections"));
  RETURN_IF_ERROR(refuse_unknown_keys(json, {"format", "payload", "stride", "sections"}));
  if (payload != expected.payload_bytes || stride != expected.stride_bytes)
    return corrupt_error("payload {} and stride {}, spec and format have {} and {}", payload,
                         stride, expected.payload_bytes, expected.stride_bytes);
  if (!sections->is_array() || sections->size() != expected.sections.size())
    return corrupt_error("key 'sections' must be an array of {}", expected.sections.size());
  for (size_t i = 0; i < expected.sections.size(); ++i) {
    auto entry = entry_from_json((*sections)[i]);
    if (!entry.ok()) return std::move(entry).error().within(fmt::format("section {}", i));
    const ExpertSection section{entry->name, entry->format.dtype, entry->shape, entry->offset_bytes,
                                entry->bytes};
    if (section != expected.sections[i])
      return corrupt_error("section {}, '{}', is not laid out as the spec has '{}'", i,
                           section.name, expected.sections[i].name);
  }
  return expected;
}

Result<FileRecord> file_from_json(const Json& json, bool has_digest) {
  FileRecord record{};
  ASSIGN_OR_RETURN(record.bytes, json_uint(json, "bytes", 0, kMaxTotalBytes));
  if (!has_digest) {
    RETURN_IF_ERROR(refuse_unknown_keys(json, {"bytes"}));
    return record;
  }
  RETURN_IF_ERROR(refuse_unknown_keys(json, {"bytes", "digest"}));
  ASSIGN_OR_RETURN(record.digest, json_string(json, "digest"));
  uint64_t digest;
  if (!digest_from_hex(record.digest, &digest))
    return corrupt_error("key 'digest' must be 16 hex digits");
  return record;
}

// Every weight file with its exact size, and small files under plain names.
Result<std::map<std::string, FileRecord>> files_from_json(const Json& json,
                                                          const Manifest& manifest) {
  if (!json.is_object()) return corrupt_error("key 'files' must be an object");
  const auto weights = weight_files(manifest);
  std::map<std::string, FileRecord> files;
  for (const auto& [name, value] : json.items()) {
    const auto weight = weights.find(name);
    const bool is_weight = weight != weights.end();
    if (!is_weight && !is_small_file_name(name))
      return corrupt_error("'{}' cannot be a file of a container", name);
    auto record = file_from_json(value, !is_weight || name == kDigestsFile);
    if (!record.ok()) return std::move(record).error().within(name);
    if (is_weight && record->bytes != weight->second.bytes)
      return corrupt_error("{} has {} bytes, the spec needs {}", name, record->bytes,
                           weight->second.bytes);
    if (!is_weight && record->bytes > kMaxSmallFileBytes)
      return corrupt_error("{} has {} bytes, more than the {} that a small file may have", name,
                           record->bytes, kMaxSmallFileBytes);
    files.emplace(name, std::move(*record));
  }
  for (const auto& [name, record] : weights)
    if (!files.contains(name)) return corrupt_error("{} is missing", name);
  return files;
}

Result<std::string> printable_string(const Json& json, std::string_view key) {
  ASSIGN_OR_RETURN(std::string text, json_string(json, key));
  if (text.size() > kMaxTextBytes || !is_printable(text))
    return corrupt_error("key '{}' must be at most {} bytes without control characters", key,
                         kMaxTextBytes);
  return text;
}

// Whether the text's last key is its digest, and the right one.
Status check_seal(const Json& json, std::string_view text) {
  if (!json.is_object() || json.empty() || std::prev(json.end()).key() != "digest" ||
      !json["digest"].is_string())
    return corrupt_error("its last key must be its digest");
  const auto hex = json["digest"].get<std::string>();
  uint64_t digest;
  // The last string of the text is the digest; written with escapes it would not be found, and is
  // refused.
  const size_t at = text.rfind(fmt::format("\"{}\"", hex));
  if (!digest_from_hex(hex, &digest) || at == std::string_view::npos)
    return corrupt_error("its digest must be 16 hex digits");
  std::string blanked(text);
  blanked.replace(at + 1, hex.size(), kNoDigest);
  if (xxh3_64(blanked) != digest)
    return corrupt_error("does not match its digest: it was damaged or edited");
  return {};
}

// The format's name and version come before everything else: a later version may seal its text in
// another way, and still gets the message that helps.
Status check_version(const Json& json) {
  ASSIGN_OR_RETURN(const std::string format, json_string(json, "format"));
  if (format != kFormatName)
    return corrupt_error("not a container's manifest: format is '{}'", format);
  ASSIGN_OR_RETURN(const uint64_t version, json_uint(json, "version", 1, UINT64_MAX));
  if (version > kFormatVersion)
    return unsupported_error(
        "made by a newer version of wader: it has format version {}, this program reads {}",
        version, kFormatVersion);
  if (version < kFormatVersion)
    return unsupported_error(
        "made by an older version of wader: it has format version {}, this program reads {}; "
        "delete it with `wader rm` and install the model again",
        version, kFormatVersion);
  return {};
}

Result<Manifest> manifest_from_json(const Json& json) {
  Manifest manifest{};
  RETURN_IF_ERROR(refuse_unknown_keys(json, {"format", "version", "source", "revision", "spec",
                                             "trunk", "experts", "files", "report"}));
  ASSIGN_OR_RETURN(manifest.source, printable_string(json, "source"));
  ASSIGN_OR_RETURN(manifest.revision, printable_string(json, "revision"));

  ASSIGN_OR_RETURN(const Json* spec_json, json_member(json, "spec"));
  auto spec = spec_from_json(*spec_json);
  if (!spec.ok()) return std::move(spec).error().within("spec");
  manifest.spec = std::move(*spec);
  if (!is_printable(manifest.spec.family))
    return corrupt_error("spec: family has control characters");
  ASSIGN_OR_RETURN(const Json* experts_json, json_member(json, "experts"));
  auto experts = experts_from_json(*experts_json, manifest.spec);
  if (!experts.ok()) return std::move(experts).error().within("experts");
  manifest.experts = std::move(*experts);
  ASSIGN_OR_RETURN(const Json* trunk, json_member(json, "trunk"));
  ASSIGN_OR_RETURN(manifest.trunk, trunk_from_json(*trunk, manifest.spec));

  ASSIGN_OR_RETURN(const Json* files_json, json_member(json, "files"));
  auto files = files_from_json(*files_json, manifest);
  if (!files.ok()) return std::move(files).error().within("files");
  manifest.files = std::move(*files);
  ASSIGN_OR_RETURN(const Json* report, json_member(json, "report"));
  if (!report->is_object()) return corrupt_error("key 'report' must be an object");
  manifest.report = *report;
  return manifest;
}

}  // namespace

bool is_small_file_name(std::string_view name) {
  if (name.empty() || name.size() > 128 || name.front() == '.') return false;
  for (char c : name) {
    if (!is_ascii_alnum(c) && c != '.' && c != '_' && c != '-') return false;
  }
  for (std::string_view taken :
       {kManifestFile, kJournalFile, kTrunkFile, kDigestsFile, kExpertsFolder, kSourceFile})
    if (name == taken) return false;
  return true;
}

bool is_printable(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < 0x20 || byte == 0x7f) return false;
    // U+0080 to U+009F, which some terminals obey as they obey ESC sequences: C2 80 to C2 9F in
    // UTF-8.
    if (byte == 0xc2 && i + 1 < text.size() && static_cast<uint8_t>(text[i + 1]) < 0xa0)
      return false;
  }
  return true;
}

bool trunk_format_allowed(const TrunkTensorSpec& tensor, const MatrixFormat& format) {
  if (format.dtype == DType::bf16) return true;
  if (tensor.role == TrunkRole::exact) return format.dtype == DType::f32;
  return (is_affine(format.dtype) || format.dtype == DType::mxfp4) &&
         row_bytes(format, tensor.cols()).has_value();
}

std::vector<TrunkTensor> place_trunk(const ArchitectureSpec& spec,
                                     std::span<const MatrixFormat> formats) {
  std::vector<TrunkTensorSpec> tensors = trunk_tensors(spec);
  CHECK(tensors.size() == formats.size());
  std::vector<TrunkTensor> placed;
  placed.reserve(tensors.size());
  uint64_t end = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    CHECK(trunk_format_allowed(tensors[i], formats[i]));
    const uint64_t bytes = trunk_tensor_bytes(tensors[i], formats[i]);
    const uint64_t offset = align_up(end, kSectionAlignment);
    placed.push_back(
        {std::move(tensors[i].name), formats[i], std::move(tensors[i].shape), offset, bytes});
    end = offset + bytes;
  }
  return placed;
}

// Rounded up to whole pages so that the file can be read with O_DIRECT to its end.
uint64_t Manifest::trunk_bytes() const {
  return trunk.empty() ? 0
                       : align_up(trunk.back().offset_bytes + trunk.back().bytes, kRecordAlignment);
}

uint64_t Manifest::expert_bytes() const {
  return experts.stride_bytes * spec.experts * spec.moe_layer_count();
}

uint64_t digest_count(const Manifest& manifest) {
  return uint64_t{manifest.spec.moe_layer_count()} * manifest.spec.experts + manifest.trunk.size();
}

std::string expert_file_name(uint32_t layer) {
  return fmt::format("{}/layer-{:03}.bin", kExpertsFolder, layer);
}

bool is_expert_file_name(std::string_view name) {
  return name.starts_with(kExpertsFolder) && name.substr(kExpertsFolder.size()).starts_with('/');
}

std::map<std::string, FileRecord> weight_files(const Manifest& manifest) {
  std::map<std::string, FileRecord> files;
  files.emplace(kTrunkFile, FileRecord{manifest.trunk_bytes(), ""});
  files.emplace(kDigestsFile, FileRecord{digest_count(manifest) * sizeof(uint64_t), ""});
  for (uint32_t layer = 0; layer < manifest.spec.layer_count(); ++layer)
    if (has_experts(manifest.spec, layer))
      files.emplace(expert_file_name(layer),
                    FileRecord{manifest.experts.stride_bytes * manifest.spec.experts, ""});
  return files;
}

std::string expert_format_text(const ExpertFormat& format) {
  const std::string gate_up = format_name(format.gate_up);
  if (format.gate_up == format.down) return gate_up;
  return fmt::format("{} (down {})", gate_up, format_name(format.down));
}

std::string formats_by_size(const std::map<std::string, uint64_t>& bytes) {
  std::vector<std::pair<std::string, uint64_t>> formats(bytes.begin(), bytes.end());
  std::stable_sort(formats.begin(), formats.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [name, of] : formats) {
    if (!text.empty()) text += " + ";
    text += name;
  }
  return text;
}

std::string trunk_format_text(const Manifest& manifest) {
  std::map<std::string, uint64_t> bytes;
  const std::vector<TrunkTensorSpec> tensors = trunk_tensors(manifest.spec);
  CHECK(tensors.size() == manifest.trunk.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].role == TrunkRole::matrix)
      bytes[format_name(manifest.trunk[i].format)] += manifest.trunk[i].bytes;
  return formats_by_size(bytes);
}

std::string seal_json(Json object, int indent) {
  CHECK(object.is_object() && !object.contains("digest"));
  object["digest"] = kNoDigest;
  std::string text = json_text(object, indent);
  text += '\n';
  const size_t at = text.rfind(kNoDigest);
  text.replace(at, kNoDigest.size(), digest_to_hex(xxh3_64(text)));
  return text;
}

Result<Json> unseal_json(std::string_view text, std::string_view what) {
  ASSIGN_OR_RETURN(Json json, parse_json(text, what, kMaxManifestDepth));
  if (Status seal = check_seal(json, text); !seal.ok()) return std::move(seal).error().within(what);
  json.erase("digest");
  return json;
}

std::string manifest_to_text(const Manifest& manifest) {
  Json trunk = Json::array();
  for (const TrunkTensor& t : manifest.trunk)
    trunk.push_back(entry_to_json({t.name, t.format, t.shape, t.offset_bytes, t.bytes}));
  Json files = Json::object();
  for (const auto& [name, record] : manifest.files) {
    files[name] = {{"bytes", record.bytes}};
    if (!record.digest.empty()) files[name]["digest"] = record.digest;
  }
  return seal_json({{"format", kFormatName},
                    {"version", kFormatVersion},
                    {"source", manifest.source},
                    {"revision", manifest.revision},
                    {"spec", spec_to_json(manifest.spec)},
                    {"trunk", std::move(trunk)},
                    {"experts", experts_to_json(manifest.experts)},
                    {"files", std::move(files)},
                    {"report", manifest.report.is_object() ? manifest.report : Json::object()}},
                   1);
}

Result<Manifest> parse_manifest(std::string_view text) {
  if (text.size() > kMaxManifestBytes)
    return corrupt_error("{}: {} bytes, more than the {} that a manifest may have", kManifestFile,
                         text.size(), kMaxManifestBytes);
  ASSIGN_OR_RETURN(Json json, parse_json(text, kManifestFile, kMaxManifestDepth));
  const auto check = [&]() -> Result<Manifest> {
    RETURN_IF_ERROR(check_version(json));
    RETURN_IF_ERROR(check_seal(json, text));
    uint64_t digest = 0;
    CHECK(digest_from_hex(json["digest"].get<std::string>(), &digest));
    json.erase("digest");
    ASSIGN_OR_RETURN(Manifest manifest, manifest_from_json(json));
    manifest.digest = digest;
    return manifest;
  };
  auto manifest = check();
  if (manifest.ok()) return manifest;
  Error error = std::move(manifest).error();
  // Getters call a wrong key invalid_argument; here nobody passed an argument, the file is bad.
  if (error.code == ErrorCode::invalid_argument) error.code = ErrorCode::corrupt;
  return std::move(error).within(kManifestFile);
}

}  // namespace wader
