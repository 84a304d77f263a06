// How much scratch blocked attention needs: bounded whatever the lengths and the threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cpu/cpu_plan.h"
#include "cpu/engine.h"
#include "cpu/simd_level.h"
#include "support/random.h"

namespace attn::cpu {
namespace {

constexpr int kThreads[] = {1, 2, 16, 41, 42, 43, 64, 128, 256, 1024};
constexpr size_t kMegabyte = size_t{1} << 20;

// Says that it has many threads, and runs all tasks on the calling one.
struct ManyThreads final : Executor {
  explicit ManyThreads(int count) : threads(count) {}
  int concurrency() const override { return threads; }
  void parallel_for(int tasks, void (*fn)(void* ctx, int task), void* ctx) override {
    most_tasks = std::max(most_tasks, tasks);
    for (int task = 0; task < tasks; ++task) fn(ctx, task);
  }
  const int threads;
  int most_tasks = 1;
};

AttentionSpec spec_of(DType type, int32_t size) {
  AttentionSpec spec;
  spec.type = type;
  spec.q_heads = spec.kv_heads = 1;
  spec.head_size = spec.v_head_size = size;
  spec.scale = 0.125;
  spec.causal = true;
  return spec;
}

TEST(CpuScratch, LongPromptNeedsAtMostSixteenMegabytes) {
  constexpr int64_t kLength = 131072;
  Lowering call;
  call.batch = 1;
  call.lengths.batch = 1;
  AttentionProblem& problem = call.attention.emplace();
  problem.batch = 1;
  problem.query_rows = problem.max_total = kLength;
  for (const SimdLevel level : available_simd_levels()) {
    for (const DType type : {kFloat32, kFloat16, kBfloat16}) {
      problem.spec = spec_of(type, 64);
      for (const int threads : {1, 16, 64, 256}) {
        const auto plan = make_plan({level, threads}, call, {1, kLength, kLength}, {});
        EXPECT_LE(plan->workspace_bytes(), 16 * kMegabyte)
            << name_of(level) << ", " << name_of(type) << ", " << threads << " threads";
        const auto longer = make_plan({level, threads}, call, {1, 4 * kLength, 4 * kLength}, {});
        EXPECT_LE(longer->workspace_bytes(), 16 * kMegabyte);
      }
    }
  }
}

// The blocked engines, each at the levels that it has kernels for.
struct EngineAtLevel {
  const AttentionEngine* engine;
  SimdLevel level;
};
std::vector<EngineAtLevel> blocked_engines() {
  std::vector<EngineAtLevel> list;
  for (const SimdLevel level : available_simd_levels()) {
    for (const AttentionEngine* engine :
         {&simd_prefill_engine(), &emulated_amx_prefill_engine(), &amx_prefill_engine()}) {
      if (engine->supports(spec_of(kFloat32, 64), level, nullptr)) list.push_back({engine, level});
    }
  }
  return list;
}

// A plan's scratch serves executors with fewer threads.
TEST(CpuScratch, GrowsWithTheThreads) {
  for (const auto& [engine, level] : blocked_engines()) {
    for (const DType type : {kFloat32, kFloat16, kBfloat16}) {
      for (const int32_t size : {1, 64, 80, 256, 1024}) {
        size_t last = 0;
        for (const int threads : kThreads) {
          const size_t bytes =
              engine->workspace_bytes(spec_of(type, size), {1, 4096, 4096}, threads, level);
          EXPECT_GE(bytes, last) << "size " << size << ", " << threads << " threads";
          EXPECT_LE(bytes, 15 * kMegabyte);
          last = bytes;
        }
      }
    }
  }
}

// With the scratch of many threads, which have smaller items, every bit is that of one thread, and
// nothing beyond the scratch is written.
TEST(CpuScratch, ManyThreadsGiveTheBitsOfOne) {
  constexpr int64_t kRows = 600;
  constexpr int32_t kSize = 64;
  test::Random random(3);
  std::vector<float> input(3 * kRows * kSize);
  for (float& x : input) x = static_cast<float>(random.normal());
  std::vector<float> output(kRows * kSize);
  AttentionProblem problem;
  problem.spec = spec_of(kFloat32, kSize);
  problem.batch = 1;
  problem.query_rows = problem.max_total = kRows;
  const auto view = [](float* data) {
    return View4{data, kRows * kSize, kRows * kSize, kSize, 1, kRows};
  };
  problem.query = view(input.data());
  problem.key = view(input.data() + kRows * kSize);
  problem.value = view(input.data() + 2 * kRows * kSize);
  problem.output = view(output.data());
  RowLengths lengths;
  lengths.live = true;
  lengths.appended = lengths.total = kRows;
  const std::vector<RowLengths> rows = {lengths};
  constexpr size_t kFence = 256;
  for (const auto& [engine, level] : blocked_engines()) {
    std::vector<float> first;
    for (const int threads : kThreads) {
      const size_t bytes = engine->workspace_bytes(problem.spec, {1, kRows, kRows}, threads, level);
      std::vector<std::byte> memory(bytes + kFence + 64, std::byte{0xff});
      std::byte* scratch = memory.data();
      while (reinterpret_cast<uintptr_t>(scratch) % 64 != 0) ++scratch;
      std::fill(output.begin(), output.end(), -77.0f);
      ManyThreads executor(threads);
      engine->run(problem, rows, {scratch, bytes}, executor, level);
      for (size_t i = 0; i < kFence; ++i) ASSERT_EQ(scratch[bytes + i], std::byte{0xff});
      if (first.empty()) first = output;
      EXPECT_EQ(output, first) << engine->name() << " at " << name_of(level) << ", " << threads
                               << " threads";
    }
  }
}

}  // namespace
}  // namespace attn::cpu
