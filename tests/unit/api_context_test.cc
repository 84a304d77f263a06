// Contexts: devices, info, callbacks, trim, and the environment.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "api_fixture.h"

namespace attn::test {
namespace {

TEST(ApiDeviceTest, TheCpuIsFirstAndCudaSaysWhyNot) {
  uint32_t count = 0;
  ASSERT_OK(attn_device_count(&count, &error));
  ASSERT_GE(count, 2u);
  attn_device_info info = ATTN_DEVICE_INFO_INIT;
  ASSERT_OK(attn_device_get_info(0, &info, &error));
  EXPECT_EQ(info.available, 1u);
  EXPECT_EQ(info.device_type, ATTN_DEVICE_CPU);
  EXPECT_NE(info.name[0], '\0');
  EXPECT_EQ(info.reason[0], '\0');
  ASSERT_OK(attn_device_get_info(1, &info, &error));
  EXPECT_EQ(info.device_type, ATTN_DEVICE_CUDA);
  EXPECT_EQ(info.available == 0, info.reason[0] != '\0');
  EXPECT_REFUSED(attn_device_get_info(count, &info, &error), ATTN_INVALID_ARGUMENT,
                 "counted from 0");
  EXPECT_REFUSED(attn_device_count(nullptr, &error), ATTN_INVALID_ARGUMENT, "count is null");
  EXPECT_REFUSED(attn_device_get_info(0, nullptr, &error), ATTN_INVALID_ARGUMENT, "info is null");
}

TEST(ApiContextTest, ADeviceThatCannotBeUsedIsUnavailable) {
  attn_device_info info = ATTN_DEVICE_INFO_INIT;
  ASSERT_EQ(attn_device_get_info(1, &info, nullptr), ATTN_OK);
  if (info.available != 0) GTEST_SKIP() << "this build has a CUDA back end and a device";
  attn_context_desc desc = api_context_desc();
  desc.device_type = ATTN_DEVICE_CUDA;
  attn_context* context = nullptr;
  EXPECT_REFUSED(attn_context_create(&desc, &context, &error), ATTN_UNAVAILABLE, info.reason);
}

TEST(ApiContextTest, BadOptionsAreRefusedInWords) {
  attn_context* context = nullptr;
  const auto refuse = [&context](auto change, const char* words) {
    attn_context_desc desc = api_context_desc();
    change(desc);
    EXPECT_REFUSED(attn_context_create(&desc, &context, &error), ATTN_INVALID_ARGUMENT, words);
  };
  refuse([](attn_context_desc& d) { d.device_type = 9; }, "device_type is 9");
  refuse([](attn_context_desc& d) { d.device_id = 1; }, "device_id is 1");
  refuse([](attn_context_desc& d) { d.thread_count = -2; }, "thread_count is -2");
  refuse([](attn_context_desc& d) { d.simd_level = "mmx"; }, "mmx");
  refuse([](attn_context_desc& d) { d.engine = "steam"; }, "engine is 'steam'");
  refuse([&context](attn_context_desc& d) { d.native_context = &context; }, "native_context");
  EXPECT_REFUSED(attn_context_create(nullptr, nullptr, &error), ATTN_INVALID_ARGUMENT,
                 "context is null");
  EXPECT_EQ(context, nullptr);
}

TEST(ApiContextTest, InfoTellsWhatTheContextRunsOn) {
  attn_context_desc desc = api_context_desc();
  desc.thread_count = 3;
  attn_context* context = make_api_context(&desc);
  attn_context_info info = ATTN_CONTEXT_INFO_INIT;
  ASSERT_OK(attn_context_get_info(context, &info, &error));
  EXPECT_EQ(info.device_type, ATTN_DEVICE_CPU);
  EXPECT_EQ(info.thread_count, 3);
  EXPECT_NE(std::string(info.device_name), "");
  EXPECT_NE(std::string(info.architecture), "");
  EXPECT_NE(std::string(info.engines), "");
  EXPECT_EQ(std::string(info.simd_levels).find(info.simd_level), 0u) << "the best is in use";
  for (const char* text : {info.driver_version, info.driver_path, info.nvrtc_version,
                           info.nvrtc_path, info.cache_folder, info.uuid, info.pci_id}) {
    EXPECT_STREQ(text, "");
  }
  attn_context_release(context);
}

TEST(ApiContextTest, EverySimdLevelOfTheListCanBeForced) {
  attn_context* probe = make_api_context();
  attn_context_info info = ATTN_CONTEXT_INFO_INIT;
  ASSERT_OK(attn_context_get_info(probe, &info, &error));
  const std::string levels = std::string(info.simd_levels) + ",";
  for (size_t begin = 0, end; (end = levels.find(',', begin)) != std::string::npos;
       begin = end + 1) {
    const std::string level = levels.substr(begin, end - begin);
    attn_context_desc desc = api_context_desc();
    desc.simd_level = level.c_str();
    attn_context* context = make_api_context(&desc);
    ASSERT_NE(context, nullptr);
    attn_context_info forced = ATTN_CONTEXT_INFO_INIT;
    ASSERT_OK(attn_context_get_info(context, &forced, &error));
    EXPECT_EQ(level, forced.simd_level);
    attn_context_release(context);
  }
  attn_context_release(probe);
}

// ---- callbacks ----------------------------------------------------------------------------------

// A host that counts what it is asked.
struct Host {
  std::atomic<int> released{0};
  std::atomic<int> parallel_calls{0};
  std::atomic<int> allocations{0};
  std::atomic<int64_t> held{0};
  std::mutex mutex;
  std::vector<std::string> lines;

  static void release(void* user) { ++static_cast<Host*>(user)->released; }

