// From the caller's attn_tensor to the library's Tensor: every rule that needs no operator.
#pragma once

#include <cstdint>

#include "attn_c.h"
#include "core/tensor.h"

namespace attn::api {

// What a description is taken for.
enum class Intake : uint8_t {
  kShapes,   // query and inference: unknown sizes are legal
  kPlan,     // sizes are known; here and in queries unstated strides mean row-major without data
  kExecute,  // as kPlan, and the data must be there
};

// The device that tensors must be within reach of.
struct DeviceIdentity {
  int32_t type = ATTN_DEVICE_CPU;
  int32_t id = 0;
};

// Host addresses [begin, end) that a tensor's elements span; empty without data or elements.
struct ByteRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  bool intersects(const ByteRange& other) const {
    const uintptr_t first = begin > other.begin ? begin : other.begin;
    const uintptr_t last = end < other.end ? end : other.end;
    return first < last && begin < end && other.begin < other.end;
  }
};

// Checks `source` and fills `tensor` (and `range`). Strides of axes without a second element are
// replaced by row-major ones, so that they never matter. Throws INVALID_ARGUMENT, or VERSION for a
// newer struct, with `name` in front.
void take_tensor(const attn_tensor* source, const char* name, Intake intake, bool is_output,
                 const DeviceIdentity& device, Tensor& tensor, ByteRange& range);

// Throws INVALID_ARGUMENT for more bytes than 64 bits count. Zero sizes are left out: the products
// of the others appear in strides and offsets too.
void check_bytes(const char* name, const Tensor& tensor);

// Row-major strides; 0 to the left of an unknown size. At most kMaxRank axes.
void set_row_major_strides(Tensor& tensor);

}  // namespace attn::api
