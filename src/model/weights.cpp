#include "model/weights.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/units.h"

namespace wader {
namespace {

uint64_t elements(const std::vector<uint64_t>& shape) {
  uint64_t count = 1;
  for (uint64_t dim : shape) count *= dim;
  return count;
}

// Vectors are widened; matrices are used as they lie in trunk.bin.
bool is_vector(const TrunkTensor& tensor) {
  return tensor.shape.size() == 1;
}

Status read_and_verify(const Container& container, std::span<std::byte> bytes) {
  const std::string path = (container.directory() / "trunk.bin").string();
  ASSIGN_OR_RETURN(const File file, File::open(path, File::Mode::read));
  // In pieces: one huge read(2) cannot be interrupted and is capped at 2 GiB by the kernel anyway.
  for (uint64_t offset = 0; offset < bytes.size(); offset += 16 * kMiB)
    RETURN_IF_ERROR(file.read_at(
        offset, bytes.subspan(offset, std::min<uint64_t>(16 * kMiB, bytes.size() - offset))));
  const auto& tensors = container.manifest().trunk;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (xxh3_64(bytes.subspan(tensors[i].offset_bytes, tensors[i].bytes)) !=
        container.trunk_digest(i))
      return corrupt_error(
          "{}: tensor {} does not match its checksum; `wader verify` lists all damage, installing "
          "again repairs it",
          path, tensors[i].name);
  }
  return {};
}

// Looks tensors up by canonical name. The manifest was checked against the spec when the container
// was opened, so that a missing tensor is a bug here.
class Binder {
 public:
  Binder(const Manifest& manifest, std::span<const std::byte> bytes, std::vector<float>& vectors)
      : bytes_(bytes) {
    for (const TrunkTensor& tensor : manifest.trunk) by_name_[tensor.name] = &tensor;
    uint64_t count = 0;
    for (const TrunkTensor& tensor : manifest.trunk)
      if (is_vector(tensor)) count += elements(tensor.shape);
    vectors.resize(count);
    next_ = vectors.data();
  }

  MatrixView matrix(const std::string& name) const {
    const TrunkTensor& t = tensor(name);
    return matrix_view(t.dtype, static_cast<uint32_t>(t.shape[0]),
                       static_cast<uint32_t>(t.shape[1]), bytes_.subspan(t.offset_bytes, t.bytes));
  }
  const float* vector(const std::string& name) {
    const TrunkTensor& t = tensor(name);
    float* out = next_;
    plain_to_f32(t.dtype, bytes_.data() + t.offset_bytes, elements(t.shape), out);
    next_ += elements(t.shape);
    return out;
  }
  const float* vector_if(bool present, const std::string& name) {
    return present ? vector(name) : nullptr;
  }

 private:
  const TrunkTensor& tensor(const std::string& name) const {
    const auto found = by_name_.find(name);
    CHECK(found != by_name_.end());
    return *found->second;
  }
  std::span<const std::byte> bytes_;
  std::map<std::string, const TrunkTensor*> by_name_;
  float* next_;
};

}  // namespace

uint64_t TrunkWeights::resident_bytes(const Manifest& manifest) {
  uint64_t bytes = manifest.trunk_bytes();
  for (const TrunkTensor& tensor : manifest.trunk)
    if (is_vector(tensor)) bytes += elements(tensor.shape) * sizeof(float);
  return bytes;
}

Result<TrunkWeights> TrunkWeights::load(const Container& container) {
  TrunkWeights weights;
  const Manifest& manifest = container.manifest();
  const ArchitectureSpec& spec = container.spec();
  ASSIGN_OR_RETURN(weights.bytes_, AlignedBuffer::allocate(manifest.trunk_bytes()));
  const std::span<std::byte> bytes = weights.bytes_.span().first(manifest.trunk_bytes());
  RETURN_IF_ERROR(read_and_verify(container, bytes));

  Binder bind(manifest, bytes, weights.vectors_);
  weights.embed = bind.matrix("embed");
  for (uint32_t n = 0; n < spec.layer_count(); ++n) {
    const std::string layer = "layers." + std::to_string(n) + ".";
    LayerWeights w{};
    w.kind = spec.layers[n];
    w.attn_norm = bind.vector(layer + "attn_norm");
    w.q = bind.matrix(layer + "attn.q.weight");
    w.k = bind.matrix(layer + "attn.k.weight");
    w.v = bind.matrix(layer + "attn.v.weight");
    w.o = bind.matrix(layer + "attn.o.weight");
    w.q_bias = bind.vector_if(spec.attention_bias, layer + "attn.q.bias");
    w.k_bias = bind.vector_if(spec.attention_bias, layer + "attn.k.bias");
    w.v_bias = bind.vector_if(spec.attention_bias, layer + "attn.v.bias");
    w.o_bias = bind.vector_if(spec.attention_bias, layer + "attn.o.bias");
    w.sinks = bind.vector_if(spec.attention_sinks, layer + "attn.sinks");
    w.ffn_norm = bind.vector(layer + "ffn_norm");
    w.router = bind.matrix(layer + "router.weight");
    w.router_bias = bind.vector_if(spec.router_bias, layer + "router.bias");
    weights.layers.push_back(w);
  }
  weights.final_norm = bind.vector("final_norm");
  weights.head = bind.matrix("head");
  return weights;
}

ExpertWeights bind_expert(const ArchitectureSpec& spec, const ExpertLayout& layout,
                          std::span<const std::byte> record) {
  const auto at = [&](std::string_view name) {
    return record.data() + layout.section(name).offset_bytes;
  };
  ExpertWeights w{};
  w.gate_up = {DType::mxfp4,         2 * spec.expert_inner, spec.hidden,
               at("gate_up.blocks"), at("gate_up.scales"),  nullptr};
  w.down = {DType::mxfp4,      spec.hidden,       spec.expert_inner,
            at("down.blocks"), at("down.scales"), nullptr};
  if (spec.expert_bias) {
    w.gate_up_bias = at("gate_up.bias");
    w.down_bias = at("down.bias");
  }
  return w;
}

}  // namespace wader
