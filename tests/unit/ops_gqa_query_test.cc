// The claim gate with open sizes, and the inference of outputs.
#include <gtest/gtest.h>

#include <random>

#include "ops_gqa_call.h"

namespace attn::ops_test {
namespace {

using namespace gqa;

// Makes sizes of an input unknown, as a graph with symbolic dimensions has them.
void forget(Tensor& tensor, std::initializer_list<int> axes) {
  for (const int axis : axes) tensor.shape[static_cast<size_t>(axis)] = kAnyDim;
}

GqaCall open_call() {
  GqaCall call;
  call.mode = LowerMode::kQuery;
  call.rotate(kFloat32);
  for (const int slot : {kQuery, kKey, kValue}) forget(call.in(slot), {0, 1});
  for (const int slot : {kPastKey, kPastValue}) forget(call.in(slot), {0, 2});
  for (const int slot : {kPresentKey, kPresentValue}) forget(call.out(slot), {0, 2});
  forget(call.out(kOutput), {0, 1});
  forget(call.in(kSeqlensK), {0});
  return call;
}

TEST(GqaQuery, OpenBatchAndLengths) {
  const Lowering lowering = open_call().lower();
  EXPECT_EQ(lowering.batch, kAnyDim);
  EXPECT_EQ(lowering.attention->query_rows, kAnyDim);
  EXPECT_EQ(lowering.attention->max_total, kAnyDim);
  EXPECT_EQ(lowering.attention->spec.head_size, kChannels);
  EXPECT_EQ(lowering.attention->spec, [] {
    GqaCall call;
    call.rotate(kFloat32);
    return call.lower().attention->spec;
  }());
}

TEST(GqaQuery, AllSizesOpen) {
  GqaCall call = open_call();
  for (Tensor& tensor : call.arguments.in) {
    for (int32_t i = 0; i < tensor.rank; ++i) tensor.shape[static_cast<size_t>(i)] = kAnyDim;
  }
  for (Tensor& tensor : call.arguments.out) {
    for (int32_t i = 0; i < tensor.rank; ++i) tensor.shape[static_cast<size_t>(i)] = kAnyDim;
  }
  call.in(kTotalLength) = make_tensor(kInt32, {kAnyDim});
  call.in(kAttentionBias) = make_tensor(kFloat32, {kAnyDim, kAnyDim, kAnyDim, kAnyDim});
  call.norm();
  forget(call.in(kQNormWeight), {0});
  forget(call.in(kKNormWeight), {0});
  const Lowering lowering = call.lower();
  EXPECT_EQ(lowering.attention->spec.head_size, -1);
  EXPECT_EQ(lowering.attention->spec.scale, 0);
  EXPECT_EQ(lowering.attention->spec.query_transform.width, -1);
}

TEST(GqaQuery, KnownSizesStillDecide) {
  GqaCall call = open_call();
  call.in(kPastValue).shape[3] = 4;
  EXPECT_EQ(refusal([&] { call.lower(); }),
            "1: past_value: expected shape (B, Hkv, P, D) = (?, 2, ?, 8); got (?, 2, ?, 4)");
  call = open_call();
  call.in(kCosCache) = call.in(kSinCache) = make_tensor(kFloat32, {kAnyDim, 5});
  EXPECT_EQ(refusal([&] { call.lower(); }),
            "1: cos_cache: expected 1 to 4 columns, half of the channels that are rotated (head "
            "size 8); got (?, 5)");
  call = open_call();
  call.in(kSeqlensK) = make_tensor(kInt32, {kAnyDim, 2});
  EXPECT_EQ(refusal([&] { call.lower(); }),
            "1: seqlens_k: expected int32 of shape (B), (B, 1) or, when B is 1, a scalar; got "
            "int32 (?, 2)");
}

// What one argument leaves open, another may tell; contradictions are found.
TEST(GqaQuery, SizesAreLearntFromOtherArguments) {
  GqaCall call = open_call();
  call.in(kSeqlensK).shape[0] = 2;
  call.out(kPresentKey).shape[0] = 3;
  EXPECT_EQ(refusal([&] { call.lower(); }),
            "1: present_key: expected shape (B, Hkv, L, D) = (2, 2, ?, 8); got (3, 2, ?, 8)");
  call = open_call();
  call.in(kQuery).shape[2] = kAnyDim;
  EXPECT_EQ(call.lower().attention->spec.head_size, kChannels);  // from key
  call.in(kKey).shape[2] = 15;
  EXPECT_EQ(refusal([&] { call.lower(); }),
            "1: key: expected a last dimension that is a multiple of 2 (kv_num_heads); got (?, ?, "
            "15)");
  call = open_call();
  call.in(kPositionIds) = make_tensor(kInt64, {kAnyDim, 4});
  call.out(kOutput).shape[1] = 5;
  EXPECT_EQ(refusal([&] { call.lower(); }),
            "1: output: expected shape (B, S, Hq*D) = (?, 4, 32); got (?, 5, 32)");
  call = open_call();
  call.in(kQuery).shape[2] = kAnyDim;
  call.in(kKey).shape[2] = call.in(kValue).shape[2] = kAnyDim;
  call.in(kPastKey).shape[3] = kAnyDim;
  call.in(kPastValue).shape[3] = 16;
  EXPECT_EQ(refusal([&] { call.lower(); }),
            "1: output: expected shape (B, S, Hq*D) = (?, ?, 64); got (?, ?, 32)");
}

TEST(GqaQuery, NewRowsMayBeOpen) {
  GqaCall call = open_call();
  call.in(kQuery).shape[1] = 3;
  EXPECT_EQ(refusal([&] { call.lower(); }), "");
  call.in(kKey).shape[1] = 2;
  EXPECT_EQ(refusal([&] { call.lower(); }),
            "1: key: expected 3 new rows, as many as query has (or 0 with a past, which appends "
            "nothing), since do_rotary is 1; got 2");
  call.in(kKey).shape[1] = kAnyDim;
  call.in(kValue).shape[1] = 0;
  EXPECT_EQ(call.lower().lengths.new_rows, 0);
}

TEST(GqaQuery, AScalarLengthFitsAnOpenBatch) {
  GqaCall call = open_call();
  call.in(kSeqlensK) = make_tensor(kInt32, {});
  EXPECT_EQ(refusal([&] { call.lower(); }), "");
  call.in(kQuery).shape[0] = 2;
  EXPECT_EQ(refusal([&] { call.lower(); }),
            "1: seqlens_k: expected int32 of shape (B), (B, 1) or, when B is 1, a scalar, where B "
            "is 2; got int32 scalar");
}

TEST(GqaQuery, OutputsMayBeLeftOut) {
  GqaCall call = open_call();
  call.arguments.out = {};
  const Lowering lowering = call.lower();
  EXPECT_FALSE(lowering.kv_update);
  EXPECT_TRUE(lowering.attention->spec.unit_channel);
}

TEST(GqaQuery, AliasesOfOpenSizes) {
  GqaCall call = open_call();
  call.share(kPastKey, kPresentKey);
  const Lowering lowering = call.lower();
  EXPECT_TRUE(lowering.kv_update->spec.key.in_place);
  EXPECT_FALSE(lowering.kv_update->spec.value.in_place);
}

// A legal call stays legal whatever the query leaves open: the gate refuses nothing that would run.
TEST(GqaQuery, LegalCallsStayLegalWithSizesLeftOpen) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&random](uint32_t count) { return random() % count; };
    GqaCall call(draw(2) != 0 ? kFloat32 : kBfloat16);
    if (draw(2) != 0) call.rotate(kFloat32);
    if (draw(2) != 0) call.norm();
    if (draw(3) == 0) call.pack();
    if (draw(3) == 0) call.drop_past();
    if (draw(3) == 0) call.drop_present();
    if (draw(2) != 0) call.in(kSeqlensK) = make_tensor(kInt32, {kBatch, 1});
    if (draw(2) != 0) {
      call.in(kAttentionBias) = make_tensor(call.in(kQuery).type, {1, kHeads, kRows, 20});
    }
    if (draw(2) != 0) call.in(kPositionIds) = make_tensor(kInt64, {kBatch, kRows});
    if (draw(2) != 0) {
      call.out(kLogSumExp) = make_tensor(kFloat32, {kBatch, kHeads, kRows});
    }
    const Lowering known = call.lower();
    call.mode = LowerMode::kQuery;
    const uint32_t share = 1 + draw(8);
    const auto leave_open = [&](Tensor& tensor) {
      for (int32_t axis = 0; axis < tensor.rank; ++axis) {
        if (draw(share) == 0) tensor.shape[static_cast<size_t>(axis)] = kAnyDim;
      }
    };
    for (Tensor& tensor : call.arguments.in) leave_open(tensor);
    for (Tensor& tensor : call.arguments.out) leave_open(tensor);
    Lowering open;
    ASSERT_EQ(refusal([&] { open = call.lower(); }), "") << "seed " << seed;
    // What is known of the answer is what the full call would have given.
    EXPECT_TRUE(open.batch == kAnyDim || open.batch == kBatch) << "seed " << seed;
    const AttentionSpec& spec = open.attention->spec;
    EXPECT_TRUE(spec.head_size == -1 || spec.head_size == kChannels) << "seed " << seed;
    if (spec.head_size == kChannels && open.lengths.new_rows != kAnyDim &&
        spec.query_transform.width == known.attention->spec.query_transform.width) {
      EXPECT_EQ(spec, known.attention->spec) << "seed " << seed;
    }
  }
}

