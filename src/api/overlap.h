// Whether two strided tensors, or two elements of one, have a byte in common.
#pragma once

#include "core/tensor.h"

namespace attn::api {

// True only if some element of `a` shares a byte with some element of `b`: merely interleaved
// views, such as the K and the V half of one cache buffer, do not. The search is exact for tensors
// whose strides nest, as those of slices, transposes and broadcasts do; for others it gives up
// after a bounded number of steps and says false. Both must have data and elements.
bool provably_overlap(const Tensor& a, const Tensor& b);

// True only if two elements of `tensor` lie at one place. As exact as the other search; sizes must
// be known and not 0, data is not looked at.
bool provably_overlaps_itself(const Tensor& tensor);

}  // namespace attn::api
