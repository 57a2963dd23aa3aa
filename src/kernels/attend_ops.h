// Attention and the store of keys and values, written once over sixteen lanes (lanes_portable.h).
// Keys and values are f16. ops.h defines the arithmetic; here beside it: a score is
// scale · (a chain of fused multiply-adds over d from +0), sixteen keys as lanes; the probabilities
// of a block are added lane by lane over its four tiles, then as a tree; l · factor + Σ p is fused,
// and so is each p · v, in order of position.
//
// A block of 64 positions is taken by all queries before the next: keys and values come from memory
// once, and each conversion from f16 serves up to eight queries, whose sums stay in registers. The
// next block is asked for while one is read, since tiles and stripes are no pattern that the CPU
// foresees: 26 GB/s for eight queries on two cores of Zen 5, 9.5 without.
#pragma once

#include "kernels/lane_math.h"
#include "kernels/ops.h"

namespace wader {
namespace {

template <typename L>
struct AttendOps {
  using M = LaneMath<L>;
  using Vec = typename L::Vec;
  static constexpr uint32_t kLanes = L::kCount;
  static constexpr uint32_t kTiles = kAttentionBlock / kKeyTile;
  static constexpr uint32_t kMostQueries = L::kAccumulators >= 16 ? 8 : 4;
  static_assert(kKeyTile == kLanes && L::kAccumulators >= kMostQueries);

  static void store_kv(const StoreKvArgs& a) {
    const size_t index = a.position % a.capacity;
    auto* k = reinterpret_cast<uint16_t*>(a.k) + index / kKeyTile * kKeyTile * a.head_dim +
              index % kKeyTile;
    auto* v = reinterpret_cast<uint16_t*>(a.v) + index * a.head_dim;
    for (uint32_t d = 0; d < a.head_dim; d += kLanes) {
      const uint32_t left = a.head_dim - d, count = left < kLanes ? left : kLanes;
      uint16_t key[kLanes];
      L::store_f16(key, saturated(M::load(a.key + d, left)));
      for (uint32_t l = 0; l < count; ++l) k[size_t{d + l} * kKeyTile] = key[l];
      L::store_f16_n(v + d, saturated(M::load(a.value + d, left)), count);
    }
  }

  static void attend(const AttendArgs& a) {
    float* const most = a.scratch;
    float* const sum = most + a.queries;
    for (uint32_t i = 0; i < a.queries; ++i) {
      most[i] = a.sinks ? a.sinks[i] : -__builtin_inff();
      sum[i] = a.sinks ? 1.0f : 0.0f;
    }
    for (size_t i = 0; i < size_t{a.queries} * a.head_dim; ++i) a.out[i] = 0;
    for (uint32_t base = a.first / kAttentionBlock * kAttentionBlock; base <= a.last;
         base += kAttentionBlock) {
      const size_t index = base % a.capacity * size_t{a.head_dim};
      const Block block{
          .most = most,
          .sum = sum,
          .k = reinterpret_cast<const uint16_t*>(a.k) + index,
          .v = reinterpret_cast<const uint16_t*>(a.v) + index,
          .begin = base < a.first ? a.first - base : 0,
          .end = a.last - base < kAttentionBlock ? a.last - base + 1 : kAttentionBlock};
      add_queries<kMostQueries>(a, block, 0);
    }
    for (uint32_t i = 0; i < a.queries; ++i) {
      float* out = a.out + size_t{i} * a.head_dim;
      for (uint32_t d = 0; d < a.head_dim; d += kLanes)
        M::store(out + d, L::div(M::load(out + d, a.head_dim - d), L::set1(sum[i])),
                 a.head_dim - d);
    }
  }

 private:
  // Places [begin, end) of a block's 64 are asked for; what stands at the others may be anything.
  struct Block {
    float* most;  // (queries): m
    float* sum;   // (queries): l
    const uint16_t* k;
    const uint16_t* v;
    uint32_t begin, end;
  };

  static Vec saturated(Vec x) {  // the second operand stays where it is NaN
    return L::min(L::set1(65504.0f), L::max(L::set1(-65504.0f), x));
  }

  template <uint32_t kQueries>
  static void add_queries(const AttendArgs& a, const Block& block, uint32_t query) {
    for (; query + kQueries <= a.queries; query += kQueries) add_block<kQueries>(a, block, query);
    if constexpr (kQueries > 1) add_queries<kQueries / 2>(a, block, query);
  }

  template <uint32_t kQueries>
  static void add_block(const AttendArgs& a, const Block& block, uint32_t query) {
    // Tiles of keys, and vectors of values, whose sums for all these queries stay in registers.
    constexpr uint32_t kWide = M::power_of_two(L::kAccumulators / kQueries, 8);
    constexpr uint32_t kWideTiles = kWide < kTiles ? kWide : kTiles;
    float p[kQueries][kAttentionBlock];
    score_tiles<kQueries, kWideTiles>(a, block, query, p, block.begin / kKeyTile,
                                      (block.end - 1) / kKeyTile + 1);
    float* most = block.most + query;
    float* sum = block.sum + query;
    float before[kLanes] = {}, now[kLanes] = {}, added[kLanes] = {}, factor[kLanes];
    for (uint32_t i = 0; i < kQueries; ++i) {
      before[i] = most[i];
      added[i] = to_probabilities(p[i], block, most[i]);
      now[i] = most[i];
    }
    const Vec decay = M::exp(L::sub(L::load(before), L::load(now)));
    L::store(factor, decay);
    L::store_n(sum, L::fma(L::load_n(sum, kQueries), decay, L::load(added)), kQueries);

    float* out = a.out + size_t{query} * a.head_dim;
    M::template in_stripes<kWide>(0, a.head_dim, [&](auto count, uint32_t at) {
      add_values<kQueries, decltype(count)::value>(out, p, factor, block, at, a.head_dim);
    });
  }