// ---- inference ----------------------------------------------------------------------------------

std::string text_of(const Tensor& tensor) {
  return cat(name_of(tensor.type), " ", shape_text(tensor));
}

TEST(GqaInfer, ShapesThatFollowFromShapes) {
  for (const DType type : {kFloat32, kFloat16, kBfloat16}) {
    GqaCall call(type);
    call.arguments.out = {};
    bool depends = true;
    EXPECT_EQ(text_of(call.infer(kOutput, &depends)), cat(name_of(type), " (2, 3, 32)"));
    EXPECT_FALSE(depends);
    EXPECT_EQ(text_of(call.infer(kLogSumExp, &depends)), "float32 (2, 4, 3)");
    EXPECT_FALSE(depends);
    call.pack();
    EXPECT_EQ(text_of(call.infer(kOutput)), cat(name_of(type), " (2, 3, 32)"));
  }
}

TEST(GqaInfer, PresentsFollowTotalSequenceLength) {
  GqaCall call;
  call.arguments.out = {};
  call.in(kPastValue) = make_tensor(kFloat32, {kBatch, kKvHeads, 7, kChannels});
  bool depends = false;
  EXPECT_EQ(text_of(call.infer(kPresentKey, &depends)), "float32 (2, 2, ?, 8)");
  EXPECT_TRUE(depends);
  int32_t total = 6;
  call.in(kTotalLength).data = &total;
  EXPECT_EQ(text_of(call.infer(kPresentKey, &depends)), "float32 (2, 2, 6, 8)");
  EXPECT_FALSE(depends);
  EXPECT_EQ(text_of(call.infer(kPresentValue, &depends)), "float32 (2, 2, 7, 8)");
  EXPECT_FALSE(depends);
  total = 40;
  EXPECT_EQ(text_of(call.infer(kPresentValue)), "float32 (2, 2, 40, 8)");
  call.drop_past();
  EXPECT_EQ(text_of(call.infer(kPresentKey)), "float32 (2, 2, 40, 8)");
  call.in(kTotalLength).placement = Placement::kDevice;
  EXPECT_EQ(text_of(call.infer(kPresentKey, &depends)), "float32 (2, 2, ?, 8)");
  EXPECT_TRUE(depends);
}

