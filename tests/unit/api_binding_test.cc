// Bindings: the easy way.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "api_fixture.h"

namespace attn::test {
namespace {

class ApiBindingTest : public ApiTest {
 protected:
  void SetUp() override {
    ApiTest::SetUp();
    binding = bind();
    ASSERT_NE(binding, nullptr);
  }
  void TearDown() override {
    attn_binding_release(binding);
    ApiTest::TearDown();
  }
  attn_binding* binding = nullptr;
};

TEST_F(ApiBindingTest, BindPrepareExecute) {
  DecodeStep step;
  for (const attn_arg& input : step.inputs) {
    ASSERT_OK(attn_binding_set_input(binding, input.slot, input.tensor, &error));
  }
  for (const attn_arg& output : step.outputs) {
    ASSERT_OK(attn_binding_set_output(binding, output.slot, output.tensor, &error));
  }
  EXPECT_REFUSED(attn_binding_execute(binding, nullptr, &error), ATTN_NOT_PREPARED,
                 "the binding has no plan");
  EXPECT_EQ(step.y[0], -7.0f);
  attn_plan_info info = ATTN_PLAN_INFO_INIT;
  ASSERT_OK(attn_binding_capture_support(binding, &info, &error));
  EXPECT_EQ(info.capture_flags, ATTN_CAPTURE_NEEDS_PREPARE);
  EXPECT_NE(info.reason[0], '\0');
  size_t needed = 0;
  EXPECT_REFUSED(attn_binding_describe(binding, nullptr, 0, &needed, &error), ATTN_NOT_PREPARED,
                 "no plan");

  ASSERT_OK(attn_binding_prepare(binding, nullptr, &error));
  ASSERT_OK(attn_binding_execute(binding, nullptr, &error));
  step.expect_value_rows();
  ASSERT_OK(attn_binding_capture_support(binding, &info, &error));
  EXPECT_EQ(info.capture_flags, 0u);
  EXPECT_EQ(info.max_batch, 1);
  ASSERT_OK(attn_binding_describe(binding, nullptr, 0, &needed, &error));
  EXPECT_GT(needed, 100u);
}

// A plan that was made for other tensors does not count; why not is told without an execute.
TEST_F(ApiBindingTest, CaptureSupportFollowsWhatIsBound) {
  DecodeStep step(1, 1, 4), larger(3, 1, 4);
  ASSERT_OK(step.set(binding, &error));
  ASSERT_OK(attn_binding_prepare(binding, nullptr, &error));
  ASSERT_OK(larger.set(binding, &error));
  attn_plan_info info = ATTN_PLAN_INFO_INIT;
  ASSERT_OK(attn_binding_capture_support(binding, &info, &error));
  EXPECT_EQ(info.capture_flags, ATTN_CAPTURE_NEEDS_PREPARE);
  EXPECT_NE(std::string(info.reason).find("batch 3 exceeds the plan's 1"), std::string::npos)
      << info.reason;

  ASSERT_OK(attn_binding_set_input(binding, 0, nullptr, &error));
  ASSERT_OK(attn_binding_capture_support(binding, &info, &error));
  EXPECT_EQ(info.capture_flags, ATTN_CAPTURE_NEEDS_PREPARE);
  EXPECT_STREQ(info.reason, "query: the input in slot 0 is required and absent");

  ASSERT_OK(step.set(binding, &error));
  ASSERT_OK(attn_binding_capture_support(binding, &info, &error));
  EXPECT_EQ(info.capture_flags, 0u) << "the first plan fits again";
  EXPECT_EQ(info.max_batch, 1);
}

TEST_F(ApiBindingTest, PrepareBeforeThereIsData) {
  DecodeStep step;
  step.drop_data();
  ASSERT_OK(step.set(binding, &error));
  attn_tensor present_key = step.t_kc, present_value = step.t_vc;
  ASSERT_OK(attn_binding_prepare(binding, nullptr, &error));
  EXPECT_REFUSED(attn_binding_execute(binding, nullptr, &error), ATTN_INVALID_ARGUMENT,
                 "data is null");
  // Without data nothing tells that the caches are in place, so the plan is for separate ones.
  step.describe();
  std::vector<float> keys(step.key_cache.size()), values(keys.size());
  present_key.data = keys.data();
  present_value.data = values.data();
  step.outputs[1].tensor = &present_key;
  step.outputs[2].tensor = &present_value;
  ASSERT_OK(step.set(binding, &error));
  ASSERT_OK(attn_binding_execute(binding, nullptr, &error));
  step.expect_value_rows();
}

TEST_F(ApiBindingTest, SettingIsAllOrNothing) {
  DecodeStep step;
  ASSERT_OK(step.set(binding, &error));
  ASSERT_OK(attn_binding_prepare(binding, nullptr, &error));
  DecodeStep broken;
  broken.t_vc.ndim = 11;
  EXPECT_REFUSED(broken.set(binding, &error), ATTN_INVALID_ARGUMENT, "past_value: ndim is 11");
  EXPECT_REFUSED(attn_binding_set_input(binding, 0, &broken.t_vc, &error), ATTN_INVALID_ARGUMENT,
                 "query: ndim is 11");
  EXPECT_REFUSED(attn_binding_set_output(binding, 0, &broken.t_vc, &error), ATTN_INVALID_ARGUMENT,
                 "output: ndim is 11");
  EXPECT_REFUSED(attn_binding_set_input(binding, 44, &step.t_q, &error), ATTN_INVALID_ARGUMENT,
                 "input slot 44 is unknown");
  EXPECT_REFUSED(attn_binding_set_output(binding, 44, &step.t_q, &error), ATTN_INVALID_ARGUMENT,
                 "output slot 44 is unknown");
  ASSERT_OK(attn_binding_execute(binding, nullptr, &error));
  step.expect_value_rows();
}

TEST_F(ApiBindingTest, NullUnbinds) {
  DecodeStep step;
  ASSERT_OK(step.set(binding, &error));
  ASSERT_OK(attn_binding_prepare(binding, nullptr, &error));
  ASSERT_OK(attn_binding_set_input(binding, 5, nullptr, &error));
  EXPECT_REFUSED(attn_binding_execute(binding, nullptr, &error), ATTN_INVALID_ARGUMENT,
                 "seqlens_k: the input in slot 5 is required");
  ASSERT_OK(attn_binding_set_input(binding, 5, &step.t_seqlens, &error));
  ASSERT_OK(attn_binding_execute(binding, nullptr, &error));
  ASSERT_OK(attn_binding_set_output(binding, 0, nullptr, &error));
  EXPECT_REFUSED(attn_binding_execute(binding, nullptr, &error), ATTN_INVALID_ARGUMENT,
                 "output: the output in slot 0 is required");
}

TEST_F(ApiBindingTest, RebindingKeepsThePlanWhileItFits) {
  DecodeStep first, second;
  ASSERT_OK(first.set(binding, &error));
  ASSERT_OK(attn_binding_prepare(binding, nullptr, &error));
  ASSERT_OK(attn_binding_execute(binding, nullptr, &error));
  ASSERT_OK(second.set(binding, &error));
  ASSERT_OK(attn_binding_execute(binding, nullptr, &error));
  second.expect_value_rows();
  DecodeStep larger(2);
  ASSERT_OK(larger.set(binding, &error));
  EXPECT_REFUSED(attn_binding_execute(binding, nullptr, &error), ATTN_NOT_PREPARED,
                 "batch 2 exceeds the plan's 1");
  EXPECT_EQ(api_stats(context).plans_created, 1u);
}

TEST_F(ApiBindingTest, ExecuteMayPrepareAndGrowsWithRoom) {
  attn_execute_desc desc = ATTN_EXECUTE_DESC_INIT;
  desc.flags = ATTN_EXECUTE_PREPARE;
  // A cache that grows by one row a step, in new memory each time.
  for (int64_t total = 1; total <= 300; ++total) {
    DecodeStep step(1, total, total);
    ASSERT_OK(step.set(binding, &error));
    ASSERT_OK(attn_binding_execute(binding, &desc, &error));
    if (total == 1) step.expect_value_rows();
  }
  const attn_context_stats stats = api_stats(context);
  EXPECT_LE(stats.plans_created, 10u) << "ranges double";
  EXPECT_EQ(stats.executions, 300u);

  // A second binding of the same class finds what there is.
  attn_binding* other = bind();
  DecodeStep step(1, 5, 9);
  ASSERT_OK(step.set(other, &error));
  ASSERT_OK(attn_binding_execute(other, &desc, &error));
  EXPECT_EQ(api_stats(context).plans_created, stats.plans_created);
  EXPECT_EQ(api_stats(context).plan_cache_hits, stats.plan_cache_hits + 1);
  attn_binding_release(other);
}

TEST_F(ApiBindingTest, PreparingKeepsItsChoiceWhenItPlansAgain) {
  DecodeStep step;
  ASSERT_OK(step.set(binding, &error));
  attn_prepare_desc choice = ATTN_PREPARE_DESC_INIT;
  choice.flags = ATTN_PREPARE_BATCH_INVARIANT;
  choice.max_batch = 3;
  ASSERT_OK(attn_binding_prepare(binding, &choice, &error));
  DecodeStep larger(5);
  ASSERT_OK(larger.set(binding, &error));
  attn_execute_desc desc = ATTN_EXECUTE_DESC_INIT;
  desc.flags = ATTN_EXECUTE_PREPARE;
  ASSERT_OK(attn_binding_execute(binding, &desc, &error));
  size_t needed = 0;
  std::string text(16384, '\0');
  ASSERT_OK(attn_binding_describe(binding, text.data(), text.size(), &needed, &error));
  EXPECT_NE(text.find("\"batch_invariant\": true"), std::string::npos) << text;
  EXPECT_NE(text.find("\"max_batch\": 8"), std::string::npos) << text;
}

TEST_F(ApiBindingTest, PrepareTakesNoTensors) {
  DecodeStep step;
  ASSERT_OK(step.set(binding, &error));
  const attn_prepare_desc desc = step.prepare_desc();
  EXPECT_REFUSED(attn_binding_prepare(binding, &desc, &error), ATTN_INVALID_ARGUMENT,
                 "inputs, outputs and aliases must be empty");
  EXPECT_REFUSED(attn_binding_create(op, session, nullptr, &error), ATTN_INVALID_ARGUMENT,
                 "binding is null");
  EXPECT_REFUSED(attn_session_create(context, nullptr, nullptr, &error), ATTN_INVALID_ARGUMENT,
                 "session is null");
}

// Host lengths are values: the same binding runs on as they change.
TEST_F(ApiBindingTest, ADecodeLoopInPlace) {
  DecodeStep step(1, 1, 16);
  ASSERT_OK(step.set(binding, &error));
  ASSERT_OK(attn_binding_prepare(binding, nullptr, &error));
  for (int32_t total = 1; total <= 16; ++total) {
    step.seqlens[0] = total - 1;
    step.total_length = total;
    ASSERT_OK(attn_binding_execute(binding, nullptr, &error));
    EXPECT_EQ(step.value_cache[static_cast<size_t>(total - 1) * 8], step.v[0]);
  }
  step.seqlens[0] = 16;
  step.total_length = 17;
  const std::vector<float> before = step.y;
  EXPECT_REFUSED(attn_binding_execute(binding, nullptr, &error), ATTN_INVALID_ARGUMENT,
                 "seqlens_k[0] is 16");
  EXPECT_EQ(step.y, before);
}

}  // namespace
}  // namespace attn::test
