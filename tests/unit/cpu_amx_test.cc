// The AMX engine's arithmetic: how exact its products are, and that emulated tiles do what the
// processor's do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "cpu/amx_state.h"
#include "cpu/engine.h"
#include "cpu/simd_level.h"
#include "cpu_attention_call.h"

namespace attn::cpu {
namespace {

std::vector<double> output_of(const AttentionCall& call) {
  std::vector<double> all;
  const int64_t count = call.rows * AttentionCall::kHeads * AttentionCall::kSize;
  for (int64_t i = 0; i < count; ++i) all.push_back(call.get(call.output, i));
  return all;
}

std::unique_ptr<CpuBackend> backend_at(SimdLevel level, int threads) {
  CpuOptions options;
  options.simd_level = name_of(level);
  options.thread_count = threads;
  return make_cpu_backend(options);
}

std::vector<double> run(DType type, int64_t rows, int64_t keys, SimdLevel level,
                        const std::string& engine) {
  AttentionCall call(type, rows, keys, 1);
  const auto backend = backend_at(level, 2);
  call.run(*backend, engine);
  return output_of(call);
}

// |a - b| / |b|.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

// Three pieces of a float32 number are the number: six products of them are as exact as float32's
// own. Compared with float64 on the same inputs.
TEST(CpuAmx, Float32IsFloat32) {
  for (const SimdLevel level : available_simd_levels()) {
    if (level == SimdLevel::kGeneric) continue;
    AttentionCall exact(kFloat64, 70, 700, 1);
    AttentionCall call(kFloat32, 70, 700, 1);
    for (size_t i = 0; i < call.query.size() / sizeof(float); ++i) {
      const auto at = static_cast<int64_t>(i);
      exact.put(exact.query, at, call.get(call.query, at));
    }
    for (size_t i = 0; i < call.key.size() / sizeof(float); ++i) {
      const auto at = static_cast<int64_t>(i);
      exact.put(exact.key, at, call.get(call.key, at));
      exact.put(exact.value, at, call.get(call.value, at));
    }
    const auto backend = backend_at(level, 1);
    call.lowering.attention->spec.scale = exact.lowering.attention->spec.scale = 0.125;
    exact.run(*backend, "generic");
    call.run(*backend, "amx-prefill-emulated");
    const double error = distance(output_of(call), output_of(exact));
    testing::Test::RecordProperty(std::string("error_") + name_of(level), std::to_string(error));
    EXPECT_LE(error, 5e-7) << name_of(level);
  }
}

TEST(CpuAmx, TheEmulatedEngineIsNeverChosenByItself) {
  const auto backend = make_cpu_backend({});
  AttentionCall call(kFloat32, 70, 70, 1);
  for (const auto& stage : backend->plan(call.lowering, {1, 70, 70}, {})->report()) {
    EXPECT_NE(stage.engine, "amx-prefill-emulated");
    for (const EngineVerdict& verdict : stage.considered) {
      EXPECT_TRUE(verdict.engine != "amx-prefill-emulated" || !verdict.supported);
    }
  }
}

TEST(CpuAmx, SaysWhyNot) {
  AttentionCall call(kFloat32, 70, 70, 1);
  const AttentionSpec& spec = call.lowering.attention->spec;
  std::string reason;
  const bool best = amx_prefill_engine().supports(spec, best_simd_level(), &reason);
  EXPECT_EQ(best, amx_state().usable && best_simd_level() == SimdLevel::kAvx512);
  EXPECT_EQ(best, reason.empty());
  EXPECT_EQ(amx_state().usable, amx_state().reason.empty());
  EXPECT_FALSE(amx_prefill_engine().supports(spec, SimdLevel::kGeneric, &reason));
  EXPECT_NE(reason.find("AMX"), std::string::npos) << reason;
}

// The order of the processor's sums is documented in part only.
TEST(CpuAmx, EmulatedTilesDoWhatTheProcessorDoes) {
  if (!amx_state().usable) GTEST_SKIP() << amx_state().reason;
  for (const DType type : {kFloat32, kFloat16, kBfloat16}) {
    const double bound = type == kFloat32 ? 2e-7 : type == kFloat16 ? 5e-4 : 4e-3;
    const std::vector<double> emulated =
        run(type, 100, 700, SimdLevel::kAvx512, "amx-prefill-emulated");
    const std::vector<double> real = run(type, 100, 700, SimdLevel::kAvx512, "amx-prefill");
    const double off = distance(real, emulated);
    testing::Test::RecordProperty(std::string("distance_") + name_of(type), std::to_string(off));
    EXPECT_LE(off, bound) << name_of(type);
  }
}

}  // namespace
}  // namespace attn::cpu
