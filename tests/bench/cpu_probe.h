// The kernels of cpu_probe.cc for one SIMD level.
#pragma once

#include <cstdint>

namespace probe {

struct Kernels {
  uint32_t (*read)(const uint8_t* from, int64_t bytes);  // the bits of all bytes together
  float (*multiply_add)(int64_t count);                  // does `count` rounds
  int64_t flops;                                         // of a round
};

}  // namespace probe