TEST(GqaInfer, Scores) {
  GqaCall call;
  call.arguments.out = {};
  EXPECT_EQ(refusal([&] { call.infer(kOutputQk); }),
            "1: output_qk: expected none, as attribute 'qk_output' is 0 (1 or 2 fills it); got a "
            "request for it");
  call.set("qk_output", 2);
  bool depends = false;
  EXPECT_EQ(text_of(call.infer(kOutputQk, &depends)), "float32 (2, 4, 3, ?)");
  EXPECT_TRUE(depends);
  int32_t total = 6;
  call.in(kTotalLength).data = &total;
  EXPECT_EQ(text_of(call.infer(kOutputQk, &depends)), "float32 (2, 4, 3, 6)");
  EXPECT_FALSE(depends);
}

TEST(GqaInfer, OpenSizesStayOpen) {
  GqaCall call = open_call();
  call.arguments.out = {};
  bool depends = true;
  EXPECT_EQ(text_of(call.infer(kOutput, &depends)), "float32 (?, ?, 32)");
  EXPECT_FALSE(depends);
  int32_t total = 6;
  call.in(kTotalLength).data = &total;
  EXPECT_EQ(text_of(call.infer(kPresentKey, &depends)), "float32 (?, 2, ?, 8)");
  EXPECT_FALSE(depends);  // the past's length is missing, not a value
  call.in(kSeqlensK).shape[0] = 5;
  EXPECT_EQ(text_of(call.infer(kLogSumExp)), "float32 (5, 4, ?)");
}

TEST(GqaInfer, PositionsBeyondTheSchemaAreADefect) {
  EXPECT_EQ(refusal([] { GqaCall().infer(kOutputCount); }),
            "12: GroupQueryAttention has no output position 5");
  EXPECT_EQ(&GqaCall().create()->schema(), &kGroupQueryAttentionSchema);
}

TEST(GqaInfer, RefusesWhatLoweringRefuses) {
  GqaCall call;
  call.in(kPastKey).type = kFloat16;
  EXPECT_EQ(refusal([&] { call.infer(kOutput); }),
            "1: past_key: expected float32, the type of query; got float16");
}

}  // namespace
}  // namespace attn::ops_test
