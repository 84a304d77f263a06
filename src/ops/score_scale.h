// The factor of scores and of linear attention's outputs where the caller gives none.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/float_environment.h"
#include "core/tensor.h"

namespace attn {

// 1 / sqrt(D). A function of its own, so that nothing of it moves out of the FloatEnvironment.
[[gnu::noinline]] inline double root_scale(int64_t head_size) {
  return 1.0 / std::sqrt(static_cast<double>(head_size));
}

// `scale` where it is given, else 1 / sqrt(D), the same number however the caller's thread rounds.
// An unknown head size leaves `scale` as it is.
inline double scale_or_default(bool given, double scale, int64_t head_size) {
  if (given || head_size == kAnyDim) return scale;
  const FloatEnvironment environment;
  return root_scale(head_size);
}

}  // namespace attn
