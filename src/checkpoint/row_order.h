// Which rows of a released matrix are which rows of the canonical one. Families pack projections
// together in their own ways; a packing is a list of runs of rows.
#pragma once

#include <cstdint>
#include <vector>

#include "arch/spec.h"

namespace wader {

// D head_dim; per key head dk key_dim, dv value_dim, r = value_heads / key_heads.
enum class RowOrder : uint8_t {
  same,
  even,        // every released row is one of gate: rows 0, 2, 4, … of gate_up
  odd,         // … of up: rows 1, 3, 5, …
  halves,      // all gate rows, then all up rows
  head_query,  // per query head [query D | gate D]: the query's
  head_gate,   // … the gate's
  group_qkv,   // per key head [q dk | k dk | v r·dv | z r·dv]: q, k and v, each as one block
  group_z,     // … z
  group_b,     // per key head [b r | a r]: b
  group_a,     // … a
};

// Released rows [from, from + rows) are canonical rows to, to + step, ….
struct RowRun {
  uint64_t from, rows, to, step;
};

// Rows that the released matrix has when the canonical one has `rows`.
uint64_t released_rows(RowOrder order, const ArchitectureSpec& spec, uint64_t rows);

// In the order of the released rows. even and odd give their half of the canonical rows, all others
// every row once. `spec` is validated and has the parts that the order is about.
std::vector<RowRun> row_runs(RowOrder order, const ArchitectureSpec& spec, uint64_t rows);

}  // namespace wader
