// What writer, reader, tests and fuzzer share about the manifest: names and limits of a container's
// files, where trunk tensors stand, and the seal that makes a JSON text carry its own digest. Pure:
// no files here.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "container/container.h"

namespace wader {

static_assert(std::endian::native == std::endian::little,
              "files are read and written as they lie in memory");

constexpr std::string_view kManifestFile = "manifest.json";
constexpr std::string_view kJournalFile = "install.json";
constexpr std::string_view kTrunkFile = "trunk.bin";
// What other folders leave beside it, and is no part of the container: each may be deleted at any
// time.
constexpr std::string_view kReadRatesFile =
    "reads.json";  // how fast its disk is: engine/read_setup.h
constexpr std::string_view kRangeFile =
    "range.json";  // what experts respond to: range/range_file.h
constexpr std::string_view kDigestsFile = "digests.bin";
constexpr std::string_view kExpertsFolder = "experts";

// The manifest of a 1024-layer model, the most that a spec may have, is under 8 MiB.
constexpr uint64_t kMaxManifestBytes = 16 * kMiB;
// GPT-OSS's tokenizer.json, the largest small file known, has 28 MB.
constexpr uint64_t kMaxSmallFileBytes = 64 * kMiB;

// A name for a small file: letters, digits, '.', '_', '-', at most 128 of them, no dot in front,
// and none of the names above.
bool is_small_file_name(std::string_view name);

// No control characters (C0, DEL, C1): such text is safe to print to a terminal.
bool is_printable(std::string_view text);

// Which formats a role takes: matrix bf16, affine4, affine8 or mxfp4 (rows of whole groups or
// blocks only), exact bf16 or f32.
bool trunk_format_allowed(const TrunkTensorSpec& tensor, const MatrixFormat& format);

// The spec's trunk tensors in file order, one format each (CHECKs that it is allowed), every one at
// the first multiple of 64 after the one before it: formats alone decide the layout.
std::vector<TrunkTensor> place_trunk(const ArchitectureSpec& spec,
                                     std::span<const MatrixFormat> formats);

// Whether `layer` is one of the spec with routed experts, and so with a file of records.
inline bool has_experts(const ArchitectureSpec& spec, uint32_t layer) {
  return layer < spec.layer_count() && spec.layers[layer].ffn == FfnKind::moe;
}

// Whether `name` is one of expert_file_name.
bool is_expert_file_name(std::string_view name);

// Expert records, then trunk tensors: how many u64 digests.bin holds.
uint64_t digest_count(const Manifest& manifest);

// trunk.bin, digests.bin and the expert files with the sizes that spec, trunk and experts give,
// digests empty.
std::map<std::string, FileRecord> weight_files(const Manifest& manifest);

// In words, for people: "affine4", "affine4 (down affine4-g32)"; of the trunk's matrices the
// formats that they have, most bytes first: "affine8", "affine8 + bf16".
std::string expert_format_text(const ExpertFormat& format);
std::string trunk_format_text(const Manifest& manifest);
std::string formats_by_size(const std::map<std::string, uint64_t>& bytes);

// `object` as text with a last key "digest": 16 hex digits of the XXH3-64 of this very text with
// '0' in their place. indent < 0: one line. Ends with a newline.
std::string seal_json(Json object, int indent);

// The object of a sealed text, without its digest. corrupt when text and digest do not belong
// together.
Result<Json> unseal_json(std::string_view text, std::string_view what);

}  // namespace wader
