// Contexts: the device list, options, info.
#include <gtest/gtest.h>

#include <string>

#include "api_fake_backend.h"
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

// Labels stay when their ops are gone, so the context keeps no more of them than a fault can say.
TEST(ApiContextTest, OfALabelItKeepsWhatAFaultCanSay) {
  FakeBackend* backend = nullptr;
  attn_context* context = make_fake_context(&backend);
  constexpr size_t kRoom = sizeof(attn_fault_info::label) - 1;
  const std::string start(kRoom, 'x');
  attn_op* op = make_gqa(context, (start + std::string(1 << 20, 'y')).c_str());
  attn_op_release(op);
  EXPECT_EQ(context->label(0), start) << "the first label's number is 0";
  EXPECT_EQ(context->number_of(start + "z"), 0u) << "what a fault says the same has one number";
  EXPECT_EQ(context->number_of(start.substr(1)), 1u);
  EXPECT_EQ(context->number_of(start.substr(1)), 1u);
  const std::string split = start.substr(1) + "\xc3\xa4";  // the last character would be cut
  EXPECT_EQ(context->number_of(split), 1u);
  EXPECT_EQ(context->number_of(""), 2u);

  size_t kept = 0;
  for (int i = 0; i < 100; ++i) {
    const std::string label = std::to_string(i) + std::string(1 << 16, 'x');
    attn_op* one = make_gqa(context, label.c_str());
    kept += context->label(static_cast<uint32_t>(3 + i)).size();
    EXPECT_EQ(context->label(static_cast<uint32_t>(3 + i)), label.substr(0, kRoom));
    attn_op_release(one);
  }
  EXPECT_EQ(kept, 100 * kRoom);

  attn_session* session = make_api_session(context);
  attn_fault_info info = ATTN_FAULT_INFO_INIT;
  ASSERT_OK(attn_session_poll_faults(session, &info, &error));
  EXPECT_EQ(info.label, start) << "of number 0";
  attn_session_release(session);
  attn_context_release(context);
}

}  // namespace
}  // namespace attn::test
