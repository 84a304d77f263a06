// Planning, reports, workspace and execution of the CPU back end.
#include "cpu/cpu_backend.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "core/cost.h"
#include "core/error.h"
#include "cpu/simd_level.h"
#include "support/random.h"

namespace attn::cpu {
namespace {

// A GroupQueryAttention-like call, float32: rotary on keys and queries, caches in place.
struct Call {
  static constexpr int32_t kHeads = 4, kKvHeads = 2, kSize = 64;
  static constexpr int64_t kCapacity = 256;
  int64_t batch, rows;
  int32_t bound = kCapacity;
  std::vector<int32_t> values;
  std::vector<float> query, new_key, new_value, key, value, output, tables;
  Lowering lowering;

  Call(int64_t batch_rows, int64_t query_rows, int32_t total)
      : batch(batch_rows), rows(query_rows), values(static_cast<size_t>(batch_rows), total - 1) {
    test::Random random(99);
    const auto fill = [&](std::vector<float>& memory, int64_t count) {
      memory.resize(static_cast<size_t>(count));
      for (float& x : memory) x = static_cast<float>(random.normal());
    };
    fill(query, batch * rows * kHeads * kSize);
    fill(new_key, batch * rows * kKvHeads * kSize);
    fill(new_value, batch * rows * kKvHeads * kSize);
    fill(key, batch * kKvHeads * kCapacity * kSize);
    fill(value, batch * kKvHeads * kCapacity * kSize);
    fill(tables, 2 * kCapacity * kSize / 2);
    output.assign(static_cast<size_t>(batch * rows * kHeads * kSize), -77.0f);
    lower();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  static View4 view(std::vector<float>& memory, int64_t b, int64_t head, int64_t row,
                    int64_t count) {
    return {memory.data(), b, head, row, 1, count};
  }

  void lower() {
    lowering.batch = batch;
    Lengths& l = lowering.lengths;
    l.spec = {LengthRule::kGroupQuery, Placement::kHost, Placement::kHost, false};
    l.batch = batch;
    l.query_rows = l.new_rows = rows;
    l.values = values.data();
    l.bound = &bound;
    l.past_capacity = l.present_capacity = l.table_rows = kCapacity;

    RowTransformSpec spec;
    spec.rotary = true;
    spec.table = kFloat32;
    spec.width = kSize;
    RowTransform transform;
    transform.cos = tables.data();
    transform.sin = tables.data() + kCapacity * kSize / 2;
    transform.cos_row = transform.sin_row = kSize / 2;
    transform.table_rows = kCapacity;

    const int64_t head = kCapacity * kSize;
    const View4 key_view = view(key, kKvHeads * head, head, kSize, kCapacity);
    const View4 value_view = view(value, kKvHeads * head, head, kSize, kCapacity);
    const auto packed = [&](std::vector<float>& memory, int64_t heads) {
      return view(memory, rows * heads * kSize, kSize, heads * kSize, rows);
    };
    KvUpdateProblem& k = lowering.kv_update.emplace();
    k.spec.type = kFloat32;
    k.spec.kv_heads = kKvHeads;
    k.spec.head_size = k.spec.v_head_size = kSize;
    k.spec.key = {true, true, true, false, true, spec};
    k.spec.value = {true, true, true, false, true, {}};
    k.batch = batch;
    k.new_rows = rows;
    k.key = {packed(new_key, kKvHeads), key_view, key_view, transform};
    k.value = {packed(new_value, kKvHeads), value_view, value_view, {}};

    AttentionProblem& a = lowering.attention.emplace();
    a.spec.type = kFloat32;
    a.spec.q_heads = kHeads;
    a.spec.kv_heads = kKvHeads;
    a.spec.head_size = a.spec.v_head_size = kSize;
    a.spec.scale = 0.125;
    a.spec.causal = true;
    a.spec.query_transform = spec;
    a.batch = batch;
    a.query_rows = rows;
    a.max_total = kCapacity;
    a.query = packed(query, kHeads);
    a.key = key_view;
    a.value = value_view;
    a.output = packed(output, kHeads);
    a.query_transform = transform;
  }

  ShapeRange range() const { return {batch, rows, kCapacity}; }
};

attn_status status_of(const Error& error) { return error.status(); }

// The error that `fn` throws; OK with no message if it does not.
template <class Fn>
Error error_of(Fn fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error;
  }
  return {ATTN_OK, ""};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Bench {
  CpuStats stats;
  std::unique_ptr<CpuBackend> backend;
  std::unique_ptr<BackendSession> session;

  explicit Bench(CpuOptions options = {}) {
    options.stats = &stats;
    backend = make_cpu_backend(options);
    session = backend->create_session();
  }
  void run(const Call& call, const std::string& engine = "") {
    PlanRequest request;
    request.engine = engine;
    backend->execute(*backend->plan(call.lowering, call.range(), request), call.lowering, *session,
                     {});
  }
};

const StageReport& stage(const std::vector<StageReport>& report, const std::string& name) {
  return *std::find_if(report.begin(), report.end(),
                       [&](const StageReport& s) { return s.stage == name; });
}

TEST(CpuBackend, OptionsAreChecked) {
  CpuOptions options;
  options.thread_count = -1;
  EXPECT_EQ(status_of(error_of([&] { make_cpu_backend(options); })), ATTN_INVALID_ARGUMENT);
  options.thread_count = 3;
  options.simd_level = "avx3";
  const Error unknown = error_of([&] { make_cpu_backend(options); });
  EXPECT_EQ(unknown.status(), ATTN_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(unknown.message(), "\"avx3\"")) << unknown.message();
  EXPECT_TRUE(contains(unknown.message(), "generic")) << unknown.message();
  for (const char* name : {"generic", "sse4", "avx2", "avx512", "neon"}) {
    SimdLevel level{};
    ASSERT_TRUE(parse_simd_level(name, &level));
    const auto& available = available_simd_levels();
    options.simd_level = name;
    const Error error = error_of([&] {
      const auto backend = make_cpu_backend(options);
      EXPECT_STREQ(backend->simd_level(), name);
      EXPECT_EQ(backend->thread_count(), 3);
    });
    const bool has = std::find(available.begin(), available.end(), level) != available.end();
    EXPECT_EQ(error.status(), has ? ATTN_OK : ATTN_UNSUPPORTED) << name;
    EXPECT_TRUE(has || contains(error.message(), "it has generic")) << error.message();
  }
  options.simd_level.clear();
  EXPECT_STREQ(make_cpu_backend(options)->simd_level(), name_of(best_simd_level()));
  options.executor.parallel_for = [](void*, int32_t, void (*)(void*, int32_t), void*) {};
  EXPECT_EQ(status_of(error_of([&] { make_cpu_backend(options); })), ATTN_INVALID_ARGUMENT);
}

TEST(CpuBackend, ReportNamesEveryEngineOfEveryStage) {
  Bench bench;
  const Call call(1, 64, 64);
  const auto plan = bench.backend->plan(call.lowering, call.range(), {});
  const std::vector<StageReport> report = plan->report();
  ASSERT_EQ(report.size(), 3u);
  EXPECT_EQ(report[0].stage, "metadata");
  EXPECT_EQ(report[1].stage, "kv_update");
  EXPECT_EQ(report[2].stage, "attention");
  std::vector<std::string> considered;
  for (size_t s = 1; s < 3; ++s) {
    EXPECT_GT(report[s].bytes, 0);
    EXPECT_GT(report[s].flops, 0);
    for (const EngineVerdict& verdict : report[s].considered) {
      considered.push_back(verdict.engine);
      EXPECT_FALSE(verdict.reason.empty()) << verdict.engine;
    }
  }
  // Those of these stages come first; the rest is for stages of other operators.
  std::vector<std::string> names = bench.backend->engine_names();
  ASSERT_GT(names.size(), considered.size());
  names.resize(considered.size());
  EXPECT_EQ(considered, names);
  EXPECT_FALSE(plan->capturable());
  EXPECT_TRUE(contains(plan->capture_reason(), "synchronous"));
}

TEST(CpuBackend, GenericLevelSaysWhyNothingFasterRuns) {
  CpuOptions options;
  options.simd_level = "generic";
  Bench bench(options);
  const Call call(1, 4, 10);
  const auto report = bench.backend->plan(call.lowering, call.range(), {})->report();
  EXPECT_EQ(stage(report, "attention").engine, "generic");
  EXPECT_EQ(stage(report, "kv_update").engine, "generic-kv-update");
  for (const EngineVerdict& verdict : stage(report, "attention").considered) {
    EXPECT_EQ(verdict.supported, verdict.engine == "generic");
    EXPECT_FALSE(verdict.reason.empty());
  }
}

TEST(CpuBackend, AForcedNameForcesItsStageAlone) {
  Bench bench;
  const Call call(1, 4, 10);
  PlanRequest request;
  request.engine = "generic";
  auto report = bench.backend->plan(call.lowering, call.range(), request)->report();
  EXPECT_EQ(stage(report, "attention").engine, "generic");
  EXPECT_EQ(stage(report, "attention").considered[0].reason, "passed over: generic is forced");
  if (best_simd_level() != SimdLevel::kGeneric) {
    EXPECT_EQ(stage(report, "kv_update").engine, "simd-kv-update");
  }
  request.engine = "generic-kv-update";
  report = bench.backend->plan(call.lowering, call.range(), request)->report();
  EXPECT_EQ(stage(report, "kv_update").engine, "generic-kv-update");
}

TEST(CpuBackend, UnknownAndUnsupportedEngines) {
  Bench bench;
  Call call(1, 4, 10);
  PlanRequest request;
  request.engine = "wgmma";
  const Error unknown =
      error_of([&] { bench.backend->plan(call.lowering, call.range(), request); });
  EXPECT_EQ(unknown.status(), ATTN_INVALID_ARGUMENT);
  for (const std::string& name : bench.backend->engine_names()) {
    EXPECT_TRUE(contains(unknown.message(), name)) << unknown.message();
  }
  std::string reason;
  EXPECT_FALSE(bench.backend->supports(call.lowering, request, &reason));
  EXPECT_EQ(reason, unknown.message());

  call.lowering.kv_update->spec.key.unit_channel = false;
  EXPECT_TRUE(bench.backend->supports(call.lowering, {}, &reason));
  request.engine = "simd-kv-update";
  const Error refused =
      error_of([&] { bench.backend->plan(call.lowering, call.range(), request); });
  EXPECT_EQ(refused.status(), ATTN_UNSUPPORTED);
  EXPECT_FALSE(bench.backend->supports(call.lowering, request, &reason));
  EXPECT_EQ(reason, refused.message());
  if (best_simd_level() != SimdLevel::kGeneric) {
    EXPECT_TRUE(contains(reason, "channels do not lie side by side")) << reason;
  }
}

TEST(CpuBackend, SupportsUnknownSizes) {
  Bench bench;
  Call call(1, 4, 10);
  call.lowering.batch = call.lowering.attention->batch = call.lowering.attention->query_rows = -1;
  call.lowering.attention->max_total = -1;
  std::string reason;
  EXPECT_TRUE(bench.backend->supports(call.lowering, {}, &reason)) << reason;
}

TEST(CpuBackend, EnginesAgreeAndThreadsChangeNothing) {
  for (const auto& [batch, rows, total] :
       {std::tuple<int64_t, int64_t, int32_t>{1, 1, 200}, {3, 1, 90}, {2, 37, 37}, {2, 5, 129}}) {
    std::vector<float> generic_output, output, key;
    {
      Bench bench;
      Call call(batch, rows, total);
      bench.run(call, "generic");
      generic_output = call.output;
    }
    for (const int threads : {1, 2, 5}) {
      CpuOptions options;
      options.thread_count = threads;
      Bench bench(options);
      Call call(batch, rows, total);
      bench.run(call);
      if (threads == 1) output = call.output, key = call.key;
      EXPECT_EQ(call.output, output) << threads;
      EXPECT_EQ(call.key, key) << threads;
      for (size_t i = 0; i < output.size(); ++i) {
        ASSERT_NEAR(call.output[i], generic_output[i], 1e-5) << i;
      }
    }
  }
}

TEST(CpuBackend, HostExecutorRunsTheWork) {
  struct Host {
    int loops = 0;
  } host;
  CpuOptions options;
  options.executor = {&host, [](void*) { return int32_t{3}; },
                      [](void* self, int32_t count, void (*task)(void*, int32_t), void* ctx) {
                        ++static_cast<Host*>(self)->loops;
                        for (int32_t i = count; i-- > 0;) task(ctx, i);
                      }};
  Bench bench(options);
  EXPECT_EQ(bench.backend->thread_count(), 3);
  Call call(2, 64, 64);
  bench.run(call);
  EXPECT_GT(host.loops, 0);
  CpuOptions serial;
  serial.thread_count = 1;
  Bench other(serial);
  Call same(2, 64, 64);
  other.run(same);
  EXPECT_EQ(call.output, same.output);
}

TEST(CpuBackend, ScratchGrowsOnceAndIsCounted) {
  CpuOptions options;
  options.thread_count = 2;
  Bench bench(options);
  Call small(1, 1, 10);
  Call large(4, 64, 64);
  bench.run(small);
  EXPECT_EQ(bench.stats.scratch_allocations.load(), 1u);
  bench.run(small);
  EXPECT_EQ(bench.stats.scratch_allocations.load(), 1u);
  bench.run(large);
  bench.run(small);
  bench.run(large);
  EXPECT_EQ(bench.stats.scratch_allocations.load(), 2u);
  EXPECT_EQ(bench.stats.scratch_bytes.load(), bench.session->scratch_bytes());
  EXPECT_GE(bench.session->scratch_bytes(),
            bench.backend->plan(large.lowering, large.range(), {})->workspace_bytes());
  bench.session.reset();
  EXPECT_EQ(bench.stats.scratch_bytes.load(), 0u);
}

TEST(CpuBackend, CallersWorkspaceMayBeginAnywhere) {
  Bench bench;
  Call call(2, 7, 30);
  bench.run(call);
  const std::vector<float> expected = call.output;
  const auto plan = bench.backend->plan(call.lowering, call.range(), {});
  const size_t need = plan->workspace_bytes();
  for (const size_t offset : {size_t{0}, size_t{1}, size_t{37}, size_t{63}}) {
    Call again(2, 7, 30);
    std::vector<unsigned char> memory(need + offset + 16, 0xff);
    Launch launch;
    launch.workspace = memory.data() + offset;
    launch.workspace_bytes = need;
    bench.backend->execute(*plan, again.lowering, *bench.session, launch);
    EXPECT_EQ(again.output, expected);
    for (size_t i = 0; i < 16; ++i) ASSERT_EQ(memory[offset + need + i], 0xff);
    for (size_t i = 0; i < offset; ++i) ASSERT_EQ(memory[i], 0xff);
    launch.workspace_bytes = need - 1;
    const Error error =
        error_of([&] { bench.backend->execute(*plan, again.lowering, *bench.session, launch); });
    EXPECT_EQ(error.status(), ATTN_INVALID_ARGUMENT);
    EXPECT_TRUE(contains(error.message(), std::to_string(need))) << error.message();
  }
}

TEST(CpuBackend, BadLengthsWriteNothing) {
  Bench bench;
  Call call(3, 2, 30);
  call.values[2] = Call::kCapacity;
  const std::vector<float> key = call.key;
  const std::vector<float> value = call.value;
  const std::vector<float> output = call.output;
  const Error error = error_of([&] { bench.run(call); });
  EXPECT_EQ(error.status(), ATTN_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(error.message(), "seqlens_k[2] is 256")) << error.message();
  EXPECT_EQ(call.key, key);
  EXPECT_EQ(call.value, value);
  EXPECT_EQ(call.output, output);
  EXPECT_EQ(bench.session->poll_faults().bits, 0u);
}

TEST(CpuBackend, EmptyBatchAndNoQueries) {
  Bench bench;
  Call none(0, 4, 10);
  EXPECT_NO_THROW(bench.run(none));
  Call no_queries(2, 0, 10);
  const std::vector<float> key = no_queries.key;
  EXPECT_NO_THROW(bench.run(no_queries));
  EXPECT_EQ(no_queries.key, key);
}

TEST(CpuCost, CountsVisiblePairs) {
  AttentionSpec spec;
  spec.type = kFloat16;
  spec.q_heads = 4;
  spec.kv_heads = 2;
  spec.head_size = spec.v_head_size = 64;
  EXPECT_EQ(attention_cost(spec, {2, 8, 32}).flops, 4.0 * 2 * 4 * 8 * 32 * 64);
  EXPECT_EQ(attention_cost(spec, {2, 8, 32}).bytes, 2.0 * 2 * 128 * (4 * 8 + 2 * 32));
  spec.causal = true;
  EXPECT_EQ(attention_cost(spec, {1, 1, 32}).flops, 4.0 * 4 * 32 * 64);
  EXPECT_EQ(attention_cost(spec, {1, 32, 32}).flops, 4.0 * 4 * (32 * 33 / 2) * 64);
  spec.left_window = 3;
  EXPECT_EQ(attention_cost(spec, {1, 32, 32}).flops, 4.0 * 4 * (32 * 4) * 64);
  spec.left_window = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(attention_cost(spec, {1, 32, 32}).flops, 4.0 * 4 * (32 * 33 / 2) * 64);
}

TEST(CpuCost, InPlaceUpdatesMoveTheNewRowsAlone) {
  Call call(2, 3, 30);
  KvUpdateProblem& problem = *call.lowering.kv_update;
  EXPECT_EQ(kv_update_cost(problem, call.range()).bytes, 2.0 * 2 * 2 * (2 * 3) * 64 * 4);
  problem.spec.value.active = false;
  problem.spec.key.in_place = false;
  // 3 new rows read, 256 present rows written, 253 past rows read.
  EXPECT_EQ(kv_update_cost(problem, call.range()).bytes, 2.0 * 2 * (3 + 256 + 253) * 64 * 4);
}

}  // namespace
}  // namespace attn::cpu
