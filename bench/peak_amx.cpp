// Compiled for AMX: nothing but intrinsics, as in kernels/amx.cpp.

#include "peak.h"

#if defined(__AMX_INT8__)
#include <immintrin.h>

namespace wader {

uint64_t run_amx_peak(uint64_t iterations) {
  struct alignas(64) {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } config{};
  config.palette = 1;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = 64;
    config.rows[tile] = 16;
  }
  alignas(64) int8_t operands[4][16][64];
  for (auto& tile : operands)
    for (auto& row : tile)
      for (int8_t& value : row) value = 3;
  // The intrinsics tell the compiler nothing of the memory that they read.
  __asm__ volatile("" : : "r"(&config), "r"(operands) : "memory");
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (uint64_t n = 0; n < iterations; ++n) {  // two tiles by two, so that each load serves twice
    _tile_loadd(4, operands[0], 64);
    _tile_loadd(6, operands[2], 64);
    _tile_loadd(7, operands[3], 64);
    _tile_dpbsud(0, 4, 6);
    _tile_dpbsud(1, 4, 7);
    _tile_loadd(5, operands[1], 64);
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
  }
  _tile_release();
  return iterations * 4 * 16 * 16 * 64 * 2;
}

}  // namespace wader
#else
namespace wader {
uint64_t run_amx_peak(uint64_t) {
  return 0;
}
}  // namespace wader
#endif
