#include "core/tensor.h"

#include <algorithm>
#include <initializer_list>
#include <limits>

#include <gtest/gtest.h>

namespace attn {
namespace {

Tensor make(std::initializer_list<int64_t> shape, std::initializer_list<int64_t> strides) {
  Tensor tensor;
  tensor.present = true;
  tensor.type = kFloat32;
  tensor.rank = static_cast<int32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), tensor.shape.begin());
  std::copy(strides.begin(), strides.end(), tensor.strides.begin());
  return tensor;
}

TEST(CoreTensor, CountsElements) {
  EXPECT_EQ(make({}, {}).elements(), 1);
  EXPECT_EQ(make({2, 3, 4}, {12, 4, 1}).elements(), 24);
  EXPECT_EQ(make({2, kAnyDim}, {0, 0}).elements(), kAnyDim);
  EXPECT_EQ(make({0, kAnyDim}, {0, 0}).elements(), 0);
  EXPECT_EQ(make({kAnyDim, 0}, {0, 0}).elements(), 0);
  // More than int64 holds: the largest number, and still nothing with a zero behind it.
  const int64_t huge = int64_t{1} << 40;
  EXPECT_EQ(make({huge, huge}, {0, 0}).elements(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(make({huge, huge, 0}, {0, 0, 0}).elements(), 0);
}

TEST(CoreTensor, KnowsContiguity) {
  EXPECT_TRUE(make({}, {}).contiguous());
  EXPECT_TRUE(make({2, 3}, {3, 1}).contiguous());
  EXPECT_FALSE(make({2, 3}, {4, 1}).contiguous());
  EXPECT_FALSE(make({2, 3}, {3, 2}).contiguous());
  EXPECT_FALSE(make({2, 3}, {-3, 1}).contiguous());
  EXPECT_FALSE(make({2, 3}, {0, 1}).contiguous());
  EXPECT_TRUE(make({1, 3, 1}, {77, 1, -5}).contiguous());  // strides of size 1 do not count
  EXPECT_TRUE(make({2, 0}, {9, 9}).contiguous());
  EXPECT_TRUE(make({kAnyDim, 3}, {3, 1}).contiguous());
  EXPECT_FALSE(make({kAnyDim, 3}, {4, 1}).contiguous());
}

TEST(CoreTensor, WritesShapes) {
  EXPECT_EQ(shape_text(make({}, {})), "()");
  EXPECT_EQ(shape_text(make({7}, {1})), "(7)");
  EXPECT_EQ(shape_text(make({2, kAnyDim, 512}, {0, 0, 0})), "(2, ?, 512)");
}

TEST(CoreTensor, AliasFollowsFromAddressesWhereBothAreBound) {
  float memory[2];
  Arguments args;
  args.in[3] = make({1}, {1});
  args.out[1] = make({1}, {1});
  EXPECT_FALSE(args.aliases(3, 1));
  args.alias[1] = 1u << 3;
  EXPECT_TRUE(args.aliases(3, 1));
  EXPECT_FALSE(args.aliases(2, 1));
  args.in[3].data = &memory[0];
  EXPECT_TRUE(args.aliases(3, 1));  // one side alone is bound: what was said counts
  args.out[1].data = &memory[1];
  EXPECT_FALSE(args.aliases(3, 1));
  args.alias[1] = 0;
  args.out[1].data = &memory[0];
  EXPECT_TRUE(args.aliases(3, 1));
  args.in[3].present = false;
  EXPECT_FALSE(args.aliases(3, 1));
}

}  // namespace
}  // namespace attn
