// The ATTN_C_... variables.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "api_fixture.h"
#include "api_host.h"

namespace attn::test {
namespace {

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

TEST_F(ApiEnvironmentTest, ALevelThatIsNoneIsTheVariables) {
  set("ATTN_C_SIMD_LEVEL", "avx9");
  attn_context_desc desc = ATTN_CONTEXT_DESC_INIT;
  attn_context* context = nullptr;
  EXPECT_REFUSED(attn_context_create(&desc, &context, &error), ATTN_INVALID_ARGUMENT,
                 "environment variable ATTN_C_SIMD_LEVEL is \"avx9\", which is no level");
  desc.simd_level = "avx8";
  EXPECT_REFUSED(attn_context_create(&desc, &context, &error), ATTN_INVALID_ARGUMENT,
                 "simd_level is \"avx8\", which is no level");
}

TEST_F(ApiEnvironmentTest, CountsWhereTheDescSaysNothing) {
  set("ATTN_C_THREAD_COUNT", "3");
  set("ATTN_C_SIMD_LEVEL", "generic");
  attn_context* context = make_api_context();
  attn_context_info info = ATTN_CONTEXT_INFO_INIT;
  ASSERT_OK(attn_context_get_info(context, &info, &error));
  EXPECT_EQ(info.thread_count, 3);
  EXPECT_STREQ(info.simd_level, "generic");
  const std::string best =
      std::string(info.simd_levels).substr(0, std::string(info.simd_levels).find(','));
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
  // The environment holds any bytes, messages hold UTF-8.
  set("ATTN_C_ENGINE", "st\xffm \xc3\xa4");
  attn_context* none = nullptr;
  EXPECT_REFUSED(attn_context_create(nullptr, &none, &error), ATTN_INVALID_ARGUMENT,
                 "ATTN_C_ENGINE is 'st?m \xc3\xa4', which is no engine");
  set("ATTN_C_ENGINE", "");
  set("ATTN_C_CACHE_OFF", "1");
  set("ATTN_C_THREAD_COUNT", "");
  attn_context_release(make_api_context());
}

}  // namespace
}  // namespace attn::test
