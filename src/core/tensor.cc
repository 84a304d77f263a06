#include "core/tensor.h"

#include <limits>

#include "core/error.h"

namespace attn {

int64_t Tensor::elements() const {
  bool unknown = false;
  int64_t count = 1;
  for (int32_t axis = 0; axis < rank; ++axis) {
    const int64_t size = shape[axis];
    if (size == 0) return 0;
    if (size == kAnyDim) {
      unknown = true;
    } else if (__builtin_mul_overflow(count, size, &count)) {
      count = std::numeric_limits<int64_t>::max();  // more than any memory; a later zero still wins
    }
  }
  return unknown ? kAnyDim : count;
}

// Axes of size 1 do not count, and what an unknown size leaves open is taken as contiguous.
bool Tensor::contiguous() const {
  if (elements() == 0) return true;
  int64_t expected = 1;
  for (int32_t axis = rank - 1; axis >= 0; --axis) {
    const int64_t size = shape[axis];
    if (size == 1) continue;
    if (strides[axis] != expected) return false;
    if (size == kAnyDim) return true;
    if (__builtin_mul_overflow(expected, size, &expected)) return false;
  }
  return true;
}

std::string shape_text(const Tensor& tensor) {
  std::string text = "(";
  for (int32_t axis = 0; axis < tensor.rank; ++axis) {
    if (axis > 0) text += ", ";
    if (tensor.shape[axis] == kAnyDim) {
      text += '?';
    } else {
      detail::append(text, tensor.shape[axis]);
    }
  }
  text += ')';
  return text;
}

bool Arguments::aliases(int input, int output) const {
  const Tensor& from = in[static_cast<size_t>(input)];
  const Tensor& to = out[static_cast<size_t>(output)];
  if (!from.present || !to.present) return false;
  if (from.data != nullptr && to.data != nullptr) return from.data == to.data;
  return ((alias[static_cast<size_t>(output)] >> input) & 1u) != 0;
}

}  // namespace attn
