#include "cpu/simd_level.h"

namespace attn::cpu {
namespace {

std::vector<SimdLevel> detect() {
  std::vector<SimdLevel> levels{SimdLevel::kGeneric};
#if defined(__x86_64__)
  __builtin_cpu_init();
  // __builtin_cpu_supports also asks the operating system for the wider registers. Each level
  // needs all that Highway lets the compiler emit for it.
  const bool sse4 = __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1") &&
                    __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
                    __builtin_cpu_supports("aes");
  const bool avx2 = sse4 && __builtin_cpu_supports("avx") && __builtin_cpu_supports("avx2") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                    __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bw");
  if (sse4) levels.push_back(SimdLevel::kSse4);
  if (avx2) levels.push_back(SimdLevel::kAvx2);
  if (avx512) levels.push_back(SimdLevel::kAvx512);
#elif defined(__aarch64__)
  levels.push_back(SimdLevel::kNeon);  // part of the architecture
#endif
  return levels;
}

constexpr SimdLevel kAll[] = {SimdLevel::kGeneric, SimdLevel::kSse4, SimdLevel::kAvx2,
                              SimdLevel::kAvx512, SimdLevel::kNeon};

}  // namespace

const char* name_of(SimdLevel level) {
  switch (level) {
    case SimdLevel::kGeneric:
      return "generic";
    case SimdLevel::kSse4:
      return "sse4";
    case SimdLevel::kAvx2:
      return "avx2";
    case SimdLevel::kAvx512:
      return "avx512";
    case SimdLevel::kNeon:
      return "neon";
  }
  return "unknown";
}

bool parse_simd_level(std::string_view name, SimdLevel* level) {
  for (SimdLevel candidate : kAll) {
    if (name == name_of(candidate)) {
      *level = candidate;
      return true;
    }
  }
  return false;
}

const std::vector<SimdLevel>& available_simd_levels() {
  static const std::vector<SimdLevel> levels = detect();
  return levels;
}

SimdLevel best_simd_level() { return available_simd_levels().back(); }

}  // namespace attn::cpu
