// The claim gate and shape inference.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>

#include "api_fixture.h"

namespace attn::test {
namespace {

attn_support ask(attn_op* op, const attn_query_desc& desc) {
  attn_support support = ATTN_SUPPORT_INIT;
  ApiError error;
  EXPECT_EQ(attn_op_query(op, &desc, &support, &error), ATTN_OK) << error.text();
  return support;
}

TEST_F(ApiTest, QueryAcceptsShapesWithoutData) {
  DecodeStep step(2, 3, 8);
  step.drop_data();
  attn_support support = ask(op, step.query_desc());
  EXPECT_EQ(support.supported, 1u) << support.reason;
  EXPECT_EQ(support.status, ATTN_OK);
  EXPECT_STREQ(support.reason, "");
  EXPECT_EQ(support.capture_flags, 0u) << "the CPU cannot be captured";

  for (attn_tensor* tensor : {&step.t_q, &step.t_k, &step.t_v, &step.t_y}) {
    tensor->shape[0] = tensor->shape[1] = -1;
    for (int64_t& stride : tensor->strides) stride = 0;
  }
  step.t_kc.shape[0] = step.t_kc.shape[2] = step.t_vc.shape[0] = step.t_vc.shape[2] = -1;
  step.t_seqlens.shape[0] = -1;
  support = ask(op, step.query_desc());
  EXPECT_EQ(support.supported, 1u) << support.reason;

  // Outputs whose shape follows need no tensor; required ones need not even be listed.
  for (attn_arg& output : step.outputs) output.tensor = nullptr;
  support = ask(op, step.query_desc());
  EXPECT_EQ(support.supported, 1u) << support.reason;
  attn_query_desc none = step.query_desc();
  none.output_count = 0;
  support = ask(op, none);
  EXPECT_EQ(support.supported, 1u) << support.reason;
}

// What the gate says, prepare says: the same status and the same words.
TEST_F(ApiTest, QueryAndPrepareAgree) {
  using Change = std::function<void(DecodeStep&)>;
  const Change changes[] = {
      [](DecodeStep&) {},
      [](DecodeStep& s) { s.t_q.dtype = kApiInt32; },
      [](DecodeStep& s) { s.t_q.ndim = 2; },
      [](DecodeStep& s) { s.t_k.shape[2] = 12; },
      [](DecodeStep& s) { s.t_seqlens.shape[0] = 7; },
      [](DecodeStep& s) { s.t_y.shape[1] = 4; },
      [](DecodeStep& s) { s.t_y.flags = ATTN_TENSOR_READ_ONLY; },
      [](DecodeStep& s) { s.t_vc.shape[1] = 2; },
      [](DecodeStep& s) { s.inputs[6].slot = 5; },
      [](DecodeStep& s) { s.inputs[6].slot = 99; },
      [](DecodeStep& s) { s.inputs[5].tensor = nullptr; },
      [](DecodeStep& s) { s.inputs[5].slot = 12; },
      [](DecodeStep& s) { s.t_q.struct_size = 3; },
      [](DecodeStep& s) { s.outputs[2].slot = 0x1001; },
      [](DecodeStep& s) { s.t_q.device_type = ATTN_DEVICE_CUDA; },
  };
  int refused = 0;
  for (size_t i = 0; i < std::size(changes); ++i) {
    DecodeStep step(2, 3, 8);
    step.drop_data();
    changes[i](step);
    const attn_support support = ask(op, step.query_desc());
    attn_plan* plan = nullptr;
    ApiError error;
    const attn_status status = step.prepare(op, &plan, &error);
    EXPECT_EQ(support.status, status) << "case " << i << ": " << error.text();
    EXPECT_EQ(support.supported == 1, status == ATTN_OK) << "case " << i;
    if (status != ATTN_OK) {
      ++refused;
      EXPECT_EQ(error.text(), std::string("GroupQueryAttention 'layer3': ") + support.reason);
    }
    attn_plan_release(plan);
  }
  EXPECT_EQ(refused, static_cast<int>(std::size(changes)) - 1);
}

TEST_F(ApiTest, QueryNamesUnknownEngines) {
  DecodeStep step;
  attn_query_desc desc = step.query_desc();
  desc.engine = "steam";
  const attn_support support = ask(op, desc);
  EXPECT_EQ(support.supported, 0u);
  EXPECT_EQ(support.status, ATTN_INVALID_ARGUMENT);
  EXPECT_NE(std::string(support.reason).find("'steam'"), std::string::npos) << support.reason;
}

TEST_F(ApiTest, QueryMayBeToldAboutAliases) {
  DecodeStep step(2, 3, 8);
  step.drop_data();
  attn_tensor present_key = step.t_kc, present_value = step.t_vc;
  step.outputs[1].tensor = &present_key;
  step.outputs[2].tensor = &present_value;
  const attn_alias aliases[] = {{3, 1}, {4, 2}};
  attn_query_desc desc = step.query_desc();
  desc.aliases = aliases;
  desc.alias_count = 2;
  EXPECT_EQ(ask(op, desc).supported, 1u);

  const attn_alias crossed[] = {{4, 1}};
  desc.aliases = crossed;
  desc.alias_count = 1;
  attn_support support = ask(op, desc);
  EXPECT_EQ(support.status, ATTN_INVALID_ARGUMENT);
  EXPECT_NE(std::string(support.reason).find("present_key: may not share the memory of past_value"),
            std::string::npos)
      << support.reason;
  desc.aliases = aliases;
  desc.output_count = 1;
  support = ask(op, desc);
  EXPECT_NE(std::string(support.reason).find("both must be among the inputs and outputs"),
            std::string::npos)
      << support.reason;
  desc.aliases = nullptr;
  support = ask(op, desc);
  EXPECT_NE(std::string(support.reason).find("the list of aliases is null"), std::string::npos);
  desc.alias_count = 1000;
  support = ask(op, desc);
  EXPECT_NE(std::string(support.reason).find("1000 aliases are given"), std::string::npos);

  EXPECT_REFUSED(attn_op_query(op, &desc, nullptr, &error), ATTN_INVALID_ARGUMENT,
                 "support is null");
  attn_support answer = ATTN_SUPPORT_INIT;
  EXPECT_REFUSED(attn_op_query(op, nullptr, &answer, &error), ATTN_INVALID_ARGUMENT,
                 "desc is null");
}

TEST_F(ApiTest, ArgumentListsAreCheckedUnread) {
  DecodeStep step;
  attn_plan* plan = prepare(step);
  const attn_status status = ATTN_INVALID_ARGUMENT;
  EXPECT_REFUSED(attn_plan_execute(plan, session, step.inputs.data(), 0xffffffffu,
                                   step.outputs.data(), 3, nullptr, &error),
                 status, "4294967295 inputs are given");
  EXPECT_REFUSED(
      attn_plan_execute(plan, session, nullptr, 7, step.outputs.data(), 3, nullptr, &error), status,
      "the list of inputs is null, but its count is 7");
  EXPECT_REFUSED(
      attn_plan_execute(plan, session, step.inputs.data(), 7, nullptr, 1, nullptr, &error), status,
      "the list of outputs is null");
  EXPECT_REFUSED(
      attn_plan_execute(plan, session, step.inputs.data(), 7, nullptr, 0, nullptr, &error), status,
      "output: the output in slot 0 is required and absent");
  step.inputs[1].slot = 0;
  EXPECT_REFUSED(step.execute(plan, session, &error), status, "query: slot 0 is given twice");
  step.inputs[1].slot = 77;
  EXPECT_REFUSED(step.execute(plan, session, &error), status,
                 "input slot 77 is unknown; the operator has 0 (query), 1 (key)");
  attn_plan_release(plan);
}

TEST_F(ApiTest, InferOutput) {
  DecodeStep step(2, 3, 8);
  attn_tensor output = ATTN_TENSOR_INIT;
  uint32_t depends = 9;
  ASSERT_OK(attn_op_infer_output(op, step.inputs.data(), 7, 0, &output, &depends, &error));
  EXPECT_EQ(depends, 0u);
  EXPECT_EQ(output.ndim, 3);
  EXPECT_EQ(output.shape[0], 2);
  EXPECT_EQ(output.shape[1], 1);
  EXPECT_EQ(output.shape[2], 16);
  EXPECT_EQ(output.strides[0], 16);
  EXPECT_EQ(output.strides[2], 1);
  EXPECT_EQ(output.dtype.code, ATTN_DTYPE_FLOAT);
  EXPECT_EQ(output.dtype.bits, 32);
  EXPECT_EQ(output.device_type, ATTN_DEVICE_CPU);
  EXPECT_EQ(output.data, nullptr);

  // Sizes that are not known stay open, and so do strides.
  step.drop_data();
  step.t_q.shape[0] = -1;
  ASSERT_OK(attn_op_infer_output(op, step.inputs.data(), 7, 0, &output, nullptr, &error));
  EXPECT_EQ(output.strides[2] == 0, output.shape[0] == -1);

  EXPECT_REFUSED(attn_op_infer_output(op, step.inputs.data(), 7, 55, &output, &depends, &error),
                 ATTN_INVALID_ARGUMENT, "output slot 55 is unknown; the operator has 0 (output)");
  EXPECT_REFUSED(attn_op_infer_output(op, step.inputs.data(), 0, 0, &output, &depends, &error),
                 ATTN_INVALID_ARGUMENT, "query: the input in slot 0 is required");
  EXPECT_REFUSED(attn_op_infer_output(op, step.inputs.data(), 7, 0, nullptr, &depends, &error),
                 ATTN_INVALID_ARGUMENT, "output is null");
}

// Inputs may be small and what follows from them more than 64 bits count: no stride can say it.
TEST_F(ApiTest, InferredOutputsThatNothingHolds) {
  constexpr int64_t kHeads = 1 << 20;
  const attn_attribute attributes[] = {api_int("num_heads", kHeads), api_int("kv_num_heads", 1),
                                       api_int("qk_output", 1)};
  attn_op* wide = nullptr;
  ASSERT_OK(create_gqa(context, attributes, nullptr, &wide, &error));
  int32_t total = INT32_MAX;
  const attn_tensor query = api_tensor(kApiFloat, {1, 1 << 20, kHeads});
  const attn_tensor key = api_tensor(kApiFloat, {1, 1 << 20, 1});
  const attn_tensor seqlens = api_tensor(kApiInt32, {1});
  const attn_tensor bound = api_tensor(kApiInt32, {}, &total);
  const attn_arg inputs[] = {
      {0, 0, &query}, {1, 0, &key}, {2, 0, &key}, {5, 0, &seqlens}, {6, 0, &bound}};
  const char* words = "output_qk: the shape (1, 1048576, 1048576, 2147483647) has more bytes than";
  attn_tensor output = ATTN_TENSOR_INIT;
  EXPECT_REFUSED(attn_op_infer_output(wide, inputs, 5, 3, &output, nullptr, &error),
                 ATTN_INVALID_ARGUMENT, words);
  const attn_arg wanted[] = {{3, 0, nullptr}};
  attn_query_desc question = ATTN_QUERY_DESC_INIT;
  question.inputs = inputs;
  question.input_count = 5;
  question.outputs = wanted;
  question.output_count = 1;
  attn_support support = ATTN_SUPPORT_INIT;
  ASSERT_OK(attn_op_query(wide, &question, &support, &error));
  EXPECT_EQ(support.status, ATTN_INVALID_ARGUMENT);
  EXPECT_NE(std::string(support.reason).find(words), std::string::npos) << support.reason;
  attn_op_release(wide);
}

// What inference says of an output is what the gate takes for it, unknown sizes included.
TEST_F(ApiTest, TheGateTakesWhatInferenceGives) {
  for (const bool unknown_batch : {false, true}) {
    DecodeStep step(2, 3, 8);
    step.drop_data();
    if (unknown_batch) {
      for (attn_tensor* tensor : {&step.t_q, &step.t_k, &step.t_v, &step.t_kc, &step.t_vc}) {
        tensor->shape[0] = -1;
        for (int64_t& stride : tensor->strides) stride = 0;
      }
      step.t_seqlens.shape[0] = -1;
      step.t_seqlens.strides[0] = 0;
    }
    attn_tensor outputs[3] = {ATTN_TENSOR_INIT, ATTN_TENSOR_INIT, ATTN_TENSOR_INIT};
    attn_arg arguments[3];
    for (uint32_t slot = 0; slot < 3; ++slot) {
      ASSERT_OK(
          attn_op_infer_output(op, step.inputs.data(), 7, slot, &outputs[slot], nullptr, &error));
      arguments[slot] = {slot, 0, &outputs[slot]};
    }
    attn_query_desc question = step.query_desc();
    question.outputs = arguments;
    question.output_count = 3;
    attn_support support = ATTN_SUPPORT_INIT;
    ASSERT_OK(attn_op_query(op, &question, &support, &error));
    EXPECT_EQ(support.supported, 1u) << support.reason;

    attn_tensor by_shape = outputs[0];
    by_shape.shape[1] = -1;
    for (int64_t& stride : by_shape.strides) stride = 0;
    arguments[0].tensor = &by_shape;
    ASSERT_OK(attn_op_query(op, &question, &support, &error));
    EXPECT_EQ(support.supported, 1u) << support.reason;
  }
}

}  // namespace
}  // namespace attn::test
