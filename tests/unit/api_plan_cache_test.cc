// The plan cache by itself: once for many, failures, bound, trim.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
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
  EXPECT_EQ(cache.find_covering(call, "other", 0, needed), nullptr);
  EXPECT_EQ(cache.find_covering(call, "", 1, needed), nullptr);
  call.lengths.spec.rule = LengthRule::kGroupQuery;
  EXPECT_EQ(cache.find_covering(call, "", 0, needed), nullptr);
}

}  // namespace
}  // namespace attn::test
