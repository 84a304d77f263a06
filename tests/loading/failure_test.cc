// Every driver call that a whole run makes fails in turn: the caller is told which one, nothing
// leaks, and the caller's own state is as it was.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <string>

#include "loading/fakes.h"

namespace attn::test {
namespace {

// Calls whose failure may pass: what they tell is not needed, there is another way, or they give
// back at the end of something that succeeded.
const std::set<std::string> kMayPass = {"cuDeviceGetName",
                                        "cuDeviceGetUuid",
                                        "cuDeviceGetPCIBusId",
                                        "cuCtxGetCurrent",
                                        "cuCtxGetDevice",
                                        "cuCtxPopCurrent",
                                        "cuDevicePrimaryCtxRelease",
                                        "cuLibraryUnload",
                                        "cuMemFree",
                                        "cuMemFreeHost",
                                        "cuStreamDestroy",
                                        "cuGraphDestroy",
                                        "cuGraphExecDestroy",
                                        "cuThreadExchangeStreamCaptureMode",
                                        "cuCtxPushCurrent",  // of a destructor
                                        "cuGetErrorName",
                                        "cuGetErrorString"};

// Context, session, prepare, execute, capture and replay, clear, release.
Outcome run_all() {
  const CudaOptions options;
  Step step(options);
  Outcome outcome = step.outcome;
  if (outcome.ok()) outcome = step.execute();
  if (outcome.ok()) outcome = step.execute();
  if (outcome.ok()) outcome = step.capture();
  if (outcome.ok()) outcome = step.clear();
  return outcome;
}

// How often a run calls each function.
std::map<std::string, int> count_calls() {
  driver().forget_calls();
  const Outcome outcome = run_all();
  EXPECT_TRUE(outcome.ok()) << outcome.message;
  EXPECT_EQ(driver().balance() - driver().pushed - driver().primary_contexts, 0);
  std::map<std::string, int> counts;
  for (int i = 0; i < driver().call_count; ++i) ++counts[driver().calls[i]];
  return counts;
}

void fail_each_call() {
  const int before = driver().balance();
  void* const current = current_context();
  for (const auto& [name, count] : count_calls()) {
    for (int at = 1; at <= count; ++at) {
      SCOPED_TRACE(name + ", call " + std::to_string(at) + " of " + std::to_string(count));
      driver().forget_calls();
      driver().fail_call = name.c_str();
      driver().fail_at = at;
      const Outcome outcome = run_all();
      EXPECT_GE(driver().failing_calls, at) << "the call that shall fail was not made";
      driver().fail_call = nullptr;
      if (outcome.ok()) {
        EXPECT_TRUE(kMayPass.contains(name)) << "the failure was not noticed";
      } else {
        EXPECT_TRUE(outcome.status == ATTN_DEVICE || outcome.status == ATTN_UNAVAILABLE)
            << outcome.status;
        EXPECT_NE(outcome.message.find(name), std::string::npos) << outcome.message;
        EXPECT_NE(outcome.message.find("999"), std::string::npos) << outcome.message;
        EXPECT_EQ(outcome.native_code, 999);
        EXPECT_EQ(outcome.native_domain, ATTN_DOMAIN_CUDA);
      }
      if (outcome.ok() && name == "cuCtxPushCurrent") {
        // In a destructor: memory of a context that cannot be entered is lost with it.
        const int pushed = driver().pushed, primary = driver().primary_contexts;
        EXPECT_EQ(pushed + primary, before);
        driver().forget_balance();
        driver().pushed = pushed;
        driver().primary_contexts = primary;
      }
      EXPECT_EQ(driver().balance(), before) << outcome.message;
      EXPECT_EQ(current_context(), current);
      EXPECT_EQ(capture_mode(), 0);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(DriverFailure, EachCallWithoutACurrentContext) {
  reset_fakes();
  fail_each_call();
}

TEST(DriverFailure, EachCallInTheCallersContext) {
  reset_fakes();
  const CurrentContext current(0);
  fail_each_call();
}

TEST(DriverFailure, OutOfMemoryIsToldAsSuch) {
  reset_fakes();
  driver().fail_code = 2;
  for (const char* call : {"cuMemAlloc", "cuMemHostAlloc"}) {
    driver().forget_calls();
    driver().fail_call = call;
    const Outcome outcome = run_all();
    EXPECT_EQ(outcome.status, ATTN_OUT_OF_MEMORY) << outcome.message;
    EXPECT_NE(outcome.message.find(call), std::string::npos) << outcome.message;
  }
  driver().fail_call = nullptr;
  EXPECT_EQ(driver().balance(), 0);
}

TEST(DriverFailure, ALostContextIsSaidToBeSticky) {
  for (const int code : {700, 999}) {
    reset_fakes();
    driver().fail_code = code;
    driver().fail_call = "cuLaunchKernelEx";
    const Outcome outcome = run_all();
    EXPECT_EQ(outcome.status, ATTN_DEVICE) << outcome.message;
    EXPECT_EQ(outcome.native_code, code);
    EXPECT_EQ((outcome.flags & ATTN_ERROR_STICKY) != 0, code == 700);
    driver().fail_call = nullptr;
  }
}

// A driver that ended before the library did, as when a process ends.
TEST(DriverFailure, ReleaseAfterTheDriverHasGone) {
  reset_fakes();
  CudaOptions options;
  auto step = std::make_unique<Step>(options);
  ASSERT_TRUE(step->outcome.ok()) << step->outcome.message;
  ASSERT_TRUE(step->execute().ok());
  driver().fail_call = "cuCtxPushCurrent";
  driver().fail_code = 4;
  driver().fail_at = 0;
  step.reset();
  EXPECT_GT(driver().failing_calls, 0);
  driver().fail_call = nullptr;
  EXPECT_EQ(driver().pushed, 0);
  EXPECT_EQ(driver().primary_contexts, 0);
  driver().forget_balance();
}

}  // namespace
}  // namespace attn::test
