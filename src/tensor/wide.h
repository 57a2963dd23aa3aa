// WADER_WIDE in front of a function: the same source compiled for wider vectors, chosen by the
// loader, with the same bits in all of them: its sums run in sixteen fixed lanes, and contraction
// to fused multiply-add is off (cmake/wader.cmake). Sanitizers cannot start before such resolvers
// run, so their builds keep the baseline, as compilers without target_clones do.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define WADER_WIDE __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define WADER_WIDE
#endif
