// The instruction sets that CPU engines are compiled for, and which of them this machine has.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace attn::cpu {

// Ascending within one architecture. kGeneric is plain C++: only engines without SIMD run at it.
enum class SimdLevel : uint8_t { kGeneric, kSse4, kAvx2, kAvx512, kNeon };

// "generic", "sse4", "avx2", "avx512", "neon".
const char* name_of(SimdLevel level);

// The level with this name; false (and `level` untouched) for an unknown name.
bool parse_simd_level(std::string_view name, SimdLevel* level);

// Levels that were compiled in and that this machine runs, best last; kGeneric is always first.
// The machine is asked once; thread-safe.
const std::vector<SimdLevel>& available_simd_levels();

// The last of available_simd_levels().
SimdLevel best_simd_level();

}  // namespace attn::cpu
