// What the machine can do, measured beside the kernels: the rate of 8-bit products in registers
// or tiles, and of reads from memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace wader {

// Operations (a multiplication or an addition) of one run of independent vpdpbusd on registers; 0
// where this build has none. Call only where the back end avx512 is available.
uint64_t run_vnni_peak(uint64_t iterations);

// The same of products of whole int8 tiles (16 × 64 by 64 × 16), two tiles by two, loaded from L1.
// Call only where the back end amx is available.
uint64_t run_amx_peak(uint64_t iterations);

// Reads bytes (a multiple of 64, aligned to 16) and returns something that depends on all of them.
uint64_t read_all(const std::byte* from, size_t bytes);

}  // namespace wader
