// Sizes that follow from a caller's bounds, which may be any.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace attn {

// More than any machine addresses, and little enough to add several.
inline constexpr int64_t kMostBytes = int64_t{1} << 60;

// The product of factors that are not negative, at most kMostBytes.
inline size_t bounded_product(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (factor == 0) return 0;
    product = product > kMostBytes / factor ? kMostBytes : product * factor;
  }
  return static_cast<size_t>(std::min(product, kMostBytes));
}

}  // namespace attn
