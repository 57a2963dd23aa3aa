#include "checkpoint/gwt_manifest.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "checkpoint/config_section.h"
#include "checkpoint/file_checks.h"

namespace wader {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 50, kMaxStride = uint64_t{1} << 30;

// What a family's models have in common and no tensor shows.
struct Facts {
  std::string_view family;
  std::string_view activation;  // as Godwit calls it
  std::string_view told_by;     // a trunk tensor of layer 0 that only this family has
  uint32_t head_dim;            // where the spec has no headDimension
  uint32_t experts_per_token;   // where it has no expertsPerToken
  uint32_t window;              // where it has no window
  double rope_theta, norm_eps;  // where it has none
  std::optional<Yarn> yarn;     // never in the file
  uint32_t max_context;         // never in the file
  RouterRule router;
};

const std::array<Facts, 2>& all_facts() {
  static const std::array<Facts, 2> facts = {{
      {"gpt_oss", "gptOssClampedGLU", "layer0.sinks", 64, 4, 128, 150000, 1e-5,
       Yarn{32, 4096, 32, 1, false, 0.1 * std::log(32.0) + 1}, 131072,
       RouterRule::topk_then_softmax},
      {"qwen3_moe", "silu", "layer0.q_norm", 128, 8, 0, 1e6, 1e-6, std::nullopt, 40960,
       RouterRule::softmax_then_topk_renormalised},
  }};
  return facts;
}

constexpr std::array<ReleasedTensor, 3> kModelNames = {
    {{"embed", "embed"}, {"head", "head"}, {"final_norm", "final_norm"}}};
constexpr std::array<ReleasedTensor, 15> kLayerNames = {{
    {"mixer_norm", "input_norm"},
    {"ffn_norm", "post_norm"},
    {"attn.q.weight", "q_proj"},
    {"attn.q.bias", "q_bias"},
    {"attn.q_norm", "q_norm"},
    {"attn.k.weight", "k_proj"},
    {"attn.k.bias", "k_bias"},
    {"attn.k_norm", "k_norm"},
    {"attn.v.weight", "v_proj"},
    {"attn.v.bias", "v_bias"},
    {"attn.o.weight", "o_proj"},
    {"attn.o.bias", "o_bias"},
    {"attn.sinks", "sinks"},
    {"router.weight", "router_w"},
    {"router.bias", "router_b"},
}};

// Godwit computes in single precision and may write 1e-5 with all digits of its nearest float.
double shortest(double value) {
  const std::string digits = fmt::format("{}", static_cast<float>(value));
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

// --- The trunk's tensors

Result<GwtTensor> read_trunk_section(Section& section, const std::string& name) {
  const auto refuse = [&](std::string_view why) {
    return corrupt_error("trunk section {} {}", in_quotes(name), why);
  };
  GwtTensor tensor{};
  ASSIGN_OR_RETURN(const std::string dtype, section.string("dtype"));
  if (dtype != "int8-affine64" && dtype != "bf16")
    return refuse("has the unknown dtype " + in_quotes(dtype));
  tensor.quantised = dtype != "bf16";
  ASSIGN_OR_RETURN(const Json* shape, section.array("shape"));
  if (shape->empty() || shape->size() > 2 || (tensor.quantised && shape->size() != 2))
    return refuse(fmt::format("of {} has {} dimensions", dtype, shape->size()));
  for (const Json& dim : *shape) {
    if (!dim.is_number_unsigned() || dim == 0 || dim.get<uint64_t>() > UINT32_MAX)
      return refuse("must have a shape of whole numbers");
    tensor.shape.push_back(dim.get<uint64_t>());
  }
  ASSIGN_OR_RETURN(tensor.span.offset_bytes, section.whole("offset", 0, kMaxBytes));
  ASSIGN_OR_RETURN(tensor.span.bytes, section.whole("length", 0, kMaxBytes));
  const uint64_t rows = tensor.shape.size() == 1 ? 1 : tensor.shape[0];
  const auto bytes =
      matrix_bytes(tensor.quantised ? MatrixFormat(DType::affine8) : MatrixFormat(DType::bf16),
                   rows, tensor.shape.back());
  if (bytes != tensor.span.bytes)
    return refuse(fmt::format("has {} bytes, which {} [{}] does not take", tensor.span.bytes, dtype,
                              fmt::join(tensor.shape, ", ")));
  return tensor;
}

Status read_trunk(Section& manifest, GwtManifest& out) {
  ASSIGN_OR_RETURN(const Json* sections, manifest.array("trunkSections"));
  std::vector<NamedSpan> spans;
  for (const Json& json : *sections) {
    if (!json.is_object()) return corrupt_error("a trunk section is not an object");
    Section section(json, "manifest.json's trunk section");
    ASSIGN_OR_RETURN(const std::string name, section.string("name"));
    ASSIGN_OR_RETURN(GwtTensor tensor, read_trunk_section(section, name));
    out.trunk_bytes = std::max(out.trunk_bytes, tensor.span.offset_bytes + tensor.span.bytes);
    spans.push_back({name, tensor.span.offset_bytes, tensor.span.bytes});
    if (!out.trunk.emplace(name, std::move(tensor)).second)
      return corrupt_error("trunk section {} is there twice", in_quotes(name));
  }
  return check_disjoint(std::move(spans));
}

Result<const GwtTensor*> trunk_matrix(const GwtManifest& manifest, std::string_view name) {
  const auto found = manifest.trunk.find(name);
  if (found == manifest.trunk.end()) return not_found_error("trunk section '{}' is missing", name);
  if (found->second.shape.size() == 2) return &found->second;
  return corrupt_error("trunk section '{}' is no matrix", name);
}

// --- The spec

// The spec's number must be `derived`; where it has none, that is the number.
Result<uint32_t> agreed(Section& spec, std::string_view key, uint64_t derived) {
  ASSIGN_OR_RETURN(const uint64_t stated, spec.whole_or(key, 0, UINT32_MAX, derived));
  if (stated != derived)
    return corrupt_error("spec's {} is {}, the tensors say {}", key, stated, derived);
  if (derived > UINT32_MAX) return corrupt_error("{} is {}", key, derived);
  return static_cast<uint32_t>(derived);
}

Status agreed_flag(Section& spec, std::string_view key, bool derived) {
  ASSIGN_OR_RETURN(const bool stated, spec.boolean_or(key, derived));
  if (stated == derived) return {};
  return unsupported_error("spec's {} is {}, which is not so in this family", key, stated);
}

// The experts' inner width, which only their own sections show.
Result<uint32_t> read_inner(Section& manifest, Section& spec, uint64_t hidden) {
  ASSIGN_OR_RETURN(const Json* sections, manifest.object("expertSections"));
  ASSIGN_OR_RETURN(const Json* scales, json_member(*sections, "gate_up_scales"));
  if (!scales->is_object()) return corrupt_error("section 'gate_up_scales' is not an object");
  ASSIGN_OR_RETURN(const uint64_t bytes, json_uint(*scales, "length", 1, kMaxStride));
  const uint64_t inner = bytes * kMxfp4Block / (2 * hidden);
  if (hidden % kMxfp4Block != 0 || inner == 0 || inner % kMxfp4Block != 0)
    return corrupt_error("experts of {} × {} are not in whole MXFP4 blocks of 32", inner, hidden);
  return agreed(spec, "intermediateSize", inner);
}

Result<const Facts*> find_facts(Section& spec, const GwtManifest& manifest) {
  std::string activation;
  if (spec.has("activation")) {
    ASSIGN_OR_RETURN(activation, spec.string("activation"));
  }
  for (const Facts& facts : all_facts()) {
    if (!manifest.trunk.contains(facts.told_by)) continue;
    if (activation.empty() || activation == facts.activation) return &facts;
    return unsupported_error("activation is {}, a {} model's is '{}'", in_quotes(activation),
                             facts.family, facts.activation);
  }
  return unsupported_error(
      "the trunk is of no family that .gwt is known to hold (gpt_oss, qwen3_moe)");
}

Status read_dims(Section& spec, const Facts& facts, GwtManifest& out) {
  ArchitectureSpec& s = out.spec;
  ASSIGN_OR_RETURN(const GwtTensor* embed, trunk_matrix(out, "embed"));
  ASSIGN_OR_RETURN(const GwtTensor* q, trunk_matrix(out, "layer0.q_proj"));
  ASSIGN_OR_RETURN(const GwtTensor* k, trunk_matrix(out, "layer0.k_proj"));
  ASSIGN_OR_RETURN(s.vocab_rows, agreed(spec, "vocabularySize", embed->shape[0]));
  ASSIGN_OR_RETURN(s.hidden, agreed(spec, "hiddenSize", embed->shape[1]));
  const auto q_norm = out.trunk.find("layer0.q_norm");
  const uint64_t head_dim = q_norm == out.trunk.end() ? 0 : q_norm->second.shape.back();
  if (head_dim > 0) {
    ASSIGN_OR_RETURN(s.head_dim, agreed(spec, "headDimension", head_dim));
  } else {
    ASSIGN_OR_RETURN(const uint64_t stated,
                     spec.whole_or("headDimension", 1, UINT32_MAX, facts.head_dim));
    s.head_dim = static_cast<uint32_t>(stated);
  }
  s.rotary_dim = s.head_dim;
  if (q->shape[0] % s.head_dim != 0 || k->shape[0] % s.head_dim != 0)
    return corrupt_error("q_proj and k_proj have {} and {} rows, no whole heads of {}", q->shape[0],
                         k->shape[0], s.head_dim);
  ASSIGN_OR_RETURN(s.query_heads, agreed(spec, "attentionHeads", q->shape[0] / s.head_dim));
  ASSIGN_OR_RETURN(s.kv_heads, agreed(spec, "keyValueHeads", k->shape[0] / s.head_dim));
  s.tied_head = !out.trunk.contains("head");
  return agreed_flag(spec, "tiedEmbedding", s.tied_head);
}

Status read_constants(Section& spec, const Facts& facts, ArchitectureSpec& s) {
  ASSIGN_OR_RETURN(const double theta, spec.number_or("ropeTheta", 1, 1e12, facts.rope_theta));
  ASSIGN_OR_RETURN(const double eps, spec.number_or("rmsNormEpsilon", 0, 1, facts.norm_eps));
  s.rope = {shortest(theta), facts.yarn};
  s.norm_eps = shortest(eps);
  s.max_context = facts.max_context;
  if (s.activation != Activation::swiglu_clamped) {
    spec.ignore({"activationLimit", "activationAlpha"});
    return {};
  }
  ASSIGN_OR_RETURN(const double limit, spec.number_or("activationLimit", 0, 1e6, s.swiglu_limit));
  ASSIGN_OR_RETURN(const double alpha, spec.number_or("activationAlpha", 0, 1e6, 1.702));
  if (shortest(alpha) != 1.702)
    return unsupported_error("spec's activationAlpha is {}; only 1.702 is known", alpha);
  s.swiglu_limit = shortest(limit);
  return {};
}

// What all layers must say alike: set by the first.
struct Common {
  std::optional<uint64_t> window, experts_per_token;
};

Status read_layer(Section& layer, const Facts& facts, const ArchitectureSpec& s, Common& common,
                  LayerSpec& out) {
  if (layer.has("attention")) {
    ASSIGN_OR_RETURN(const std::string kind, layer.string("attention"));
    if (kind != "full" && kind != "sliding")
      return unsupported_error("attention is {}; 'full' and 'sliding' are known", in_quotes(kind));
    out.mixer = kind == "full" ? LayerKind::full_attention : LayerKind::sliding_attention;
  }
  ASSIGN_OR_RETURN(const uint64_t window, layer.whole_or("window", 0, UINT32_MAX, facts.window));
  ASSIGN_OR_RETURN(const uint64_t experts,
                   layer.whole_or("routedExpertCount", 0, UINT32_MAX, s.experts));
  ASSIGN_OR_RETURN(const uint64_t top,
                   layer.whole_or("expertsPerToken", 0, UINT32_MAX, facts.experts_per_token));
  RETURN_IF_ERROR(layer.only_flag("hasSharedExpert", false));
  if (experts != s.experts)
    return unsupported_error("a layer has {} experts, expertCount is {}", experts, s.experts);
  if (out.mixer == LayerKind::sliding_attention && window != common.window.value_or(window))
    return unsupported_error("layers slide by windows of {} and {}", *common.window, window);
  if (out.mixer == LayerKind::sliding_attention) common.window = window;
  if (top != common.experts_per_token.value_or(top))
    return unsupported_error("layers use {} and {} experts a token", *common.experts_per_token,
                             top);
  common.experts_per_token = top;
  return layer.refuse_unread();
}

Status read_layers(Section& spec, const Facts& facts, uint64_t count, GwtManifest& out) {
  ArchitectureSpec& s = out.spec;
  const LayerPattern& pattern = out.family->layers;
  for (uint64_t n = 0; n < count; ++n)
    s.layers.emplace_back((n + 1) % pattern.interval == 0 ? pattern.last : pattern.usual);
  const Json none = Json::array();
  const Json* layers = &none;
  if (spec.has("layers")) {
    ASSIGN_OR_RETURN(layers, spec.array("layers"));
  }
  if (layers->size() > count)
    return unsupported_error(
        "only {} of the model's {} layers are there; what is left is another model", count,
        layers->size());
  if (!layers->empty() && layers->size() < count)
    return corrupt_error("spec has {} layers, layerCount is {}", layers->size(), count);
  Common common;
  for (uint64_t n = 0; n < count; ++n) {
    static const Json nothing_said = Json::object();
    const Json& json = layers->empty() ? nothing_said : (*layers)[n];
    if (!json.is_object()) return corrupt_error("spec's layer {} is not an object", n);
    Section layer(json, fmt::format("manifest.json's layer {}", n));
    RETURN_IF_ERROR(read_layer(layer, facts, s, common, s.layers[n]));
  }
  s.sliding_window = static_cast<uint32_t>(common.window.value_or(0));
  s.experts_per_token = static_cast<uint32_t>(*common.experts_per_token);  // count is not 0
  return {};
}

// A key that we don't know may say that something is off; anything else could change the
// arithmetic.
bool says_nothing(const Json& value) {
  return value.is_null() || value == false || value == 0 || value == "" ||
         (value.is_structured() && value.empty());
}

Status read_spec(Section& manifest, GwtManifest& out) {
  static const Json nothing_said = Json::object();
  const Json* json = &nothing_said;
  if (manifest.has("spec")) {
    ASSIGN_OR_RETURN(json, manifest.object("spec"));
  }
  Section spec(*json, "manifest.json's spec");
  ASSIGN_OR_RETURN(const Facts* facts, find_facts(spec, out));
  ArchitectureSpec& s = out.spec;
  out.family = find_family(facts->family);
  CHECK(out.family != nullptr);
  out.names = {"layer", kModelNames, kLayerNames};
  s.family = out.family->model_type;
  s.activation = out.family->activation;
  s.swiglu_limit = out.family->swiglu_limit;
  s.router = facts->router;
  s.attention_bias = out.family->attention_bias;
  s.attention_sinks = out.family->attention_sinks;
  s.qk_norm = out.family->qk_norm;
  s.router_bias = out.family->router_bias;
  s.expert_bias = out.family->expert_bias;
  for (const auto& [key, value] :
       {std::pair("attentionBias", s.attention_bias),
        std::pair("attentionSinks", s.attention_sinks), std::pair("queryKeyNorm", s.qk_norm),
        std::pair("routerBias", s.router_bias), std::pair("expertBias", s.expert_bias)})
    RETURN_IF_ERROR(agreed_flag(spec, key, value));
  RETURN_IF_ERROR(read_dims(spec, *facts, out));
  ASSIGN_OR_RETURN(s.expert_inner, read_inner(manifest, spec, s.hidden));
  RETURN_IF_ERROR(read_constants(spec, *facts, s));
  ASSIGN_OR_RETURN(const uint64_t layers, manifest.whole("layerCount", 1, 1024));
  ASSIGN_OR_RETURN(const uint64_t experts, manifest.whole("expertCount", 1, UINT32_MAX));
  s.experts = static_cast<uint32_t>(experts);
  RETURN_IF_ERROR(read_layers(spec, *facts, layers, out));
  spec.ignore({"name", "naming"});  // of the checkpoint that Godwit read
  for (const auto& [key, value] : json->items())
    if (says_nothing(value)) spec.ignore({key});
  return spec.refuse_unread();
}

// --- The experts' sections

Result<std::optional<GwtSpan>> expert_span(Section& sections, const char* name, uint64_t bytes,
                                           uint64_t stride_bytes) {
  if (!sections.has(name)) return std::optional<GwtSpan>{};
  ASSIGN_OR_RETURN(const Json* json, sections.object(name));
  Section section(*json, fmt::format("manifest.json's section {}", name));
  GwtSpan span{};
  ASSIGN_OR_RETURN(span.offset_bytes, section.whole("offset", 0, kMaxStride));
  ASSIGN_OR_RETURN(span.bytes, section.whole("length", 0, kMaxStride));
  if (span.bytes == 0) return std::optional<GwtSpan>{};
  if (span.bytes != bytes)
    return corrupt_error("section '{}' has {} bytes, the model's take {}", name, span.bytes, bytes);
  if (!in_file(span.offset_bytes, span.bytes, stride_bytes))
    return corrupt_error("section '{}' ends past the stride of {} bytes", name, stride_bytes);
  return std::optional(span);
}

Status read_experts(Section& manifest, GwtManifest& out) {
  ArchitectureSpec& s = out.spec;
  ASSIGN_OR_RETURN(out.stride_bytes, manifest.whole("expertStride", 1, kMaxStride));
  ASSIGN_OR_RETURN(const Json* json, manifest.object("expertSections"));
  Section sections(*json, "manifest.json's expertSections");
  const uint64_t inner = s.expert_inner, hidden = s.hidden, block = kMxfp4Block;
  struct Wanted {
    const char* name;
    uint64_t bytes;
    std::optional<GwtSpan> span = {};
  };
  std::array<Wanted, 6> wanted = {{{"gate_up_blocks", 2 * inner * hidden / 2},
                                   {"gate_up_scales", 2 * inner * hidden / block},
                                   {"down_blocks", hidden * inner / 2},
                                   {"down_scales", hidden * inner / block},
                                   {"gate_up_bias", 2 * inner * 2},
                                   {"down_bias", hidden * 2}}};
  std::vector<NamedSpan> spans;
  for (size_t i = 0; i < wanted.size(); ++i) {
    Wanted& w = wanted[i];
    ASSIGN_OR_RETURN(w.span, expert_span(sections, w.name, w.bytes, out.stride_bytes));
    if (w.span)
      spans.push_back({w.name, w.span->offset_bytes, w.span->bytes});
    else if (i < 4 || s.expert_bias)  // zeros for the biases of a family without them are optional
      return not_found_error("section '{}' of the experts is missing", w.name);
  }
  RETURN_IF_ERROR(sections.refuse_unread());
  out.gate_up_blocks = *wanted[0].span, out.gate_up_scales = *wanted[1].span;
  out.down_blocks = *wanted[2].span, out.down_scales = *wanted[3].span;
  if (s.expert_bias) out.gate_up_bias = wanted[4].span, out.down_bias = wanted[5].span;
  return check_disjoint(std::move(spans));
}

Result<GwtManifest> read_manifest(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, parse_json(text, "manifest.json"));
  if (!json.is_object()) return corrupt_error("not an object");
  Section manifest(json, "manifest.json");
  ASSIGN_OR_RETURN(const uint64_t version, manifest.whole("formatVersion", 0, UINT32_MAX));
  if (version != 2) return unsupported_error("formatVersion {} is not known, only 2", version);
  GwtManifest out{};
  RETURN_IF_ERROR(read_trunk(manifest, out));
  RETURN_IF_ERROR(read_spec(manifest, out));
  RETURN_IF_ERROR(validate_spec(out.spec));
  RETURN_IF_ERROR(read_experts(manifest, out));
  return out;
}

}  // namespace

Result<GwtManifest> parse_gwt_manifest(std::string_view text) {
  auto manifest = read_manifest(text);
  if (!manifest.ok()) return named_error(std::move(manifest).error(), "manifest.json");
  return manifest;
}

std::string gwt_layer_file(uint32_t layer) {
  return fmt::format("experts/layer_{:02}.bin", layer);
}

}  // namespace wader
