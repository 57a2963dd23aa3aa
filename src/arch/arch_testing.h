// Specs for tests: one of GPT-OSS's parts, one of the hybrids', small enough to compute with.
#pragma once

#include "arch/spec.h"
#include "arch/tensors.h"

namespace wader::testing {

// Sliding and full attention, biases, sinks, YaRN, MXFP4-sized experts.
inline ArchitectureSpec small_attention_spec() {
  ArchitectureSpec spec{};
  spec.family = "gpt_oss";
  spec.vocab_rows = 96;
  spec.hidden = 64;
  spec.query_heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = spec.rotary_dim = 16;
  spec.experts = 8;
  spec.experts_per_token = 2;
  spec.expert_inner = 32;
  spec.sliding_window = 8;
  spec.max_context = 512;
  spec.norm_eps = 1e-5;
  spec.rope = {150000, Yarn{32, 64, 32, 1, false, 1.3465735902799727}};
  spec.layers = {LayerKind::sliding_attention, LayerKind::full_attention};
  spec.activation = Activation::swiglu_clamped;
  spec.swiglu_limit = 7;
  spec.router = RouterRule::topk_then_softmax;
  spec.attention_bias = spec.attention_sinks = spec.router_bias = spec.expert_bias = true;
  return spec;
}

// DeltaNet and gated full attention with partial rotation, a shared expert, a dense layer.
inline ArchitectureSpec small_hybrid_spec() {
  ArchitectureSpec spec{};
  spec.family = "qwen3_next";
  spec.vocab_rows = 96;
  spec.hidden = 64;
  spec.query_heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 16;
  spec.rotary_dim = 4;
  spec.experts = 8;
  spec.experts_per_token = 2;
  spec.expert_inner = spec.shared_inner = 32;
  spec.dense_inner = 64;
  spec.max_context = 512;
  spec.norm_eps = 1e-6;
  spec.rope = {1e7, {}};
  spec.delta = {.key_heads = 2, .value_heads = 4, .key_dim = 16, .value_dim = 16, .conv_kernel = 4};
  spec.layers = {
      {LayerKind::delta_net, FfnKind::dense}, {LayerKind::delta_net}, {LayerKind::full_attention}};
  spec.activation = Activation::swiglu;
  spec.router = RouterRule::softmax_then_topk_renormalised;
  spec.attention_gate = spec.qk_norm = true;
  return spec;
}

}  // namespace wader::testing
