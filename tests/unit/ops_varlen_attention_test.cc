// What calls of VarlenAttention and PackedVarlenAttention become, and what is refused.
#include <gtest/gtest.h>

#include "ops/varlen_attention.h"
#include "ops_gqa_call.h"

namespace attn::ops_test {
namespace {

Lowering lower(const Operator& op, const Arguments& arguments) {
  Lowering lowering;
  op.lower(arguments, LowerMode::kPlan, lowering);
  return lowering;
}

std::unique_ptr<Operator> make_varlen() {
  return create_varlen_attention(
      Attributes(kVarlenAttentionSchema, {make_int("num_heads", 4), make_int("kv_num_heads", 2)}),
      1);
}

Arguments varlen_arguments() {
  Arguments arguments;
  arguments.in[0] = make_tensor(kFloat32, {2, 3, 4, 8});
  arguments.in[1] = make_tensor(kFloat32, {2, 5, 2, 8});
  arguments.in[2] = make_tensor(kFloat32, {2, 5, 12});
  arguments.in[3] = make_tensor(kInt64, {2});
  arguments.out[0] = make_tensor(kFloat32, {2, 3, 4, 6});
  return arguments;
}

TEST(VarlenAttentionLower, RowsBeforeHeads) {
  const Lowering lowering = lower(*make_varlen(), varlen_arguments());
  EXPECT_FALSE(lowering.kv_update);
  const AttentionProblem& problem = *lowering.attention;
  EXPECT_EQ(problem.query.batch, 3 * 4 * 8);
  EXPECT_EQ(problem.query.row, 4 * 8);
  EXPECT_EQ(problem.query.head, 8);
  EXPECT_EQ(problem.value.row, 12);
  EXPECT_EQ(problem.value.head, 6);
  EXPECT_EQ(problem.spec.v_head_size, 6);
  EXPECT_EQ(problem.max_total, 5);
  EXPECT_EQ(lowering.lengths.spec.rule, LengthRule::kValid);
  EXPECT_EQ(lowering.lengths.most_keys, 5);
}

TEST(VarlenAttentionLower, Refusals) {
  const auto refused = [](auto change) {
    Arguments arguments = varlen_arguments();
    change(arguments);
    return refusal([&] { lower(*make_varlen(), arguments); });
  };
  EXPECT_EQ(refused([](Arguments& a) { a.in[3] = Tensor{}; }),
            "1: nonpad_kv_seqlen: expected a tensor of shape (B); got none (it is required)");
  EXPECT_EQ(refused([](Arguments& a) { a.in[3].type = kInt32; }),
            "1: nonpad_kv_seqlen: expected int64; got int32");
  EXPECT_EQ(refused([](Arguments& a) { a.in[1].shape[3] = 7; }),
            "1: key: expected shape (B, L, Hkv, D) = (2, 5, 2, 8); got (2, 5, 2, 7)");
  EXPECT_EQ(refused([](Arguments& a) { a.in[0].type = kFloat64; }),
            "1: query: expected float32, float16 or bfloat16; got float64");
  EXPECT_EQ(refused([](Arguments& a) { a.out[0].rank = 3; }).substr(0, 3), "1: ");
}

std::unique_ptr<Operator> make_packed(std::vector<Attribute> more = {}) {
  more.push_back(make_int("num_heads", 4));
  more.push_back(make_int("kv_num_heads", 2));
  return create_packed_varlen_attention(Attributes(kPackedVarlenAttentionSchema, std::move(more)),
                                        1);
}

Arguments packed_arguments() {
  Arguments arguments;
  arguments.in[0] = make_tensor(kFloat16, {9, 4, 8});
  arguments.in[1] = make_tensor(kFloat16, {11, 2, 8});
  arguments.in[2] = make_tensor(kFloat16, {11, 2, 6});
  arguments.in[3] = make_tensor(kInt32, {4});
  arguments.in[4] = make_tensor(kInt32, {4});
  arguments.out[0] = make_tensor(kFloat16, {9, 4, 6});
  arguments.out[1] = make_tensor(kFloat32, {4, 9});
  return arguments;
}

TEST(PackedVarlenAttentionLower, SequencesAmongTokens) {
  const Lowering lowering =
      lower(*make_packed({make_int("max_seqlen_q", 5), make_int("left_window_size", 3)}),
            packed_arguments());
  const AttentionProblem& problem = *lowering.attention;
  EXPECT_EQ(lowering.batch, 3);
  EXPECT_TRUE(problem.spec.packed);
  EXPECT_EQ(problem.query_rows, 5);
  EXPECT_EQ(problem.max_total, 11);
  EXPECT_EQ(problem.spec.left_window, 3);
  EXPECT_EQ(problem.query.batch, 0);
  EXPECT_EQ(problem.query.row, 32);
  EXPECT_EQ(problem.query.head, 8);
  EXPECT_EQ(problem.output.rows, 9);
  EXPECT_EQ(problem.log_sum_exp.head, 9);
  EXPECT_EQ(problem.log_sum_exp.row, 1);
  EXPECT_EQ(lowering.lengths.spec.rule, LengthRule::kCumulative);
  EXPECT_EQ(lowering.lengths.query_tokens, 9);
  EXPECT_EQ(lowering.lengths.key_tokens, 11);
}

TEST(PackedVarlenAttentionLower, OneListMayStandForBoth) {
  Arguments arguments = packed_arguments();
  int32_t ends[4] = {};
  arguments.in[3].data = ends;
  arguments.in[4] = Tensor{};
  EXPECT_EQ(lower(*make_packed(), arguments).lengths.key_values, ends);
}

TEST(PackedVarlenAttentionLower, Refusals) {
  const auto refused = [](auto change) {
    Arguments arguments = packed_arguments();
    change(arguments);
    return refusal([&] { lower(*make_packed(), arguments); });
  };
  EXPECT_EQ(refused([](Arguments& a) { a.in[3] = make_tensor(kInt32, {0}); }),
            "1: cu_seqlens_q: expected at least one element, the begin of the first sequence; "
            "got (0)");
  EXPECT_EQ(refused([](Arguments& a) { a.in[4] = make_tensor(kInt32, {5}); }),
            "1: cu_seqlens_k: expected shape (B + 1) = (4); got (5)");
  EXPECT_EQ(refused([](Arguments& a) { a.in[3].type = kInt64; }),
            "1: cu_seqlens_q: expected int32; got int64");
  EXPECT_EQ(refused([](Arguments& a) { a.in[0].shape[1] = 3; }),
            "1: query: expected shape (Nq, Hq, D) = (?, 4, ?); got (9, 3, 8)");
}

}  // namespace
}  // namespace attn::ops_test
