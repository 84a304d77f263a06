// The plan cache by itself: once for many, failures, bound, trim.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/plan_cache.h"
#include "api_fake_backend.h"
#include "core/error.h"

namespace attn::test {
namespace {

api::PlanKey key_for(int64_t batch) {
  Lowering call;
  call.batch = batch;
  return api::make_key(call, "", 0, {batch, 1, 1});
}

std::shared_ptr<const BackendPlan> fake_plan(const api::PlanKey&) {
  return std::make_shared<FakePlan>(64, false);
}

TEST(ApiPlanCacheTest, ManyThreadsOnePlan) {
  api::ContextStats stats;
  api::PlanCache cache(stats, 4);
  std::atomic<int> made{0};
  std::vector<const api::PlanEntry*> found(8);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < found.size(); ++t) {
    threads.emplace_back([&, t] {
      found[t] = cache
                     .find_or_make(key_for(1),
                                   [&made](const api::PlanKey& key) {
                                     ++made;
                                     std::this_thread::sleep_for(std::chrono::milliseconds(20));
                                     return fake_plan(key);
                                   })
                     .get();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, 1);
  for (const api::PlanEntry* entry : found) EXPECT_EQ(entry, found[0]);
  EXPECT_EQ(stats.plans_created, 1u);
  EXPECT_EQ(stats.plan_cache_hits, 7u);
}

TEST(ApiPlanCacheTest, AFailureReachesAllThatWaitAndIsForgotten) {
  api::ContextStats stats;
  api::PlanCache cache(stats, 4);
  std::atomic<int> failed{0}, made{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] {
      try {
        cache.find_or_make(key_for(1),
                           [&made](const api::PlanKey&) -> std::shared_ptr<const BackendPlan> {
                             ++made;
                             std::this_thread::sleep_for(std::chrono::milliseconds(20));
                             throw_error(ATTN_COMPILE, "no luck");
                           });
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), ATTN_COMPILE);
        ++failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 6);
  EXPECT_GE(made, 1);
  EXPECT_NE(cache.find_or_make(key_for(1), fake_plan), nullptr);
  EXPECT_EQ(stats.plans_created, 1u);
}

TEST(ApiPlanCacheTest, TheLeastRecentlyUsedGoesFirst) {
  api::ContextStats stats;
  api::PlanCache cache(stats, 3);
  for (const int64_t batch : {1, 2, 3}) cache.find_or_make(key_for(batch), fake_plan);
  cache.find_or_make(key_for(1), fake_plan);  // now 2 is the oldest
  const auto held = cache.find_or_make(key_for(4), fake_plan);
  EXPECT_EQ(stats.plans_live, 3u);
  EXPECT_EQ(stats.plans_created, 4u);
  for (const int64_t batch : {1, 3, 4}) cache.find_or_make(key_for(batch), fake_plan);
  EXPECT_EQ(stats.plans_created, 4u) << "1, 3 and 4 are still there";
  cache.find_or_make(key_for(2), fake_plan);
  EXPECT_EQ(stats.plans_created, 5u);

  cache.trim();
  EXPECT_EQ(stats.plans_live, 1u) << "only what is held stays";
  EXPECT_EQ(held->key().range.batch, 4);
  EXPECT_EQ(held->plan().workspace_bytes(), 64u);
}

TEST(ApiPlanCacheTest, CoveringPlans) {
  api::ContextStats stats;
  api::PlanCache cache(stats, 4);
  Lowering call;
  const ShapeRange needed = {2, 1, 1};
  EXPECT_EQ(cache.find_covering(call, "", 0, needed), nullptr);
  cache.find_or_make(key_for(1), fake_plan);
  EXPECT_EQ(cache.find_covering(call, "", 0, needed), nullptr);
  const auto larger = cache.find_or_make(key_for(9), fake_plan);
  EXPECT_EQ(cache.find_covering(call, "", 0, needed), larger);
  EXPECT_EQ(cache.find_covering(call, "", 0, needed, 63), nullptr) << "it wants 64 bytes";
  EXPECT_EQ(cache.find_covering(call, "", 0, needed, 64), larger);
  EXPECT_EQ(cache.find_covering(call, "other", 0, needed), nullptr);
  EXPECT_EQ(cache.find_covering(call, "", 1, needed), nullptr);
  call.lengths.spec.rule = LengthRule::kGroupQuery;
  EXPECT_EQ(cache.find_covering(call, "", 0, needed), nullptr);
}

// Each fact of a shape class that differs is named, with what came and what the plan has.
TEST(ApiPlanKeyTest, EveryDifferenceHasWords) {
  Lowering plan;
  plan.batch = 1;
  plan.kv_update.emplace();
  plan.attention.emplace();
  const api::PlanKey key = api::make_key(plan, "", 0, {1, 1, 1});
  const auto differ = [&](auto change) {
    Lowering call = plan;
    change(call, *call.attention);
    EXPECT_FALSE(api::fits(key, call));
    return api::mismatch_text(key, call);
  };
  const std::string head = "the plan does not fit this call: ";
  using A = AttentionProblem;
  EXPECT_EQ(differ([](Lowering&, A& a) { a.spec.type = kFloat16; }),
            head + "element type float16, the plan has none");
  EXPECT_EQ(differ([](Lowering&, A& a) { a.spec.scale = 0.5; }),
            head + "scale 0.5, the plan has 0");
  EXPECT_EQ(differ([](Lowering&, A& a) { a.spec.left_window = 3; }),
            head + "left window 3, the plan has -1");
  const auto with_mask = [&](MaskKind kind) {
    return differ([kind](Lowering&, A& a) { a.spec.mask = kind; });
  };
  EXPECT_EQ(with_mask(MaskKind::kAdditive), head + "mask additive, the plan has absent");
  EXPECT_EQ(with_mask(MaskKind::kBoolean), head + "mask boolean, the plan has absent");
  const auto with_sink = [&](Sink sink) {
    return differ([sink](Lowering&, A& a) { a.spec.sink = sink; });
  };
  EXPECT_EQ(with_sink(Sink::kZero), head + "sink zero, the plan has absent");
  EXPECT_EQ(with_sink(Sink::kPerHead), head + "sink one a head, the plan has absent");
  const std::pair<ScoreStage, const char*> stages[] = {
      {ScoreStage::kRaw, "raw products"},
      {ScoreStage::kCapped, "after softcap"},
      {ScoreStage::kBiased, "after the mask"},
      {ScoreStage::kProbabilities, "probabilities"}};
  for (const auto& [stage, words] : stages) {
    EXPECT_EQ(differ([s = stage](Lowering&, A& a) { a.spec.scores = s; }),
              head + "score output " + words + ", the plan has absent");
  }
  const std::pair<Placement, const char*> places[] = {{Placement::kHost, "in host memory"},
                                                      {Placement::kDevice, "in device memory"}};
  for (const auto& [place, words] : places) {
    EXPECT_EQ(differ([p = place](Lowering& call, A&) { call.lengths.spec.values = p; }),
              head + "lengths " + words + ", the plan has absent");
  }
  EXPECT_EQ(differ([](Lowering& call, A&) { call.kv_update->spec.key.in_place = true; }),
            head + "key cache in place yes, the plan has no");
  EXPECT_EQ(differ([](Lowering& call, A&) { call.kv_update->spec.value.active = true; }),
            head + "output present_value bound yes, the plan has no");
  EXPECT_EQ(differ([](Lowering& call, A&) { call.kv_update.reset(); }),
            head + "the call's kind differs from the plan's");
  EXPECT_EQ(differ([](Lowering&, A& a) { a.spec.query_transform.rotary = a.spec.causal = true; }),
            head + "causal yes, the plan has no; rotary embedding yes, the plan has no");
  EXPECT_EQ(differ([](Lowering&, A& a) { a.spec.hidden_score = 1; }),
            head + "the call's kind differs from the plan's");
}

}  // namespace
}  // namespace attn::test
