// SIMD kernels for rows whose channels, weight and table columns lie side by side. Same bits as the
// plain loops of row_transform.cc at every level.
#pragma once

#include <cstdint>

#include "cpu/row_transform.h"
#include "cpu/simd_level.h"

namespace attn::cpu {

struct RowKernels {
  // transform_row for a position that was looked up and lies in the table (with rotary).
  void (*transform)(const RowTransformSpec& spec, const RowTransform& transform, DType type,
                    const void* src, int32_t channels, int64_t position, float* dst);
  // Rounds `count` floats to `type` (float32, float16, bfloat16).
  void (*store)(DType type, const float* src, int32_t count, void* dst);
};

// Null where there is no SIMD unit for the level (kGeneric, or not compiled in).
const RowKernels* row_kernels(SimdLevel level);

}  // namespace attn::cpu
