// From tensors to the strided views of problems. Used on every execute: inline, nothing allocates.
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

// Whether both tensors, which have one shape, have each element at the same place; axes of one
// element aside.
inline bool same_strides(const Tensor& a, const Tensor& b) {
  for (int32_t i = 0; i < a.rank; ++i) {  // an unknown size leaves strides unknown
    const size_t axis = static_cast<size_t>(i);
    if (a.shape[axis] == kAnyDim || b.shape[axis] == kAnyDim) return true;
  }
  for (int32_t i = 0; i < a.rank; ++i) {
    const size_t axis = static_cast<size_t>(i);
    if (a.shape[axis] > 1 && a.strides[axis] != b.strides[axis]) return false;
  }
  return true;
}

// Refuses a last axis whose stride, times the channels before a head, does not fit int64.
[[noreturn]] void fail_stride(const char* name, int64_t stride);

// Heads [first_head, ...) of a (B, rows, heads * channels) tensor. An unknown head size leaves the
// stride of heads 0. Throws Error (`name` is the argument) when that stride does not fit int64.
inline View4 heads_view(const Tensor& tensor, const char* name, int64_t head_size,
                        int64_t first_head) {
  View4 view;
  view.data = tensor.data;
  view.batch = tensor.strides[0];
  view.row = tensor.strides[1];
  view.channel = inner_stride(tensor.strides[2], head_size);
  view.rows = tensor.shape[1];
  if (head_size == kAnyDim) return view;
  int64_t offset;  // elements
  if (__builtin_mul_overflow(tensor.strides[2], head_size, &view.head) ||
      __builtin_mul_overflow(view.head, first_head, &offset)) {
    fail_stride(name, tensor.strides[2]);
  }
  if (tensor.data != nullptr && offset != 0) {
    const uint64_t bytes =
        static_cast<uint64_t>(offset) * static_cast<uint64_t>(size_of(tensor.type));
    view.data = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(tensor.data) + bytes);
  }
  return view;
}

// A (B, heads, rows, channels) tensor.
inline View4 cache_view(const Tensor& tensor) {
  View4 view;
  view.data = tensor.data;
  view.batch = tensor.strides[0];
  view.head = tensor.strides[1];
  view.row = tensor.strides[2];
  view.channel = inner_stride(tensor.strides[3], tensor.shape[3]);
  view.rows = tensor.shape[2];
  return view;
}

}  // namespace attn
