// Attributes that the standard's Attention and the operators for sequences of different lengths
// have in common. Each throws Error for a value that is not accepted.
#pragma once

#include <limits>

#include "core/error.h"
#include "ops/operator.h"

namespace attn {

// An INT of 0 or 1.
inline bool flag_of(const Attributes& attributes, const char* name) {
  const int64_t value = attributes.integer(name, 0);
  if (value != 0 && value != 1) {
    fail_argument("attribute '", name, "': expected 0 or 1; got ", value);
  }
  return value == 1;
}

inline int32_t head_count_of(const Attributes& attributes, const char* name) {
  const int64_t count = attributes.integer(name, 0);
  if (count < 1 || count > std::numeric_limits<int32_t>::max()) {
    fail_argument("attribute '", name, "': expected 1 to ", std::numeric_limits<int32_t>::max(),
                  "; got ", count);
  }
  return static_cast<int32_t>(count);
}

// The literal factor of the scores; attributes are float32 in a model.
inline double literal_scale_of(const Attributes& attributes) {
  const auto scale = static_cast<float>(attributes.real("scale", 0));
  if (!(scale >= 0)) fail_argument("attribute 'scale': expected 0 or more; got ", scale);
  return scale;
}

inline double softcap_of(const Attributes& attributes) {
  const double value = attributes.real("softcap", 0);
  const auto softcap = static_cast<float>(value);
  if (!(softcap >= 0) || (softcap == 0 && value != 0)) {
    fail_argument("attribute 'softcap': expected 0 (off) or a positive float32; got ", value);
  }
  return softcap;
}

inline int64_t window_of(const Attributes& attributes, const char* name) {
  const int64_t window = attributes.integer(name, -1);
  if (window < -1) {
    fail_argument("attribute '", name, "': expected -1 (no window) or more; got ", window);
  }
  return window;
}

}  // namespace attn