  template <uint32_t kQueries, uint32_t kWide>
  static void score_tiles(const AttendArgs& a, const Block& block, uint32_t query,
                          float (&scores)[kQueries][kAttentionBlock], uint32_t tile, uint32_t end) {
    const float* q = a.q + query * size_t{a.head_dim};
    const size_t tile_size = size_t{kKeyTile} * a.head_dim;
    for (; tile + kWide <= end; tile += kWide) {
      const uint16_t* k = block.k + tile * tile_size;
      Vec acc[kQueries][kWide], key[kWide];
      for (uint32_t i = 0; i < kQueries; ++i)
        for (uint32_t t = 0; t < kWide; ++t) acc[i][t] = L::zero();
      for (uint32_t d = 0; d < a.head_dim; ++d, k += kKeyTile) {
        for (uint32_t t = 0; t < kWide; ++t) __builtin_prefetch(k + (kTiles + t) * tile_size);
        for (uint32_t t = 0; t < kWide; ++t) key[t] = L::load_f16(k + t * tile_size);
        for (uint32_t i = 0; i < kQueries; ++i) {
          const Vec of_query = L::set1(q[i * size_t{a.head_dim} + d]);
          for (uint32_t t = 0; t < kWide; ++t) acc[i][t] = L::fma(of_query, key[t], acc[i][t]);
        }
      }
      for (uint32_t i = 0; i < kQueries; ++i)
        for (uint32_t t = 0; t < kWide; ++t)
          L::store(scores[i] + (tile + t) * kKeyTile, L::mul(acc[i][t], L::set1(a.scale)));
    }
    if constexpr (kWide > 1) score_tiles<kQueries, kWide / 2>(a, block, query, scores, tile, end);
  }

  // One query's scores become e^(s − m'), 0 at places not asked for. `most` becomes m'; gives their
  // sum.
  static float to_probabilities(float (&scores)[kAttentionBlock], const Block& block, float& most) {
    const Vec none = L::set1(-__builtin_inff());
    if (block.begin > 0 || block.end < kAttentionBlock) {
      const Vec begin = L::set1(static_cast<float>(block.begin));
      const Vec end = L::set1(static_cast<float>(block.end));
      float places[kLanes];
      for (uint32_t t = 0; t < kTiles; ++t) {
        for (uint32_t l = 0; l < kLanes; ++l) places[l] = static_cast<float>(t * kKeyTile + l);
        const Vec place = L::load(places);
        const bool scored = t >= block.begin / kKeyTile && t * kKeyTile < block.end;
        const Vec score = scored ? L::load(scores + t * kKeyTile) : none;
        L::store(scores + t * kKeyTile,
                 L::select_less(place, begin, none, L::select_less(place, end, score, none)));
      }
    }
    Vec score[kTiles], top = none;
    for (uint32_t t = 0; t < kTiles; ++t) {
      score[t] = L::load(scores + t * kKeyTile);
      top = L::max(score[t], top);  // a NaN is passed over, and shows in its own e^
    }
    const float block_most = L::max_of(top);
    most = most > block_most ? most : block_most;
    Vec sum = L::zero();
    for (uint32_t t = 0; t < kTiles; ++t) {
      const Vec p = M::exp(L::sub(score[t], L::set1(most)));
      L::store(scores + t * kKeyTile, p);
      sum = L::add(sum, p);
    }
    return L::add_as_tree(sum);
  }

  template <uint32_t kCount>
  static Vec load_values(const uint16_t* row, uint32_t v, uint32_t left) {
    if constexpr (kCount == 0)
      return L::load_f16_n(row, left);
    else
      return L::load_f16(row + v * kLanes);
  }

  // A function of its own: inlined with the rest, g++ 12 keeps the values on the stack, at half the
  // speed.
  template <uint32_t kQueries, uint32_t kCount>
  [[gnu::noinline]] static void add_values(float* out, const float (&p)[kQueries][kAttentionBlock],
                                           const float* factor, const Block& block, uint32_t at,
                                           uint32_t head_dim) {
    constexpr uint32_t kVectors = M::vectors_of(kCount);
    Vec acc[kQueries][kVectors], value[kVectors];
    for (uint32_t i = 0; i < kQueries; ++i)
      for (uint32_t v = 0; v < kVectors; ++v)
        acc[i][v] =
            L::mul(M::template stripe_load<kCount>(out + i * size_t{head_dim}, at, v, head_dim),
                   L::set1(factor[i]));
    const uint16_t* row = block.v + size_t{block.begin} * head_dim + at;
    for (uint32_t j = block.begin; j < block.end; ++j, row += head_dim) {
      for (uint32_t v = 0; v < kVectors; ++v)
        __builtin_prefetch(row + size_t{kAttentionBlock} * head_dim + v * kLanes);
      for (uint32_t v = 0; v < kVectors; ++v) value[v] = load_values<kCount>(row, v, head_dim - at);
      for (uint32_t i = 0; i < kQueries; ++i) {
        const Vec weight = L::set1(p[i][j]);
        for (uint32_t v = 0; v < kVectors; ++v) acc[i][v] = L::fma(weight, value[v], acc[i][v]);
      }
    }
    for (uint32_t i = 0; i < kQueries; ++i)
      for (uint32_t v = 0; v < kVectors; ++v)
        M::template stripe_store<kCount>(out + i * size_t{head_dim}, at, v, head_dim, acc[i][v]);
  }
};

}  // namespace
}  // namespace wader
