// Which CUDA context the library works in, what a prepared execute asks of the driver, and forks.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "loading/fakes.h"
#include "support/count_allocations.h"

namespace attn::test {
namespace {

class CudaContexts : public testing::Test {
 protected:
  CudaContexts() { reset_fakes(); }
  ~CudaContexts() override { EXPECT_EQ(driver().balance(), 0); }

  std::vector<std::string> calls() const {
    return {driver().calls, driver().calls + driver().call_count};
  }
};

using Calls = std::vector<std::string>;

TEST_F(CudaContexts, PrimaryOneWhereNoneIsCurrent) {
  {
    Step step(CudaOptions{});
    ASSERT_TRUE(step.outcome.ok()) << step.outcome.message;
    EXPECT_EQ(driver().primary_contexts, 1);
    EXPECT_EQ(current_context(), nullptr);
    EXPECT_EQ(driver().pushed, 0);
  }
  EXPECT_EQ(driver().primary_contexts, 0);
}

TEST_F(CudaContexts, TheCurrentOneOnTheDevice) {
  const CurrentContext current(0);
  Step step(CudaOptions{});
  ASSERT_TRUE(step.outcome.ok()) << step.outcome.message;
  EXPECT_EQ(driver().primary_contexts, 1) << "only the test's own";
  EXPECT_EQ(driver().pushed, 1) << "only the test's own";
  EXPECT_EQ(current_context(), current.handle());
}

TEST_F(CudaContexts, PrimaryOneWhereTheCurrentIsOnAnotherDevice) {
  const CurrentContext current(1);
  Step step(CudaOptions{});
  ASSERT_TRUE(step.outcome.ok()) << step.outcome.message;
  EXPECT_EQ(driver().primary_contexts, 2);
  EXPECT_EQ(current_context(), current.handle());
}

TEST_F(CudaContexts, TheGivenOne) {
  void* native = nullptr;
  {
    const CurrentContext other(1);
    native = other.handle();
  }
  CudaOptions options;
  options.device = 1;
  options.native_context = native;
  Step step(options);
  ASSERT_TRUE(step.outcome.ok()) << step.outcome.message;
  EXPECT_EQ(driver().primary_contexts, 0);
  EXPECT_EQ(current_context(), nullptr);
}

TEST_F(CudaContexts, TheGivenOneIsOnAnotherDevice) {
  const CurrentContext other(1);
  CudaOptions options;
  options.native_context = other.handle();
  Handle<attn_context> context;
  const Outcome outcome = create_cuda_context(context, options);
  EXPECT_EQ(outcome.status, ATTN_INVALID_ARGUMENT);
  EXPECT_NE(outcome.message.find("native_context is on device 1, device_id is 0"),
            std::string::npos)
      << outcome.message;
}

TEST_F(CudaContexts, ExecuteMakesNoCallButLaunchesOfWhatIsKnownToBeEager) {
  const CurrentContext current(0);
  Step step(CudaOptions{});
  ASSERT_TRUE(step.outcome.ok()) << step.outcome.message;
  ASSERT_TRUE(step.execute(ATTN_EXECUTE_EAGER).ok());
  driver().forget_calls();
  ASSERT_TRUE(step.execute(ATTN_EXECUTE_EAGER).ok());
  EXPECT_EQ(calls(), (Calls{"cuLaunchKernelEx", "cuLaunchKernelEx"}));
}

TEST_F(CudaContexts, TrimFreesScratchAtOnce) {
  Step step(CudaOptions{});
  ASSERT_TRUE(step.outcome.ok()) << step.outcome.message;
  const int before = driver().device_memory;
  ASSERT_TRUE(step.execute().ok());
  ASSERT_GT(driver().device_memory, before) << "the call took no scratch";
  const Outcome trimmed = step.trim();
  ASSERT_TRUE(trimmed.ok()) << trimmed.message;
  EXPECT_EQ(driver().device_memory, before);
  EXPECT_TRUE(step.execute().ok());
}

TEST_F(CudaContexts, ALegacyStreamBesideACaptureIsRefusedAsOne) {
  Step step(CudaOptions{});
  ASSERT_TRUE(step.outcome.ok()) << step.outcome.message;
  driver().fail_call = "cuStreamGetCaptureInfo";
  driver().fail_code = 906;
  const Outcome outcome = step.execute();
  EXPECT_EQ(outcome.status, ATTN_CAPTURE) << outcome.message;
  EXPECT_NE(outcome.message.find("global mode"), std::string::npos) << outcome.message;
  EXPECT_EQ(outcome.native_code, 906);
}

TEST_F(CudaContexts, AnInvalidatedCaptureIsSaidToBeOne) {
  Step step(CudaOptions{});
  ASSERT_TRUE(step.outcome.ok()) << step.outcome.message;
  ASSERT_TRUE(step.execute().ok());
  driver().invalidated = true;
  for (const Outcome& outcome : {step.execute(), step.clear()}) {
    EXPECT_EQ(outcome.status, ATTN_CAPTURE) << outcome.message;
    EXPECT_NE(outcome.message.find("was invalidated"), std::string::npos) << outcome.message;
  }
  driver().invalidated = false;
  EXPECT_TRUE(step.execute().ok());
}

TEST_F(CudaContexts, ACapturedClearKeepsTheSessionsState) {
  Step step(CudaOptions{});
  ASSERT_TRUE(step.outcome.ok()) << step.outcome.message;
  int held = 0;
  const Outcome outcome = step.capture([&] { return step.clear(); }, &held);
  ASSERT_TRUE(outcome.ok()) << outcome.message;
  EXPECT_EQ(held, 1);
}

// Launches that fail leave what came before them in the graph: it is held by then.
TEST_F(CudaContexts, AFailedCaptureHoldsWhatItRecorded) {
  Step step(CudaOptions{});
  ASSERT_TRUE(step.outcome.ok()) << step.outcome.message;
  ASSERT_TRUE(step.execute().ok());
  driver().forget_calls();
  driver().fail_call = "cuLaunchKernelEx";
  driver().fail_at = 2;
  int held = 0;
  const Outcome outcome = step.capture([&] { return step.execute(); }, &held);
  EXPECT_EQ(outcome.status, ATTN_DEVICE) << outcome.message;
  EXPECT_EQ(held, 1);
}

TEST_F(CudaContexts, WhatWaitsToBeFreedGoesWhereMemoryIsShort) {
  Step step(CudaOptions{});
  ASSERT_TRUE(step.outcome.ok()) << step.outcome.message;
  Handle<attn_session> gone;
  ASSERT_TRUE(create_session(gone, step.context()).ok());
  const int before = driver().device_memory;
  gone.reset();
  ASSERT_EQ(driver().device_memory, before) << "freed later";
  driver().forget_calls();
  driver().fail_call = "cuMemAlloc";
  driver().fail_code = 2;  // CUDA_ERROR_OUT_OF_MEMORY
  const Outcome outcome = step.execute();
  EXPECT_TRUE(outcome.ok()) << outcome.message;
  EXPECT_EQ(driver().device_memory, before) << "one block less, scratch more";
}

TEST_F(CudaContexts, ExecuteAsksForTheContextAndTheCaptureAlone) {
  const CurrentContext current(0);
  Step step(CudaOptions{});
  ASSERT_TRUE(step.outcome.ok()) << step.outcome.message;
  ASSERT_TRUE(step.execute().ok());
  driver().forget_calls();
  ASSERT_TRUE(step.execute().ok());
  EXPECT_EQ(calls(), (Calls{"cuCtxGetCurrent", "cuStreamGetCaptureInfo", "cuLaunchKernelEx",
                            "cuLaunchKernelEx"}));
}

TEST_F(CudaContexts, ExecutePushesAndPopsElsewhere) {
  Step step(CudaOptions{});
  ASSERT_TRUE(step.outcome.ok()) << step.outcome.message;
  ASSERT_TRUE(step.execute().ok());
  driver().forget_calls();
  ASSERT_TRUE(step.execute().ok());
  EXPECT_EQ(calls(), (Calls{"cuCtxGetCurrent", "cuCtxPushCurrent", "cuStreamGetCaptureInfo",
                            "cuLaunchKernelEx", "cuLaunchKernelEx", "cuCtxPopCurrent"}));
}

TEST_F(CudaContexts, ExecuteAllocatesNothing) {
  if (!can_count_allocations()) GTEST_SKIP() << "a sanitizer does not let malloc be replaced";
  Step step(CudaOptions{});
  ASSERT_TRUE(step.outcome.ok()) << step.outcome.message;
  ASSERT_TRUE(step.execute().ok());
  const Outcome warm = step.execute();
  begin_counting_allocations();
  for (int i = 0; i < 100; ++i) step.execute();
  EXPECT_EQ(end_counting_allocations(), 0);
  begin_counting_allocations();
  std::string text(100, 'x');
  EXPECT_GT(end_counting_allocations(), 0) << "the counter counts " << text.size();
}

// Child of a process that used the driver: told so, and free to use the CPU.
TEST_F(CudaContexts, ForkedChildIsToldInWords) {
  const CudaOptions options;
  Handle<attn_context> context;
  ASSERT_TRUE(create_cuda_context(context, options).ok());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    Handle<attn_context> again, cpu;
    const Outcome outcome = create_cuda_context(again, options);
    const bool cpu_works = create_context(cpu).ok();
    const std::string text = std::to_string(outcome.status) + " " + outcome.message;
    const bool written = write(ends[1], text.data(), text.size()) == ssize_t(text.size());
    _exit(written && cpu_works ? 0 : 1);
  }
  close(ends[1]);
  std::string text(4096, '\0');
  const ssize_t got = read(ends[0], text.data(), text.size());
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  close(ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(text.substr(0, 2), std::to_string(ATTN_UNAVAILABLE) + " ");
  EXPECT_NE(text.find("forked"), std::string::npos) << text;
  EXPECT_NE(text.find("start a new process"), std::string::npos) << text;
}

}  // namespace
}  // namespace attn::test
