// Copies of what a strided view addresses in device memory, for checks on the host.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/cuda_context.h"

namespace attn::cuda {

// The lowest and the highest element of a view, counted from its first one. Strides may be
// negative.
struct Reach {
  int64_t low = 0, high = 0;
  Reach& add(int64_t size, int64_t stride) {
    (stride < 0 ? low : high) += (size - 1) * stride;
    return *this;
  }
  int64_t size() const { return high - low + 1; }
};

// Queues the copy of `size` elements from `source` on.
inline void read_device(const Driver& driver, void* out, const void* source, int64_t size,
                        CUstream stream) {
  check(
      driver,
      driver.MemcpyAsync(reinterpret_cast<CUdeviceptr>(out), reinterpret_cast<CUdeviceptr>(source),
                         static_cast<size_t>(size), stream),
      "cuMemcpyAsync");
}

// A view's elements in host memory, once the stream has been waited for.
template <class T>
class DeviceCopy {
 public:
  DeviceCopy() = default;
  DeviceCopy(const Driver& driver, const T* source, const Reach& reach, CUstream stream)
      : low_(reach.low), values_(static_cast<size_t>(reach.size())) {
    read_device(driver, values_.data(), source + low_,
                reach.size() * static_cast<int64_t>(sizeof(T)), stream);
  }
  // The view's first element. Valid while this object lives.
  const T* first() const { return values_.data() - low_; }

 private:
  int64_t low_ = 0;
  std::vector<T> values_;
};

}  // namespace attn::cuda
