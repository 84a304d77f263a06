// The float64 reference against cases that can be worked out by hand.
#include "reference/group_query_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "reference/attention.h"
#include "support/compare.h"
#include "support/random.h"
#include "support/tensor.h"

namespace attn::reference {
namespace {

using test::Tensor;
using test::Type;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor tensor(std::vector<int64_t> shape, const std::vector<double>& values,
              Type type = Type::kFloat32) {
  Tensor t(type, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) {
    t.view().set_linear(static_cast<int64_t>(i), values[i]);
  }
  return t;
}

// A problem with one head of one channel, unless a test says otherwise; owns its tensors.
struct Case {
  GroupQueryAttention p;
  std::vector<Tensor> keep;

  test::View own(Tensor t) {
    keep.push_back(std::move(t));
    return keep.back().view();
  }
  test::View floats(std::vector<int64_t> shape, const std::vector<double>& values) {
    return own(tensor(std::move(shape), values));
  }
  void lengths(const std::vector<double>& seqlens, double total) {
    p.seqlens_k = own(tensor({static_cast<int64_t>(seqlens.size())}, seqlens, Type::kInt32));
    p.total_sequence_length = own(tensor({}, {total}, Type::kInt32));
  }
};

Case prompt(int64_t rows, const std::vector<double>& q, const std::vector<double>& k,
            const std::vector<double>& v, int64_t channels = 1) {
  Case c;
  c.p.num_heads = c.p.kv_num_heads = 1;
  c.p.scale = 1;
  c.p.query = c.floats({1, rows, channels}, q);
  c.p.key = c.floats({1, rows, channels}, k);
  c.p.value = c.floats({1, rows, channels}, v);
  c.lengths({static_cast<double>(rows - 1)}, static_cast<double>(rows));
  return c;
}

void expect_values(const std::vector<double>& got, const std::vector<double>& want,
                   double tolerance = 1e-6) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << "element " << i;
    } else if (std::isinf(want[i])) {
      EXPECT_EQ(got[i], want[i]) << "element " << i;
    } else {
      EXPECT_NEAR(got[i], want[i], tolerance) << "element " << i;
    }
  }
}

const double kLog3 = std::log(3.0);

TEST(Reference, CausalPromptWeightsAndLogSumExp) {
  Case c = prompt(2, {1, 1}, {0, kLog3}, {0, 4});
  const GroupQueryResult r = run(c.p);
  ASSERT_EQ(r.faults, 0u);
  EXPECT_TRUE(r.first_prompt);
  expect_values(r.output, {0, 3});  // weights 1 : 3
  expect_values(r.log_sum_exp, {0, std::log(4.0)});
}

TEST(Reference, BidirectionalSeesEveryKey) {
  Case c = prompt(2, {1, 1}, {0, kLog3}, {0, 4});
  c.p.causal = false;
  expect_values(run(c.p).output, {3, 3});
}

TEST(Reference, WindowCountsTheCurrentToken) {
  Case c = prompt(3, {1, 1, 1}, {0, 0, 0}, {1, 3, 8});
  c.p.local_window_size = 1;
  expect_values(run(c.p).output, {1, 3, 8});
  c.p.local_window_size = 2;
  expect_values(run(c.p).output, {1, 2, 5.5});
}

TEST(Reference, ScaleDefaultsAndIsLiteral) {
  Case c = prompt(1, {2, 0, 0, 0}, {3, 0, 0, 0}, {1, 1, 1, 1}, 4);
  c.p.scale = 0;  // 1 / sqrt(4)
  expect_values(run(c.p).log_sum_exp, {3});
  c.p.scale = -2;
  expect_values(run(c.p).log_sum_exp, {-12});
}

TEST(Reference, SoftcapComesBeforeTheBias) {
  Case c = prompt(1, {2}, {3}, {1});
  c.p.softcap = 5;
  c.p.attention_bias = c.floats({1, 1, 1, 1}, {7});
  expect_values(run(c.p).log_sum_exp, {5 * std::tanh(6.0 / 5) + 7});
}

TEST(Reference, SmoothTermAndSink) {
  Case c = prompt(1, {1}, {kLog3}, {4});
  c.p.smooth_softmax = 1;
  expect_values(run(c.p).output, {3});  // 3 / (3 + 1)
  expect_values(run(c.p).log_sum_exp, {kLog3});
  c.p.smooth_softmax = 0;
  expect_values(run(c.p).output, {4});
  c.p.softcap = 100;  // the sink is neither capped nor scaled
  c.p.head_sink = c.floats({1}, {std::log(9.0)});
  c.p.smooth_softmax = 1;
  const double score = std::exp(100 * std::tanh(kLog3 / 100));
  expect_values(run(c.p).output, {4 * score / (score + 9)});
}

