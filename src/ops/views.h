// From tensors to the strided views of problems. Used on every execute: nothing allocates.
#pragma once

#include <cstdint>

#include "core/problem.h"
#include "core/tensor.h"

namespace attn {

// The stride of an axis of this size; one that has a single element counts as having stride 1.
inline int64_t inner_stride(int64_t stride, int64_t size) { return size == 1 ? 1 : stride; }

// The stride along an axis that is broadcast where its size is 1.
inline int64_t broadcast_stride(const Tensor& tensor, int axis) {
  const size_t i = static_cast<size_t>(axis);
  return tensor.shape[i] == 1 ? 0 : tensor.strides[i];
}

// Heads [first_head, ...) of a (B, rows, heads * channels) tensor. An unknown head size leaves the
// stride of heads 0. Throws Error (`name` is the argument) when that stride does not fit int64.
View4 heads_view(const Tensor& tensor, const char* name, int64_t head_size, int64_t first_head);

// A (B, heads, rows, channels) tensor.
View4 cache_view(const Tensor& tensor);

}  // namespace attn
