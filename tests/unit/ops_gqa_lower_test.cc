// What a call of GroupQueryAttention becomes: every field of its problems.
#include <gtest/gtest.h>

#include <cfenv>
#include <vector>

#include "ops_gqa_call.h"

namespace attn::ops_test {
namespace {

using namespace gqa;

void* address(const std::vector<float>& buffer, int64_t element = 0) {
  return const_cast<float*>(buffer.data()) + element;
}

// Memory for the tensors of a call.
struct Buffers {
  std::vector<float> query = std::vector<float>(1024), key = query, value = query;
  std::vector<float> past_key = query, past_value = query, present_key = query;
  std::vector<float> present_value = query, output = query, cos = query, sin = query;
  std::vector<float> other = query;
  std::vector<int32_t> lengths = {6, 4};
  std::vector<int64_t> positions = std::vector<int64_t>(64);
  int32_t total = 7;

  void bind(GqaCall& call) {
    const auto data = [](Tensor& tensor, void* memory) {
      if (tensor.present) tensor.data = memory;
    };
    data(call.in(kQuery), address(query));
    data(call.in(kKey), address(key));
    data(call.in(kValue), address(value));
    data(call.in(kPastKey), address(past_key));
    data(call.in(kPastValue), address(past_value));
    data(call.in(kSeqlensK), lengths.data());
    data(call.in(kTotalLength), &total);
    data(call.in(kCosCache), address(cos));
    data(call.in(kSinCache), address(sin));
    data(call.in(kPositionIds), positions.data());
    data(call.out(kOutput), address(output));
    data(call.out(kPresentKey), address(present_key));
    data(call.out(kPresentValue), address(present_value));
    call.mode = LowerMode::kExecute;
  }
};

void expect_view(const View4& view, void* data, int64_t batch, int64_t head, int64_t row,
                 int64_t channel, int64_t rows) {
  EXPECT_EQ(view.data, data);
  EXPECT_EQ(view.batch, batch);
  EXPECT_EQ(view.head, head);
  EXPECT_EQ(view.row, row);
  EXPECT_EQ(view.channel, channel);
  EXPECT_EQ(view.rows, rows);
}

// A plan is found again by its scale, bit for bit.
TEST(GqaLower, TheScaleIsTheSameHoweverTheThreadRounds) {
  const double scale = GqaCall().lower().attention->spec.scale;
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    ASSERT_EQ(std::fesetround(mode), 0);
    const double other = GqaCall().lower().attention->spec.scale;
    EXPECT_EQ(std::fegetround(), mode);
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(other, scale);
  }
}

TEST(GqaLower, SeparateCaches) {
  GqaCall call;
  Buffers buffers;
  buffers.bind(call);
  const Lowering lowering = call.lower();
  EXPECT_EQ(lowering.batch, kBatch);

  ASSERT_TRUE(lowering.kv_update);
  const KvUpdateProblem& update = *lowering.kv_update;
  EXPECT_EQ(update.spec.type, kFloat32);
  EXPECT_EQ(update.spec.kv_heads, kKvHeads);
  EXPECT_EQ(update.spec.head_size, kChannels);
  EXPECT_EQ(update.spec.v_head_size, kChannels);
  EXPECT_EQ(update.batch, kBatch);
  EXPECT_EQ(update.new_rows, kRows);
  for (const CacheUpdateSpec& spec : {update.spec.key, update.spec.value}) {
    EXPECT_TRUE(spec.active);
    EXPECT_TRUE(spec.has_past);
    EXPECT_FALSE(spec.in_place);
    EXPECT_TRUE(spec.unit_channel);
    EXPECT_EQ(spec.transform, RowTransformSpec{});
  }
  expect_view(update.key.source, address(buffers.key), 48, 8, 16, 1, kRows);
  expect_view(update.key.past, address(buffers.past_key), 80, 40, 8, 1, kPast);
  expect_view(update.key.present, address(buffers.present_key), 144, 72, 8, 1, kCapacity);
  expect_view(update.value.source, address(buffers.value), 48, 8, 16, 1, kRows);
  expect_view(update.value.past, address(buffers.past_value), 80, 40, 8, 1, kPast);
  expect_view(update.value.present, address(buffers.present_value), 144, 72, 8, 1, kCapacity);

  ASSERT_TRUE(lowering.attention);
  const AttentionProblem& attention = *lowering.attention;
  EXPECT_EQ(attention.spec.type, kFloat32);
  EXPECT_EQ(attention.spec.q_heads, kHeads);
  EXPECT_EQ(attention.spec.kv_heads, kKvHeads);
  EXPECT_EQ(attention.spec.head_size, kChannels);
  EXPECT_EQ(attention.spec.v_head_size, kChannels);
  EXPECT_EQ(attention.spec.mask, MaskKind::kNone);
  EXPECT_EQ(attention.spec.scores, ScoreStage::kNone);
  EXPECT_FALSE(attention.spec.log_sum_exp);
  EXPECT_TRUE(attention.spec.unit_channel);
  EXPECT_TRUE(attention.spec.unit_mask_column);
  EXPECT_TRUE(attention.spec.key_cached);
  EXPECT_TRUE(attention.spec.value_cached);
  EXPECT_FALSE(attention.spec.key_fresh);
  EXPECT_FALSE(attention.spec.value_fresh);
  EXPECT_EQ(attention.spec.query_transform, RowTransformSpec{});
  EXPECT_EQ(attention.spec.key_transform, RowTransformSpec{});
  EXPECT_EQ(attention.batch, kBatch);
  EXPECT_EQ(attention.query_rows, kRows);
  expect_view(attention.query, address(buffers.query), 96, 8, 32, 1, kRows);
  expect_view(attention.output, address(buffers.output), 96, 8, 32, 1, kRows);
  expect_view(attention.key, address(buffers.present_key), 144, 72, 8, 1, kCapacity);
  expect_view(attention.value, address(buffers.present_value), 144, 72, 8, 1, kCapacity);

  const Lengths& lengths = lowering.lengths;
  EXPECT_EQ(lengths.spec.rule, LengthRule::kGroupQuery);
  EXPECT_EQ(lengths.spec.values, Placement::kHost);
  EXPECT_EQ(lengths.spec.bound, Placement::kHost);
  EXPECT_FALSE(lengths.spec.empty_slots);
  EXPECT_EQ(lengths.batch, kBatch);
  EXPECT_EQ(lengths.query_rows, kRows);
  EXPECT_EQ(lengths.new_rows, kRows);
  EXPECT_EQ(lengths.values, buffers.lengths.data());
  EXPECT_EQ(lengths.value_stride, 1);
  EXPECT_EQ(lengths.bound, &buffers.total);
  EXPECT_EQ(lengths.past_capacity, kPast);
  EXPECT_EQ(lengths.present_capacity, kCapacity);
  EXPECT_EQ(lengths.table_rows, -1);
  EXPECT_EQ(lengths.positions, nullptr);
}

TEST(GqaLower, PackedQueryIsCutIntoViews) {
  GqaCall call;
  call.pack();
  call.drop_past();
  Buffers buffers;
  buffers.bind(call);
  const Lowering lowering = call.lower();
  const int64_t row = (kHeads + 2 * kKvHeads) * kChannels;
  const CacheUpdate& key = lowering.kv_update->key;
  const CacheUpdate& value = lowering.kv_update->value;
  expect_view(lowering.attention->query, address(buffers.query), 3 * row, 8, row, 1, kRows);
  expect_view(key.source, address(buffers.query, 32), 3 * row, 8, row, 1, kRows);
  expect_view(value.source, address(buffers.query, 48), 3 * row, 8, row, 1, kRows);
  EXPECT_FALSE(lowering.kv_update->spec.key.has_past);
  EXPECT_FALSE(lowering.kv_update->spec.value.has_past);
  EXPECT_EQ(lowering.kv_update->new_rows, kRows);
  EXPECT_EQ(lowering.lengths.new_rows, kRows);
  EXPECT_EQ(lowering.lengths.past_capacity, 0);
}

TEST(GqaLower, PackedViewsFollowStrides) {
  GqaCall call(kFloat16);
  call.pack();
  call.drop_past();
  call.drop_present();
  std::vector<uint16_t> memory(4096);
  Tensor& query = call.in(kQuery);
  query.data = memory.data() + 4000;
  query.strides = {-1200, -400, -2};
  const Lowering lowering = call.lower();
  const AttentionProblem& attention = *lowering.attention;
  expect_view(attention.query, memory.data() + 4000, -1200, -16, -400, -2, kRows);
  expect_view(attention.key_fresh, memory.data() + 4000 - 64, -1200, -16, -400, -2, kRows);
  expect_view(attention.value_fresh, memory.data() + 4000 - 96, -1200, -16, -400, -2, kRows);
  EXPECT_FALSE(attention.spec.unit_channel);
}

TEST(GqaLower, InPlaceCachesAreJudgedSeparately) {
  for (const bool key_in_place : {false, true}) {
    for (const bool value_in_place : {false, true}) {
      GqaCall call;
      Buffers buffers;
      buffers.bind(call);
      if (key_in_place) call.in(kPastKey) = call.out(kPresentKey);
      if (value_in_place) call.in(kPastValue) = call.out(kPresentValue);
      const Lowering bound = call.lower();
      EXPECT_EQ(bound.kv_update->spec.key.in_place, key_in_place);
      EXPECT_EQ(bound.kv_update->spec.value.in_place, value_in_place);
      const bool both = key_in_place && value_in_place;
      EXPECT_EQ(bound.lengths.past_capacity, both ? kCapacity : kPast);
      EXPECT_EQ(bound.lengths.present_capacity, kCapacity);

      // The same said of tensors without data gives the same specs.
      if (key_in_place) call.share(kPastKey, kPresentKey);
      if (value_in_place) call.share(kPastValue, kPresentValue);
      for (Tensor& tensor : call.arguments.in) tensor.data = nullptr;
      for (Tensor& tensor : call.arguments.out) tensor.data = nullptr;
      call.mode = LowerMode::kPlan;
      const Lowering open = call.lower();
      EXPECT_EQ(open.kv_update->spec, bound.kv_update->spec);
      EXPECT_EQ(open.attention->spec, bound.attention->spec);
      EXPECT_EQ(open.lengths.spec, bound.lengths.spec);
    }
  }
}

TEST(GqaLower, WithoutPresentsNewRowsAreFresh) {
  GqaCall call;
  call.drop_present();
  call.norm();
  call.rotate(kFloat32);
  Buffers buffers;
  buffers.bind(call);
  const Lowering lowering = call.lower();
  EXPECT_FALSE(lowering.kv_update);
  const AttentionProblem& attention = *lowering.attention;
  EXPECT_TRUE(attention.spec.key_cached);
  EXPECT_TRUE(attention.spec.key_fresh);
  EXPECT_TRUE(attention.spec.value_cached);
  EXPECT_TRUE(attention.spec.value_fresh);
  expect_view(attention.key, address(buffers.past_key), 80, 40, 8, 1, kPast);
  expect_view(attention.value, address(buffers.past_value), 80, 40, 8, 1, kPast);
  expect_view(attention.key_fresh, address(buffers.key), 48, 8, 16, 1, kRows);
  expect_view(attention.value_fresh, address(buffers.value), 48, 8, 16, 1, kRows);
  EXPECT_TRUE(attention.spec.key_transform.norm);
  EXPECT_TRUE(attention.spec.key_transform.rotary);
  EXPECT_EQ(lowering.lengths.present_capacity, -1);

  call.drop_past();
  const Lowering bare = call.lower();
  EXPECT_FALSE(bare.kv_update);
  EXPECT_FALSE(bare.attention->spec.key_cached);
  EXPECT_FALSE(bare.attention->spec.value_cached);
  EXPECT_TRUE(bare.attention->spec.key_fresh);
  EXPECT_TRUE(bare.attention->spec.value_fresh);
  EXPECT_EQ(bare.lengths.past_capacity, 0);
}

TEST(GqaLower, OnePresentAlone) {
  GqaCall call;
  call.rotate(kFloat32);
  call.out(kPresentKey) = {};
  Lowering lowering = call.lower();
  EXPECT_FALSE(lowering.kv_update->spec.key.active);
  EXPECT_TRUE(lowering.kv_update->spec.value.active);
  EXPECT_FALSE(lowering.kv_update->spec.key.transform.any());
  EXPECT_TRUE(lowering.attention->spec.key_fresh);
  EXPECT_FALSE(lowering.attention->spec.value_fresh);
  EXPECT_TRUE(lowering.attention->spec.key_transform.rotary);

  call = GqaCall();
  call.rotate(kFloat32);
  call.out(kPresentValue) = {};
  lowering = call.lower();
  EXPECT_TRUE(lowering.kv_update->spec.key.active);
  EXPECT_FALSE(lowering.kv_update->spec.value.active);
  EXPECT_TRUE(lowering.kv_update->spec.key.transform.rotary);
  EXPECT_FALSE(lowering.attention->spec.key_fresh);
  EXPECT_TRUE(lowering.attention->spec.value_fresh);
  EXPECT_FALSE(lowering.attention->spec.key_transform.any());
  EXPECT_EQ(lowering.lengths.present_capacity, kCapacity);
}

TEST(GqaLower, ASharedCacheIsOnlyRead) {
  GqaCall call;
  call.drop_present();
  call.rotate(kFloat32);
  call.in(kKey) = call.in(kValue) = make_tensor(kFloat32, {kBatch, 0, kKvHeads * kChannels});
  const Lowering lowering = call.lower();
  EXPECT_FALSE(lowering.kv_update);
  EXPECT_FALSE(lowering.attention->spec.key_fresh);
  EXPECT_FALSE(lowering.attention->spec.value_fresh);
  EXPECT_TRUE(lowering.attention->spec.key_cached);
  EXPECT_FALSE(lowering.attention->spec.key_transform.any());
  EXPECT_TRUE(lowering.attention->spec.query_transform.rotary);
  EXPECT_EQ(lowering.lengths.new_rows, 0);
  EXPECT_EQ(lowering.attention->max_total, kPast);

  // A call without queries stays in the class of calls that have some.
  GqaCall with_rows, without;
  with_rows.drop_present();
  without.drop_present();
  for (const int slot : {kQuery, kKey, kValue}) without.in(slot).shape[1] = 0;
  without.out(kOutput).shape[1] = 0;
  EXPECT_EQ(with_rows.lower().attention->spec, without.lower().attention->spec);
}

TEST(GqaLower, Transforms) {
  GqaCall call(kBfloat16);
  call.norm();
  call.rotate(kFloat32);
  call.set("rotary_interleaved", 1);
  call.set(make_float("q_norm_epsilon", 0.5));
  call.set(make_float("k_norm_epsilon", 0.25));
  std::vector<float> cos(1024), sin(1024);
  std::vector<uint16_t> q_weight(32), k_weight(32);
  std::vector<int64_t> positions(64);
  call.in(kPositionIds) = make_tensor(kInt64, {kBatch, kRows}, positions.data());
  call.in(kPositionIds).strides = {0, 2};
  call.in(kCosCache).data = cos.data();
  call.in(kSinCache).data = sin.data();
  call.in(kSinCache).strides = {10, 1};
  call.in(kQNormWeight).data = q_weight.data();
  call.in(kKNormWeight).data = k_weight.data();
  call.in(kKNormWeight).strides[0] = 2;
  const Lowering lowering = call.lower();

  const RowTransformSpec& query = lowering.attention->spec.query_transform;
  const RowTransformSpec& key = lowering.kv_update->spec.key.transform;
  for (const RowTransformSpec& spec : {query, key}) {
    EXPECT_TRUE(spec.norm);
    EXPECT_TRUE(spec.rotary);
    EXPECT_TRUE(spec.interleaved);
    EXPECT_TRUE(spec.explicit_positions);
    EXPECT_EQ(spec.table, kFloat32);
    EXPECT_EQ(spec.width, kWidth);
  }
  EXPECT_EQ(query.epsilon, 0.5f);
  EXPECT_EQ(key.epsilon, 0.25f);
  EXPECT_TRUE(query.unit_strides);
  EXPECT_FALSE(key.unit_strides);
  EXPECT_FALSE(lowering.kv_update->spec.value.transform.any());

  const RowTransform& q = lowering.attention->query_transform;
  const RowTransform& k = lowering.kv_update->key.transform;
  EXPECT_EQ(q.weight, q_weight.data());
  EXPECT_EQ(q.weight_stride, 1);
  EXPECT_EQ(k.weight, k_weight.data());
  EXPECT_EQ(k.weight_stride, 2);
  for (const RowTransform& transform : {q, k}) {
    EXPECT_EQ(transform.cos, cos.data());
    EXPECT_EQ(transform.sin, sin.data());
    EXPECT_EQ(transform.cos_row, kWidth / 2);
    EXPECT_EQ(transform.sin_row, 10);
    EXPECT_EQ(transform.cos_col, 1);
    EXPECT_EQ(transform.sin_col, 1);
    EXPECT_EQ(transform.table_rows, kPositions);
    EXPECT_EQ(transform.positions, positions.data());
    EXPECT_EQ(transform.position_batch, 0);
    EXPECT_EQ(transform.position_row, 2);
  }
  EXPECT_EQ(lowering.lengths.table_rows, kPositions);
  EXPECT_EQ(lowering.lengths.positions, positions.data());
  EXPECT_EQ(lowering.lengths.position_batch, 0);
  EXPECT_EQ(lowering.lengths.position_row, 2);
}

TEST(GqaLower, WithoutRotaryNothingOfTheTablesRemains) {
  GqaCall call;
  call.rotate(kFloat32);
  std::vector<int64_t> positions(64, -5);
  call.in(kPositionIds) = make_tensor(kInt64, {kBatch, kRows}, positions.data());
  call.attributes.pop_back();  // do_rotary
  const Lowering lowering = call.lower();
  EXPECT_EQ(lowering.attention->spec.query_transform, RowTransformSpec{});
  EXPECT_EQ(lowering.kv_update->spec.key.transform, RowTransformSpec{});
  EXPECT_EQ(lowering.attention->query_transform.cos, nullptr);
  EXPECT_EQ(lowering.lengths.positions, nullptr);
  EXPECT_EQ(lowering.lengths.table_rows, -1);
}

TEST(GqaLower, BiasBroadcasts) {
  GqaCall call;
  std::vector<float> bias(4096);
  call.in(kAttentionBias) = make_tensor(kFloat32, {2, 4, 3, 20}, bias.data());
  const AttentionProblem full = *call.lower().attention;
  EXPECT_EQ(full.spec.mask, MaskKind::kAdditive);
  EXPECT_EQ(full.spec.mask_type, kFloat32);
  EXPECT_EQ(full.mask, bias.data());
  EXPECT_EQ(full.mask_batch, 240);
  EXPECT_EQ(full.mask_head, 60);
  EXPECT_EQ(full.mask_row, 20);
  EXPECT_EQ(full.mask_column, 1);
  EXPECT_EQ(full.mask_columns, 20);
  EXPECT_TRUE(full.spec.unit_mask_column);

  call.in(kAttentionBias) = make_tensor(kFloat32, {1, 1, 1, 20}, bias.data());
  call.in(kAttentionBias).strides[3] = -1;
  const AttentionProblem one = *call.lower().attention;
  EXPECT_EQ(one.mask_batch, 0);
  EXPECT_EQ(one.mask_head, 0);
  EXPECT_EQ(one.mask_row, 0);
  EXPECT_EQ(one.mask_column, -1);
  EXPECT_FALSE(one.spec.unit_mask_column);

  // Presence is binding: a mask without columns counts, and hides everything.
  call.in(kAttentionBias) = make_tensor(kFloat32, {1, 1, 1, 0});
  const AttentionProblem none = *call.lower().attention;
  EXPECT_EQ(none.spec.mask, MaskKind::kAdditive);
  EXPECT_EQ(none.mask_columns, 0);
}

TEST(GqaLower, SinkScoresAndLogSumExp) {
  GqaCall call;
  std::vector<float> sink(8), scores(1024), sums(64);
  call.set("qk_output", 1);
  call.in(kHeadSink) = make_tensor(kFloat32, {kHeads}, sink.data());
  call.in(kHeadSink).strides[0] = 2;
  call.out(kOutputQk) = make_tensor(kFloat32, {2, 4, 3, 7}, scores.data());
  call.out(kLogSumExp) = make_tensor(kFloat32, {2, 4, 3}, sums.data());
  const AttentionProblem attention = *call.lower().attention;
  EXPECT_EQ(attention.spec.sink, Sink::kPerHead);
  EXPECT_EQ(attention.sink, sink.data());
  EXPECT_EQ(attention.sink_stride, 2);
  EXPECT_EQ(attention.spec.scores, ScoreStage::kBiased);
  EXPECT_EQ(attention.spec.hidden_score, 0);
  EXPECT_EQ(attention.score_columns, 7);
  expect_view(attention.scores, scores.data(), 84, 21, 7, 1, kRows);
  EXPECT_TRUE(attention.spec.log_sum_exp);
  EXPECT_EQ(attention.log_sum_exp.data, sums.data());
  EXPECT_EQ(attention.log_sum_exp.batch, 12);
  EXPECT_EQ(attention.log_sum_exp.head, 3);
  EXPECT_EQ(attention.log_sum_exp.row, 1);

  call.attributes.back() = make_int("qk_output", 2);
  EXPECT_EQ(call.lower().attention->spec.scores, ScoreStage::kProbabilities);
  call.out(kOutputQk) = {};
  EXPECT_EQ(call.lower().attention->spec.scores, ScoreStage::kNone);
}

TEST(GqaLower, FormsOfLengthsAreOneShapeClass) {
  GqaCall call;
  const LengthSpec flat = call.lower().lengths.spec;
  call.in(kSeqlensK) = make_tensor(kInt32, {kBatch, 1});
  call.in(kSeqlensK).strides[0] = 5;
  const Lengths column = call.lower().lengths;
  EXPECT_EQ(column.spec, flat);
  EXPECT_EQ(column.value_stride, 5);
  call.in(kTotalLength) = make_tensor(kInt32, {1, 1});
  EXPECT_EQ(call.lower().lengths.spec, flat);
  call.in(kSeqlensK).placement = Placement::kDevice;
  EXPECT_EQ(call.lower().lengths.spec.values, Placement::kDevice);
  EXPECT_EQ(call.lower().lengths.spec.bound, Placement::kHost);
  call.set("empty_slots", 1);
  EXPECT_TRUE(call.lower().lengths.spec.empty_slots);
}

TEST(GqaLower, CapacitiesAreThoseOfTheShorterBuffer) {
  GqaCall call;
  call.in(kPastValue) = make_tensor(kFloat32, {kBatch, kKvHeads, 3, kChannels});
  call.out(kPresentKey) = make_tensor(kFloat32, {kBatch, kKvHeads, 7, kChannels});
  const Lengths lengths = call.lower().lengths;
  EXPECT_EQ(lengths.past_capacity, 3);
  EXPECT_EQ(lengths.present_capacity, 7);
}

// The rows of a present buffer may wait for a value; what past and new rows make is planned for.
TEST(GqaLower, APlanMayLeaveTheRowsOfAPresentBufferOpen) {
  GqaCall call;
  call.out(kPresentKey).shape[2] = call.out(kPresentValue).shape[2] = kAnyDim;
  for (const bool in_place : {false, true}) {
    if (in_place) {
      call.share(kPastKey, kPresentKey);
      call.share(kPastValue, kPresentValue);
    }
    const Lowering lowering = call.lower();
    EXPECT_EQ(lowering.kv_update->spec.key.in_place, in_place);
    EXPECT_EQ(lowering.lengths.past_capacity, kPast);
    EXPECT_EQ(lowering.lengths.present_capacity, -1);
    EXPECT_EQ(lowering.attention->max_total, kPast + kRows);
    EXPECT_TRUE(lowering.attention->spec.unit_channel);
  }
}

TEST(GqaLower, MostKeysOfABatchRow) {
  GqaCall call;
  Buffers buffers;
  buffers.bind(call);
  buffers.total = 7;
  EXPECT_EQ(call.lower().attention->max_total, 7);  // executing: the stated bound
  call.mode = LowerMode::kPlan;                     // planning: what the buffers hold
  EXPECT_EQ(call.lower().attention->max_total, kPast + kRows);
  call.in(kPastKey) = call.out(kPresentKey);
  call.in(kPastValue) = call.out(kPresentValue);
  EXPECT_EQ(call.lower().attention->max_total, kCapacity);
  call.mode = LowerMode::kExecute;
  buffers.total = 4096;
  EXPECT_EQ(call.lower().attention->max_total, kCapacity);
  call.in(kTotalLength).placement = Placement::kDevice;
  EXPECT_EQ(call.lower().attention->max_total, kCapacity);
  call.drop_past();
  EXPECT_EQ(call.lower().attention->max_total, kRows);
  call.drop_present();
  EXPECT_EQ(call.lower().attention->max_total, kRows);
}

TEST(GqaLower, OneChannelOrOneColumnHasUnitStride) {
  GqaCall call;
  const auto narrow = [](int64_t heads) {
    Tensor tensor = make_tensor(kFloat32, {kBatch, kRows, heads});
    tensor.strides = {kRows * heads * 3, heads * 3, 3};
    return tensor;
  };
  call.drop_past();
  call.drop_present();
  call.in(kQuery) = call.out(kOutput) = narrow(kHeads);
  call.in(kKey) = call.in(kValue) = narrow(kKvHeads);
  call.in(kAttentionBias) = make_tensor(kFloat32, {1, 1, 1, 1});
  call.in(kAttentionBias).strides[3] = 9;
  const AttentionProblem attention = *call.lower().attention;
  EXPECT_EQ(attention.spec.head_size, 1);
  EXPECT_TRUE(attention.spec.unit_channel);
  EXPECT_TRUE(attention.spec.unit_mask_column);
  EXPECT_EQ(attention.query.head, 3);
}

TEST(GqaLower, StridesOfAnyPartAreNoticed) {
  for (const int slot : {kQuery, kKey, kPastKey}) {
    GqaCall call;
    call.drop_present();
    call.in(slot).strides[static_cast<size_t>(call.in(slot).rank - 1)] = 2;
    EXPECT_FALSE(call.lower().attention->spec.unit_channel) << slot;
  }
  for (const int slot : {kOutput, kPresentKey, kPresentValue}) {
    GqaCall call;
    call.out(slot).strides[static_cast<size_t>(call.out(slot).rank - 1)] = 2;
    EXPECT_FALSE(call.lower().attention->spec.unit_channel) << slot;
  }
  for (const int slot : {kKey, kPastKey}) {
    GqaCall call;
    call.in(slot).strides[static_cast<size_t>(call.in(slot).rank - 1)] = 2;
    const Lowering lowering = call.lower();
    EXPECT_FALSE(lowering.kv_update->spec.key.unit_channel) << slot;
    EXPECT_TRUE(lowering.kv_update->spec.value.unit_channel) << slot;
    EXPECT_TRUE(lowering.attention->spec.unit_channel) << slot;  // reads the present buffer
  }
  GqaCall table;
  table.rotate(kFloat32);
  table.in(kCosCache).strides[1] = 4;
  EXPECT_FALSE(table.lower().attention->spec.query_transform.unit_strides);
}

}  // namespace
}  // namespace attn::ops_test