TEST(Reference, SinkFarAboveTheScores) {
  Case c = prompt(1, {1}, {0}, {4});
  c.p.head_sink = c.floats({1}, {2000});
  expect_values(run(c.p).output, {0});
  expect_values(run(c.p).log_sum_exp, {0});
}

TEST(Reference, MaskedRowIsZeroAndFiniteBiasIsUniform) {
  Case c = prompt(2, {1, 1}, {5, 5}, {2, 4});
  c.p.attention_bias = c.floats({1, 1, 2, 2}, {-kInfinity, kNan, -1e9, -1e9});
  const GroupQueryResult r = run(c.p);
  expect_values(r.output, {0, 3});
  EXPECT_EQ(r.log_sum_exp[0], -kInfinity);
}

TEST(Reference, BiasBroadcastsOverBatchHeadsAndRowsAndMayBeWider) {
  Case c = prompt(2, {1, 1}, {0, 0}, {2, 4});
  c.p.attention_bias = c.floats({1, 1, 1, 4}, {kLog3, 0, kNan, kNan});
  expect_values(run(c.p).output, {2, 2.5});
}

TEST(Reference, PoisonIsFeltWhereItIsSeen) {
  Case c = prompt(2, {1, 1}, {0, kNan}, {2, 4});
  GroupQueryResult r = run(c.p);
  expect_values(r.output, {2, kNan});
  EXPECT_FALSE(r.poisoned[0]);
  EXPECT_TRUE(r.poisoned[1]);
  c = prompt(1, {1, 1}, {0, 0}, {kNan, 4}, 2);
  expect_values(run(c.p).output, {kNan, 4});
  c = prompt(1, {1}, {0}, {4});
  c.p.attention_bias = c.floats({1, 1, 1, 1}, {kInfinity});
  expect_values(run(c.p).output, {kNan});
}

TEST(Reference, ScoreOutputs) {
  Case c = prompt(3, {1, 1, 1}, {0, kLog3, 1}, {1, 1, 1});
  c.p.attention_bias = c.floats({1, 1, 1, 3}, {0, 0, -kInfinity});
  c.p.qk_output = 1;
  expect_values(run(c.p).scores, {0, 0, 0, 0, kLog3, 0, 0, kLog3, -kInfinity});
  c.p.qk_output = 2;
  expect_values(run(c.p).scores, {1, 0, 0, .25, .75, 0, .25, .75, 0});
  c.p.smooth_softmax = 1;
  expect_values(run(c.p).scores, {.5, 0, 0, .2, .6, 0, .2, .6, 0});
}

TEST(Reference, RightPaddedPrompt) {
  Case c;
  c.p.num_heads = c.p.kv_num_heads = 1;
  c.p.scale = 1;
  c.p.query = c.floats({2, 3, 1}, {1, 1, 1, 1, 1, kNan});
  c.p.key = c.floats({2, 3, 1}, {0, 0, 0, 0, 0, kNan});
  c.p.value = c.floats({2, 3, 1}, {1, 3, 8, 1, 3, kNan});
  c.p.present_key = {true, 5, false};
  c.p.present_value = {true, 4, false};
  c.lengths({2, 1}, 3);
  const GroupQueryResult r = run(c.p);
  EXPECT_EQ(r.rows[4], RowKind::kChecked);
  EXPECT_EQ(r.rows[5], RowKind::kPadded);
  for (size_t i : {0, 3}) EXPECT_NEAR(r.output[i], 1, 1e-6);
  EXPECT_NEAR(r.output[4], 2, 1e-6);
  EXPECT_EQ(r.key_rows[7], CacheRow::kNew);  // the padded row is written, what it holds too
  EXPECT_EQ(r.key_rows[8], CacheRow::kZero);
  expect_values(r.present_value, {1, 3, 8, 0, 1, 3, kNan, 0});
}

TEST(Reference, PaddedQueryRowsSeeTheValidKeys) {
  Case c = prompt(3, {1, 1, 1}, {0, 0, 0}, {2, 4, 99});
  c.lengths({1}, 3);
  expect_values(run(c.p).output, {2, 3, 3});
}

