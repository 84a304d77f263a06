// Products of a caller's bounds never wrap.
#include "core/bounded_product.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace attn {
namespace {

TEST(CoreBoundedProduct, IsTheProductAsLongAsItFits) {
  EXPECT_EQ(bounded_product({}), 1u);
  EXPECT_EQ(bounded_product({3, 5, 7}), 105u);
  EXPECT_EQ(bounded_product({int64_t{1} << 40, 0, int64_t{1} << 40}), 0u);
  EXPECT_EQ(bounded_product({int64_t{1} << 30, int64_t{1} << 29}), uint64_t{1} << 59);
}

TEST(CoreBoundedProduct, StopsAtTheMost) {
  const auto most = static_cast<size_t>(kMostBytes);
  EXPECT_EQ(bounded_product({int64_t{1} << 22, 8, int64_t{1} << 30, 256, 2}), most) << "2^64";
  EXPECT_EQ(bounded_product({INT32_MAX, INT32_MAX, INT32_MAX}), most);
  EXPECT_EQ(bounded_product({INT64_MAX, INT64_MAX}), most);
  EXPECT_EQ(bounded_product({INT64_MAX}), most);
}

}  // namespace
}  // namespace attn
