// The tile registers of the processor. Tiles are 16 rows of 64 bytes.
//
// Written as assembly, so that the file needs no flag of its own: the compiler never touches tile
// registers by itself, and the library goes on working where there are none.
#pragma once

#include <cstdint>

#include "hwy/base.h"

namespace attn::cpu {

// All members need amx_state() to be usable.
class HardwareTiles {
 public:
  // Takes the calling thread's tiles for as long as it lives, and leaves them configured as they
  // were, without what they held.
  HardwareTiles() {
    asm volatile("sttilecfg %0" : "=m"(before_));
    Config all;
    all.palette = 1;
    for (int t = 0; t < 8; ++t) {
      all.row_bytes[t] = 64;
      all.rows[t] = 16;
    }
    asm volatile("ldtilecfg %0" : : "m"(all));
  }
  ~HardwareTiles() {
    if (before_.palette != 0) {
      asm volatile("ldtilecfg %0" : : "m"(before_));
    } else {
      asm volatile("tilerelease");
    }
  }
  HardwareTiles(const HardwareTiles&) = delete;
  HardwareTiles& operator=(const HardwareTiles&) = delete;

  template <int kTile>
  HWY_INLINE void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  // From 1 KB of memory.
  template <int kTile>
  HWY_INLINE void load(const uint16_t* from) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(from), "r"(int64_t{64}), "i"(kTile)
                 : "memory");
  }
  // Floats; `stride` counts them.
  template <int kTile>
  HWY_INLINE void store(float* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 :
                 : "r"(to), "r"(4 * stride), "i"(kTile)
                 : "memory");
  }
  // sum[r][c] += the sum over k of left[r][k] * right[c][k], in the layout of attention_amx.h.
  template <int kSum, int kLeft, int kRight>
  HWY_INLINE void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kLeft), "i"(kRight));
  }

 private:
  struct alignas(64) Config {
    uint8_t palette = 0;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  };
  Config before_;
};

}  // namespace attn::cpu
