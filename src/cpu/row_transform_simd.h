// SIMD kernels for rows whose channels, weight and table columns lie side by side. Same bits as the
// plain loops of row_transform.cc at every level.
#pragma once

#include <cstdint>

#include "cpu/row_transform.h"
#include "cpu/simd_level.h"

namespace attn::cpu {

// Rows to be transformed in one call: at each address `channels` elements of `type` (float32,
// float16, bfloat16). A position outside the table leaves the row unrotated.
struct RowBatch {
  DType type{};
  int32_t channels = 0;
  int count = 0;
  const void* const* source = nullptr;  // (count)
  const int64_t* position = nullptr;    // (count); explicit positions already looked up
};

struct RowKernels {
  // The rows as floats that `type` can hold, times `scale`, `stride` floats apart. Scales of 1 and
  // specs that do nothing leave what they do not touch as it is, to the bit.
  void (*to_floats)(const RowBatch& rows, const RowTransformSpec& spec,
                    const RowTransform& transform, float scale, float* dst, int64_t stride);
  // The rows in their own type, `stride` elements apart; spec.any() is true.
  void (*to_rows)(const RowBatch& rows, const RowTransformSpec& spec, const RowTransform& transform,
                  void* dst, int64_t stride);
  // Rounds `count` floats to `type` (float32, float16, bfloat16).
  void (*store)(DType type, const float* src, int32_t count, void* dst);
};

// Null where there is no SIMD unit for the level (kGeneric, or not compiled in).
const RowKernels* row_kernels(SimdLevel level);

}  // namespace attn::cpu
