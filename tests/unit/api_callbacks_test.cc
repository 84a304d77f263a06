// The host's callbacks: used, given back once, and allowed to fail.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "api_fixture.h"
#include "api_host.h"

namespace attn::test {
namespace {

TEST(ApiCallbackTest, EachIsUsedAndGivenBackOnce) {
  Host host;
  const attn_logger logger = host.logger();
  const attn_executor executor = host.executor();
  const attn_allocator allocator = host.allocator();
  attn_context_desc desc = api_context_desc();
  desc.logger = &logger;
  desc.executor = &executor;
  desc.allocator = &allocator;
  attn_context* context = make_api_context(&desc);
  attn_context_info info = ATTN_CONTEXT_INFO_INIT;
  ASSERT_OK(attn_context_get_info(context, &info, &error));
  EXPECT_EQ(info.thread_count, 2);

  attn_op* op = make_gqa(context, "logged", 16, 8);
  attn_session* session = make_api_session(context);
  DecodeStep step(8, 1, 256, 16, 8);
  attn_plan* plan = nullptr;
  ASSERT_OK(step.prepare(op, &plan, &error));
  EXPECT_EQ(host.lines.size(), 1u);
  EXPECT_NE(host.lines.at(0).find("GroupQueryAttention 'logged': planned for batch 8"),
            std::string::npos)
      << host.lines.at(0);

  ASSERT_OK(step.execute(plan, session, &error));
  step.expect_value_rows();
  const int first = host.allocations;
  EXPECT_EQ(first, 1) << "scratch comes from the host's allocator";
  ASSERT_OK(step.execute(plan, session, &error));
  EXPECT_EQ(host.allocations, first) << "and is kept";
  const attn_context_stats stats = api_stats(context);
  EXPECT_EQ(stats.scratch_allocations, 1u);
  EXPECT_EQ(static_cast<int64_t>(stats.scratch_bytes), host.held.load());
  EXPECT_EQ(stats.executions, 2u);

  ASSERT_OK(attn_context_trim(context, &error));
  EXPECT_EQ(host.held, 0) << "an idle session's scratch goes back";
  EXPECT_EQ(api_stats(context).scratch_bytes, 0u);
  ASSERT_OK(step.execute(plan, session, &error));

  attn_plan_release(plan);
  attn_context_release(context);
  attn_op_release(op);
  EXPECT_EQ(host.released, 0);
  attn_session_release(session);
  EXPECT_EQ(host.released, 3);
  EXPECT_EQ(host.held, 0);
}

TEST(ApiCallbackTest, AFailedContextLeavesThemWithTheCaller) {
  Host host;
  const attn_logger logger = host.logger();
  attn_context_desc desc = api_context_desc();
  desc.logger = &logger;
  desc.engine = "steam";
  attn_context* context = nullptr;
  EXPECT_REFUSED(attn_context_create(&desc, &context, &error), ATTN_INVALID_ARGUMENT, "steam");
  EXPECT_EQ(host.released, 0);
}

TEST(ApiCallbackTest, MissingFunctionsAreRefused) {
  Host host;
  attn_context* context = nullptr;
  attn_logger logger = host.logger();
  attn_executor executor = host.executor();
  attn_allocator allocator = host.allocator();
  attn_context_desc desc = api_context_desc();
  const auto refuse = [&](const char* words) {
    EXPECT_REFUSED(attn_context_create(&desc, &context, &error), ATTN_INVALID_ARGUMENT, words);
    logger = host.logger();
    executor = host.executor();
    allocator = host.allocator();
    desc = api_context_desc();
  };
  desc.logger = &logger;
  logger.log = nullptr;
  refuse("logger.log is null");
  desc.logger = &logger;
  logger.minimum_severity = 5;
  refuse("logger.minimum_severity is 5");
  desc.executor = &executor;
  executor.concurrency = nullptr;
  refuse("executor.concurrency is null");
  desc.executor = &executor;
  executor.parallel_for = nullptr;
  refuse("executor.parallel_for is null");
  desc.executor = &executor;
  executor.reserved = 1;
  refuse("executor.reserved is 1");
  desc.allocator = &allocator;
  allocator.allocate = nullptr;
  refuse("allocator.allocate is null");
  desc.allocator = &allocator;
  allocator.deallocate = nullptr;
  refuse("allocator.deallocate is null");
}

TEST(ApiCallbackTest, AnAllocatorWithoutMemory) {
  Host host;
  attn_allocator allocator = host.allocator();
  allocator.allocate = [](void*, uint32_t, uint64_t, uint64_t, void*) -> void* { return nullptr; };
  attn_context_desc desc = api_context_desc();
  desc.allocator = &allocator;
  attn_context* context = make_api_context(&desc);
  attn_op* op = make_gqa(context);
  attn_session* session = make_api_session(context);
  DecodeStep step;
  attn_plan* plan = nullptr;
  ASSERT_OK(step.prepare(op, &plan, &error));
  EXPECT_REFUSED(step.execute(plan, session, &error), ATTN_OUT_OF_MEMORY, "allocator gave no");
  EXPECT_EQ(step.y[0], -7.0f) << "nothing was written";
  attn_plan_release(plan);
  attn_session_release(session);
  attn_op_release(op);
  attn_context_release(context);
}

TEST(ApiCallbackTest, ALogLineIsOneLine) {
  Host host;
  const attn_logger logger = host.logger();
  attn_context_desc desc = api_context_desc();
  desc.logger = &logger;
  attn_context* context = make_api_context(&desc);
  attn_op* op = make_gqa(context, "two\nlines\tand a tab");
  attn_plan* plan = nullptr;
  ASSERT_OK(DecodeStep().prepare(op, &plan, &error));
  ASSERT_EQ(host.lines.size(), 1u);
  EXPECT_NE(host.lines[0].find("'two lines and a tab'"), std::string::npos) << host.lines[0];
  attn_plan_release(plan);
  attn_op_release(op);
  attn_context_release(context);
}

TEST(ApiCallbackTest, AnExecutorThatThrowsIsNamed) {
  Host host;
  attn_executor executor = host.executor();
  executor.parallel_for = [](void*, int32_t, void (*)(void*, int32_t), void*) { throw 3; };
  attn_context_desc desc = api_context_desc();
  desc.executor = &executor;
  attn_context* context = make_api_context(&desc);
  attn_op* op = make_gqa(context, "", 16, 8);
  attn_session* session = make_api_session(context);
  DecodeStep step(8, 4000, 4096, 16, 8);  // enough for several threads
  attn_plan* plan = nullptr;
  ASSERT_OK(step.prepare(op, &plan, &error));
  EXPECT_REFUSED(step.execute(plan, session, &error), ATTN_INTERNAL, "executor.parallel_for threw");
  attn_plan_release(plan);
  attn_session_release(session);
  attn_op_release(op);
  attn_context_release(context);
}

// What a host throws out of its callbacks stops inside.
TEST(ApiCallbackTest, CallbacksMayThrow) {
  attn_logger logger = ATTN_LOGGER_INIT;
  logger.minimum_severity = ATTN_LOG_DEBUG;
  logger.log = [](void*, int32_t, const char*) { throw 1; };
  logger.release_user = [](void*) { throw 2; };
  attn_context_desc desc = api_context_desc();
  desc.logger = &logger;
  attn_context* context = make_api_context(&desc);
  attn_op* op = make_gqa(context);
  attn_plan* plan = nullptr;
  ASSERT_OK(DecodeStep().prepare(op, &plan, &error));
  attn_plan_release(plan);
  attn_op_release(op);
  attn_context_release(context);
}

// A logger that prepares what the line is about. It does so on a thread of its own, so that a wait
// for the call around it shows and does not hang.
struct PreparingLogger {
  attn_op* op = nullptr;
  const DecodeStep* step = nullptr;
  std::future<attn_status> inner;
  attn_plan* plan = nullptr;
  int lines = 0;
  bool in_time = false;