  attn_logger logger() {
    attn_logger logger = ATTN_LOGGER_INIT;
    logger.user = this;
    logger.release_user = &release;
    logger.minimum_severity = ATTN_LOG_DEBUG;
    logger.log = [](void* user, int32_t, const char* text) {
      Host& host = *static_cast<Host*>(user);
      const std::lock_guard lock(host.mutex);
      host.lines.push_back(text);
    };
    return logger;
  }

  attn_executor executor() {
    attn_executor executor = ATTN_EXECUTOR_INIT;
    executor.user = this;
    executor.release_user = &release;
    executor.concurrency = [](void*) -> int32_t { return 2; };
    executor.parallel_for = [](void* user, int32_t count, void (*task)(void*, int32_t),
                               void* task_context) {
      ++static_cast<Host*>(user)->parallel_calls;
      for (int32_t i = count - 1; i >= 0; --i) task(task_context, i);
    };
    return executor;
  }

  attn_allocator allocator() {
    attn_allocator allocator = ATTN_ALLOCATOR_INIT;
    allocator.user = this;
    allocator.release_user = &release;
    allocator.allocate = [](void* user, uint32_t kind, uint64_t bytes, uint64_t alignment,
                            void* stream) -> void* {
      Host& host = *static_cast<Host*>(user);
      EXPECT_EQ(kind, ATTN_MEMORY_HOST);
      EXPECT_EQ(stream, nullptr);
      ++host.allocations;
      host.held += static_cast<int64_t>(bytes);
      return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    };
    allocator.deallocate = [](void* user, uint32_t, void* memory, uint64_t bytes, void*) {
      static_cast<Host*>(user)->held -= static_cast<int64_t>(bytes);
      std::free(memory);
    };
    return allocator;
  }
};

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

// ---- environment --------------------------------------------------------------------------------

class ApiEnvironmentTest : public ::testing::Test {
 protected:
  void set(const char* name, const std::string& value) {
    ASSERT_EQ(setenv(name, value.c_str(), 1), 0);
    names_.push_back(name);
  }
  void TearDown() override {
    for (const char* name : names_) unsetenv(name);
  }

 private:
  std::vector<const char*> names_;
};

TEST_F(ApiEnvironmentTest, CountsWhereTheDescSaysNothing) {
  set("ATTN_C_THREAD_COUNT", "3");
  set("ATTN_C_SIMD_LEVEL", "generic");
  attn_context* context = make_api_context();
  attn_context_info info = ATTN_CONTEXT_INFO_INIT;
  ASSERT_OK(attn_context_get_info(context, &info, &error));
  EXPECT_EQ(info.thread_count, 3);
  EXPECT_STREQ(info.simd_level, "generic");
  const std::string best = std::string(info.simd_levels).substr(
      0, std::string(info.simd_levels).find(','));
  attn_context_release(context);

  attn_context_desc desc = ATTN_CONTEXT_DESC_INIT;
  desc.thread_count = 2;
  desc.simd_level = best.c_str();
  context = make_api_context(&desc);
  ASSERT_OK(attn_context_get_info(context, &info, &error));
  EXPECT_EQ(info.thread_count, 2);
  EXPECT_EQ(info.simd_level, best);
  attn_context_release(context);

  desc = api_context_desc();
  desc.thread_count = 1;
  context = make_api_context(&desc);
  ASSERT_OK(attn_context_get_info(context, &info, &error));
  EXPECT_EQ(info.simd_level, best) << "ATTN_CONTEXT_IGNORE_ENVIRONMENT";
  attn_context_release(context);
}

TEST_F(ApiEnvironmentTest, LogLevelAndEngine) {
  set("ATTN_C_LOG_LEVEL", "info");
  attn_context* probe = make_api_context();
  attn_context_info info = ATTN_CONTEXT_INFO_INIT;
  ASSERT_OK(attn_context_get_info(probe, &info, &error));
  const std::string engines = info.engines;
  attn_context_release(probe);
  set("ATTN_C_ENGINE", engines.substr(0, engines.find(',')));

  Host host;
  attn_logger logger = host.logger();
  logger.minimum_severity = 0;
  attn_context_desc desc = ATTN_CONTEXT_DESC_INIT;
  desc.logger = &logger;
  attn_context* context = make_api_context(&desc);
  attn_op* op = make_gqa(context);
  DecodeStep step;
  attn_plan* plan = nullptr;
  ASSERT_EQ(step.prepare(op, &plan, nullptr), ATTN_OK);
  EXPECT_EQ(host.lines.size(), 1u);
  size_t needed = 0;
  std::string text(8192, '\0');
  ASSERT_OK(attn_plan_describe(plan, text.data(), text.size(), &needed, &error));
  EXPECT_NE(text.find("\"engine\": \"" + engines.substr(0, engines.find(',')) + "\""),
            std::string::npos);
  attn_plan_release(plan);
  attn_op_release(op);
  attn_context_release(context);
}

TEST_F(ApiEnvironmentTest, ValuesThatCannotBeUnderstood) {
  const std::map<const char*, const char*> wrong = {{"ATTN_C_THREAD_COUNT", "many"},
                                                    {"ATTN_C_LOG_LEVEL", "loud"},
                                                    {"ATTN_C_CACHE_OFF", "yes"},
                                                    {"ATTN_C_ENGINE", "steam"}};
  for (const auto& [name, value] : wrong) {
    ASSERT_EQ(setenv(name, value, 1), 0);
    attn_context* context = nullptr;
    EXPECT_REFUSED(attn_context_create(nullptr, &context, &error), ATTN_INVALID_ARGUMENT, name);
    unsetenv(name);
  }
  set("ATTN_C_CACHE_OFF", "1");
  set("ATTN_C_THREAD_COUNT", "");
  attn_context_release(make_api_context());
}

}  // namespace
}  // namespace attn::test
