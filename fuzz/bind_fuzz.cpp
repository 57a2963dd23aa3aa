// Binding: config.json and a safetensors header, one after the other with a NUL between, → where
// every canonical tensor stands. The file is as long as the header says.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "checkpoint/bind.h"
#include "checkpoint/hf_checkpoint.h"

namespace wader {
namespace {

void check_plane(const SourcePlane& plane, uint64_t rows, uint64_t row_bytes, uint64_t file_bytes) {
  if (row_bytes == 0) return;
  CHECK(plane.file == 0 && rows > 0 && plane.stride_bytes >= row_bytes);
  CHECK(in_file(plane.offset_bytes, (rows - 1) * plane.stride_bytes + row_bytes, file_bytes));
}

// Every canonical row once, every plane inside the file.
void check_source(const TensorSource& source, uint64_t file_bytes) {
  std::vector<bool> seen(source.rows);
  for (const SourceRows& piece : source.pieces) {
    const auto bytes = row_bytes(piece.format, source.cols);
    CHECK(bytes.has_value());
    check_plane(piece.codes, piece.rows, bytes->codes, file_bytes);
    check_plane(piece.scales, piece.rows, bytes->scales, file_bytes);
    check_plane(piece.biases, piece.rows, bytes->biases, file_bytes);
    for (uint64_t i = 0; i < piece.rows; ++i) {
      const uint64_t row = piece.to_row + i * piece.to_step;
      CHECK(row < source.rows && !seen[row]);
      seen[row] = true;
    }
  }
  CHECK(std::find(seen.begin(), seen.end(), false) == seen.end());
}

// The length that the header is right for, if it is right for any.
uint64_t file_bytes_of(std::string_view header) {
  uint64_t data_bytes = 0;
  const auto json = parse_json(header, "header");
  if (!json.ok() || !json->is_object()) return 0;
  for (const auto& [name, tensor] : json->items()) {
    const auto offsets = json_member(tensor, "data_offsets");
    if (offsets.ok() && (*offsets)->is_array() && (*offsets)->size() == 2 &&
        (**offsets)[1].is_number_unsigned())
      data_bytes = std::max(data_bytes, (**offsets)[1].get<uint64_t>());
  }
  return 8 + header.size() + data_bytes;
}

Status bind_all(std::string_view config, std::string_view header) {
  ASSIGN_OR_RETURN(const Json json, parse_json(config, "config.json"));
  ASSIGN_OR_RETURN(const HfModel model, model_from_hf_config(json));
  const uint64_t file_bytes = file_bytes_of(header);
  ASSIGN_OR_RETURN(std::vector<SafetensorsTensor> tensors,
                   parse_safetensors_header(header, file_bytes));
  ASSIGN_OR_RETURN(TensorTable table, tensor_table(model, {std::move(tensors)}));
  ASSIGN_OR_RETURN(const ReleaseStyle style, find_release_style(model.spec, *model.family,
                                                                model.quantisation.present, table));
  BoundTensors bound;
  ASSIGN_OR_RETURN(bound.trunk,
                   bind_trunk(model.spec, model.family->names, style,
                              [&](const std::string& name, const std::vector<uint64_t>& shape) {
                                return table.take(name, shape);
                              }));
  RETURN_IF_ERROR(bind_experts(model.spec, *model.family, table, bound));
  for (const auto& [name, source] : bound.trunk) check_source(source, file_bytes);
  for (const auto* layers : {&bound.experts, &bound.expert_biases})
    for (const auto& layer : *layers)
      for (const ExpertSources& experts : layer)
        for (const uint32_t expert : {0u, model.spec.experts - 1})
          check_source(experts.of(expert), file_bytes);
  return check_all_used(model.spec, table);
}

}  // namespace
}  // namespace wader

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = text.find('\0');
  if (end == std::string_view::npos) return 0;
  (void)wader::bind_all(text.substr(0, end), text.substr(end + 1));
  return 0;
}
