// Threads: their number changes no bit, a host's executor neither, and many may use one context.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "matrix/gqa_case.h"
#include "matrix/run.h"

namespace attn::matrix {
namespace {

const char* const kEngines[] = {"", "simd-prefill", "simd-decode", "generic",
                                "amx-prefill-emulated"};

// Steps that are worth splitting: long caches, some ragged, some of one sequence.
std::vector<GqaOutline> outlines() {
  std::vector<GqaOutline> list;
  const struct {
    int64_t batch, rows, total, heads, kv_heads, size;
  } sizes[] = {{1, 1, 2000, 8, 2, 64},
               {3, 1, 700, 6, 1, 128},
               {1, 160, 160, 4, 2, 64},
               {2, 33, 300, 4, 4, 80},
               {5, 1, 40, 2, 2, 96}};
  for (Type type : {Type::kFloat32, Type::kFloat16, Type::kBfloat16}) {
    for (const auto& size : sizes) {
      GqaOutline o;
      o.seed = 3;
      o.type = type;
      o.batch = size.batch;
      o.rows = o.new_rows = size.rows;
      o.heads = size.heads;
      o.kv_heads = size.kv_heads;
      o.size = size.size;
      o.past = true;
      o.step = size.rows == 1 ? Step::kDecode : Step::kChunk;
      for (int64_t b = 0; b < size.batch; ++b) {
        o.totals.push_back(std::max(size.rows, size.total - 37 * b));
      }
      o.bound = size.total + 1;
      for (CacheOutline* cache : {&o.key, &o.value}) {
        cache->present = {true, size.total + 9, true};
        cache->past_rows = size.total + 9;
      }
      o.rotary = true;
      o.rotary_width = size.size;
      o.log_sum_exp = true;
      list.push_back(o);
    }
  }
  return list;
}

GqaCase make(const GqaOutline& outline, uint64_t seed) {
  Random random(seed);
  GqaCase c = build_case(outline, random, false);
  c.wide_range = false;
  return c;
}

// Engines that take few query rows alone, or in bfloat16 many.
bool may_refuse(const std::string& engine, const GqaOutline& o) {
  if (engine == "simd-decode") return o.rows * o.heads / o.kv_heads > 16;
  return engine == "amx-prefill-emulated" && o.type == Type::kBfloat16 && o.rows < 32;
}

std::vector<uint64_t> bits(GqaCase& c, Device& device, const std::string& engine) {
  const RunResult result = run_case(c, device, engine);
  const GqaOutline& o = c.outline;
  if (may_refuse(engine, o)) {
    EXPECT_NE(result.verdict, Verdict::kFailed) << result.text;
  } else {
    EXPECT_EQ(result.verdict, Verdict::kPassed) << engine << ": " << result.text;
  }
  return result.verdict == Verdict::kPassed ? c.fixed_bits() : std::vector<uint64_t>();
}

// A host's pool as unhelpful as the contract allows: new threads each time, tasks backwards.
struct BackwardPool {
  explicit BackwardPool(int32_t count) : threads(count) {
    table.user = this;
    table.concurrency = [](void* user) { return static_cast<BackwardPool*>(user)->threads; };
    table.parallel_for = [](void* user, int32_t tasks, void (*task)(void*, int32_t), void* data) {
      std::atomic<int32_t> left(tasks);
      std::vector<std::thread> workers;
      for (int32_t t = 0; t < static_cast<BackwardPool*>(user)->threads; ++t) {
        workers.emplace_back([&] {
          for (int32_t i = --left; i >= 0; i = --left) task(data, i);
        });
      }
      for (std::thread& worker : workers) worker.join();
    };
    table.release_user = [](void* user) { ++static_cast<BackwardPool*>(user)->released; };
  }

