#include "checkpoint/row_order.h"

#include <gtest/gtest.h>

#include <utility>

#include "arch/arch_testing.h"

namespace wader {
namespace {

// How often each canonical and each released row is named.
std::pair<std::vector<int>, std::vector<int>> counts(const std::vector<RowOrder>& orders,
                                                     const ArchitectureSpec& spec, uint64_t rows) {
  std::vector<int> to(rows), from(released_rows(orders[0], spec, rows));
  for (const RowOrder order : orders)
    for (const RowRun& run : row_runs(order, spec, rows))
      for (uint64_t i = 0; i < run.rows; ++i)
        ++to.at(run.to + i * run.step), ++from.at(run.from + i);
  return {to, from};
}

TEST(RowOrder, OneMatrixGivesEveryRowOnce) {
  const ArchitectureSpec spec = testing::small_hybrid_spec();
  for (const RowOrder order : {RowOrder::same, RowOrder::halves}) {
    const auto [to, from] = counts({order}, spec, 64);
    EXPECT_EQ(to, std::vector<int>(64, 1));
    EXPECT_EQ(from, std::vector<int>(64, 1));
  }
  // gate and up are two released matrices: together they fill the canonical one.
  EXPECT_EQ(counts({RowOrder::even, RowOrder::odd}, spec, 64).first, std::vector<int>(64, 1));
  EXPECT_EQ(released_rows(RowOrder::odd, spec, 64), 32u);
}

// Several canonical matrices share a released one: each of its rows is in exactly one of them.
TEST(RowOrder, SharedMatricesAreTakenApartWhole) {
  const ArchitectureSpec spec = testing::small_hybrid_spec();
  const auto [query, from_q] = counts({RowOrder::head_query}, spec, spec.query_width());
  const auto [both, from_both] =
      counts({RowOrder::head_query, RowOrder::head_gate}, spec, spec.query_width());
  EXPECT_EQ(query, std::vector<int>(64, 1));
  EXPECT_EQ(both, std::vector<int>(64, 2));
  EXPECT_EQ(from_both, std::vector<int>(128, 1));

  std::vector<int> from(released_rows(RowOrder::group_qkv, spec, spec.delta.conv_width()));
  for (const auto& [order, rows] : {std::pair(RowOrder::group_qkv, spec.delta.conv_width()),
                                    std::pair(RowOrder::group_z, spec.delta.value_width())}) {
    const auto [to, part] = counts({order}, spec, rows);
    EXPECT_EQ(to, std::vector<int>(rows, 1));
    for (size_t i = 0; i < from.size(); ++i) from[i] += part.at(i);
  }
  EXPECT_EQ(from, std::vector<int>(from.size(), 1));
  EXPECT_EQ(counts({RowOrder::group_b, RowOrder::group_a}, spec, 4).second, std::vector<int>(8, 1));
}

// 2 key heads of 16, 4 value heads of 16: a group is [q 16 | k 16 | v 32 | z 32].
TEST(RowOrder, GroupsByHand) {
  const ArchitectureSpec spec = testing::small_hybrid_spec();
  const auto runs = row_runs(RowOrder::group_qkv, spec, 128);
  ASSERT_EQ(runs.size(), 6u);
  const auto is = [](const RowRun& run, uint64_t from, uint64_t rows, uint64_t to) {
    return run.from == from && run.rows == rows && run.to == to && run.step == 1;
  };
  EXPECT_TRUE(is(runs[0], 0, 16, 0));     // q of key head 0
  EXPECT_TRUE(is(runs[1], 96, 16, 16));   // q of key head 1
  EXPECT_TRUE(is(runs[2], 16, 16, 32));   // k of key head 0
  EXPECT_TRUE(is(runs[3], 112, 16, 48));  // k of key head 1
  EXPECT_TRUE(is(runs[4], 32, 32, 64));   // v of value heads 0 and 1, which use key head 0
  EXPECT_TRUE(is(runs[5], 128, 32, 96));  // v of value heads 2 and 3
  const auto b = row_runs(RowOrder::group_b, spec, 4), a = row_runs(RowOrder::group_a, spec, 4);
  EXPECT_TRUE(is(b[1], 4, 2, 2));
  EXPECT_TRUE(is(a[1], 6, 2, 2));
}

}  // namespace
}  // namespace wader
