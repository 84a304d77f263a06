// The row transform against float64, and every SIMD level against the plain loops, bit by bit.
#include "cpu/row_transform.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cpu/row_transform_simd.h"
#include "cpu/simd_level.h"
#include "support/random.h"

namespace attn::cpu {
namespace {

std::vector<SimdLevel> simd_levels() {
  std::vector<SimdLevel> levels;
  for (const SimdLevel level : available_simd_levels()) {
    if (level != SimdLevel::kGeneric) levels.push_back(level);
  }
  return levels;
}

// A row with all that a transform needs; strides of everything by `step`.
struct Problem {
  DType type = kFloat32;
  int32_t channels = 0;
  int64_t step = 1;
  RowTransformSpec spec;
  RowTransform transform;
  std::vector<unsigned char> row, weight, cos, sin;
  static constexpr int64_t kTableRows = 5;

  Problem(test::Random& random, DType row_type, DType table, int32_t size, int32_t width,
          int64_t stride)
      : type(row_type), channels(size), step(stride) {
    spec.table = table;
    spec.width = width;
    spec.epsilon = 1e-6f;
    spec.unit_strides = stride == 1;
    row = draw(random, type, channels * step);
    weight = draw(random, type, channels * step);
    const int64_t columns = width / 2 * step;
    cos = draw(random, table, kTableRows * columns);
    sin = draw(random, table, kTableRows * columns);
    transform.weight = weight.data();
    transform.weight_stride = step;
    transform.cos = cos.data();
    transform.sin = sin.data();
    transform.cos_row = transform.sin_row = columns;
    transform.cos_col = transform.sin_col = step;
    transform.table_rows = kTableRows;
  }

  static std::vector<unsigned char> draw(test::Random& random, DType type, int64_t count) {
    std::vector<unsigned char> memory(static_cast<size_t>(count * size_of(type)));
    for (int64_t i = 0; i < count; ++i) {
      store_float(memory.data(), i, type, static_cast<float>(random.normal()));
    }
    return memory;
  }

  std::vector<float> run(const RowKernels* kernels, int64_t position) const {
    std::vector<float> out(static_cast<size_t>(channels), -77.0f);
    transform_row(kernels, spec, transform, type, row.data(), step, channels, 0, 0, position,
                  out.data());
    return out;
  }

