// Contexts: the device list, options, info.
#include <gtest/gtest.h>

#include <string>

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

}  // namespace
}  // namespace attn::test
