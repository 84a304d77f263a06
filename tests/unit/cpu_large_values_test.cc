// Values near the end of the type's range: their mean is finite, and so is every result.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cpu/row_transform_simd.h"
#include "cpu/simd_level.h"
#include "cpu_attention_call.h"

namespace attn::cpu {
namespace {

constexpr int64_t kStep = AttentionCall::kSize;
constexpr int64_t kRow = AttentionCall::kHeads * kStep;

double largest(DType type) {
  if (type == kFloat64) return std::numeric_limits<double>::max();
  if (type == kFloat16) return 65504;
  return type == kBfloat16 ? 0x1.fep127 : std::numeric_limits<float>::max();
}

// Channel by channel: the largest number at every key; its negative; either in turn; a tenth of it
// for all but the last key.
double value_at(DType type, int64_t key, int64_t keys, int64_t channel) {
  const double most = largest(type);
  switch (channel % 4) {
    case 0:
      return most;
    case 1:
      return -most;
    case 2:
      return key % 2 == 0 ? most : -most;
    default:
      return key + 1 == keys ? most : most / 10;
  }
}

// The weights of a row's keys, which add up to 1.
std::vector<long double> weights_of(const AttentionCall& call, int64_t row, int64_t head) {
  std::vector<long double> weights;
  long double sum = 0;
  for (int64_t j = 0; j < call.keys; ++j) {
    long double score = 0;
    for (int64_t d = head * kStep; d < (head + 1) * kStep; ++d) {
      score += static_cast<long double>(call.get(call.query, row * kRow + d)) *
               call.get(call.key, j * kRow + d);
    }
    weights.push_back(std::exp(score * 0.1443L));
    sum += weights.back();
  }
  for (long double& weight : weights) weight /= sum;
  return weights;
}

// Compares four kinds of channels of one row, in units of the largest number of the type.
void check_row(const AttentionCall& call, int64_t row, double bound) {
  const long double most = largest(call.type);
  for (int64_t head = 0; head < AttentionCall::kHeads; ++head) {
    const std::vector<long double> weights = weights_of(call, row, head);
    for (int64_t c = head * kStep; c < head * kStep + 4; ++c) {
      long double want = 0;
      for (int64_t j = 0; j < call.keys; ++j) {
        want += weights[static_cast<size_t>(j)] * (call.get(call.value, j * kRow + c) / most);
      }
      ASSERT_NEAR(static_cast<double>(call.get(call.output, row * kRow + c) / most),
                  static_cast<double>(want), bound)
          << "row " << row << ", element " << c;
    }
  }
}

void check(CpuBackend& backend, const std::string& engine, DType type, int64_t rows, int64_t keys) {
  SCOPED_TRACE(engine + ", " + name_of(type) + ", keys " + std::to_string(keys));
  AttentionCall call(type, rows, keys, 1);
  for (int64_t i = 0; i < keys * kRow; ++i) {
    call.put(call.value, i, value_at(type, i / kRow, keys, i % kStep));
  }
  call.run(backend, engine);
  const double bound = type == kBfloat16 ? 4e-3 : type == kFloat16 ? 5e-4 : 3e-6;
  for (int64_t i = 0; i < rows * kRow; ++i) {
    ASSERT_TRUE(std::isfinite(call.get(call.output, i))) << "element " << i;
  }
  check_row(call, 0, bound);
  check_row(call, rows - 1, bound);
}

TEST(CpuLargeValues, MeansOfTheLargestNumbersAreFinite) {
  for (const SimdLevel level : available_simd_levels()) {
    SCOPED_TRACE(name_of(level));
    CpuOptions options;
    options.simd_level = name_of(level);
    options.thread_count = 2;
    const auto backend = make_cpu_backend(options);
    const bool simd = row_kernels(level) != nullptr;
    for (const int64_t keys : {1, 2, 3, 64, 150, 1200}) {
      for (const DType type : {kFloat32, kFloat16, kBfloat16}) {
        if (simd) check(*backend, "simd-decode", type, 1, keys);
        if (simd) check(*backend, "simd-prefill", type, 20, keys);
        if (simd) check(*backend, "amx-prefill-emulated", type, 32, keys);
        check(*backend, "generic", type, 3, keys);
      }
      check(*backend, "generic", kFloat64, 3, keys);
    }
  }
}

// 1 / softcap is no finite float32 for the smallest caps: a score of 0 is 0 all the same.
TEST(CpuLargeValues, TheSmallestSoftcapKeepsAScoreOfZero) {
  const auto backend = make_cpu_backend({});
  for (const char* engine : {"simd-decode", "simd-prefill", "amx-prefill-emulated", "generic"}) {
    SCOPED_TRACE(engine);
    AttentionCall call(kFloat32, 20, 150, 1);
    if (std::string(engine) == "simd-decode") call.lowering.attention->query_rows = call.rows = 1;
    call.lowering.attention->spec.softcap = 1e-40;
    for (int64_t i = 0; i < call.rows * kRow; ++i) call.put(call.query, i, 0);
    call.run(*backend, engine);
    for (int64_t i = 0; i < kRow; ++i) {
      double mean = 0;
      for (int64_t j = 0; j < call.keys; ++j) mean += call.get(call.value, j * kRow + i) / 150;
      ASSERT_NEAR(call.get(call.output, i), mean, 1e-6) << i;
    }
  }
}

// A number that is not finite is no overflow: it stays what it is, in its channel.
TEST(CpuLargeValues, InfinitiesAndNanStay) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto backend = make_cpu_backend({});
  for (const char* engine : {"simd-decode", "simd-prefill", "generic"}) {
    SCOPED_TRACE(engine);
    AttentionCall call(kFloat32, 3, 150, 1), plain(kFloat32, 3, 150, 1);
    call.put(call.value, 70 * kRow + 5, kInfinity);
    call.put(call.value, 71 * kRow + 6, -kInfinity);
    call.put(call.value, 72 * kRow + 7, std::nan(""));
    plain.run(*backend, engine);
    call.run(*backend, engine);
    for (int64_t row = 0; row < 3; ++row) {
      for (int64_t i = 0; i < kRow; ++i) {
        const double got = call.get(call.output, row * kRow + i);
        if (i == 5 || i == 6) {
          EXPECT_EQ(got, i == 5 ? kInfinity : -kInfinity);
        } else if (i == 7) {
          EXPECT_TRUE(std::isnan(got));
        } else {
          EXPECT_EQ(got, plain.get(plain.output, row * kRow + i)) << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace attn::cpu
