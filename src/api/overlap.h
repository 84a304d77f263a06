// Whether two strided tensors have a byte in common.
#pragma once

#include "core/tensor.h"

namespace attn::api {

// True only if some element of `a` shares a byte with some element of `b`: merely interleaved
// views, such as the K and the V half of one cache buffer, do not. The search is exact for tensors
// whose strides nest, as those of slices, transposes and broadcasts do; for others it gives up
// after a bounded number of steps and says false. Both must have data and elements.
bool provably_overlap(const Tensor& a, const Tensor& b);

}  // namespace attn::api
