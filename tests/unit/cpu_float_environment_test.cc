// Results do not depend on the floating-point modes of the threads that they are computed on.
#include "core/float_environment.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cpu/cpu_backend.h"
#include "cpu/row_transform.h"
#include "cpu/row_transform_simd.h"
#include "cpu/simd_level.h"
#include "cpu_attention_call.h"

#if defined(__x86_64__)
namespace attn::cpu {
namespace {

constexpr uint32_t kDefault = 0x1f80, kSubnormalsAreZero = 0x0040, kFlushToZero = 0x8000;
constexpr uint32_t kRoundUp = 0x4000, kRoundToZero = 0x6000;
constexpr uint32_t kModes[] = {kDefault | kSubnormalsAreZero | kFlushToZero, kDefault | kRoundUp,
                               kDefault | kRoundToZero | kFlushToZero | kSubnormalsAreZero};

// The thread's modes until the end of a scope.
class Modes {
 public:
  explicit Modes(uint32_t modes) : saved_(_mm_getcsr()) { _mm_setcsr(modes); }
  ~Modes() { _mm_setcsr(saved_); }
  Modes(const Modes&) = delete;
  Modes& operator=(const Modes&) = delete;

 private:
  const uint32_t saved_;
};

// Values near float32's smallest numbers: sums of products that lie below the normal ones, and
// every rounding of the scores, are seen in the output. float16 values are subnormal themselves;
// the others' sums are in float32.
AttentionCall subnormal_call(DType type, int64_t rows) {
  return AttentionCall(type, rows, 150, type == kFloat16 ? 1e-5 : 1e-37);
}

// Every task on a thread of its own, which begins with the modes of the thread that starts it.
HostExecutor threads_of_the_host() {
  return {nullptr, [](void*) { return int32_t{2}; },
          [](void*, int32_t count, void (*task)(void*, int32_t), void* ctx) {
            std::vector<std::thread> threads;
            for (int32_t i = 0; i < count; ++i) threads.emplace_back(task, ctx, i);
            for (std::thread& thread : threads) thread.join();
          }};
}

TEST(CpuFloatEnvironment, ModesOfTheCallerChangeNoBit) {
  for (const SimdLevel level : available_simd_levels()) {
    for (const bool host : {false, true}) {
      CpuOptions options;
      options.simd_level = name_of(level);
      options.thread_count = 2;
      if (host) options.executor = threads_of_the_host();
      const auto backend = make_cpu_backend(options);
      for (const DType type : {kFloat32, kFloat16, kBfloat16}) {
        for (const int64_t rows : {int64_t{1}, int64_t{40}}) {
          AttentionCall plain = subnormal_call(type, rows);
          plain.run(*backend, "");
          for (const uint32_t modes : kModes) {
            AttentionCall call = subnormal_call(type, rows);
            {
              const Modes scope(modes);
              call.run(*backend, "");
              EXPECT_EQ(_mm_getcsr() & ~0x3fu, modes) << "the caller's modes did not come back";
            }
            EXPECT_EQ(call.output, plain.output)
                << name_of(level) << ", " << name_of(type) << ", " << rows << " rows, modes "
                << modes << (host ? ", threads of the host" : "");
          }
        }
      }
    }
  }
}

// What was computed leaves no flag of an exception behind, and takes none away.
TEST(CpuFloatEnvironment, TheCallersFlagsStay) {
  const auto backend = make_cpu_backend({});
  for (const uint32_t flags : {0x00u, 0x20u, 0x04u}) {
    for (const uint32_t modes : {kDefault, kModes[0]}) {
      AttentionCall call = subnormal_call(kFloat32, 3);
      const Modes scope(modes | flags);
      call.run(*backend, "");
      EXPECT_EQ(_mm_getcsr(), modes | flags);
    }
  }
}

// The conversions alone do not even need the right modes.
TEST(CpuFloatEnvironment, SubnormalFloat16IsConvertedWhateverTheModes) {
  std::vector<uint16_t> halves;
  for (uint32_t i = 0; i < 0x0800; ++i) {
    halves.push_back(static_cast<uint16_t>(i));
    halves.push_back(static_cast<uint16_t>(i | 0x8000u));
  }
  const auto count = static_cast<int32_t>(halves.size());
  for (const SimdLevel level : available_simd_levels()) {
    const Modes scope(kDefault | kFlushToZero | kSubnormalsAreZero);
    std::vector<float> wide(halves.size());
    transform_row(row_kernels(level), {}, {}, kFloat16, halves.data(), 1, count, 0, 0, 0,
                  wide.data());
    std::vector<uint16_t> narrow(halves.size());
    store_row(row_kernels(level), kFloat16, wide.data(), count, narrow.data(), 1);
    EXPECT_EQ(narrow, halves) << name_of(level);
    for (size_t i = 0; i < halves.size(); ++i) {
      ASSERT_EQ(wide[i], float16_to_float(halves[i])) << name_of(level) << " " << halves[i];
    }
  }
}

TEST(CpuFloatEnvironment, ScopesNestAndKeepTheCallersFlags) {
  const Modes scope(kDefault | kRoundUp | 0x01u);  // with the invalid flag raised
  {
    const FloatEnvironment outer;
    EXPECT_EQ(_mm_getcsr() & ~0x3fu, kDefault);
    {
      const FloatEnvironment inner;
      volatile float zero = 0;
      volatile float infinite = 1 / zero;
      (void)infinite;
    }
    EXPECT_EQ(_mm_getcsr() & ~0x3fu, kDefault);
  }
  EXPECT_EQ(_mm_getcsr(), kDefault | kRoundUp | 0x01u);
}

}  // namespace
}  // namespace attn::cpu
#endif  // __x86_64__
