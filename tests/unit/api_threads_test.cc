// Many threads on one context: every result right, every counter exact.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "api_fixture.h"

namespace attn::test {
namespace {

TEST(ApiThreadsTest, OneContextManyThreads) {
  constexpr int kThreads = 6, kRounds = 60;
  const attn_context_desc desc = api_context_desc();
  attn_context* context = make_api_context(&desc);
  attn_op* shared = make_gqa(context, "shared");
  DecodeStep widest(4);
  attn_plan* plan = nullptr;
  ASSERT_OK(widest.prepare(shared, &plan, &error));
  std::atomic<uint64_t> executions{0};

  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<uint32_t>(t));
      attn_session* session = make_api_session(context);
      attn_execute_desc prepares = ATTN_EXECUTE_DESC_INIT;
      prepares.flags = ATTN_EXECUTE_PREPARE;
      for (int round = 0; round < kRounds; ++round) {
        DecodeStep step(1 + static_cast<int64_t>(random() % 4));
        if (random() % 2 == 0) {
          ASSERT_OK(step.execute(plan, session, &error));
        } else {
          attn_op* own = make_gqa(context, "own");
          attn_binding* binding = nullptr;
          ASSERT_OK(attn_binding_create(own, session, &binding, &error));
          attn_op_release(own);
          ASSERT_OK(step.set(binding, &error));
          ASSERT_OK(attn_binding_execute(binding, &prepares, &error));
          attn_binding_release(binding);
        }
        step.expect_value_rows();
        ++executions;
        if (random() % 8 == 0) ASSERT_OK(attn_context_trim(context, &error));
        attn_support support = ATTN_SUPPORT_INIT;
        const attn_query_desc query = step.query_desc();
        ASSERT_OK(attn_op_query(shared, &query, &support, &error));
        EXPECT_EQ(support.supported, 1u) << support.reason;
      }
      attn_session_release(session);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const attn_context_stats stats = api_stats(context);
  EXPECT_EQ(stats.executions, executions.load());
  EXPECT_EQ(stats.sessions_live, 0u);
  EXPECT_EQ(stats.bindings_live, 0u);
  EXPECT_EQ(stats.ops_live, 1u);
  attn_plan_release(plan);
  attn_op_release(shared);
  attn_context_release(context);
}

// All threads want the same session: each call either runs or is BUSY, none is lost.
TEST(ApiThreadsTest, OneSessionManyThreads) {
  const attn_context_desc desc = api_context_desc();
  attn_context* context = make_api_context(&desc);
  attn_op* op = make_gqa(context);
  attn_session* session = make_api_session(context);
  DecodeStep sample;
  attn_plan* plan = nullptr;
  ASSERT_OK(sample.prepare(op, &plan, &error));
  std::atomic<uint64_t> ran{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        DecodeStep step;
        const attn_status status = step.execute(plan, session, nullptr);
        if (status == ATTN_OK) {
          step.expect_value_rows();
          ++ran;
        } else {
          EXPECT_EQ(status, ATTN_BUSY);
          EXPECT_EQ(step.y[0], -7.0f);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(api_stats(context).executions, ran.load());
  EXPECT_GT(ran, 0u);
  attn_plan_release(plan);
  attn_session_release(session);
  attn_op_release(op);
  attn_context_release(context);
}

}  // namespace
}  // namespace attn::test
