#include "checkpoint/safetensors_writer.h"

#include <unistd.h>

#include "base/check.h"
#include "base/error.h"
#include "base/json.h"
#include "base/units.h"
#include "checkpoint/safetensors.h"

namespace wader {
namespace {

std::string_view safetensors_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "F32";
    case DType::f16:
      return "F16";
    case DType::bf16:
      return "BF16";
    case DType::u8:
      return "U8";
    case DType::u32:
      return "U32";
    case DType::i32:
      return "I32";
    case DType::i64:
      return "I64";
    case DType::mxfp4:
    case DType::affine4:
    case DType::affine8:
      break;
  }
  UNREACHABLE("no such case");  // quantised matrices have no name in the format
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::create(const std::filesystem::path& path,
                                                    const std::vector<SafetensorsOutput>& tensors) {
  SafetensorsWriter writer;
  Json header = Json::object();
  uint64_t end = 0;
  for (const SafetensorsOutput& tensor : tensors) {
    std::optional<uint64_t> bytes = dtype_bytes(tensor.dtype);
    for (const uint64_t extent : tensor.shape) bytes = bytes ? checked_mul(*bytes, extent) : bytes;
    const std::optional<uint64_t> next = bytes ? checked_add(end, *bytes) : bytes;
    if (!next || *next > (uint64_t{1} << 62))
      return over_budget_error("tensor {} is too large", tensor.name);
    header[tensor.name] = {{"dtype", safetensors_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {end, *next}}};
    CHECK(writer.places_.emplace(tensor.name, Place{end, *bytes}).second);
    end = *next;
  }
  std::string text = json_text(header);
  text.resize(align_up(text.size(), 8), ' ');  // data starts aligned, as the format asks
  const uint64_t data = kSafetensorsPrefixBytes + text.size();
  for (auto& [name, place] : writer.places_) place.offset_bytes += data;

  std::byte prefix[kSafetensorsPrefixBytes];
  for (size_t i = 0; i < sizeof prefix; ++i)
    prefix[i] = static_cast<std::byte>(text.size() >> (8 * i));
  // Renaming over a device node or a pipe would replace it.
  std::error_code error;
  const auto target = std::filesystem::symlink_status(path, error);
  if (std::filesystem::exists(target) && !std::filesystem::is_regular_file(target))
    return invalid_argument_error("{} is there and is not a regular file; choose another name",
                                  path.string());
  std::filesystem::path temporary = path;
  temporary += fmt::format(".{}.tmp", ::getpid());
  if (std::filesystem::exists(temporary, error))
    return already_exists_error("{} is in the way; remove it", temporary.string());
  ASSIGN_OR_RETURN(writer.file_, File::open(temporary, File::Mode::create));
  writer.path_ = path;
  writer.temporary_ = temporary;  // from here on the destructor removes it
  RETURN_IF_ERROR(writer.file_.allocate(data + end));
  RETURN_IF_ERROR(writer.file_.write_at(0, prefix));
  RETURN_IF_ERROR(writer.file_.write_at(sizeof prefix, std::as_bytes(std::span(text))));
  return writer;
}

SafetensorsWriter::~SafetensorsWriter() {
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove(temporary_, ignored);
}

Status SafetensorsWriter::write(const std::string& name, uint64_t offset_bytes,
                                std::span<const std::byte> bytes) {
  const auto found = places_.find(name);
  CHECK(found != places_.end() && in_file(offset_bytes, bytes.size(), found->second.bytes));
  return file_.write_at(found->second.offset_bytes + offset_bytes, bytes);
}

Status SafetensorsWriter::finish() {
  RETURN_IF_ERROR(file_.sync());
  RETURN_IF_ERROR(file_.close());
  std::error_code error;
  std::filesystem::rename(temporary_, path_, error);
  if (error) return errno_error(error.value(), path_.string());
  temporary_.clear();
  const std::filesystem::path parent = path_.parent_path();
  return sync_directory(parent.empty() ? "." : parent);
}

}  // namespace wader
