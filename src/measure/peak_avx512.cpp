// Compiled for AVX-512 VNNI: nothing but intrinsics, as in kernels/avx512.cpp.

#include "measure/peak.h"

#if defined(__AVX512VNNI__)
#include <immintrin.h>

namespace wader {

uint64_t run_vnni_peak(uint64_t iterations) {
  constexpr int kChains = 16;  // more than latency times issue width
  __m512i sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_epi32(i);
  __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
  for (uint64_t n = 0; n < iterations; ++n) {
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
    __asm__ volatile("" : "+v"(a), "+v"(b));
  }
  for (int i = 1; i < kChains; ++i) sums[0] = _mm512_add_epi32(sums[0], sums[i]);
  __asm__ volatile("" : : "v"(sums[0]));
  return iterations * kChains * 64 * 2;
}

}  // namespace wader
#else
namespace wader {
uint64_t run_vnni_peak(uint64_t) {
  return 0;
}
}  // namespace wader
#endif