  attn_logger logger() {
    attn_logger logger = ATTN_LOGGER_INIT;
    logger.user = this;
    logger.minimum_severity = ATTN_LOG_INFO;
    logger.log = [](void* user, int32_t, const char*) {
      auto& self = *static_cast<PreparingLogger*>(user);
      if (self.lines++ != 0) return;
      self.inner = std::async(std::launch::async,
                              [&self] { return self.step->prepare(self.op, &self.plan, nullptr); });
      self.in_time = self.inner.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
    };
    return logger;
  }
};

TEST(ApiCallbackTest, ALoggerMayPrepareWhatItHearsOf) {
  for (const bool through_binding : {false, true}) {
    PreparingLogger host;
    const attn_logger logger = host.logger();
    attn_context_desc desc = api_context_desc();
    desc.logger = &logger;
    attn_context* context = make_api_context(&desc);
    attn_session* session = make_api_session(context);
    host.op = make_gqa(context, "heard");
    const DecodeStep step;
    host.step = &step;
    attn_plan* plan = nullptr;
    attn_binding* binding = nullptr;
    if (through_binding) {
      ASSERT_OK(attn_binding_create(host.op, session, &binding, &error));
      ASSERT_OK(step.set(binding, &error));
      ASSERT_OK(attn_binding_prepare(binding, nullptr, &error));
    } else {
      ASSERT_OK(step.prepare(host.op, &plan, &error));
    }
    EXPECT_EQ(host.lines, 1) << "there is one plan, so there is one line";
    EXPECT_TRUE(host.in_time) << "the logger's prepare waited for the call around it";
    ASSERT_TRUE(host.inner.valid());
    EXPECT_EQ(host.inner.get(), ATTN_OK);
    const attn_context_stats stats = api_stats(context);
    EXPECT_EQ(stats.plans_created, 1u);
    EXPECT_EQ(stats.plan_cache_hits, 1u);
    attn_plan_release(host.plan);
    attn_plan_release(plan);
    attn_binding_release(binding);
    attn_session_release(session);
    attn_op_release(host.op);
    attn_context_release(context);
  }
}

// A pool and an allocator that call the library from inside an execute.
struct CallingHost {
  attn_context* context = nullptr;
  attn_plan* plan = nullptr;
  attn_session* busy = nullptr;
  attn_session* other = nullptr;
  DecodeStep* step = nullptr;
  int depth = 0;
  attn_status of_busy = ATTN_OK;
  attn_status of_other = ATTN_INTERNAL;
  std::vector<attn_status> of_trims;

