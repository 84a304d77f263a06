// What a call of Attention becomes: layouts, masks, forms of caches, score outputs, inference.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops_attention_call.h"

namespace attn::ops_test {
namespace {

using namespace attention;

void expect_strides(const View4& view, int64_t batch, int64_t head, int64_t row, int64_t rows) {
  EXPECT_EQ(view.batch, batch);
  EXPECT_EQ(view.head, head);
  EXPECT_EQ(view.row, row);
  EXPECT_EQ(view.channel, 1);
  EXPECT_EQ(view.rows, rows);
}

TEST(AttentionLower, FourDimensions) {
  const Lowering lowering = AttentionCall().lower();
  EXPECT_FALSE(lowering.kv_update);
  ASSERT_TRUE(lowering.attention);
  const AttentionProblem& problem = *lowering.attention;
  EXPECT_EQ(problem.spec.q_heads, kHq);
  EXPECT_EQ(problem.spec.kv_heads, kHkv);
  EXPECT_EQ(problem.spec.head_size, kD);
  EXPECT_EQ(problem.spec.v_head_size, kDv);
  EXPECT_EQ(problem.spec.scale, 1 / std::sqrt(8.0));
  EXPECT_FALSE(problem.spec.causal);
  EXPECT_FALSE(problem.spec.key_fresh);
  EXPECT_TRUE(problem.spec.unit_channel);
  EXPECT_EQ(problem.max_total, kN);
  expect_strides(problem.query, kHq * kS * kD, kS * kD, kD, kS);
  expect_strides(problem.key, kHkv * kN * kD, kN * kD, kD, kN);
  expect_strides(problem.value, kHkv * kN * kDv, kN * kDv, kDv, kN);
  expect_strides(problem.output, kHq * kS * kDv, kS * kDv, kDv, kS);
  EXPECT_EQ(lowering.lengths.spec.rule, LengthRule::kUniform);
  EXPECT_EQ(lowering.lengths.uniform_past, 0);
  EXPECT_EQ(lowering.lengths.new_rows, kN);
}

TEST(AttentionLower, ThreeDimensions) {
  AttentionCall call;
  call.flatten();
  call.set("q_num_heads", kHq);
  call.set("kv_num_heads", kHkv);
  const AttentionProblem problem = *call.lower().attention;
  expect_strides(problem.query, kS * kHq * kD, kD, kHq * kD, kS);
  expect_strides(problem.key, kN * kHkv * kD, kD, kHkv * kD, kN);
  expect_strides(problem.output, kS * kHq * kDv, kDv, kHq * kDv, kS);
}

TEST(AttentionLower, OneFourDimensionalInputTellsTheHeadsOfTheOther) {
  AttentionCall call;
  call.in(kV) = make_tensor(kFloat32, {kB, kN, kHkv * kDv});
  EXPECT_EQ(call.lower().attention->spec.v_head_size, kDv);
}

TEST(AttentionLower, MasksOfEveryRank) {
  const struct {
    std::initializer_list<int64_t> shape;
    int64_t batch, head, row, column, columns;
  } masks[] = {{{}, 0, 0, 0, 0, std::numeric_limits<int32_t>::max()},
               {{kN}, 0, 0, 0, 1, kN},
               {{kS, kN}, 0, 0, kN, 1, kN},
               {{1, kN + 2}, 0, 0, 0, 1, kN + 2},
               {{kHq, 1, kN}, 0, kN, 0, 1, kN},
               {{kB, 1, kS, 1}, kS, 0, 1, 1, 1},
               {{1, kHq, kS, 0}, 0, 0, 0, 1, 0}};
  for (const auto& mask : masks) {
    AttentionCall call;
    call.in(kMask) = make_tensor(kBool, mask.shape);
    const AttentionProblem problem = *call.lower().attention;
    EXPECT_EQ(problem.spec.mask, MaskKind::kBoolean);
    EXPECT_EQ(problem.mask_batch, mask.batch);
    EXPECT_EQ(problem.mask_row, mask.row);
    EXPECT_EQ(problem.mask_columns, mask.columns);
    if (mask.columns != 0) {
      EXPECT_EQ(problem.mask_head, mask.head);
      EXPECT_EQ(problem.mask_column, mask.column);
    }
  }
}

TEST(AttentionLower, ScoreOutputs) {
  constexpr ScoreStage kStages[] = {ScoreStage::kRaw, ScoreStage::kCapped, ScoreStage::kBiased,
                                    ScoreStage::kProbabilities};
  for (int64_t mode = 0; mode < 4; ++mode) {
    AttentionCall call;
    call.set("qk_matmul_output_mode", mode);
    call.out(kScores) = make_tensor(kFloat32, {kB, kHq, kS, kN});
    const AttentionSpec spec = call.lower().attention->spec;
    EXPECT_EQ(spec.scores, kStages[mode]);
    EXPECT_EQ(spec.hidden_score, mode == 2 ? -std::numeric_limits<float>::infinity() : 0);
  }
}

TEST(AttentionLower, DensePastInSeparateBuffers) {
  AttentionCall call;
  call.add_past();
  call.add_present(kP + kN);
  const Lowering lowering = call.lower();
  ASSERT_TRUE(lowering.kv_update);
  const CacheUpdateSpec& key = lowering.kv_update->spec.key;
  EXPECT_TRUE(key.active && key.has_past && !key.in_place && !key.grows);
  EXPECT_EQ(lowering.kv_update->spec.v_head_size, kDv);
  EXPECT_EQ(lowering.lengths.uniform_past, kP);
  EXPECT_EQ(lowering.attention->key.rows, kP + kN);
  EXPECT_FALSE(lowering.attention->spec.key_fresh);
}

TEST(AttentionLower, DensePastThatGrowsWhereItLies) {
  AttentionCall call;
  call.add_past();
  call.add_present(kP + kN);
  call.share_caches();
  const Lowering lowering = call.lower();
  EXPECT_TRUE(lowering.kv_update->spec.key.grows && !lowering.kv_update->spec.key.in_place);
  EXPECT_EQ(lowering.kv_update->key.past.head, kP * kD);
  EXPECT_EQ(lowering.kv_update->key.present.head, (kP + kN) * kD);
}

TEST(AttentionLower, PastWithoutPresentReadsBoth) {
  AttentionCall call;
  call.add_past();
  const Lowering lowering = call.lower();
  EXPECT_FALSE(lowering.kv_update);
  EXPECT_TRUE(lowering.attention->spec.key_fresh && lowering.attention->spec.value_fresh);
  EXPECT_EQ(lowering.attention->key.rows, kP);
  EXPECT_EQ(lowering.attention->key_fresh.rows, kN);
}

TEST(AttentionLower, CapacityIsAppendedTo) {
  AttentionCall call;
  call.add_past();
  call.add_present(20, 30);
  call.share_caches();
  const Lowering lowering = call.lower();
  EXPECT_TRUE(lowering.kv_update->spec.key.in_place);
  EXPECT_EQ(lowering.lengths.spec.rule, LengthRule::kUniform);
  EXPECT_EQ(lowering.attention->max_total, 30);  // a plan serves what the buffers hold
  call.mode = LowerMode::kExecute;
  EXPECT_EQ(call.lower().attention->max_total, kP + kN);
}

TEST(AttentionLower, FrozenCachesTakeTheirLengthFromTheMask) {
  AttentionCall call;
  call.add_past(20);
  call.in(kPastValue) = make_tensor(kFloat32, {kB, kHkv, 30, kDv});
  call.add_present(20, 30);
  call.share_caches();
  call.in(kMask) = make_tensor(kFloat32, {kB, 1, kS, 20});
  call.out(kScores) = make_tensor(kFloat32, {kB, kHq, kS, 20});
  const Lowering lowering = call.lower();
  EXPECT_EQ(lowering.lengths.spec.rule, LengthRule::kMaskEnd);
  EXPECT_EQ(lowering.lengths.most_keys, 20);
  EXPECT_EQ(lowering.lengths.mask.last_row, kS - 1);
  EXPECT_EQ(lowering.lengths.mask.batch, kS * 20);
  EXPECT_EQ(lowering.lengths.mask.head, 0);
  EXPECT_EQ(lowering.attention->score_columns, 20);
  EXPECT_TRUE(lowering.kv_update->spec.value.in_place);
}

TEST(AttentionLower, LengthFromMaskOfACapacity) {
  AttentionCall call;
  call.set("length_from_mask", 1);
  call.add_past();
  call.add_present(20);
  call.share_caches();
  call.in(kMask) = make_tensor(kBool, {20});
  EXPECT_EQ(call.lower().lengths.spec.rule, LengthRule::kMaskEnd);
}

TEST(AttentionLower, ValidLengths) {
  AttentionCall call;
  call.in(kNonpad) = make_tensor(kInt64, {kB});
  const Lowering lowering = call.lower();
  EXPECT_EQ(lowering.lengths.spec.rule, LengthRule::kValid);
  EXPECT_EQ(lowering.lengths.most_keys, kN);
}

TEST(AttentionLower, AScaleIsUsedAsItIs) {
  AttentionCall call;
  call.set(make_float("scale", 0));
  EXPECT_EQ(call.lower().attention->spec.scale, 0);
  AttentionCall wide(kFloat64);
  EXPECT_EQ(wide.lower().attention->spec.scale, 1 / std::sqrt(8.0));
}

TEST(AttentionInfer, ShapesFollowTheQuery) {
  AttentionCall call;
  call.add_past();
  Tensor out;
  EXPECT_FALSE(call.create()->infer(call.arguments, kPresentKey, out));
  EXPECT_EQ(shape_text(out), "(2, 2, 9, 8)");
  call.create()->infer(call.arguments, kPresentValue, out);
  EXPECT_EQ(shape_text(out), "(2, 2, 9, 6)");
  call.create()->infer(call.arguments, kScores, out);
  EXPECT_EQ(shape_text(out), "(2, 4, 3, 9)");
  call.create()->infer(call.arguments, kLogSumExp, out);
  EXPECT_EQ(shape_text(out), "(2, 4, 3)");
  call.create()->infer(call.arguments, kY, out);
  EXPECT_EQ(shape_text(out), "(2, 4, 3, 6)");
}

TEST(AttentionQuery, EverySizeMayBeOpen) {
  AttentionCall call;
  call.mode = LowerMode::kQuery;
  for (const Input input : {kQ, kK, kV}) {
    call.in(input) = make_tensor(kFloat32, {kAnyDim, kAnyDim, kAnyDim, kAnyDim});
  }
  call.out(kY) = Tensor{};
  call.in(kMask) = make_tensor(kBool, {kAnyDim, kAnyDim});
  EXPECT_EQ(call.refused(), "");
  call.in(kPastKey) = call.in(kPastValue) = call.in(kK);
  call.out(kPresentKey) = call.out(kPresentValue) = call.in(kK);
  EXPECT_EQ(call.refused(), "");
}

// ---- refusals -----------------------------------------------------------------------------------

constexpr char kInvalid[] = "1: ";
constexpr char kUnsupported[] = "2: ";

void expect_refusal(const AttentionCall& call, const char* status, const std::string& text) {
  const std::string words = call.refused();
  EXPECT_TRUE(words.starts_with(status) && words.find(text) != std::string::npos)
      << "expected " << status << text << "\n     got " << words;
}

// Rows that one of both pasts leaves open are those of the other.
TEST(AttentionQuery, OnePastMayBeOpen) {
  for (const int which : {kPastKey, kPastValue}) {
    for (const int64_t present : {kP + kN, kP + kN + 3}) {
      AttentionCall call;
      call.mode = LowerMode::kQuery;
      call.add_past();
      call.add_present(present);
      call.in(which).shape[2] = kAnyDim;
      EXPECT_EQ(call.refused(), "") << which << " " << present;
    }
  }
}

TEST(AttentionRefusals, Attributes) {
  const struct {
    Attribute attribute;
    int32_t version;
    const char* text;
  } refused[] = {
      {make_float("scale", -0.5), 24, "attribute 'scale': expected 0 or more; got -0.5"},
      {make_float("softcap", -1), 24, "attribute 'softcap': expected 0 (off) or a positive"},
      {make_int("is_causal", 2), 24, "attribute 'is_causal': expected 0 or 1; got 2"},
      {make_int("softmax_precision", 7), 24, "attribute 'softmax_precision': expected 1"},
      {make_int("qk_matmul_output_mode", 4), 24, "attribute 'qk_matmul_output_mode': expected 0"},
      {make_int("left_window_size", -2), 25, "attribute 'left_window_size': expected -1"},
      {make_int("left_window_size", 2), 24, "expected -1 in version 24"},
      {make_int("right_window_size", 0), 23, "expected -1 in version 23"},
      {make_int("q_num_heads", 0), 24, "attribute 'q_num_heads': expected 1 to"},
      {make_int("q_num_heads", 8), 24, "Q: expected 8 heads, as the attribute q_num_heads says"},
      {make_int("kv_num_heads", 1), 24, "K: expected 1 heads, as the attribute kv_num_heads says"},
      {make_int("q_num_heads", 4), 27, "attribute 'q_num_heads': expected none in version 25"},
  };
  for (const auto& one : refused) {
    AttentionCall call;
    call.version = one.version;
    call.set(one.attribute);
    expect_refusal(call, kInvalid, one.text);
  }
  AttentionCall windows;
  windows.version = 26;
  windows.set("left_window_size", 2);
  EXPECT_EQ(windows.refused(), "");
  windows.set("kv_num_heads", 2);
  expect_refusal(windows, kInvalid, "expected none in version 25, as K is 4-D");
}

template <class Change>
void expect_change(const Change& change, const char* status, const std::string& text) {
  AttentionCall call;
  change(call);
  expect_refusal(call, status, text);
}

TEST(AttentionRefusals, PresenceTypesAndShapes) {
  expect_change([](AttentionCall& c) { c.in(kK) = Tensor{}; }, kInvalid, "K: expected a tensor");
  expect_change([](AttentionCall& c) { c.flatten(); }, kInvalid, "'q_num_heads': it is required");
  expect_change([](AttentionCall& c) { c.in(kQ).type = kInt32; }, kInvalid, "Q: expected float32");
  expect_change([](AttentionCall& c) { c.in(kK).type = kFloat16; }, kInvalid,
                "K: expected float32, the type of Q; got float16");
  expect_change([](AttentionCall& c) { c.in(kV).type = kFloat16; }, kUnsupported,
                "V: values of another type than Q's float32 are not built; got float16");
  expect_change([](AttentionCall& c) { c.in(kMask) = make_tensor(kInt32, {kN}); }, kUnsupported,
                "attn_mask: expected bool, float32, float16 or bfloat16; got int32");
  expect_change([](AttentionCall& c) { c.in(kMask) = make_tensor(kFloat64, {kN}); }, kUnsupported,
                "attn_mask: expected bool");
  expect_change([](AttentionCall& c) { c.in(kMask) = make_tensor(kBool, {kB, kS, kN}); }, kInvalid,
                "that broadcast to (B, Hq, S, width) with (B, Hq, S) = (2, 4, 3); got (2, 3, 5)");
  expect_change([](AttentionCall& c) { c.in(kV).shape[2] = kN + 1; }, kInvalid,
                "V: expected shape");
  expect_change([](AttentionCall& c) { c.in(kQ).shape[3] = kD + 1; }, kInvalid,
                "K: expected shape");
  expect_change([](AttentionCall& c) { c.in(kQ).shape[1] = 3; }, kInvalid,
                "a number of heads that is a multiple of the 2 heads of K and V; got 3");
  expect_change([](AttentionCall& c) { c.in(kQ).shape[3] = c.in(kK).shape[3] = 0; }, kInvalid,
                "Q: expected a head size of at least 1");
  expect_change([](AttentionCall& c) { c.in(kPastKey) = c.in(kK); }, kInvalid,
                "past_key and past_value: expected both or neither; got only past_key");
  expect_change([](AttentionCall& c) { c.out(kY).shape[2] = 9; }, kInvalid, "Y: expected shape");
}

TEST(AttentionRefusals, ValidLengths) {
  const auto add = [](AttentionCall& c) { c.in(kNonpad) = make_tensor(kInt64, {kB}); };
  expect_change([&](AttentionCall& c) { add(c), c.version = 23; }, kInvalid,
                "nonpad_kv_seqlen: expected none in version 23");
  expect_change([&](AttentionCall& c) { add(c), c.add_past(); }, kInvalid,
                "nonpad_kv_seqlen: expected none together with past_key");
  expect_change([&](AttentionCall& c) { add(c), c.in(kNonpad).type = kInt32; }, kInvalid,
                "nonpad_kv_seqlen: expected int64; got int32");
}

TEST(AttentionRefusals, Caches) {
  expect_change([](AttentionCall& c) { c.add_past(), c.add_present(kP + 1); }, kInvalid,
                "present_key: expected 9 rows (4 of past_key and 5 new ones), more (a capacity) or "
                "at most 4 (a cache of fixed size); got (2, 2, 5, 8)");
  expect_change([](AttentionCall& c) { c.add_present(kN - 1); }, kInvalid,
                "present_key: expected at least 5 rows");
  expect_change([](AttentionCall& c) { c.add_past(), c.add_present(kP + kN, 20); }, kInvalid,
                "present_value: expected the form that present_key has, past and new rows; got a "
                "capacity");
  expect_change([](AttentionCall& c) { c.add_past(20), c.add_present(20); }, kInvalid,
                "so the mask says how many keys there are, which needs attn_mask; got none");
  expect_change(
      [](AttentionCall& c) {
        c.add_past(20);
        c.add_present(20);
        c.in(kMask) = make_tensor(kBool, {20});
      },
      kInvalid, "which needs present_key in the memory of past_key; got memory of its own");
  expect_change(
      [](AttentionCall& c) {
        c.add_past();
        c.in(kPastValue).shape[2] = kP + 1;
      },
      kInvalid, "past_value: expected 4 rows, as past_key has");
}

}  // namespace
}  // namespace attn::ops_test
