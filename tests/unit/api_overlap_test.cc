// Shared memory: the search against brute force, and the alias rules through the API.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "api/overlap.h"
#include "api_fixture.h"

namespace attn::test {
namespace {

// Every byte of a tensor, as offsets from a common base.
std::set<int64_t> bytes_of(const Tensor& tensor, const char* base) {
  std::set<int64_t> bytes;
  std::vector<int64_t> index(static_cast<size_t>(tensor.rank), 0);
  const int64_t size = size_of(tensor.type);
  while (true) {
    int64_t at = static_cast<const char*>(tensor.data) - base;
    for (size_t axis = 0; axis < index.size(); ++axis) {
      at += index[axis] * tensor.strides[axis] * size;
    }
    for (int64_t i = 0; i < size; ++i) bytes.insert(at + i);
    size_t axis = 0;
    while (axis < index.size() && ++index[axis] == tensor.shape[axis]) index[axis++] = 0;
    if (axis == index.size()) return bytes;
  }
}

bool really_overlap(const Tensor& a, const Tensor& b, const char* base) {
  const std::set<int64_t> left = bytes_of(a, base);
  for (const int64_t byte : bytes_of(b, base)) {
    if (left.count(byte)) return true;
  }
  return false;
}

Tensor slice(char* base, DType type, int64_t offset, std::vector<int64_t> shape,
             std::vector<int64_t> strides) {
  Tensor tensor;
  tensor.present = true;
  tensor.type = type;
  tensor.rank = static_cast<int32_t>(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) {
    tensor.shape[i] = shape[i];
    tensor.strides[i] = strides[i];
  }
  tensor.data = base + offset * size_of(type);
  return tensor;
}

// Slices of one buffer, as caches are cut: the answer is exact.
TEST(ApiOverlapTest, ExactForSlicesOfOneBuffer) {
  std::vector<char> buffer(4 << 20);
  char* base = buffer.data() + (2 << 20);
  int overlapping = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&random](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    // A row-major parent (A, B, C, D); each view takes a range with a step of every axis.
    const int64_t extents[4] = {draw(1, 3), draw(1, 4), draw(1, 5), draw(1, 6)};
    const auto view = [&] {
      std::vector<int64_t> shape, strides;
      int64_t offset = 0;
      int64_t parent_stride = 1;
      for (int axis = 3; axis >= 0; --axis) {
        const int64_t begin = draw(0, extents[axis] - 1);
        const int64_t step = draw(1, 2);
        const int64_t count = draw(1, (extents[axis] - begin + step - 1) / step);
        const bool backward = draw(0, 5) == 0;
        offset += (backward ? begin + (count - 1) * step : begin) * parent_stride;
        shape.insert(shape.begin(), count);
        strides.insert(strides.begin(), (backward ? -step : step) * parent_stride);
        parent_stride *= extents[axis];
      }
      return slice(base, kFloat32, offset, shape, strides);
    };
    const Tensor a = view();
    const Tensor b = view();
    const bool truth = really_overlap(a, b, base);
    overlapping += truth;
    ASSERT_EQ(api::provably_overlap(a, b), truth) << "seed " << seed;
    ASSERT_EQ(api::provably_overlap(b, a), truth) << "seed " << seed;
  }
  EXPECT_GT(overlapping, 500);
  EXPECT_LT(overlapping, 2500);
}

// Any strides at all, zero ones and two element sizes included: never a false alarm.
TEST(ApiOverlapTest, NeverAFalseAlarm) {
  std::vector<char> buffer(4 << 20);
  char* base = buffer.data() + (2 << 20);
  int found = 0, truths = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&random](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    const auto any = [&] {
      std::vector<int64_t> shape, strides;
      for (int64_t axis = draw(0, 4); axis > 0; --axis) {
        shape.push_back(draw(1, 5));
        strides.push_back(draw(-30, 30));
      }
      return slice(base, draw(0, 1) ? kFloat32 : kFloat16, draw(0, 200), shape, strides);
    };
    const Tensor a = any();
    const Tensor b = any();
    const bool truth = really_overlap(a, b, base);
    const bool claimed = api::provably_overlap(a, b);
    truths += truth;
    found += claimed;
    ASSERT_TRUE(!claimed || truth) << "seed " << seed;
  }
  EXPECT_GT(found, truths * 9 / 10) << "the budget should rarely run out on small tensors";
}

