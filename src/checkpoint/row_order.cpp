#include "checkpoint/row_order.h"

#include "base/check.h"

namespace wader {
namespace {

// One block of `take` rows out of each of `groups` groups of `group_rows`, `skip` rows into it.
void append_blocks(uint64_t groups, uint64_t group_rows, uint64_t skip, uint64_t take, uint64_t to,
                   std::vector<RowRun>& runs) {
  for (uint64_t group = 0; group < groups; ++group)
    runs.push_back({group * group_rows + skip, take, to + group * take, 1});
}

}  // namespace

uint64_t released_rows(RowOrder order, const ArchitectureSpec& spec, uint64_t rows) {
  switch (order) {
    case RowOrder::same:
    case RowOrder::halves:
      return rows;
    case RowOrder::even:
    case RowOrder::odd:
      return rows / 2;
    case RowOrder::head_query:
    case RowOrder::head_gate:
      return 2 * rows;
    case RowOrder::group_qkv:
    case RowOrder::group_z:
      return spec.delta.conv_width() + spec.delta.value_width();
    case RowOrder::group_b:
    case RowOrder::group_a:
      return 2 * rows;
  }
  UNREACHABLE("row order");
}

std::vector<RowRun> row_runs(RowOrder order, const ArchitectureSpec& spec, uint64_t rows) {
  const uint64_t groups = spec.delta.key_heads, dk = spec.delta.key_dim;
  const uint64_t per_key = groups == 0 ? 0 : spec.delta.value_heads / groups;
  const uint64_t values = per_key * spec.delta.value_dim, group_rows = 2 * dk + 2 * values;
  std::vector<RowRun> runs;
  switch (order) {
    case RowOrder::same:
      return {{0, rows, 0, 1}};
    case RowOrder::even:
      return {{0, rows / 2, 0, 2}};
    case RowOrder::odd:
      return {{0, rows / 2, 1, 2}};
    case RowOrder::halves:
      return {{0, rows / 2, 0, 2}, {rows / 2, rows / 2, 1, 2}};
    case RowOrder::head_query:
    case RowOrder::head_gate:
      append_blocks(spec.query_heads, 2 * spec.head_dim,
                    order == RowOrder::head_query ? 0 : spec.head_dim, spec.head_dim, 0, runs);
      return runs;
    case RowOrder::group_qkv:
      append_blocks(groups, group_rows, 0, dk, 0, runs);
      append_blocks(groups, group_rows, dk, dk, groups * dk, runs);
      append_blocks(groups, group_rows, 2 * dk, values, 2 * groups * dk, runs);
      return runs;
    case RowOrder::group_z:
      append_blocks(groups, group_rows, 2 * dk + values, values, 0, runs);
      return runs;
    case RowOrder::group_b:
    case RowOrder::group_a:
      append_blocks(groups, 2 * per_key, order == RowOrder::group_b ? 0 : per_key, per_key, 0,
                    runs);
      return runs;
  }
  UNREACHABLE("row order");
}

}  // namespace wader
