#include "ops/views.h"

#include "core/error.h"

namespace attn {
namespace {

// The address `elements` further on; null stays null.
void* advanced(void* data, int64_t elements, DType type) {
  if (data == nullptr || elements == 0) return data;
  const uint64_t bytes = static_cast<uint64_t>(elements) * static_cast<uint64_t>(size_of(type));
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(data) + bytes);
}

int64_t scaled_stride(int64_t stride, int64_t count, const char* name) {
  int64_t result;
  if (__builtin_mul_overflow(stride, count, &result)) {
    fail_argument(name, ": expected strides that stay within memory; the last axis has stride ",
                  stride);
  }
  return result;
}

}  // namespace

View4 heads_view(const Tensor& tensor, const char* name, int64_t head_size, int64_t first_head) {
  View4 view;
  const int64_t channel = tensor.strides[2];
  if (head_size != kAnyDim) {
    view.head = scaled_stride(channel, head_size, name);
    view.data = advanced(tensor.data, scaled_stride(view.head, first_head, name), tensor.type);
  }
  view.batch = tensor.strides[0];
  view.row = tensor.strides[1];
  view.channel = inner_stride(channel, head_size);
  view.rows = tensor.shape[1];
  return view;
}

View4 cache_view(const Tensor& tensor) {
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