// Two sequences of 3 and 1 keys, one new token each, in caches of 4 rows.
Case ragged_decode(bool in_place) {
  Case c;
  c.p.num_heads = c.p.kv_num_heads = 1;
  c.p.scale = 1;
  c.p.query = c.floats({2, 1, 1}, {1, 1});
  c.p.key = c.floats({2, 1, 1}, {0, 0});
  c.p.value = c.floats({2, 1, 1}, {6, 7});
  c.p.past_key = c.floats({2, 1, 4, 1}, {0, 0, kNan, kNan, kNan, kNan, kNan, kNan});
  c.p.past_value = c.floats({2, 1, 4, 1}, {1, 2, kNan, kNan, kNan, kNan, kNan, kNan});
  c.p.present_key = c.p.present_value = {true, 4, in_place};
  c.lengths({2, 0}, 4);
  return c;
}

TEST(Reference, RaggedDecodeAppendsAtEachLength) {
  const GroupQueryResult r = run(ragged_decode(false).p);
  ASSERT_EQ(r.faults, 0u);
  EXPECT_FALSE(r.first_prompt);
  expect_values(r.output, {3, 7});
  expect_values(r.present_value, {1, 2, 6, 0, 7, 0, 0, 0});
  EXPECT_EQ(r.key_rows[0], CacheRow::kCopied);
  EXPECT_EQ(r.key_rows[2], CacheRow::kNew);
}

TEST(Reference, InPlaceLeavesTheRestUntouched) {
  const GroupQueryResult r = run(ragged_decode(true).p);
  const std::vector<CacheRow> want = {
      CacheRow::kUntouched, CacheRow::kUntouched, CacheRow::kNew,       CacheRow::kUntouched,
      CacheRow::kNew,       CacheRow::kUntouched, CacheRow::kUntouched, CacheRow::kUntouched};
  EXPECT_EQ(r.key_rows, want);
  EXPECT_EQ(r.value_rows, want);
  expect_values(r.output, {3, 7});
}

TEST(Reference, EmptySlot) {
  Case c = ragged_decode(false);
  c.lengths({2, -1}, 4);
  EXPECT_NE(run(c.p).faults, 0u);
  c.p.empty_slots = true;
  const GroupQueryResult r = run(c.p);
  ASSERT_EQ(r.faults, 0u);
  expect_values(r.output, {3, 0});
  expect_values(r.present_value, {1, 2, 6, 0, 0, 0, 0, 0});
  EXPECT_EQ(r.log_sum_exp[1], -kInfinity);
}

TEST(Reference, ChunkedPrefillStartsAtTheLengthLessTheChunk) {
  Case c;
  c.p.num_heads = c.p.kv_num_heads = 1;
  c.p.query = c.floats({1, 3, 1}, {0, 0, 0});
  c.p.key = c.floats({1, 3, 1}, {0, 0, 0});
  c.p.value = c.floats({1, 3, 1}, {4, 5, 6});
  c.p.past_key = c.floats({1, 1, 8, 1}, std::vector<double>(8, 0));
  c.p.past_value = c.floats({1, 1, 8, 1}, {1, 2, 3, 100, 100, 100, 100, 100});
  c.lengths({5}, 7);
  const GroupQueryResult r = run(c.p);
  EXPECT_EQ(r.batch[0].past, 3);
  expect_values(r.output, {2.5, 3, 3.5});
}

TEST(Reference, SharedCacheAppendsNothing) {
  Case c = ragged_decode(true);
  c.p.key = c.floats({2, 0, 1}, {});
  c.p.value = c.floats({2, 0, 1}, {});
  c.p.past_value = c.floats({2, 1, 4, 1}, {1, 2, 6, kNan, 9, kNan, kNan, kNan});
  c.p.past_key = c.floats({2, 1, 4, 1}, {0, 0, 0, kNan, 0, kNan, kNan, kNan});
  const GroupQueryResult r = run(c.p);
  ASSERT_EQ(r.faults, 0u);
  expect_values(r.output, {3, 9});
  EXPECT_EQ(r.batch[0].query_start, 2);
  EXPECT_EQ(r.key_rows, std::vector<CacheRow>(8, CacheRow::kUntouched));
}

TEST(Reference, QueryHeadsShareKeyHeadsInOrder) {
  Case c;
  c.p.num_heads = 4;
  c.p.kv_num_heads = 2;
  c.p.query = c.floats({1, 1, 4}, {1, 1, 1, 1});
  c.p.key = c.floats({1, 1, 2}, {0, 0});
  c.p.value = c.floats({1, 1, 2}, {5, 9});
  c.lengths({0}, 1);
  expect_values(run(c.p).output, {5, 5, 9, 9});
}