// One tensor against itself: exact for what slices and transposes are, and for others never a false
// alarm.
TEST(ApiOverlapTest, ATensorsOwnElements) {
  std::vector<char> buffer(1 << 20);
  char* base = buffer.data() + (1 << 19);
  int found = 0, truths = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&random](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    std::vector<int64_t> shape, strides;
    int64_t elements = 1;
    for (int64_t axis = draw(0, 4); axis > 0; --axis) {
      shape.push_back(draw(1, 5));
      strides.push_back(draw(-30, 30));
      elements *= shape.back();
    }
    const Tensor tensor = slice(base, kFloat16, 0, shape, strides);
    const bool truth = static_cast<int64_t>(bytes_of(tensor, base).size()) < elements * 2;
    const bool claimed = api::provably_overlaps_itself(tensor);
    truths += truth;
    found += claimed;
    ASSERT_TRUE(!claimed || truth) << "seed " << seed;
  }
  EXPECT_GT(truths, 300);
  EXPECT_GT(found, truths * 9 / 10) << "the budget should rarely run out on small tensors";
  // Too far apart for any search, were they not nested; and neighbours of neighbours.
  constexpr int64_t kFar = int64_t{1} << 40;
  EXPECT_FALSE(api::provably_overlaps_itself(
      slice(base, kFloat16, 0, {kFar / 4, 2, 3, 1000}, {8, kFar * 8, -2 * kFar * 8, kFar * 64})));
  EXPECT_TRUE(api::provably_overlaps_itself(slice(base, kFloat16, 0, {kFar, 2}, {1, 1})));
  EXPECT_FALSE(api::provably_overlaps_itself(slice(base, kFloat16, 0, {3, 2}, {2, 3})));
  EXPECT_TRUE(api::provably_overlaps_itself(slice(base, kFloat16, 0, {4, 3}, {2, 3})));
}

// ---- through the API ----------------------------------------------------------------------------

TEST_F(ApiTest, AnOutputMayNotOverlapWhatItMustNotAlias) {
  DecodeStep step;
  attn_plan* plan = prepare(step);
  step.t_y.data = step.q.data();
  EXPECT_REFUSED(step.execute(plan, session, &error), ATTN_INVALID_ARGUMENT,
                 "output: shares memory with query");
  step.t_y.data = step.y.data();

  attn_tensor present = step.t_kc;
  step.outputs[2].tensor = &present;
  EXPECT_REFUSED(step.execute(plan, session, &error), ATTN_INVALID_ARGUMENT,
                 "present_value: shares memory with past_key");
  attn_plan_release(plan);
}

TEST_F(ApiTest, PresentMayNotOverlapPastInPart) {
  DecodeStep step;
  std::vector<float> pool(step.key_cache.size() + 8);
  attn_plan* plan = prepare(step);
  attn_tensor past = step.t_kc, present = step.t_kc;
  past.data = pool.data();
  present.data = pool.data() + 8;
  step.inputs[3].tensor = &past;
  step.outputs[1].tensor = &present;
  EXPECT_REFUSED(step.execute(plan, session, &error), ATTN_INVALID_ARGUMENT,
                 "present_key: shares memory with past_key in part");
  attn_plan_release(plan);
}

// K and V as the two halves of each row of one buffer: byte ranges intersect, elements do not.
TEST_F(ApiTest, InterleavedCachesAreLegal) {
  DecodeStep step;
  std::vector<float> pool(2 * step.key_cache.size());
  for (attn_tensor* cache : {&step.t_kc, &step.t_vc}) {
    for (int axis = 0; axis < 3; ++axis) cache->strides[axis] *= 2;
    cache->data = pool.data();
    cache->data_bytes = pool.size() * sizeof(float);
  }
  step.t_vc.byte_offset = DecodeStep::kHeadSize * sizeof(float);
  attn_plan* plan = prepare(step);
  ASSERT_OK(step.execute(plan, session, &error));
  step.expect_value_rows();
  for (size_t c = 0; c < 8; ++c) {
    EXPECT_EQ(pool[c], step.k[c]);
    EXPECT_EQ(pool[8 + c], step.v[c]);
    EXPECT_EQ(pool[16 + c], 0.0f);
  }
  attn_plan_release(plan);
}

}  // namespace
}  // namespace attn::test