  int32_t threads;
  std::atomic<int> released{0};
  attn_executor table = ATTN_EXECUTOR_INIT;
};

TEST(GqaThreads, BitsDoNotDependOnThreadsOrExecutor) {
  std::vector<std::unique_ptr<BackwardPool>> pools;
  {
    std::vector<Device> devices;
    for (int threads : {1, 2, 3, 4}) {
      test::ContextOptions options;
      options.threads = threads;
      devices.push_back(make_device(options));
    }
    for (int32_t threads : {1, 3, 5}) {
      pools.push_back(std::make_unique<BackwardPool>(threads));
      test::ContextOptions options;
      options.executor = &pools.back()->table;
      devices.push_back(make_device(options));
    }
    uint64_t seed = 20;
    for (const GqaOutline& outline : outlines()) {
      GqaCase c = make(outline, ++seed);
      for (const std::string engine : kEngines) {
        // Emulated tiles are slow: the shorter problems are cut into items all the same.
        if (engine == "amx-prefill-emulated" && outline.totals[0] > 300) continue;
        const std::vector<uint64_t> first = bits(c, devices[0], engine);
        EXPECT_EQ(bits(c, devices[0], engine), first) << "a second run, engine " << engine;
        for (size_t d = 1; d < devices.size(); ++d) {
          EXPECT_EQ(bits(c, devices[d], engine), first)
              << "device " << d << ", engine " << engine << ": " << text_of(outline);
        }
      }
    }
  }
  for (const auto& pool : pools) EXPECT_EQ(pool->released, 1);
}

// A sequence gives the same bits alone and inside a batch when the plan promises it.
TEST(GqaThreads, BatchInvariantPlansKeepASequencesBits) {
  Device device = make_device({});
  GqaOutline o = outlines()[0];
  o.batch = 3;
  o.totals = {2000, 900, 31};
  GqaCase all = make(o, 40);
  const auto run = [&](GqaCase& c) {
    c.restore();
    const test::Arguments inputs = c.inputs(), outputs = c.outputs();
    test::Handle<attn_op> op;
    EXPECT_TRUE(test::create_op(op, device.context.get(), "com.microsoft", "GroupQueryAttention", 1,
                                c.attributes())
                    .ok());
    attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
    desc.flags = ATTN_PREPARE_BATCH_INVARIANT;
    desc.inputs = inputs.data();
    desc.input_count = inputs.size();
    desc.outputs = outputs.data();
    desc.output_count = outputs.size();
    test::Handle<attn_plan> plan;
    const test::Outcome prepared = test::create(plan, [&](attn_plan** out, attn_error* error) {
      return attn_op_prepare(op.get(), &desc, out, error);
    });
    EXPECT_TRUE(prepared.ok()) << prepared.message;
    const test::Outcome executed = test::outcome_of([&](attn_error* error) {
      return attn_plan_execute(plan.get(), device.session.get(), inputs.data(), inputs.size(),
                               outputs.data(), outputs.size(), nullptr, error);
    });
    EXPECT_TRUE(executed.ok()) << executed.message;
  };
  run(all);
  const test::View together = all.out[kOutput].view();
  std::vector<double> want = test::values_of(together);
  all.restore();
  const int64_t width = o.heads * o.size;
  for (int64_t b = 0; b < 3; ++b) {
    GqaOutline one = o;
    one.batch = 1;
    one.totals = {o.totals[static_cast<size_t>(b)]};
    GqaCase alone = make(one, 41);
    for (uint32_t slot = 0; slot < kInputs; ++slot) {
      const test::View& from = all.in[slot].view();
      const test::View& to = alone.in[slot].view();
      if (!from.bound) continue;
      const bool batched = !from.shape.empty() && from.dim(0) == 3 && slot != kCosCache &&
                           slot != kSinCache && slot != kTotalSequenceLength;
      const int64_t first = batched ? b * to.elements() : 0;
      for (int64_t k = 0; k < std::min(to.elements(), from.elements()); ++k) {
        to.set_linear(k, from.at_linear(first + k));
      }
    }
    alone.renew();
    run(alone);
    const std::vector<double> got = test::values_of(alone.out[kOutput].view());
    for (int64_t d = 0; d < width; ++d) {
      ASSERT_EQ(got[static_cast<size_t>(d)], want[static_cast<size_t>(b * width + d)])
          << "sequence " << b << " channel " << d;
    }
  }
}

// Eight threads with a session each on one context; equal layers share their plans.
TEST(GqaThreads, ManyThreadsOnOneContext) {
  constexpr int kThreads = 8, kRounds = 12;
  Device shared = make_device({});
  std::vector<GqaCase> cases;
  std::vector<std::vector<uint64_t>> want;
  for (int t = 0; t < kThreads; ++t) {
    GqaOutline o = outlines()[static_cast<size_t>(t % 5)];
    o.type = t % 2 ? Type::kFloat32 : Type::kBfloat16;
    cases.push_back(make(o, 60 + static_cast<uint64_t>(t)));
    want.push_back(bits(cases.back(), shared, ""));
    ASSERT_FALSE(want.back().empty());
  }
  std::vector<std::string> failures(kThreads);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      test::Handle<attn_session> session;
      const test::Outcome made = test::create_session(session, shared.context.get());
      if (!made.ok()) {
        failures[t] = made.message;
        return;
      }
      for (int round = 0; round < kRounds && failures[t].empty(); ++round) {
        const RunResult result = run_case(cases[t], shared.context.get(), session.get(), "");
        if (result.verdict != Verdict::kPassed) {
          failures[t] = result.text;
        } else if (cases[t].fixed_bits() != want[t]) {
          failures[t] = "other bits than alone";
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

// A decode loop on one buffer plans once and, from its second step on, allocates no scratch.
TEST(GqaThreads, AGrowingCacheNeitherPlansNorAllocatesAgain) {
  Device device = make_device({});
  GqaOutline o = outlines()[0];
  o.bound = 0;
  attn_context_stats before = ATTN_CONTEXT_STATS_INIT, after = before;
  const int64_t capacity = o.totals[0] + 9;
  for (int64_t step = 0; step < 20; ++step) {
    o.totals[0] = 30 + 100 * step;
    o.bound = o.totals[0];
    o.key.present.rows = o.value.present.rows = o.key.past_rows = o.value.past_rows = capacity;
    GqaCase c = make(o, 80);
    c.through_binding = c.own_workspace = false;
    ASSERT_FALSE(bits(c, device, "").empty());
    attn_context_get_stats(device.context.get(), step == 0 ? &before : &after, nullptr);
  }
  EXPECT_EQ(after.plans_created, before.plans_created);
  EXPECT_EQ(after.scratch_allocations, before.scratch_allocations);
  EXPECT_GT(after.executions, before.executions);
}

}  // namespace
}  // namespace attn::matrix
