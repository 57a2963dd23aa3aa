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

// Vectors, and the convolution's few taps, are widened; matrices are used as they lie in trunk.bin.
bool is_widened(const TrunkTensor& tensor) {
  return tensor.shape.size() == 1 || tensor.name.ends_with("delta.conv");
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
          "{}: tensor {} does not match its checksum; `wader verify` lists all damage, `wader "
          "rm` and installing again repairs it",
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
      if (is_widened(tensor)) count += elements(tensor.shape);
    vectors.resize(count);
    next_ = vectors.data();
  }

  MatrixView matrix(const std::string& name) const {
    const TrunkTensor& t = tensor(name);
    return matrix_view(t.format, static_cast<uint32_t>(t.shape[0]),
                       static_cast<uint32_t>(t.shape[1]), bytes_.subspan(t.offset_bytes, t.bytes));
  }
  const float* vector(const std::string& name) {
    const TrunkTensor& t = tensor(name);
    float* out = next_;
    plain_to_f32(t.format.dtype, bytes_.data() + t.offset_bytes, elements(t.shape), out);
    next_ += elements(t.shape);
    return out;
  }
  const float* vector_if(bool present, const std::string& name) {
    return present ? vector(name) : nullptr;
  }
  MatrixView matrix_if(bool present, const std::string& name) const {
    return present ? matrix(name) : MatrixView{};
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

AttentionWeights bind_attention(Binder& bind, const ArchitectureSpec& spec,
                                const std::string& layer) {
  AttentionWeights w{};
  w.q = bind.matrix(layer + "attn.q.weight");
  w.gate = bind.matrix_if(spec.attention_gate, layer + "attn.gate.weight");
  w.k = bind.matrix(layer + "attn.k.weight");
  w.v = bind.matrix(layer + "attn.v.weight");
  w.o = bind.matrix(layer + "attn.o.weight");
  w.q_bias = bind.vector_if(spec.attention_bias, layer + "attn.q.bias");
  w.k_bias = bind.vector_if(spec.attention_bias, layer + "attn.k.bias");
  w.v_bias = bind.vector_if(spec.attention_bias, layer + "attn.v.bias");
  w.o_bias = bind.vector_if(spec.attention_bias, layer + "attn.o.bias");
  w.q_norm = bind.vector_if(spec.qk_norm, layer + "attn.q_norm");
  w.k_norm = bind.vector_if(spec.qk_norm, layer + "attn.k_norm");
  w.sinks = bind.vector_if(spec.attention_sinks, layer + "attn.sinks");
  return w;
}

DeltaNetWeights bind_delta_net(Binder& bind, const std::string& layer) {
  DeltaNetWeights w{};
  w.qkv = bind.matrix(layer + "delta.qkv.weight");
  w.conv = bind.vector(layer + "delta.conv");
  w.z = bind.matrix(layer + "delta.z.weight");
  w.b = bind.matrix(layer + "delta.b.weight");
  w.a = bind.matrix(layer + "delta.a.weight");
  w.a_log = bind.vector(layer + "delta.a_log");
  w.dt_bias = bind.vector(layer + "delta.dt_bias");
  w.norm = bind.vector(layer + "delta.norm");
  w.out = bind.matrix(layer + "delta.out.weight");
  return w;
}

FfnWeights bind_ffn(Binder& bind, const std::string& name) {
  return {bind.matrix(name + ".gate_up.weight"), bind.matrix(name + ".down.weight"), nullptr,
          nullptr};
}

LayerWeights bind_layer(Binder& bind, const ArchitectureSpec& spec, uint32_t n) {
  const std::string layer = "layers." + std::to_string(n) + ".";
  LayerWeights w{.kind = spec.layers[n]};
  w.mixer_norm = bind.vector(layer + "mixer_norm");
  if (w.kind.mixer == LayerKind::delta_net)
    w.delta = bind_delta_net(bind, layer);
  else
    w.attention = bind_attention(bind, spec, layer);
  w.ffn_norm = bind.vector(layer + "ffn_norm");
  if (w.kind.ffn == FfnKind::dense) {
    w.dense = bind_ffn(bind, layer + "dense");
    return w;
  }
  w.router = bind.matrix(layer + "router.weight");
  w.router_bias = bind.vector_if(spec.router_bias, layer + "router.bias");
  if (spec.shared_inner > 0) {
    w.shared = bind_ffn(bind, layer + "shared");
    w.shared_gate = bind.matrix(layer + "shared.gate.weight");
  }
  return w;
}

}  // namespace

uint64_t TrunkWeights::resident_bytes(const Manifest& manifest) {
  uint64_t bytes = manifest.trunk_bytes();
  for (const TrunkTensor& tensor : manifest.trunk)
    if (is_widened(tensor)) bytes += elements(tensor.shape) * sizeof(float);
  return bytes;
}

Result<TrunkWeights> TrunkWeights::load(const Container& container) {
  TrunkWeights weights;
  const Manifest& manifest = container.manifest();
  const ArchitectureSpec& spec = container.spec();
  ASSIGN_OR_RETURN(weights.bytes_,
                   AlignedBuffer::allocate(manifest.trunk_bytes(), AlignedBuffer::Pages::huge));
  const std::span<std::byte> bytes = weights.bytes_.span().first(manifest.trunk_bytes());
  RETURN_IF_ERROR(read_and_verify(container, bytes));

  Binder bind(manifest, bytes, weights.vectors_);
  weights.embed = bind.matrix("embed");
  for (uint32_t n = 0; n < spec.layer_count(); ++n)
    weights.layers.push_back(bind_layer(bind, spec, n));
  weights.final_norm = bind.vector("final_norm");
  weights.head = spec.tied_head ? weights.embed : bind.matrix("head");
  return weights;
}

FfnWeights bind_expert(const ArchitectureSpec& spec, const ExpertLayout& layout,
                       std::span<const std::byte> record) {
  const auto view = [&](ExpertMatrix which) {
    const MatrixShape shape = expert_matrix_shape(spec, which);
    const MatrixPlanes& planes = layout.planes(which);
    return MatrixView{layout.format.of(which),
                      shape.rows,
                      shape.cols,
                      record.data() + planes.codes,
                      record.data() + planes.scales,
                      record.data() + planes.biases};
  };
  const auto bias = [&](ExpertMatrix which) {
    const auto& at = layout.planes(which).linear_bias;
    return at ? record.data() + *at : nullptr;
  };
  return {view(ExpertMatrix::gate_up), view(ExpertMatrix::down), bias(ExpertMatrix::gate_up),
          bias(ExpertMatrix::down)};
}

}  // namespace wader