  attn_executor executor() {
    attn_executor executor = ATTN_EXECUTOR_INIT;
    executor.user = this;
    executor.concurrency = [](void*) -> int32_t { return 2; };
    executor.parallel_for = [](void* user, int32_t count, void (*task)(void*, int32_t),
                               void* task_context) {
      auto& self = *static_cast<CallingHost*>(user);
      if (self.depth++ == 0) {
        self.of_busy = self.step->execute(self.plan, self.busy, nullptr);
        self.of_other = self.step->execute(self.plan, self.other, nullptr);
      }
      for (int32_t i = 0; i < count; ++i) task(task_context, i);
    };
    return executor;
  }

  attn_allocator allocator() {
    attn_allocator allocator = ATTN_ALLOCATOR_INIT;
    allocator.user = this;
    allocator.allocate = [](void* user, uint32_t, uint64_t bytes, uint64_t alignment,
                            void*) -> void* {
      static_cast<CallingHost*>(user)->trim();
      return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    };
    allocator.deallocate = [](void* user, uint32_t, void* memory, uint64_t, void*) {
      static_cast<CallingHost*>(user)->trim();
      std::free(memory);
    };
    return allocator;
  }

  void trim() { of_trims.push_back(attn_context_trim(context, nullptr)); }
};

TEST(ApiCallbackTest, PoolAndAllocatorMayCallTheLibrary) {
  CallingHost host;
  const attn_executor executor = host.executor();
  const attn_allocator allocator = host.allocator();
  attn_context_desc desc = api_context_desc();
  desc.executor = &executor;
  desc.allocator = &allocator;
  host.context = make_api_context(&desc);
  attn_op* op = make_gqa(host.context, nullptr, 16, 8);
  host.busy = make_api_session(host.context);
  host.other = make_api_session(host.context);
  DecodeStep step(8, 200, 256, 16, 8);
  host.step = &step;
  ASSERT_OK(step.prepare(op, &host.plan, &error));
  ASSERT_OK(step.execute(host.plan, host.busy, &error));
  EXPECT_GT(host.depth, 1) << "the pool was not asked";
  EXPECT_EQ(host.of_busy, ATTN_BUSY);
  EXPECT_EQ(host.of_other, ATTN_OK);
  const std::vector<float> nested = std::exchange(step.y, std::vector<float>(step.y.size(), -7.0f));
  step.describe();
  ASSERT_OK(step.execute(host.plan, host.busy, &error));
  EXPECT_EQ(step.y, nested);
  ASSERT_OK(attn_context_trim(host.context, &error));
  EXPECT_EQ(host.of_trims, std::vector<attn_status>(4, ATTN_OK)) << "two taken, two given back";
  attn_plan_release(host.plan);
  attn_session_release(host.busy);
  attn_session_release(host.other);
  attn_op_release(op);
  attn_context_release(host.context);
}

}  // namespace
}  // namespace attn::test