TEST(Reference, PackedIsTheSameAsSeparate) {
  Case c;
  c.p.num_heads = 2;
  c.p.kv_num_heads = 1;
  c.p.scale = 1;
  c.p.query = c.floats({1, 2, 4}, {1, 2, 0, 1, 1, 2, kLog3, 5});
  c.lengths({1}, 2);
  expect_values(run(c.p).output, {1, 1, 4, 4.6});
}

TEST(Reference, RotaryPairsAndWidth) {
  // A quarter turn: (x, y) becomes (-y, x). Position 0 of the table does nothing.
  for (bool interleaved : {false, true}) {
    Case c = prompt(1, {0, 0, 0, 0, 0, 0}, {1, 2, 3, 4, 5, 6}, {0, 0, 0, 0, 0, 0}, 6);
    c.p.do_rotary = true;
    c.p.rotary_interleaved = interleaved;
    c.p.cos_cache = c.floats({2, 2}, {1, 1, 0, 0});
    c.p.sin_cache = c.floats({2, 2}, {0, 0, 1, 1});
    c.p.position_ids = c.own(tensor({1, 1}, {1}, Type::kInt64));
    c.p.present_key = {true, 1, false};
    const std::vector<double> half = {-3, -4, 1, 2, 5, 6};
    const std::vector<double> pairs = {-2, 1, -4, 3, 5, 6};
    expect_values(run(c.p).present_key, interleaved ? pairs : half);
    c.p.position_ids = {};
    expect_values(run(c.p).present_key, {1, 2, 3, 4, 5, 6});
    c.p.do_rotary = false;  // the tables are ignored
    c.p.cos_cache = {};
    expect_values(run(c.p).present_key, {1, 2, 3, 4, 5, 6});
  }
}

TEST(Reference, ImpliedPositionsCountFromThePast) {
  Case c = ragged_decode(false);
  c.p.query = c.floats({2, 1, 2}, {1, 1, 1, 1});
  c.p.key = c.floats({2, 1, 2}, {1, 0, 1, 0});
  c.p.value = c.floats({2, 1, 2}, {0, 0, 0, 0});
  c.p.past_key = c.floats({2, 1, 4, 2}, std::vector<double>(16, 0));
  c.p.past_value = c.floats({2, 1, 4, 2}, std::vector<double>(16, 0));
  c.p.do_rotary = true;
  c.p.cos_cache = c.floats({4, 1}, {10, 11, 12, 13});
  c.p.sin_cache = c.floats({4, 1}, {20, 21, 22, 23});
  const GroupQueryResult r = run(c.p);
  EXPECT_EQ(r.present_key[4], 12);
  EXPECT_EQ(r.present_key[5], 22);
  EXPECT_EQ(r.present_key[8], 10);
  c.p.cos_cache = c.floats({2, 1}, {10, 11});
  EXPECT_EQ(run(c.p).faults, kPositionOutsideTable);
}

TEST(Reference, NormComesBeforeRotary) {
  Case c = prompt(1, {0, 0}, {3, 4}, {0, 0}, 2);
  c.p.q_norm_weight = c.floats({2}, {1, 1});
  c.p.k_norm_weight = c.floats({2}, {1, 2});
  c.p.qk_norm_epsilon = 0;
  c.p.do_rotary = true;
  c.p.cos_cache = c.floats({1, 1}, {0});
  c.p.sin_cache = c.floats({1, 1}, {1});
  c.p.present_key = {true, 1, false};
  const double root = std::sqrt(12.5);
  const GroupQueryResult r = run(c.p);
  EXPECT_FALSE(r.new_keys_exact);
  expect_values(r.present_key, {-8 / root, 3 / root});
}

TEST(Reference, RoundsWhereTheContractStores) {
  Case c = prompt(1, {1, 0}, {1, 1}, {1, 1}, 2);
  for (test::View* view : {&c.p.query, &c.p.key, &c.p.value}) {
    *view = c.own(tensor({1, 1, 2}, values_of(*view), Type::kBfloat16));
  }
  c.p.do_rotary = true;
  c.p.cos_cache = c.floats({1, 1}, {1 + 0x1p-8 + 0x1p-20});  // just over half an ulp
  c.p.sin_cache = c.floats({1, 1}, {0});
  c.p.present_key = {true, 1, false};
  const GroupQueryResult r = run(c.p);
  EXPECT_EQ(r.present_key[0], 1 + 0x1p-7);
  EXPECT_DOUBLE_EQ(r.log_sum_exp[0], (1 + 0x1p-7) * (1 + 0x1p-7));
}

