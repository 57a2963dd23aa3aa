#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "checkpoint/json_events.h"

namespace wader {
namespace {

struct FormatDType {
  std::string_view name;
  uint32_t bytes;
  std::optional<DType> ours;
};

constexpr std::array<FormatDType, 16> kFormatDTypes = {{
    {"BOOL", 1, std::nullopt},
    {"U8", 1, DType::u8},
    {"I8", 1, std::nullopt},
    {"F8_E5M2", 1, std::nullopt},
    {"F8_E4M3", 1, std::nullopt},
    {"F8_E8M0", 1, DType::u8},
    {"I16", 2, std::nullopt},
    {"U16", 2, std::nullopt},
    {"F16", 2, DType::f16},
    {"BF16", 2, DType::bf16},
    {"I32", 4, DType::i32},
    {"U32", 4, DType::u32},
    {"F32", 4, DType::f32},
    {"F64", 8, std::nullopt},
    {"I64", 8, DType::i64},
    {"U64", 8, std::nullopt},
}};

constexpr size_t kMaxRank = 8;

// One tensor's entry as the header states it; nothing in it is checked against anything yet.
struct Entry {
  std::string name;
  const FormatDType* dtype = nullptr;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> offsets;  // begin, end: relative to the first byte after the header
  bool has_shape = false, has_offsets = false;
};

class HeaderReader : public JsonEvents {
 public:
  std::vector<Entry> entries;

  bool start_object(size_t) override {
    if (at_ == At::start) return go(At::root);
    if (at_ != At::root) return unexpected();
    if (name_ != "__metadata__") {
      if (entries.size() == kMaxSafetensorsTensors)
        return fail(corrupt_error("more than {} tensors", kMaxSafetensorsTensors));
      entries.emplace_back().name = name_;
      return go(At::tensor);
    }
    if (std::exchange(has_metadata_, true)) return fail(corrupt_error("__metadata__ occurs twice"));
    return go(At::metadata);
  }

  bool key(std::string& text) override {
    if (at_ == At::root) return name_ = std::move(text), true;
    if (at_ == At::metadata) {
      if (metadata_keys_.insert(text).second) return true;
      return fail(corrupt_error("__metadata__ has the key {} twice", in_quotes(text)));
    }
    field_ = std::move(text);
    const Entry& entry = entries.back();
    if (field_ != "dtype" && field_ != "shape" && field_ != "data_offsets")
      return fail(
          corrupt_error("tensor {} has an unknown key {}", in_quotes(name_), in_quotes(field_)));
    if ((field_ == "dtype" && entry.dtype != nullptr) || (field_ == "shape" && entry.has_shape) ||
        (field_ == "data_offsets" && entry.has_offsets))
      return fail(corrupt_error("tensor {} has {} twice", in_quotes(name_), field_));
    return true;
  }

  bool string(std::string& text) override {
    if (at_ == At::metadata) return true;
    if (at_ != At::tensor || field_ != "dtype") return unexpected();
    for (const FormatDType& dtype : kFormatDTypes)
      if (dtype.name == text) return entries.back().dtype = &dtype, true;
    return fail(
        unsupported_error("tensor {} has the unknown dtype {}", in_quotes(name_), in_quotes(text)));
  }

  bool start_array(size_t) override {
    if (at_ != At::tensor) return unexpected();
    if (field_ == "shape") return entries.back().has_shape = true, go(At::shape);
    if (field_ == "data_offsets") return entries.back().has_offsets = true, go(At::offsets);
    return unexpected();
  }

  bool number_unsigned(uint64_t value) override {
    if (at_ != At::shape && at_ != At::offsets) return unexpected();
    Entry& entry = entries.back();
    auto& list = at_ == At::shape ? entry.shape : entry.offsets;
    if (list.size() == (at_ == At::shape ? kMaxRank : 2)) return unexpected();
    list.push_back(value);
    return true;
  }

  bool end_array() override {
    if (at_ == At::offsets && entries.back().offsets.size() != 2) return unexpected();
    return go(At::tensor);
  }

  bool end_object() override {
    if (at_ == At::root) return go(At::end);
    if (at_ == At::metadata) return go(At::root);
    const Entry& entry = entries.back();
    if (entry.dtype != nullptr && entry.has_shape && entry.has_offsets) return go(At::root);
    const char* missing = entry.dtype == nullptr ? "dtype"
                          : entry.has_shape      ? "data_offsets"
                                                 : "shape";
    return fail(corrupt_error("tensor {} has no {}", in_quotes(name_), missing));
  }

 protected:
  bool unexpected() override {
    switch (at_) {
      case At::start:
      case At::end:
        return fail(corrupt_error("the header is not a JSON object"));
      case At::root:
        return fail(corrupt_error("entry {} is not an object", in_quotes(name_)));
      case At::metadata:
        return fail(corrupt_error("__metadata__ must map strings to strings"));
      case At::tensor:
        return fail(corrupt_error("tensor {}: {} has the wrong type", in_quotes(name_), field_));
      case At::shape:
        return fail(corrupt_error("tensor {}: shape must be at most {} whole numbers under 2^64",
                                  in_quotes(name_), kMaxRank));
      case At::offsets:
        return fail(corrupt_error("tensor {}: data_offsets must be two whole numbers under 2^64",
                                  in_quotes(name_)));
    }
    return false;
  }

 private:
  enum class At { start, root, metadata, tensor, shape, offsets, end };  // what we are inside of

  bool go(At at) {
    at_ = at;
    return true;
  }

