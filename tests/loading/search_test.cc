// The search without any option, each case in a process of its own whose loader path leads to the
// fakes: nothing is opened before it is needed, and the device list makes no context.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "loading/fakes.h"

namespace attn::test {
namespace {

bool is_loaded(const char* soname) { return dlopen(soname, RTLD_NOW | RTLD_NOLOAD) != nullptr; }

std::vector<attn_device_info> devices() {
  uint32_t count = 0;
  EXPECT_EQ(attn_device_count(&count, nullptr), ATTN_OK);
  std::vector<attn_device_info> list;
  for (uint32_t i = 0; i < count; ++i) {
    attn_device_info info = ATTN_DEVICE_INFO_INIT;
    EXPECT_EQ(attn_device_get_info(i, &info, nullptr), ATTN_OK);
    list.push_back(info);
  }
  return list;
}

CudaOptions nothing_given() {
  CudaOptions options;
  options.driver_path.clear();
  options.nvrtc_path.clear();
  return options;
}

TEST(Search, NothingIsOpenedForTheCpu) {
  Handle<attn_context> context;
  Handle<attn_op> op;
  Handle<attn_session> session;
  uint32_t count = 0;
  ASSERT_TRUE(create_context(context).ok());
  ASSERT_TRUE(create_op(op, context.get(), "com.microsoft", "GroupQueryAttention", 1,
                        Attributes().set_int("num_heads", 4).set_int("kv_num_heads", 2))
                  .ok());
  ASSERT_TRUE(create_session(session, context.get()).ok());
  ASSERT_EQ(attn_operator_count(&count, nullptr), ATTN_OK);
  EXPECT_FALSE(is_loaded("libcuda.so.1"));
  EXPECT_FALSE(is_loaded("libnvrtc.so.13"));
}

TEST(Search, DeviceListMakesNoContext) {
  ASSERT_FALSE(is_loaded("libcuda.so.1"));
  const auto list = devices();
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].device_type, ATTN_DEVICE_CPU);
  for (size_t i = 1; i < 3; ++i) {
    EXPECT_EQ(list[i].device_type, ATTN_DEVICE_CUDA);
    EXPECT_EQ(list[i].device_id, static_cast<int32_t>(i) - 1);
    EXPECT_EQ(list[i].available, 1u) << list[i].reason;
    EXPECT_STREQ(list[i].name, "Fake device");
  }
  for (int i = 0; i < driver().call_count; ++i) {
    EXPECT_EQ(std::string(driver().calls[i]).find("Ctx"), std::string::npos) << driver().calls[i];
  }
  EXPECT_EQ(driver().balance(), 0);
}

TEST(Search, OldDevicesAreListedWithTheReason) {
  driver().major = 6;
  driver().minor = 1;
  for (const attn_device_info& info : devices()) {
    if (info.device_type == ATTN_DEVICE_CPU) continue;
    EXPECT_EQ(info.available, 0u);
    EXPECT_NE(std::string(info.reason).find("sm_61"), std::string::npos) << info.reason;
  }
}

TEST(Search, FailedDriverIsListedWithTheReason) {
  driver().fail_call = "cuInit";
  driver().fail_code = 100;
  driver().fail_at = 0;
  const auto list = devices();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[1].available, 0u);
  EXPECT_NE(std::string(list[1].reason).find("no CUDA device"), std::string::npos);
}

TEST(Search, TheLoaderFindsBoth) {
  ASSERT_FALSE(is_loaded("libcuda.so.1"));
  ASSERT_FALSE(is_loaded("libnvrtc.so.13"));
  Step step(nothing_given());
  EXPECT_TRUE(step.outcome.ok()) << step.outcome.message;
  EXPECT_TRUE(is_loaded("libnvrtc.so.13"));
  EXPECT_GT(nvrtc().compiles, 0);
}

TEST(Search, AnUnusableNvrtcIsPassedOver) {
  // Loaded before, and too old: the next place is asked, which here has the same library.
  nvrtc().major = 11;
  Handle<attn_context> context;
  Handle<attn_session> session;
  ASSERT_TRUE(create_cuda_context(context, nothing_given()).ok());
  const Outcome outcome = create_session(session, context.get());
  EXPECT_EQ(outcome.status, ATTN_UNAVAILABLE);
  for (const char* words : {"already loaded: libnvrtc.so.13 (is version 11.5; attn_c needs 12.0 or "
                            "later), libnvrtc.so.12",
                            "system loader: libnvrtc.so.13 (is version 11.5", "nvidia/cu13/lib",
                            "nvidia/cuda_nvrtc/lib", "/usr/local/cuda/lib64/libnvrtc.so.13"}) {
    EXPECT_NE(outcome.message.find(words), std::string::npos) << words << "\n" << outcome.message;
  }
}

TEST(Search, WithoutADriverEveryPlaceIsNamed) {
  if (dlopen("libcuda.so.1", RTLD_NOW) != nullptr) GTEST_SKIP() << "this machine has a CUDA driver";
  Handle<attn_context> context;
  const Outcome outcome = create_cuda_context(context, nothing_given());
  EXPECT_EQ(outcome.status, ATTN_UNAVAILABLE);
  for (const char* words : {"already loaded: libcuda.so.1", "system loader: libcuda.so.1",
                            "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib64/libcuda.so.1",
                            "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"}) {
    EXPECT_NE(outcome.message.find(words), std::string::npos) << words << "\n" << outcome.message;
  }
  const auto list = devices();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[1].available, 0u);
  EXPECT_NE(std::string(list[1].reason).find("libcuda.so.1"), std::string::npos);
}

// The library is loaded and used, CUDA is not: a child may be the first to open the driver, and the
// parent does so after it.
TEST(Search, AForkBeforeTheFirstUseOfCuda) {
  Handle<attn_context> cpu;
  ASSERT_TRUE(create_context(cpu).ok());
  ASSERT_FALSE(is_loaded("libcuda.so.1"));
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    Handle<attn_context> cuda;
    const Outcome outcome = create_cuda_context(cuda, nothing_given());
    if (!outcome.ok()) std::fprintf(stderr, "%s\n", outcome.message.c_str());
    _exit(outcome.ok() && is_loaded("libcuda.so.1") ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(is_loaded("libcuda.so.1"));
  Handle<attn_context> cuda;
  const Outcome outcome = create_cuda_context(cuda, nothing_given());
  EXPECT_TRUE(outcome.ok()) << outcome.message;
}

}  // namespace
}  // namespace attn::test
