// Conversions against the tests' own, exhaustively for 16-bit patterns.
#include "core/dtype.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "support/random.h"
#include "support/scalar.h"

namespace attn {
namespace {

// Patterns around every rounding boundary of both 16-bit types, and random ones.
std::vector<float> interesting_floats() {
  std::vector<float> values = {0.0f,
                               -0.0f,
                               65504.0f,
                               65519.0f,
                               65520.0f,
                               65536.0f,
                               3.4e38f,
                               std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::denorm_min(),
                               0x1p-24f,
                               0x1p-25f,
                               0x1.000002p-25f,
                               0x1p-14f,
                               0x1.ffep-15f};
  for (uint32_t half = 0; half < 0x10000u; half += 7) {
    const float base = float16_to_float(static_cast<uint16_t>(half));
    const float next = float16_to_float(static_cast<uint16_t>(half + 1));
    values.push_back(base);
    values.push_back(base + (next - base) / 2);
    values.push_back(std::nextafter(base + (next - base) / 2, next));
    values.push_back(std::nextafter(base + (next - base) / 2, base));
  }
  test::Random random(20240131);
  for (int i = 0; i < 200000; ++i) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random.next())));
  }
  return values;
}

TEST(CoreDtype, EveryFloat16PatternWidensExactly) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const float wide = float16_to_float(static_cast<uint16_t>(bits));
    const double expected = test::decode_float16(static_cast<uint16_t>(bits));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(wide)) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(wide), expected) << bits;
    ASSERT_EQ(std::signbit(wide), std::signbit(expected)) << bits;
    ASSERT_EQ(float_to_float16(wide), bits);
  }
}

TEST(CoreDtype, EveryBfloat16PatternWidensExactly) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const float wide = bfloat16_to_float(static_cast<uint16_t>(bits));
    const double expected = test::decode_bfloat16(static_cast<uint16_t>(bits));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(wide)) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(wide), expected) << bits;
    ASSERT_EQ(float_to_bfloat16(wide), bits);
  }
}

TEST(CoreDtype, NarrowingRoundsToNearestEven) {
  for (const float value : interesting_floats()) {
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(float16_to_float(float_to_float16(value))));
      EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(value))));
      continue;
    }
    ASSERT_EQ(float_to_float16(value), test::encode_float16(value)) << value;
    ASSERT_EQ(float_to_bfloat16(value), test::encode_bfloat16(value)) << value;
  }
}

TEST(CoreDtype, LoadsAndStoresEveryFloatingType) {
  const float value = 1.00390625f;  // 1 + 2^-8: a tie in bfloat16, exact in the rest
  for (const DType type : {kFloat32, kFloat64, kFloat16, kBfloat16}) {
    alignas(8) unsigned char memory[32];
    std::memset(memory, 0xcd, sizeof memory);
    store_float(memory, 1, type, value);
    const float expected = type == kBfloat16 ? 1.0f : value;
    EXPECT_EQ(load_float(memory, 1, type), expected) << name_of(type);
    EXPECT_EQ(load_double(memory, 1, type), static_cast<double>(expected)) << name_of(type);
    EXPECT_EQ(round_to(type, value), expected) << name_of(type);
    // Neighbours stay.
    EXPECT_EQ(memory[0], 0xcd);
    EXPECT_EQ(memory[2 * size_of(type)], 0xcd);
  }
  const double precise = 0.1;
  EXPECT_EQ(load_double(&precise, 0, kFloat64), 0.1);
  EXPECT_EQ(load_float(&precise, 0, kFloat64), 0.1f);
}

TEST(CoreDtype, SizesAndNames) {
  EXPECT_EQ(size_of(kFloat64), 8);
  EXPECT_EQ(size_of(kBfloat16), 2);
  EXPECT_EQ(size_of(kBool), 1);
  EXPECT_EQ(size_of(DType{kCodeInt, 4, 1}), 1);
  EXPECT_EQ(size_of(DType{kCodeFloat, 32, 4}), 16);
  EXPECT_STREQ(name_of(kFloat16), "float16");
  EXPECT_STREQ(name_of(kBool), "bool");
  EXPECT_STREQ(name_of(DType{kCodeInt, 8, 1}), "int8");
  // Two unnamed types in one message keep their own texts.
  const char* first = name_of(DType{5, 64, 1});
  const char* second = name_of(DType{kCodeFloat, 32, 4});
  EXPECT_STREQ(first, "5/64/1");
  EXPECT_STREQ(second, "2/32/4");
}

}  // namespace
}  // namespace attn