  // The same by formula, in float64 and rounded once.
  std::vector<double> reference(int64_t position) const {
    std::vector<double> y(static_cast<size_t>(channels));
    double squares = 0;
    for (int32_t i = 0; i < channels; ++i) {
      y[static_cast<size_t>(i)] = load_double(row.data(), i * step, type);
      squares += y[static_cast<size_t>(i)] * y[static_cast<size_t>(i)];
    }
    if (spec.norm) {
      const double r = 1 / std::sqrt(squares / channels + static_cast<double>(spec.epsilon));
      for (int32_t i = 0; i < channels; ++i) {
        y[static_cast<size_t>(i)] *= r * load_double(weight.data(), i * step, type);
      }
    }
    for (int32_t i = 0; spec.rotary && i < spec.width / 2; ++i) {
      const int64_t cell = position * transform.cos_row + i * step;
      const double c = load_double(cos.data(), cell, spec.table);
      const double s = load_double(sin.data(), cell, spec.table);
      double& a = y[static_cast<size_t>(spec.interleaved ? 2 * i : i)];
      double& b = y[static_cast<size_t>(spec.interleaved ? 2 * i + 1 : i + spec.width / 2)];
      const double rotated = a * c - b * s;
      b = b * c + a * s;
      a = rotated;
    }
    return y;
  }
};

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(CpuRowTransform, AgreesWithFloat64AndAllLevelsAgreeBitByBit) {
  constexpr uint64_t kSeed = 4711;
  for (uint64_t draw = 0; draw < 600; ++draw) {
    test::Random random(test::derive_seed(kSeed, draw));
    const DType type = random.pick({kFloat32, kFloat16, kBfloat16});
    const auto channels = static_cast<int32_t>(random.between(2, 300));
    const auto width = static_cast<int32_t>(2 * random.between(1, channels / 2));
    Problem p(random, type, random.chance(0.5) ? kFloat32 : type, channels, width,
              random.pick<int64_t>({1, 1, 1, 3}));
    p.spec.norm = random.chance(0.6);
    p.spec.rotary = random.chance(0.7);
    p.spec.interleaved = random.chance(0.5);
    const int64_t position = random.below(Problem::kTableRows);
    SCOPED_TRACE("draw " + std::to_string(draw));

    const std::vector<float> plain = p.run(nullptr, position);
    const std::vector<double> expected = p.reference(position);
    const double bar = type == kFloat32 ? 1e-6 : type == kFloat16 ? 6e-4 : 5e-3;
    for (int32_t i = 0; i < channels; ++i) {
      const auto at = static_cast<size_t>(i);
      ASSERT_NEAR(static_cast<double>(plain[at]), expected[at], bar * (std::abs(expected[at]) + 3))
          << "channel " << i;
      ASSERT_EQ(plain[at], round_to(type, plain[at]));
    }
    for (const SimdLevel level : simd_levels()) {
      ASSERT_TRUE(equal_bits(plain, p.run(row_kernels(level), position))) << name_of(level);
    }
  }
}

TEST(CpuRowTransform, PositionOutsideTheTableIsNotRotatedAndNotRead) {
  test::Random random(5);
  Problem p(random, kFloat32, kFloat32, 64, 64, 1);
  p.spec.rotary = true;
  std::vector<float> unrotated(64);
  std::memcpy(unrotated.data(), p.row.data(), p.row.size());
  p.transform.cos = p.transform.sin = nullptr;  // a read would crash
  for (const int64_t position :
       {int64_t{-1}, Problem::kTableRows, std::numeric_limits<int64_t>::max(),
        std::numeric_limits<int64_t>::min()}) {
    EXPECT_TRUE(equal_bits(p.run(nullptr, position), unrotated)) << position;
    for (const SimdLevel level : simd_levels()) {
      EXPECT_TRUE(equal_bits(p.run(row_kernels(level), position), unrotated)) << position;
    }
  }
}

TEST(CpuRowTransform, ExplicitPositionsReplaceTheImpliedOne) {
  test::Random random(6);
  Problem p(random, kFloat32, kFloat32, 32, 16, 1);
  p.spec.rotary = true;
  const std::vector<float> at3 = p.run(nullptr, 3);
  p.spec.explicit_positions = true;
  const std::vector<int64_t> positions = {0, -1, 1, -1, 2, -1, 3, -1};
  p.transform.positions = positions.data();
  p.transform.position_batch = 4;
  p.transform.position_row = 2;
  std::vector<float> out(32);
  transform_row(nullptr, p.spec, p.transform, p.type, p.row.data(), 1, 32, 1, 1, 99, out.data());
  EXPECT_TRUE(equal_bits(out, at3));
}

// The order of operations that the header promises, written out once more.
TEST(CpuRowTransform, NormSumsInThirtyTwoLanes) {
  test::Random random(7);
  Problem p(random, kFloat32, kFloat32, 100, 2, 1);
  p.spec.norm = true;
  std::vector<float> x(100), w(100);
  std::memcpy(x.data(), p.row.data(), p.row.size());
  std::memcpy(w.data(), p.weight.data(), p.weight.size());
  float lane[32] = {};
  for (size_t i = 0; i < 100; ++i) {
    const volatile float square = x[i] * x[i];
    lane[i % 32] = lane[i % 32] + square;
  }
  for (size_t half = 16; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) lane[l] = lane[l] + lane[l + half];
  }
  const float r = 1.0f / std::sqrt(lane[0] / 100.0f + 1e-6f);
  std::vector<float> expected(100);
  for (size_t i = 0; i < 100; ++i) {
    const volatile float scaled = x[i] * r;
    expected[i] = scaled * w[i];
  }
  EXPECT_TRUE(equal_bits(p.run(nullptr, 0), expected));
}

TEST(CpuRowTransform, SimdConversionsOfEveryPattern) {
  std::vector<uint16_t> patterns(0x10000);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i);
  const auto count = static_cast<int32_t>(patterns.size());
  for (const DType type : {kFloat16, kBfloat16}) {
    std::vector<float> plain(patterns.size());
    transform_row(nullptr, {}, {}, type, patterns.data(), 1, count, 0, 0, 0, plain.data());
    // All finite neighbours' midpoints and what lies just beside them.
    std::vector<float> wide;
    for (size_t i = 0; i + 1 < patterns.size(); ++i) {
      const float middle = plain[i] + (plain[i + 1] - plain[i]) / 2;
      for (const float v : {plain[i], middle, std::nextafter(middle, plain[i]),
                            std::nextafter(middle, plain[i + 1])}) {
        wide.push_back(v);
      }
    }
    test::Random random(8);
    for (int i = 0; i < 100000; ++i) {
      wide.push_back(std::bit_cast<float>(static_cast<uint32_t>(random.next())));
    }
    const auto wide_count = static_cast<int32_t>(wide.size());
    std::vector<uint16_t> narrow(wide.size());
    store_row(nullptr, type, wide.data(), wide_count, narrow.data(), 1);
    for (const SimdLevel level : simd_levels()) {
      std::vector<float> loaded(patterns.size());
      transform_row(row_kernels(level), {}, {}, type, patterns.data(), 1, count, 0, 0, 0,
                    loaded.data());
      EXPECT_TRUE(equal_bits(plain, loaded)) << name_of(type) << ' ' << name_of(level);
      std::vector<uint16_t> stored(wide.size());
      store_row(row_kernels(level), type, wide.data(), wide_count, stored.data(), 1);
      EXPECT_EQ(narrow, stored) << name_of(type) << ' ' << name_of(level);
    }
  }
}

TEST(CpuRowTransform, CopyKeepsBits) {
  const std::vector<uint16_t> src = {0x7c01, 1, 0xfe33, 2, 0x8000, 3};  // signalling NaN and all
  std::vector<uint16_t> dst(9, 0xcdcd);
  copy_row(kFloat16, src.data(), 2, 3, dst.data(), 3);
  EXPECT_EQ(dst, (std::vector<uint16_t>{0x7c01, 0xcdcd, 0xcdcd, 0xfe33, 0xcdcd, 0xcdcd, 0x8000,
                                        0xcdcd, 0xcdcd}));
}

TEST(CpuRowTransform, GenericLevelHasNoKernels) {
  EXPECT_EQ(row_kernels(SimdLevel::kGeneric), nullptr);
}

}  // namespace
}  // namespace attn::cpu