TEST(Reference, FaultBits) {
  const auto faults = [](double seqlen, double total) {
    Case c = ragged_decode(false);
    c.lengths({seqlen, 0}, total);
    return run(c.p).faults;
  };
  EXPECT_EQ(faults(3, 4), 0u);
  EXPECT_EQ(faults(4, 5), kTotalBeyondPresent);
  EXPECT_EQ(faults(5, 6), kTotalBeyondPresent | kPastBeyondBuffer);
  EXPECT_EQ(faults(3, 3), kTotalBeyondBound);
  EXPECT_EQ(faults(2147483647, 4), kTotalOverflows);
  EXPECT_NE(faults(-1, 4) & kPastNegative, 0u);

  Case c = prompt(3, {0, 0, 0}, {0, 0, 0}, {0, 0, 0});
  c.lengths({1}, 4);  // not a first prompt: two keys cannot hold three new ones
  EXPECT_EQ(run(c.p).faults, kPastNegative | kQueryStartNegative);
}

TEST(ReferenceSupport, HalfFormats) {
  using test::decode_float16;
  using test::encode_float16;
  EXPECT_EQ(encode_float16(1), 0x3c00);
  EXPECT_EQ(encode_float16(-2), 0xc000);
  EXPECT_EQ(encode_float16(65504), 0x7bff);
  EXPECT_EQ(encode_float16(65519.99), 0x7bff);
  EXPECT_EQ(encode_float16(65520), 0x7c00);
  EXPECT_EQ(encode_float16(0x1p-24), 0x0001);
  EXPECT_EQ(encode_float16(0x1p-25), 0x0000);
  EXPECT_EQ(encode_float16(0x1.8p-24), 0x0002);
  EXPECT_EQ(encode_float16(1 + 0x1p-11), 0x3c00);
  EXPECT_EQ(encode_float16(1 + 3 * 0x1p-11), 0x3c02);
  EXPECT_EQ(encode_float16(1e300), 0x7c00);
  EXPECT_EQ(encode_float16(-1e-300), 0x8000);
  EXPECT_EQ(encode_float16(0x1p-1060), 0x0000);
  EXPECT_EQ(encode_float16(0.1), 0x2e66);
  EXPECT_EQ(test::encode_bfloat16(3.4e38), 0x7f80);
  EXPECT_EQ(test::encode_bfloat16(1 + 0x1p-8), 0x3f80);
  EXPECT_EQ(test::encode_bfloat16(1 + 3 * 0x1p-8), 0x3f82);
  for (int bits = 0; bits < 0x10000; ++bits) {
    const uint16_t pattern = static_cast<uint16_t>(bits);
    const double half = decode_float16(pattern);
    if (!std::isnan(half)) {
      ASSERT_EQ(encode_float16(half), pattern);
    }
    const double brain = test::decode_bfloat16(pattern);
    if (!std::isnan(brain)) {
      ASSERT_EQ(test::encode_bfloat16(brain), pattern);
    }
  }
}

TEST(ReferenceSupport, TensorsLieWhereTheirStridesSay) {
  test::Layout layout;
  layout.order = {1, 0, 2};
  layout.gaps = {1, 2, 1};
  layout.reversed = {true, false, false};
  layout.broadcast = {false, false, false};
  Tensor t(Type::kFloat16, {2, 3, 4}, layout);
  for (int64_t i = 0; i < 24; ++i) t.view().set_linear(i, static_cast<double>(i));
  EXPECT_EQ(t.view().at({1, 2, 3}), 23);
  EXPECT_EQ(t.view().at({0, 1, 0}), 4);
  EXPECT_LT(t.view().strides[0], 0);
  EXPECT_GT(t.byte_offset(), 0);
  const std::vector<bool> bytes = t.element_bytes();
  EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), 0), 48);
  EXPECT_TRUE(t.buffer().fences_intact());
}

TEST(ReferenceSupport, ErrorMeterSeesOneWrongElement) {
  std::vector<double> reference(64, 1), out = reference;
  test::ErrorMeter good(Type::kFloat32);
  EXPECT_TRUE(good.add(out, reference));
  EXPECT_TRUE(good.passed());
  out[63] += 1e-4;
  test::ErrorMeter bad(Type::kFloat32);
  EXPECT_FALSE(bad.add(out, reference));
  EXPECT_FALSE(bad.passed());
  out[63] = kNan;
  EXPECT_FALSE(bad.add(out, reference));
  reference[63] = kNan;
  EXPECT_TRUE(bad.add(out, reference));
}

}  // namespace
}  // namespace attn::reference