  At at_ = At::start;
  std::string name_;   // of the entry of the root
  std::string field_;  // of the tensor
  bool has_metadata_ = false;
  std::unordered_set<std::string> metadata_keys_;
};

// Shape, dtype and offsets of one entry against each other and against the bytes there are.
Result<SafetensorsTensor> check_entry(Entry entry, uint64_t data_start, uint64_t data_bytes) {
  const uint64_t begin = entry.offsets[0], end = entry.offsets[1];
  const auto refuse = [&](std::string_view why) {
    return corrupt_error("tensor {}: {} (data_offsets {} to {}, {} data bytes)",
                         in_quotes(entry.name), why, begin, end, data_bytes);
  };
  if (begin > end) return refuse("begins after its end");
  if (end > data_bytes) return refuse("ends past the end of the file");
  std::optional<uint64_t> bytes = entry.dtype->bytes;
  for (const uint64_t dim : entry.shape)
    if (bytes) bytes = checked_mul(*bytes, dim);
  if (!bytes) return refuse("its shape has more than 2^64 bytes");
  if (*bytes != end - begin)
    return refuse(fmt::format("shape [{}] of {} takes {} bytes", fmt::join(entry.shape, ", "),
                              entry.dtype->name, *bytes));
  return SafetensorsTensor{std::move(entry.name),  entry.dtype->name,  entry.dtype->ours,
                           std::move(entry.shape), data_start + begin, *bytes};
}

// `tensors` in the order of their bytes: each begins where the one before it ends.
Status check_cover(const std::vector<SafetensorsTensor>& tensors, uint64_t data_start,
                   uint64_t file_bytes) {
  uint64_t expected = data_start;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, format_dtype, dtype, shape, offset, bytes] = tensors[i];
    if (offset < expected)
      return corrupt_error("tensors {} and {} overlap", in_quotes(tensors[i - 1].name),
                           in_quotes(name));
    if (offset > expected)
      return corrupt_error("{} bytes before tensor {} belong to no tensor", offset - expected,
                           in_quotes(name));
    expected = offset + bytes;
  }
  if (expected != file_bytes)
    return corrupt_error("{} bytes after the last tensor belong to no tensor",
                         file_bytes - expected);
  return {};
}

Status check_unique(const std::vector<SafetensorsTensor>& tensors) {
  std::unordered_set<std::string_view> names;
  names.reserve(tensors.size());
  for (const SafetensorsTensor& tensor : tensors)
    if (!names.insert(tensor.name).second)
      return corrupt_error("tensor {} occurs twice", in_quotes(tensor.name));
  return {};
}

}  // namespace

Result<uint64_t> safetensors_header_bytes(
    std::span<const std::byte, kSafetensorsPrefixBytes> prefix, uint64_t file_bytes) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < prefix.size(); ++i)
    bytes |= std::to_integer<uint64_t>(prefix[i]) << (8 * i);
  if (bytes < 2) return corrupt_error("header length {}: there is no header", bytes);
  if (bytes > kMaxSafetensorsHeaderBytes)
    return corrupt_error("header length {} is over the format's limit of {} bytes", bytes,
                         kMaxSafetensorsHeaderBytes);
  if (!in_file(kSafetensorsPrefixBytes, bytes, file_bytes))
    return corrupt_error("header length {}, but the file has only {} bytes", bytes, file_bytes);
  return bytes;
}

Result<std::vector<SafetensorsTensor>> parse_safetensors_header(std::string_view header,
                                                                uint64_t file_bytes) {
  if (!in_file(kSafetensorsPrefixBytes, header.size(), file_bytes))
    return corrupt_error("header length {}, but the file has only {} bytes", header.size(),
                         file_bytes);
  if (!header.starts_with('{')) return corrupt_error("the header does not start with '{{'");
  HeaderReader reader;
  RETURN_IF_ERROR(reader.parse(header));

  const uint64_t data_start = kSafetensorsPrefixBytes + header.size();
  std::vector<SafetensorsTensor> tensors;
  tensors.reserve(reader.entries.size());
  for (Entry& entry : reader.entries) {
    ASSIGN_OR_RETURN(SafetensorsTensor tensor,
                     check_entry(std::move(entry), data_start, file_bytes - data_start));
    tensors.push_back(std::move(tensor));
  }
  // Names first: a tensor stated twice also overlaps itself, and its name is the better message.
  RETURN_IF_ERROR(check_unique(tensors));
  // By end too: a tensor without elements stands before the one that begins at the same byte.
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.offset_bytes, a.bytes) < std::pair(b.offset_bytes, b.bytes);
  });
  RETURN_IF_ERROR(check_cover(tensors, data_start, file_bytes));
  return tensors;
}

Result<std::vector<SafetensorsTensor>> read_safetensors_header(const ByteSource& file) {
  ASSIGN_OR_RETURN(const uint64_t file_bytes, file.size());
  if (file_bytes < kSafetensorsPrefixBytes)
    return corrupt_error("{}: {} bytes are too few for a safetensors file", file.path(),
                         file_bytes);
  std::array<std::byte, kSafetensorsPrefixBytes> prefix;
  RETURN_IF_ERROR(file.read_at(0, prefix));
  auto header_bytes = safetensors_header_bytes(prefix, file_bytes);
  if (!header_bytes.ok()) return std::move(header_bytes).error().within(file.path());
  std::string header(*header_bytes, '\0');
  RETURN_IF_ERROR(file.read_at(kSafetensorsPrefixBytes, std::as_writable_bytes(std::span(header))));
  auto tensors = parse_safetensors_header(header, file_bytes);
  if (!tensors.ok()) return std::move(tensors).error().within(file.path());
  return tensors;
}

}  // namespace wader
