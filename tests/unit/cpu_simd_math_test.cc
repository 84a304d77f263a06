// exp and tanh of the SIMD engines at every level, against float64 over their whole range.
#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "unit/cpu_simd_math_test.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "cpu/simd_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
using MathFunction = void (*)(const float* x, float* y, int64_t count);
namespace HWY_NAMESPACE {

// `count` is a multiple of 16.
template <class F>
HWY_INLINE void each_vector(const float* x, float* y, int64_t count, const F& f) {
  for (int64_t i = 0; i < count; i += kLanes) hn::StoreU(f(hn::LoadU(kF, x + i)), kF, y + i);
}

void exp_all(const float* x, float* y, int64_t count) {
  each_vector(x, y, count, [](VF v) HWY_ATTR { return exp_float(v); });
}
void exp_short_all(const float* x, float* y, int64_t count) {
  each_vector(x, y, count, [](VF v) HWY_ATTR { return exp_short(v); });
}
void tanh_all(const float* x, float* y, int64_t count) {
  each_vector(x, y, count, [](VF v) HWY_ATTR { return tanh_float(v); });
}

extern const MathFunction kExp, kExpShort, kTanh;
const MathFunction kExp = exp_all;
const MathFunction kExpShort = exp_short_all;
const MathFunction kTanh = tanh_all;

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cpu/simd_level.h"

namespace attn::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const MathFunction* exp_at(SimdLevel level) {
  switch (level) {
    ATTN_SIMD_TABLE_CASES(kExp)
    default:
      return nullptr;
  }
}

const MathFunction* exp_short_at(SimdLevel level) {
  switch (level) {
    ATTN_SIMD_TABLE_CASES(kExpShort)
    default:
      return nullptr;
  }
}

const MathFunction* tanh_at(SimdLevel level) {
  switch (level) {
    ATTN_SIMD_TABLE_CASES(kTanh)
    default:
      return nullptr;
  }
}

// Calls each(level) for the levels with SIMD that this machine has.
template <class Each>
void for_each_level(Each each) {
  for (const SimdLevel level : available_simd_levels()) {
    if (level != SimdLevel::kGeneric) each(level);
  }
}

std::vector<float> apply(const MathFunction& function, std::vector<float> x) {
  const size_t count = x.size();
  x.resize((count + 15) / 16 * 16);
  std::vector<float> y(x.size());
  function(x.data(), y.data(), static_cast<int64_t>(x.size()));
  y.resize(count);
  return y;
}

// Floats from 0 to `limit`, which is positive or negative, evenly along their bit patterns: about
// half a million of them, small magnitudes as densely as large ones.
std::vector<float> floats_up_to(float limit) {
  std::vector<float> x;
  const uint32_t sign = std::bit_cast<uint32_t>(limit) & 0x80000000u;
  const uint32_t last = std::bit_cast<uint32_t>(limit) & 0x7fffffffu;
  for (uint32_t bits = 0; bits < last; bits += 4001) x.push_back(std::bit_cast<float>(bits | sign));
  // Magnitudes that matter more than their share of the patterns.
  for (int i = 0; i <= 200000; ++i) x.push_back(limit * static_cast<float>(i) / 200000.0f);
  return x;
}

double unit_of(double value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  return std::ldexp(1.0, exponent - 24);
}

// The largest error in units in the last place and its place.
struct Worst {
  double error = 0;
  float at = 0;
};

template <class Exact>
Worst worst_of(const std::vector<float>& x, const std::vector<float>& y, const Exact& exact) {
  Worst worst;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = exact(static_cast<double>(x[i]));
    const double error = want == 0 ? std::fabs(static_cast<double>(y[i]))
                                   : std::fabs(static_cast<double>(y[i]) - want) / unit_of(want);
    if (!(error <= worst.error)) worst = {error, x[i]};
  }
  return worst;
}

TEST(CpuSimdMath, ExpIsWithinOneAndAHalfUnits) {
  for_each_level([](SimdLevel level) {
    for (const float limit : {-87.33f, 88.0f}) {  // where e^x is a normal number
      const std::vector<float> x = floats_up_to(limit);
      const Worst worst = worst_of(x, apply(*exp_at(level), x), [](double v) { return exp(v); });
      EXPECT_LE(worst.error, 1.5) << name_of(level) << " at " << worst.at;
      const std::string name = std::string(name_of(level)) + (limit < 0 ? "_below_0" : "_above_0");
      testing::Test::RecordProperty("exp_units_" + name, std::to_string(worst.error));
    }
  });
}

// 1.6 units in the last place, and what a product of the argument costs at its own last place.
TEST(CpuSimdMath, ShortExpIsWithinItsBound) {
  for_each_level([](SimdLevel level) {
    const std::vector<float> x = floats_up_to(-87.33f);
    const std::vector<float> y = apply(*exp_short_at(level), x);
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = std::exp(static_cast<double>(x[i]));
      const double bound = 1.7e-7 + 1.2e-7 * std::fabs(static_cast<double>(x[i]));
      ASSERT_LE(std::fabs(static_cast<double>(y[i]) / want - 1), bound)
          << name_of(level) << " at " << x[i];
    }
  });
}

TEST(CpuSimdMath, ExpOfTheEndsOfItsRange) {
  for_each_level([](SimdLevel level) {
    const std::vector<float> x = {0.0f,  -0.0f,  -87.34f,    -87.8f, -88.0f, -89.0f,
                                  -1e4f, -3e38f, -kInfinity, kNan,   -kNan};
    for (const MathFunction* function : {exp_at(level), exp_short_at(level)}) {
      const std::vector<float> y = apply(*function, x);
      EXPECT_EQ(y[0], 1.0f);
      EXPECT_EQ(y[1], 1.0f);
      EXPECT_NEAR(y[2], std::exp(static_cast<double>(x[2])), 2e-43);
      for (size_t i = 3; i < 9; ++i) EXPECT_EQ(y[i], 0.0f) << name_of(level) << " at " << x[i];
      EXPECT_TRUE(std::isnan(y[9]) && std::isnan(y[10])) << name_of(level);
    }
  });
}

TEST(CpuSimdMath, TanhIsWithinTwoUnits) {
  for_each_level([](SimdLevel level) {
    for (const float limit : {-100.0f, 100.0f}) {
      const std::vector<float> x = floats_up_to(limit);
      const Worst worst = worst_of(x, apply(*tanh_at(level), x), [](double v) { return tanh(v); });
      EXPECT_LE(worst.error, 2) << name_of(level) << " at " << worst.at;
      testing::Test::RecordProperty("tanh_units_" + std::string(name_of(level)),
                                    std::to_string(worst.error));
    }
    const std::vector<float> y = apply(*tanh_at(level), {kInfinity, -kInfinity, kNan, 0.0f, -0.0f});
    EXPECT_EQ(y[0], 1.0f);
    EXPECT_EQ(y[1], -1.0f);
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_EQ(y[3], 0.0f);
    EXPECT_EQ(y[4], 0.0f);
  });
}

}  // namespace
}  // namespace attn::cpu
#endif  // HWY_ONCE
