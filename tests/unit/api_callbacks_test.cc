// The host's callbacks: used, given back once, and allowed to fail.
#include <gtest/gtest.h>

#include <string>

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

}  // namespace
}  // namespace attn::test
