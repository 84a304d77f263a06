// Which Highway targets are compiled. Every file that is compiled per target includes this first.
//
// Only Highway's headers are used: its own assertions (and with them its library) are off, and the
// choice of a target is ours (simd_level.h), so that contexts in one process can differ in it.
#pragma once

#define HWY_IS_DEBUG_BUILD 0

#if defined(__x86_64__)
// The lowest level is SSE4 whatever the compiler may assume for other files: the functions of each
// target carry their instruction set as an attribute.
#define HWY_BASELINE_TARGETS HWY_SSE4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SCALAR | HWY_EMU128)
#else
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif

// Names the kernel table of one level in a file that was compiled for all targets: expands to cases
// of a switch over SimdLevel. Use it after the last target, where HWY_ONCE holds.
#if defined(__x86_64__)
#define ATTN_SIMD_TABLE_CASES(table) \
  case SimdLevel::kSse4:             \
    return &N_SSE4::table;           \
  case SimdLevel::kAvx2:             \
    return &N_AVX2::table;           \
  case SimdLevel::kAvx512:           \
    return &N_AVX3::table;
#else
#define ATTN_SIMD_TABLE_CASES(table) \
  case SimdLevel::kNeon:             \
    return &N_NEON::table;
#endif
