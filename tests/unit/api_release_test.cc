// Handles that are released while a call with them is under way.
#include <gtest/gtest.h>

#include "api_fixture.h"
#include "api_host.h"

namespace attn::test {
namespace {

// Gives back every handle in the middle of the call's work.
struct Releasing {
  attn_context* context = nullptr;
  attn_op* op = nullptr;
  attn_plan* plan = nullptr;
  attn_session* session = nullptr;
  attn_binding* binding = nullptr;
  int released = 0;
  bool working = false;
  bool released_while_working = false;

  void release_all() {
    attn_binding_release(binding);
    attn_plan_release(plan);
    attn_session_release(session);
    attn_op_release(op);
    attn_context_release(context);
    binding = nullptr;
    plan = nullptr;
    session = nullptr;
    op = nullptr;
    context = nullptr;
  }

  attn_executor executor() {
    attn_executor executor = ATTN_EXECUTOR_INIT;
    executor.user = this;
    executor.release_user = [](void* user) {
      auto& self = *static_cast<Releasing*>(user);
      ++self.released;
      self.released_while_working |= self.working;
    };
    executor.concurrency = [](void*) -> int32_t { return 2; };
    executor.parallel_for = [](void* user, int32_t count, void (*task)(void*, int32_t),
                               void* task_context) {
      auto& self = *static_cast<Releasing*>(user);
      self.working = true;
      self.release_all();
      for (int32_t i = 0; i < count; ++i) task(task_context, i);
      self.working = false;
    };
    return executor;
  }
};

TEST(ApiReleaseTest, ACallKeepsWhatItUses) {
  for (const bool through_binding : {false, true}) {
    Releasing host;
    const attn_executor executor = host.executor();
    attn_context_desc desc = api_context_desc();
    desc.executor = &executor;
    host.context = make_api_context(&desc);
    host.op = make_gqa(host.context, "released", 16, 8);
    host.session = make_api_session(host.context);
    DecodeStep step(8, 200, 256, 16, 8);
    if (through_binding) {
      ASSERT_OK(attn_binding_create(host.op, host.session, &host.binding, &error));
      ASSERT_OK(step.set(host.binding, &error));
      ASSERT_OK(attn_binding_prepare(host.binding, nullptr, &error));
      ASSERT_OK(attn_binding_execute(host.binding, nullptr, &error));
    } else {
      ASSERT_OK(step.prepare(host.op, &host.plan, &error));
      ASSERT_OK(step.execute(host.plan, host.session, &error));
    }
    EXPECT_EQ(host.plan, nullptr) << "the executor was not asked";
    EXPECT_EQ(host.binding, nullptr) << "the executor was not asked";
    EXPECT_EQ(host.released, 1);
    EXPECT_FALSE(host.released_while_working);
    EXPECT_NE(step.y, std::vector<float>(step.y.size(), -7.0f));
  }
}

// A host whose allocator gives back every handle when the first scratch comes back.
struct TrimmingHost : Host {
  attn_context* context = nullptr;
  attn_session* sessions[2] = {};
  bool inside = false;
  bool released_inside = false;

  attn_allocator releasing_allocator() {
    attn_allocator allocator = Host::allocator();
    allocator.user = this;
    allocator.release_user = [](void* user) {
      auto& self = *static_cast<TrimmingHost*>(user);
      ++self.released;
      self.released_inside |= self.inside;
    };
    allocator.deallocate = [](void* user, uint32_t, void* memory, uint64_t bytes, void*) {
      auto& self = *static_cast<TrimmingHost*>(user);
      self.held -= static_cast<int64_t>(bytes);
      std::free(memory);
      if (self.context == nullptr) return;
      self.inside = true;
      for (attn_session* session : self.sessions) attn_session_release(session);
      attn_context_release(self.context);
      self.context = nullptr;
      self.inside = false;
    };
    return allocator;
  }
};

TEST(ApiReleaseTest, ATrimKeepsItsContext) {
  TrimmingHost host;
  const attn_allocator allocator = host.releasing_allocator();
  attn_context_desc desc = api_context_desc();
  desc.allocator = &allocator;
  host.context = make_api_context(&desc);
  attn_op* op = make_gqa(host.context);
  const DecodeStep step;
  attn_plan* plan = nullptr;
  ASSERT_OK(step.prepare(op, &plan, &error));
  for (attn_session*& session : host.sessions) {
    session = make_api_session(host.context);
    ASSERT_OK(step.execute(plan, session, &error));
  }
  attn_plan_release(plan);
  attn_op_release(op);
  ASSERT_EQ(host.allocations, 2) << "no scratch, no test";
  ASSERT_OK(attn_context_trim(host.context, &error));
  EXPECT_EQ(host.released, 1);
  EXPECT_FALSE(host.released_inside) << "the context went while the call still used it";
  EXPECT_EQ(host.held, 0);
}

}  // namespace
}  // namespace attn::test
