// Plans: sharing, ranges, what does not fit in words, workspace, description.
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api_fixture.h"
#include "cpu/cpu_info.h"
#include "cpu/machine_model.h"

namespace attn::test {
namespace {

TEST_F(ApiTest, FortyEqualLayersShareOnePlan) {
  std::vector<attn_op*> ops;
  std::vector<attn_plan*> plans(40);
  DecodeStep step(2, 3, 8);
  for (size_t i = 0; i < plans.size(); ++i) {
    ops.push_back(make_gqa(context, ("layer" + std::to_string(i)).c_str()));
    ASSERT_OK(step.prepare(ops[i], &plans[i], &error));
  }
  attn_context_stats stats = api_stats(context);
  EXPECT_EQ(stats.plans_created, 1u);
  EXPECT_EQ(stats.plan_cache_hits, 39u);
  EXPECT_EQ(stats.plans_live, 1u);

  // Another class of attributes is another plan, another range too.
  attn_op* windowed = make_gqa(context, nullptr, 2, 1, 4);
  attn_plan* other = nullptr;
  ASSERT_OK(step.prepare(windowed, &other, &error));
  EXPECT_EQ(api_stats(context).plans_live, 2u);

  ASSERT_OK(attn_context_trim(context, &error));
  EXPECT_EQ(api_stats(context).plans_live, 2u) << "held plans stay";
  for (attn_plan* plan : plans) attn_plan_release(plan);
  EXPECT_EQ(api_stats(context).plans_live, 2u) << "the cache keeps them";
  ASSERT_OK(attn_context_trim(context, &error));
  EXPECT_EQ(api_stats(context).plans_live, 1u);
  attn_plan_release(other);
  for (attn_op* made : ops) attn_op_release(made);
  attn_op_release(windowed);
}

TEST_F(ApiTest, APlanRunsWithAnyTensorsOfItsClass) {
  DecodeStep first(2);
  attn_plan* plan = prepare(first);
  ASSERT_OK(first.execute(plan, session, &error));
  first.expect_value_rows();
  DecodeStep second(1);
  ASSERT_OK(second.execute(plan, session, &error));
  second.expect_value_rows();
  EXPECT_EQ(api_stats(context).executions, 2u);
  attn_plan_release(plan);
}

TEST_F(ApiTest, TheRangeIsWhatIsBoundOrNamed) {
  DecodeStep step(2, 3, 8);
  attn_plan* plan = prepare(step);
  attn_plan_info info = ATTN_PLAN_INFO_INIT;
  ASSERT_OK(attn_plan_get_info(plan, &info, &error));
  EXPECT_EQ(info.max_batch, 2);
  EXPECT_EQ(info.max_query_length, 1);
  EXPECT_EQ(info.max_total_length, 8);
  EXPECT_EQ(info.capture_flags, 0u);
  EXPECT_EQ(info.baked_slot_count, 0u);
  EXPECT_NE(info.reason[0], '\0') << "why it cannot be captured";
  EXPECT_GT(info.workspace_alignment, 0u);
  attn_plan_release(plan);

  attn_prepare_desc desc = step.prepare_desc();
  desc.max_batch = 4;
  desc.max_total_length = 4096;
  plan = nullptr;
  ASSERT_OK(attn_op_prepare(op, &desc, &plan, &error));
  ASSERT_OK(attn_plan_get_info(plan, &info, &error));
  EXPECT_EQ(info.max_batch, 4);
  EXPECT_EQ(info.max_query_length, 1);
  EXPECT_EQ(info.max_total_length, 4096);
  DecodeStep larger(4, 100, 1024);
  ASSERT_OK(larger.execute(plan, session, &error));
  attn_plan_release(plan);

  desc.max_batch = 1;
  EXPECT_REFUSED(attn_op_prepare(op, &desc, &plan, &error), ATTN_INVALID_ARGUMENT,
                 "max_batch is 1, but the tensors have 2");
  desc.max_batch = -3;
  EXPECT_REFUSED(attn_op_prepare(op, &desc, &plan, &error), ATTN_INVALID_ARGUMENT, "is -3");
  desc.max_batch = int64_t{1} << 40;
  EXPECT_REFUSED(attn_op_prepare(op, &desc, &plan, &error), ATTN_UNSUPPORTED,
                 "max_batch of 1099511627776");
}

// No batch rows, and null wherever a tensor is empty.
void empty_batch(DecodeStep& step) {
  for (attn_tensor* tensor :
       {&step.t_q, &step.t_k, &step.t_v, &step.t_kc, &step.t_vc, &step.t_seqlens, &step.t_y}) {
    tensor->shape[0] = 0;
    tensor->data = nullptr;
  }
}

// Without memory nobody can say whether past and present are one: any plan of the class serves.
TEST_F(ApiTest, AnEmptyBatchRunsOnEveryPlanOfItsClass) {
  DecodeStep step(2, 3, 8), apart(2, 3, 8), strided(2, 3, 8);
  std::vector<float> keys(apart.key_cache.size()), values(keys.size()), wide(2 * step.q.size());
  attn_tensor present_key = apart.t_kc, present_value = apart.t_vc;
  present_key.data = keys.data();
  present_value.data = values.data();
  apart.outputs[1].tensor = &present_key;
  apart.outputs[2].tensor = &present_value;
  strided.t_q.data = wide.data();
  for (int64_t& stride : strided.t_q.strides) stride *= 2;
  attn_plan* const plans[] = {prepare(step), prepare(apart), prepare(strided)};
  EXPECT_EQ(api_stats(context).plans_created, 3u);

  DecodeStep empty(2, 3, 8);
  empty_batch(empty);
  for (attn_plan* plan : plans) ASSERT_OK(empty.execute(plan, session, &error));
  attn_binding* binding = bind();
  ASSERT_OK(step.set(binding, &error));
  ASSERT_OK(attn_binding_prepare(binding, nullptr, &error));
  ASSERT_OK(empty.set(binding, &error));
  ASSERT_OK(attn_binding_execute(binding, nullptr, &error));
  EXPECT_EQ(api_stats(context).executions, 4u);
  EXPECT_EQ(api_stats(context).plans_created, 3u);
  for (const DecodeStep* other : {&step, &empty}) {
    EXPECT_EQ(other->y, std::vector<float>(other->y.size(), -7.0f));
    EXPECT_EQ(other->key_cache, std::vector<float>(other->key_cache.size(), 0.0f));
  }

  // What is no matter of memory is compared all the same.
  for (attn_tensor* tensor : {&empty.t_q, &empty.t_k, &empty.t_v, &empty.t_y}) tensor->shape[1] = 2;
  EXPECT_REFUSED(empty.execute(plans[0], session, &error), ATTN_NOT_PREPARED,
                 "query length 2 exceeds the plan's 1");
  for (attn_tensor* tensor : {&empty.t_q, &empty.t_k, &empty.t_v, &empty.t_y}) tensor->shape[1] = 1;
  EXPECT_REFUSED(attn_plan_execute(plans[0], session, empty.inputs.data(), 7, empty.outputs.data(),
                                   1, nullptr, &error),
                 ATTN_NOT_PREPARED,
                 "output present_key bound no, the plan has yes; output present_value bound no, "
                 "the plan has yes");
  attn_binding_release(binding);
  for (attn_plan* plan : plans) attn_plan_release(plan);
}

// The rows of a present buffer follow from total_sequence_length, which a plan need not know.
TEST_F(ApiTest, APlanNeedsNoValueForOutputsWithoutATensor) {
  DecodeStep step(2, 3, 8);
  step.drop_data();
  step.outputs[1].tensor = step.outputs[2].tensor = nullptr;
  const attn_alias aliases[] = {{3, 1}, {4, 2}};
  for (const uint32_t alias_count : {0u, 2u}) {
    attn_query_desc question = step.query_desc();
    question.aliases = aliases;
    question.alias_count = alias_count;
    attn_support support = ATTN_SUPPORT_INIT;
    ASSERT_OK(attn_op_query(op, &question, &support, &error));
    EXPECT_EQ(support.supported, 1u) << support.reason;
    attn_prepare_desc desc = step.prepare_desc();
    desc.aliases = aliases;
    desc.alias_count = alias_count;
    attn_plan* plan = nullptr;
    ASSERT_OK(attn_op_prepare(op, &desc, &plan, &error));
    attn_plan_info info = ATTN_PLAN_INFO_INIT;
    ASSERT_OK(attn_plan_get_info(plan, &info, &error));
    EXPECT_EQ(info.max_total_length, 9) << "rows of the past and the new one";

    DecodeStep call(2, 1, 8);
    std::vector<float> keys(call.key_cache.size()), values(keys.size());
    attn_tensor present_key = call.t_kc, present_value = call.t_vc;
    present_key.data = keys.data();
    present_value.data = values.data();
    if (alias_count == 0) {
      call.outputs[1].tensor = &present_key;
      call.outputs[2].tensor = &present_value;
    }
    ASSERT_OK(call.execute(plan, session, &error));
    call.expect_value_rows();
    attn_plan_release(plan);
  }
}

TEST_F(ApiTest, WhatDoesNotFitIsNamed) {
  DecodeStep small(2, 3, 8);
  attn_plan* plan = prepare(small);
  EXPECT_REFUSED(DecodeStep(4, 3, 8).execute(plan, session, &error), ATTN_NOT_PREPARED,
                 "batch 4 exceeds the plan's 2; prepare with max_batch");
  EXPECT_REFUSED(DecodeStep(2, 12, 16).execute(plan, session, &error), ATTN_NOT_PREPARED,
                 "total length 12 exceeds the plan's 8; prepare with max_total_length");

  DecodeStep apart(2, 3, 8);
  std::vector<float> present(apart.key_cache.size());
  attn_tensor present_key = apart.t_kc;
  present_key.data = present.data();
  apart.outputs[1].tensor = &present_key;
  EXPECT_REFUSED(apart.execute(plan, session, &error), ATTN_NOT_PREPARED,
                 "key cache in place no, the plan has yes");

  std::vector<float> lse(2 * 2);
  attn_tensor t_lse = api_tensor(kApiFloat, {2, 2, 1}, lse.data());
  DecodeStep more(2, 3, 8);
  const attn_arg outputs[] = {
      more.outputs[0], more.outputs[1], more.outputs[2], {ATTN_SLOT_LOG_SUM_EXP, 0, &t_lse}};
  EXPECT_REFUSED(
      attn_plan_execute(plan, session, more.inputs.data(), 7, outputs, 4, nullptr, &error),
      ATTN_NOT_PREPARED, "log-sum-exp output yes, the plan has no");

  DecodeStep wide(2, 3, 8, 2, 1);
  for (attn_tensor* tensor : {&wide.t_q, &wide.t_k, &wide.t_v, &wide.t_y}) tensor->shape[2] /= 2;
  wide.t_kc.shape[3] = wide.t_vc.shape[3] = 4;
  EXPECT_REFUSED(wide.execute(plan, session, &error), ATTN_NOT_PREPARED,
                 "head size 4, the plan has 8");
  attn_plan_release(plan);
}

TEST_F(ApiTest, EnginesCanBeForced) {
  attn_context_info info = ATTN_CONTEXT_INFO_INIT;
  ASSERT_OK(attn_context_get_info(context, &info, &error));
  DecodeStep step;
  attn_prepare_desc desc = step.prepare_desc();
  attn_plan* plan = nullptr;
  desc.engine = "steam";
  EXPECT_REFUSED(attn_op_prepare(op, &desc, &plan, &error), ATTN_INVALID_ARGUMENT,
                 std::string("engine is 'steam', which is no engine of this context; there are ") +
                     info.engines);
  int ran = 0;
  const std::string engines = std::string(info.engines) + ",";
  for (size_t begin = 0, end; (end = engines.find(',', begin)) != std::string::npos;
       begin = end + 1) {
    const std::string engine = engines.substr(begin, end - begin);
    desc.engine = engine.c_str();
    ApiError refusal;
    const attn_status status = attn_op_prepare(op, &desc, &plan, &refusal);
    if (status != ATTN_OK) {
      EXPECT_EQ(status, ATTN_UNSUPPORTED) << refusal.text();
      attn_query_desc query = step.query_desc();
      query.engine = engine.c_str();
      attn_support support = ATTN_SUPPORT_INIT;
      ASSERT_EQ(attn_op_query(op, &query, &support, nullptr), ATTN_OK);
      EXPECT_EQ(refusal.text(), std::string("GroupQueryAttention 'layer3': ") + support.reason);
      continue;
    }
    ASSERT_OK(step.execute(plan, session, &error));
    step.expect_value_rows();
    attn_plan_release(plan);
    ++ran;
  }
  EXPECT_GT(ran, 0);
}

TEST_F(ApiTest, WorkspaceOfTheCaller) {
  DecodeStep step(2, 3, 8);
  attn_plan* plan = prepare(step);
  attn_plan_info info = ATTN_PLAN_INFO_INIT;
  ASSERT_OK(attn_plan_get_info(plan, &info, &error));
  ASSERT_GT(info.workspace_bytes, 0u);
  std::vector<unsigned char> memory(info.workspace_bytes + info.workspace_alignment + 64, 0xa5);
  void* start = memory.data();
  size_t space = memory.size();
  ASSERT_NE(std::align(info.workspace_alignment, info.workspace_bytes + 1, start, space), nullptr);
  attn_execute_desc desc = ATTN_EXECUTE_DESC_INIT;
  desc.workspace = start;
  desc.workspace_bytes = info.workspace_bytes;
  ASSERT_OK(step.execute(plan, session, &error, &desc));
  EXPECT_EQ(static_cast<unsigned char*>(start)[info.workspace_bytes], 0xa5);
  EXPECT_EQ(api_stats(context).scratch_bytes, 0u) << "the session's scratch was not needed";

  desc.workspace_bytes = std::numeric_limits<uint64_t>::max() / 2 * 2;
  EXPECT_REFUSED(step.execute(plan, session, &error, &desc), ATTN_INVALID_ARGUMENT,
                 "beyond the end of the address space");
  desc.workspace_bytes = info.workspace_bytes - 1;
  EXPECT_REFUSED(step.execute(plan, session, &error, &desc), ATTN_INVALID_ARGUMENT,
                 "the plan needs " + std::to_string(info.workspace_bytes));
  desc.workspace = static_cast<char*>(start) + 1;
  desc.workspace_bytes = info.workspace_bytes;
  EXPECT_REFUSED(step.execute(plan, session, &error, &desc), ATTN_INVALID_ARGUMENT,
                 "workspace is not aligned");
  desc.workspace = nullptr;
  EXPECT_REFUSED(step.execute(plan, session, &error, &desc), ATTN_INVALID_ARGUMENT,
                 "workspace is null, but workspace_bytes is");
  desc = ATTN_EXECUTE_DESC_INIT;
  desc.stream = start;
  EXPECT_REFUSED(step.execute(plan, session, &error, &desc), ATTN_INVALID_ARGUMENT,
                 "the CPU runs at once");
  desc = ATTN_EXECUTE_DESC_INIT;
  desc.flags = ATTN_EXECUTE_PREPARE;
  EXPECT_REFUSED(step.execute(plan, session, &error, &desc), ATTN_INVALID_ARGUMENT, "desc.flags");
  attn_plan_release(plan);
}

TEST_F(ApiTest, DescribeIsJsonWithTheReasons) {
  attn_op* odd = make_gqa(context, "bad \xff label");
  DecodeStep step(2, 3, 8);
  attn_plan* plan = nullptr;
  ASSERT_OK(step.prepare(odd, &plan, &error));
  size_t needed = 0;
  ASSERT_OK(attn_plan_describe(plan, nullptr, 0, &needed, &error));
  std::string text(needed, '\0');
  ASSERT_OK(attn_plan_describe(plan, text.data(), text.size(), &needed, &error));
  text.pop_back();
  const nlohmann::json json = nlohmann::json::parse(text);
  EXPECT_EQ(json.at("schema"), 1);
  EXPECT_EQ(json.at("library"), ATTN_VERSION_STRING);
  EXPECT_EQ(json.at("operator").at("type"), "GroupQueryAttention");
  EXPECT_EQ(json.at("sizes").at("max_batch"), 2);
  EXPECT_EQ(json.at("sizes").at("head_size"), 8);
  EXPECT_EQ(json.at("sizes").at("key_in_place"), true);
  EXPECT_EQ(json.at("device").at("type"), "cpu");
  EXPECT_EQ(json.at("device").at("instruction_sets"), cpu::cpu_info().instruction_sets);
  const nlohmann::json& machine = json.at("device").at("machine");
  EXPECT_EQ(machine.at("second_level_bytes"), cpu::machine_caches().second_level);
  EXPECT_EQ(machine.at("cores"), cpu::machine_topology().cores);
  EXPECT_EQ(machine.at("available"), cpu::available_cores());
  EXPECT_TRUE(json.at("asked").at("engine").is_null());
  attn_plan_info info = ATTN_PLAN_INFO_INIT;
  ASSERT_OK(attn_plan_get_info(plan, &info, &error));
  EXPECT_EQ(json.at("workspace_bytes"), info.workspace_bytes);
  EXPECT_EQ(json.at("capture").at("reason"), info.reason);
  bool attention = false;
  for (const auto& stage : json.at("stages")) {
    bool chosen = false;
    for (const auto& verdict : stage.at("considered")) {
      chosen =
          chosen || (verdict.at("engine") == stage.at("engine") && verdict.at("supported") == true);
      EXPECT_TRUE(verdict.at("supported") == true || verdict.at("reason") != "");
    }
    EXPECT_TRUE(chosen) << stage.dump();
    if (stage.at("stage") == "attention") {
      attention = true;
      EXPECT_GT(stage.at("flops"), 0);
      EXPECT_GT(stage.at("bytes"), 0);
    }
  }
  EXPECT_TRUE(attention);
  attn_plan_release(plan);
  attn_op_release(odd);
}

TEST_F(ApiTest, PrepareFlagsMakePlansOfTheirOwn) {
  DecodeStep step;
  attn_prepare_desc desc = step.prepare_desc();
  desc.flags = ATTN_PREPARE_BATCH_INVARIANT;
  attn_plan* invariant = nullptr;
  ASSERT_OK(attn_op_prepare(op, &desc, &invariant, &error));
  attn_plan* plain = prepare(step);
  EXPECT_EQ(api_stats(context).plans_created, 2u);
  ASSERT_OK(step.execute(invariant, session, &error));
  step.expect_value_rows();
  attn_plan_release(invariant);
  attn_plan_release(plain);
  EXPECT_REFUSED(attn_op_prepare(op, &desc, nullptr, &error), ATTN_INVALID_ARGUMENT,
                 "plan is null");
}

}  // namespace
}  // namespace attn::test
