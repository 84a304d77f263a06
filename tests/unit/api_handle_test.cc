// Handles: kinds, forgeries, release in any order and from any thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "api_fixture.h"
#include "attn_c_host.h"

namespace attn::test {
namespace {

template <class T>
T* as(void* handle) {
  return static_cast<T*>(handle);
}

TEST_F(ApiTest, NullAndWrongKindsAreRefusedInWords) {
  attn_context_info info = ATTN_CONTEXT_INFO_INIT;
  EXPECT_REFUSED(attn_context_get_info(nullptr, &info, &error), ATTN_INVALID_ARGUMENT,
                 "context is null; a context is needed");
  EXPECT_REFUSED(attn_context_get_info(as<attn_context>(session), &info, &error),
                 ATTN_INVALID_ARGUMENT, "context is a session; a context is needed");
  EXPECT_REFUSED(attn_session_clear_faults(as<attn_session>(op), nullptr, &error),
                 ATTN_INVALID_ARGUMENT, "session is an op; a session is needed");
  attn_plan_info plan_info = ATTN_PLAN_INFO_INIT;
  EXPECT_REFUSED(attn_plan_get_info(as<attn_plan>(context), &plan_info, &error),
                 ATTN_INVALID_ARGUMENT, "plan is a context; a plan is needed");
  EXPECT_REFUSED(attn_binding_execute(as<attn_binding>(session), nullptr, &error),
                 ATTN_INVALID_ARGUMENT, "binding is a session");
  EXPECT_REFUSED(attn_host_graph_launch(as<attn_host_graph>(session), nullptr, &error),
                 ATTN_INVALID_ARGUMENT, "graph is a session");

  alignas(16) uint64_t forged[4] = {0x1234, 0, 0, 0};
  EXPECT_REFUSED(attn_context_get_info(as<attn_context>(&forged), &info, &error),
                 ATTN_INVALID_ARGUMENT, "no live handle");
  EXPECT_REFUSED(
      attn_context_get_info(as<attn_context>(reinterpret_cast<char*>(&forged) + 3), &info, &error),
      ATTN_INVALID_ARGUMENT, "context is no handle of this library");
}

TEST_F(ApiTest, AHandleEndsWithItsRelease) {
  // The op keeps the context alive, so that its kind word can still be read.
  attn_context* other = make_api_context();
  attn_op* keeper = make_gqa(other);
  attn_context_release(other);
  attn_context_info info = ATTN_CONTEXT_INFO_INIT;
  EXPECT_REFUSED(attn_context_get_info(other, &info, &error), ATTN_INVALID_ARGUMENT,
                 "context was released already");
  attn_context_release(other);  // a second release finds no live handle
  DecodeStep step;
  attn_plan* plan = nullptr;
  ASSERT_OK(step.prepare(keeper, &plan, &error));
  attn_op_release(keeper);
  attn_plan_info plan_info = ATTN_PLAN_INFO_INIT;
  ASSERT_OK(attn_plan_get_info(plan, &plan_info, &error));
  attn_plan_release(plan);
}

TEST(ApiHandleTest, ReleaseTakesNullAndForeignMemory) {
  attn_context_release(nullptr);
  attn_op_release(nullptr);
  attn_session_release(nullptr);
  attn_plan_release(nullptr);
  attn_binding_release(nullptr);
  attn_host_graph_release(nullptr);
  alignas(16) uint64_t forged[2] = {7, 7};
  attn_op_release(as<attn_op>(&forged));
  EXPECT_EQ(forged[0], 7u);
}

// Context, op, session, plan and binding in every order; what is left works until its own release.
TEST(ApiHandleTest, AnyOrderOfReleases) {
  std::vector<int> order = {0, 1, 2, 3, 4};
  do {
    int released = 0;
    attn_logger logger = ATTN_LOGGER_INIT;
    logger.user = &released;
    logger.release_user = [](void* user) { ++*static_cast<int*>(user); };
    logger.log = [](void*, int32_t, const char*) {};
    attn_context_desc desc = api_context_desc();
    desc.logger = &logger;

    attn_context* context = make_api_context(&desc);
    attn_op* op = make_gqa(context);
    attn_session* session = make_api_session(context);
    DecodeStep step;
    attn_plan* plan = nullptr;
    attn_binding* binding = nullptr;
    ASSERT_OK(step.prepare(op, &plan, &error));
    ASSERT_OK(attn_binding_create(op, session, &binding, &error));
    ASSERT_OK(step.set(binding, &error));
    ASSERT_OK(attn_binding_prepare(binding, nullptr, &error));

    bool binding_lives = true;
    for (const int which : order) {
      EXPECT_EQ(released, 0);
      if (which == 0) attn_context_release(context);
      if (which == 1) attn_op_release(op);
      if (which == 2) attn_session_release(session);
      if (which == 3) attn_plan_release(plan);
      if (which == 4) attn_binding_release(binding);
      binding_lives = binding_lives && which != 4;
      if (binding_lives) ASSERT_OK(attn_binding_execute(binding, nullptr, &error));
    }
    EXPECT_EQ(released, 1);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(ApiHandleTest, ReleasesFromManyThreads) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    attn_context* context = make_api_context();
    std::vector<std::function<void()>> releases;
    for (int i = 0; i < 8; ++i) {
      attn_op* op = make_gqa(context);
      attn_session* session = make_api_session(context);
      attn_binding* binding = nullptr;
      ASSERT_OK(attn_binding_create(op, session, &binding, &error));
      releases.push_back([op] { attn_op_release(op); });
      releases.push_back([session] { attn_session_release(session); });
      releases.push_back([binding] { attn_binding_release(binding); });
    }
    releases.push_back([context] { attn_context_release(context); });
    std::mt19937 random(seed);
    std::shuffle(releases.begin(), releases.end(), random);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&releases, t] {
        for (size_t i = static_cast<size_t>(t); i < releases.size(); i += 4) releases[i]();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

// A handle that two threads release at the same moment is released once: what the binding keeps
// stays.
TEST(ApiHandleTest, OneHandleFromTwoThreads) {
  attn_context* context = make_api_context();
  attn_op* op = make_gqa(context);
  for (int round = 0; round < 3000; ++round) {
    attn_session* session = make_api_session(context);
    attn_binding* binding = nullptr;
    ASSERT_OK(attn_binding_create(op, session, &binding, &error));
    std::atomic<int> waiting{0};
    const auto release = [&] {
      for (++waiting; waiting < 2;) {
      }
      attn_session_release(session);
    };
    std::thread other(release);
    release();
    other.join();
    ASSERT_EQ(api_stats(context).sessions_live, 1u) << "round " << round;
    attn_binding_release(binding);
    ASSERT_EQ(api_stats(context).sessions_live, 0u);
  }
  attn_op_release(op);
  attn_context_release(context);
}

TEST_F(ApiTest, LiveObjectsAreCounted) {
  EXPECT_EQ(api_stats(context).ops_live, 1u);
  EXPECT_EQ(api_stats(context).sessions_live, 1u);
  attn_binding* binding = bind();
  attn_op* more = make_gqa(context);
  EXPECT_EQ(api_stats(context).bindings_live, 1u);
  EXPECT_EQ(api_stats(context).ops_live, 2u);
  attn_op_release(more);
  attn_binding_release(binding);
  EXPECT_EQ(api_stats(context).bindings_live, 0u);
  EXPECT_EQ(api_stats(context).ops_live, 1u);
}

TEST_F(ApiTest, PartsOfTwoContextsDoNotMix) {
  attn_context* other = make_api_context();
  attn_session* foreign = make_api_session(other);
  attn_binding* binding = nullptr;
  EXPECT_REFUSED(attn_binding_create(op, foreign, &binding, &error), ATTN_INVALID_ARGUMENT,
                 "session is of another context");
  DecodeStep step;
  attn_plan* plan = prepare(step);
  EXPECT_REFUSED(step.execute(plan, foreign, &error), ATTN_INVALID_ARGUMENT,
                 "session is of another context");
  attn_plan_release(plan);
  attn_session_release(foreign);
  attn_context_release(other);
}

}  // namespace
}  // namespace attn::test
