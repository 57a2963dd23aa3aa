// What computing one token must read and multiply at least, from the shapes alone: the floor that
// measured times stand against. Pure.
#pragma once

#include <cstdint>

#include "container/container.h"

namespace wader {

// Bytes that one decoded token reads from memory, each once.
struct ActiveBytes {
  uint64_t trunk = 0;    // every trunk tensor but the embedding, of which it takes one row
  uint64_t experts = 0;  // experts_per_token records of each moe layer, without their padding
  uint64_t state = 0;    // keys and values up to its position, recurrent states
  uint64_t total() const { return trunk + experts + state; }
};

// Of a token with `position` tokens before it; keys and values of type kv_dtype.
ActiveBytes active_bytes(const Manifest& manifest, uint64_t position, DType kv_dtype);

// Multiplications and additions of the weight matrices for a prompt of `tokens` of which the last
// one gets logits: 2 for each weight and token. Attention's own products, which grow with the
// context, are not in it.
double matrix_operations(const ArchitectureSpec& spec, uint64_t tokens);

}  // namespace wader
