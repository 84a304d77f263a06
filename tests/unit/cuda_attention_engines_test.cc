// How the CUDA engines cut problems, without a device.
#include "cuda/attention_engines.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/cuda_session.h"
#include "support/random.h"

namespace attn::cuda {
namespace {

const AttentionEngine& engine_of(const std::string& name) {
  for (const AttentionEngine* engine : attention_engines()) {
    if (name == engine->name()) return *engine;
  }
  throw std::runtime_error("there is no engine " + name);
}

DeviceTraits hopper() {
  DeviceTraits traits;
  traits.set_architecture(9, 0);
  traits.multiprocessors = 132;
  traits.shared_bytes_per_block = 227 << 10;
  return traits;
}

AttentionProblem decode(DType type, int64_t q_heads, int64_t kv_heads, int size) {
  AttentionProblem problem;
  problem.spec.type = type;
  problem.spec.q_heads = static_cast<int>(q_heads);
  problem.spec.kv_heads = static_cast<int>(kv_heads);
  problem.spec.head_size = problem.spec.v_head_size = size;
  problem.query_rows = 1;
  return problem;
}

// Bytes that the merge of a problem's parts uses: 16 rows of tops, denominators and sums at most.
size_t bytes_of(const LaunchShape& shape, const AttentionProblem& problem) {
  if (shape.splits == 1) return 0;
  return static_cast<size_t>(shape.blocks) * 16 * (2 + problem.spec.v_head_size) * 4;
}

TEST(CudaEngines, ScratchOfTheWidestRangeDoesNotWrap) {
  const AttentionEngine& engine = engine_of("split-decode");
  const AttentionProblem problem = decode(kFloat32, 4096, 4096, 256);
  const ShapeRange range{INT32_MAX, INT32_MAX, INT32_MAX};
  EXPECT_GE(engine.partial_bytes(problem.spec, range, hopper(), true), size_t{1} << 60);
}

TEST(CudaEngines, ScratchServesEveryProblemOfItsRange) {
  const AttentionEngine& engine = engine_of("split-decode");
  test::Random random(11);
  for (int i = 0; i < 4000; ++i) {
    const int64_t kv_heads = random.between(1, 16), group = random.between(1, 16);
    AttentionProblem problem =
        decode(random.pick({kFloat16, kBfloat16, kFloat32}), kv_heads * group, kv_heads,
               8 * static_cast<int>(random.between(1, 32)));
    DeviceTraits device = hopper();
    device.multiprocessors = static_cast<int>(random.between(1, 200));
    const ShapeRange range{random.between(1, 300), random.between(1, 8), random.between(1, 200000)};
    problem.batch = random.between(1, range.batch);
    problem.query_rows =
        random.between(1, std::min(range.query_rows, std::max<int64_t>(1, 64 / group)));
    problem.max_total = random.between(1, range.total);
    for (bool invariant : {false, true}) {
      const LaunchShape shape = engine.shape(problem, device, invariant);
      ASSERT_LE(bytes_of(shape, problem),
                engine.partial_bytes(problem.spec, range, device, invariant))
          << "draw " << i << ", batch-invariant " << invariant;
      ASSERT_GE(shape.splits, 1);
      if (!invariant && shape.splits > 1) {
        ASSERT_LE(shape.blocks / shape.splits, kCounters);
      }
    }
  }
}

TEST(CudaEngines, BatchInvariantCutsAreThoseOfTheSequenceAlone) {
  const AttentionEngine& engine = engine_of("split-decode");
  for (int64_t keys : {1, 100, 1000, 5000, 131072}) {
    AttentionProblem problem = decode(kBfloat16, 32, 8, 128);
    problem.max_total = keys;
    problem.batch = 1;
    const int64_t alone = engine.shape(problem, hopper(), true).splits;
    for (int64_t batch : {2, 8, 64, 500}) {
      problem.batch = batch;
      EXPECT_EQ(engine.shape(problem, hopper(), true).splits, alone);
    }
    EXPECT_EQ(engine.shape(problem, hopper(), false).splits, 1) << "a large batch needs no parts";
  }
}

// A long context of few sequences fills the device; parts do not get shorter than a merge is worth.
TEST(CudaEngines, PartsFillTheDevice) {
  const AttentionEngine& engine = engine_of("split-decode");
  AttentionProblem problem = decode(kBfloat16, 32, 8, 128);
  for (int64_t batch : {1, 2, 5, 9, 16}) {
    problem.batch = batch;
    problem.max_total = 32768;
    const LaunchShape shape = engine.shape(problem, hopper(), false);
    EXPECT_GE(shape.blocks, 120) << batch;
    EXPECT_GE(problem.max_total / shape.splits, 256) << batch;
    problem.max_total = 100;
    EXPECT_LE(engine.shape(problem, hopper(), false).splits, 2) << batch;
  }
}

}  // namespace
}  // namespace attn::cuda
