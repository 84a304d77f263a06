// Every rule of presence, type and shape of GroupQueryAttention, with the words of its refusal.
#include <gtest/gtest.h>

#include <functional>

#include "ops_gqa_call.h"

namespace attn::ops_test {
namespace {

using namespace gqa;

constexpr DType kInt8{kCodeInt, 8, 1};
constexpr DType kUint8{kCodeUInt, 8, 1};
constexpr DType kFloat8{10, 8, 1};

struct Case {
  const char* name;
  std::function<void(GqaCall&)> change;
  std::string message;  // empty: accepted
};

void check(std::initializer_list<Case> cases) {
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name);
    GqaCall call;
    test.change(call);
    EXPECT_EQ(refusal([&] { call.lower(); }), test.message);
  }
}

TEST(GqaRefusals, TheUnchangedCallIsAccepted) {
  check({{"plain", [](GqaCall&) {}, ""},
         {"rotary", [](GqaCall& c) { c.rotate(kFloat32); }, ""},
         {"norm", [](GqaCall& c) { c.norm(); }, ""},
         {"packed", [](GqaCall& c) { c.pack(); }, ""}});
}

TEST(GqaRefusals, RequiredArguments) {
  check({{"query", [](GqaCall& c) { c.in(kQuery) = {}; },
          "1: query: expected a tensor of shape (B, S, Hq*D); got none (it is required)"},
         {"seqlens_k", [](GqaCall& c) { c.in(kSeqlensK) = {}; },
          "1: seqlens_k: expected a tensor of shape (B); got none (it is required)"},
         {"total_sequence_length", [](GqaCall& c) { c.in(kTotalLength) = {}; },
          "1: total_sequence_length: expected a tensor of shape (); got none (it is required)"},
         {"output", [](GqaCall& c) { c.out(kOutput) = {}; },
          "1: output: expected a tensor of shape (B, S, Hq*D); got none (it is required)"},
         {"cos_cache",
          [](GqaCall& c) {
            c.rotate(kFloat32);
            c.in(kCosCache) = {};
          },
          "1: cos_cache: expected a tensor of shape (positions, width/2) since do_rotary is 1; "
          "got none"},
         {"sin_cache",
          [](GqaCall& c) {
            c.rotate(kFloat32);
            c.in(kSinCache) = {};
          },
          "1: sin_cache: expected a tensor of shape (positions, width/2) since do_rotary is 1; "
          "got none"}});
}

TEST(GqaRefusals, PairsOfArguments) {
  check({{"key alone", [](GqaCall& c) { c.in(kValue) = {}; },
          "1: key and value: expected both or neither; got only key"},
         {"value alone", [](GqaCall& c) { c.in(kKey) = {}; },
          "1: key and value: expected both or neither; got only value"},
         {"past_key alone", [](GqaCall& c) { c.in(kPastValue) = {}; },
          "1: past_key and past_value: expected both or neither; got only past_key"},
         {"past_value alone", [](GqaCall& c) { c.in(kPastKey) = {}; },
          "1: past_key and past_value: expected both or neither; got only past_value"},
         {"q_norm_weight alone",
          [](GqaCall& c) { c.in(kQNormWeight) = make_tensor(kFloat32, {kChannels}); },
          "1: q_norm_weight and k_norm_weight: expected both or neither; got only q_norm_weight"},
         {"k_norm_weight alone",
          [](GqaCall& c) { c.in(kKNormWeight) = make_tensor(kFloat32, {kChannels}); },
          "1: q_norm_weight and k_norm_weight: expected both or neither; got only "
          "k_norm_weight"}});
}

TEST(GqaRefusals, WhatIsNotBuilt) {
  check({{"query_seqlens", [](GqaCall& c) { c.in(kQuerySeqlens) = make_tensor(kInt32, {kBatch}); },
          "2: query_seqlens: query lengths of their own for each batch row are not built; expected "
          "none; got int32 (2)"},
         {"int8 cache", [](GqaCall& c) { c.in(kPastKey).type = kInt8; },
          "2: past_key: quantised caches are not built; expected float32, the type of query; got "
          "int8"},
         {"int4 cache", [](GqaCall& c) { c.in(kPastValue).type = kUint8; },
          "2: past_value: quantised caches are not built; expected float32, the type of query; got "
          "uint8"},
         {"float8 cache", [](GqaCall& c) { c.out(kPresentKey).type = kFloat8; },
          "2: present_key: quantised caches are not built; expected float32, the type of query; "
          "got float8e4m3fn"},
         {"bool is no quantised type", [](GqaCall& c) { c.out(kPresentKey).type = kBool; },
          "1: present_key: expected float32, the type of query; got bool"},
         {"k_scale", [](GqaCall& c) { c.in(kKScale) = make_tensor(kFloat32, {1}); },
          "1: k_scale: expected none, as the cache is not quantised; got float32 (1)"},
         {"v_scale", [](GqaCall& c) { c.in(kVScale) = make_tensor(kFloat32, {}); },
          "1: v_scale: expected none, as the cache is not quantised; got float32 scalar"}});
}

TEST(GqaRefusals, Types) {
  check({{"query", [](GqaCall& c) { c.in(kQuery).type = kFloat64; },
          "1: query: expected float32, float16 or bfloat16; got float64"},
         {"key", [](GqaCall& c) { c.in(kKey).type = kFloat16; },
          "1: key: expected float32, the type of query; got float16"},
         {"value", [](GqaCall& c) { c.in(kValue).type = kBfloat16; },
          "1: value: expected float32, the type of query; got bfloat16"},
         {"past_key", [](GqaCall& c) { c.in(kPastKey).type = kFloat16; },
          "1: past_key: expected float32, the type of query; got float16"},
         {"present_value", [](GqaCall& c) { c.out(kPresentValue).type = kFloat16; },
          "1: present_value: expected float32, the type of query; got float16"},
         {"output", [](GqaCall& c) { c.out(kOutput).type = kFloat16; },
          "1: output: expected float32, the type of query; got float16"},
         {"attention_bias",
          [](GqaCall& c) { c.in(kAttentionBias) = make_tensor(kFloat16, {1, 1, 1, 9}); },
          "1: attention_bias: expected float32, the type of query; got float16"},
         {"head_sink", [](GqaCall& c) { c.in(kHeadSink) = make_tensor(kFloat16, {kHeads}); },
          "1: head_sink: expected float32, the type of query; got float16"},
         {"k_norm_weight",
          [](GqaCall& c) {
            c.norm();
            c.in(kKNormWeight).type = kBfloat16;
          },
          "1: k_norm_weight: expected float32, the type of query; got bfloat16"},
         {"cos_cache", [](GqaCall& c) { c.rotate(kFloat16); },
          "1: cos_cache: expected float32; got float16"},
         {"sin_cache",
          [](GqaCall& c) {
            c.rotate(kFloat32);
            c.in(kSinCache).type = kFloat16;
          },
          "1: sin_cache: expected float32, the type of cos_cache; got float16"},
         {"position_ids",
          [](GqaCall& c) {
            c.rotate(kFloat32);
            c.in(kPositionIds) = make_tensor(kInt32, {kBatch, kRows});
          },
          "1: position_ids: expected int64; got int32"},
         {"log_sum_exp",
          [](GqaCall& c) { c.out(kLogSumExp) = make_tensor(kFloat16, {kBatch, kHeads, kRows}); },
          "1: log_sum_exp: expected float32; got float16"},
         {"output_qk",
          [](GqaCall& c) {
            c.set("qk_output", 1);
            c.out(kOutputQk) = make_tensor(kFloat16, {kBatch, kHeads, kRows, 8});
          },
          "1: output_qk: expected float32, the type of query; got float16"}});
}

TEST(GqaRefusals, TablesOfSixteenBitQueries) {
  for (const DType type : {kFloat16, kBfloat16}) {
    for (const DType table : {type, kFloat32}) {
      GqaCall call(type);
      call.rotate(table);
      EXPECT_EQ(refusal([&] { call.lower(); }), "");
      call.in(kSinCache).type = table == kFloat32 ? type : kFloat32;
      EXPECT_EQ(refusal([&] { call.lower(); }),
                cat("1: sin_cache: expected ", name_of(table), ", the type of cos_cache; got ",
                    name_of(call.in(kSinCache).type)));
    }
  }
  GqaCall call(kFloat16);
  call.rotate(kBfloat16);
  EXPECT_EQ(refusal([&] { call.lower(); }),
            "1: cos_cache: expected float32 or float16, the type of query; got bfloat16");
}

TEST(GqaRefusals, QueryKeyValueShapes) {
  check({{"query rank", [](GqaCall& c) { c.in(kQuery) = make_tensor(kFloat32, {2, 3, 4, 8}); },
          "1: query: expected shape (B, S, Hq*D); got (2, 3, 4, 8)"},
         {"packed query rank",
          [](GqaCall& c) {
            c.pack();
            c.in(kQuery) = make_tensor(kFloat32, {});
          },
          "1: query: expected shape (B, S, (Hq + 2*Hkv)*D); got a scalar"},
         {"query heads", [](GqaCall& c) { c.in(kQuery) = make_tensor(kFloat32, {2, 3, 34}); },
          "1: query: expected a last dimension that is a multiple of 4 (num_heads); got (2, 3, "
          "34)"},
         {"packed query heads",
          [](GqaCall& c) {
            c.pack();
            c.in(kQuery) = make_tensor(kFloat32, {2, 3, 36});
          },
          "1: query: expected a last dimension that is a multiple of 8 (num_heads + 2 * "
          "kv_num_heads, as key and value are not bound); got (2, 3, 36)"},
         {"no head size", [](GqaCall& c) { c.in(kQuery) = make_tensor(kFloat32, {2, 3, 0}); },
          "1: query: expected a head size of at least 1; got (2, 3, 0), which with num_heads 4 is "
          "a head size of 0"},
         {"giant head size",
          [](GqaCall& c) { c.in(kQuery) = make_tensor(kFloat32, {2, 3, int64_t{1} << 33}); },
          "2: query: head sizes beyond 2147483647 are not built; got 2147483648"},
         {"query width", [](GqaCall& c) { c.in(kQuery) = make_tensor(kFloat32, {2, 3, 64}); },
          "1: query: expected a last dimension of 32 (num_heads 4 times the head size 8 of key and "
          "value, which with kv_num_heads 2 are (2, 3, 16)); got (2, 3, 64)"},
         {"key channels", [](GqaCall& c) { c.in(kKey) = make_tensor(kFloat32, {2, 3, 32}); },
          "1: key: expected shape (B, N, Hkv*D) = (2, 3, 16); got (2, 3, 32)"},
         {"value head size", [](GqaCall& c) { c.in(kValue) = make_tensor(kFloat32, {2, 3, 12}); },
          "1: value: expected shape (B, N, Hkv*D) = (2, 3, 16); got (2, 3, 12)"},
         {"value rows", [](GqaCall& c) { c.in(kValue) = make_tensor(kFloat32, {2, 2, 16}); },
          "1: value: expected shape (B, N, Hkv*D) = (2, 3, 16); got (2, 2, 16)"},
         {"key batch", [](GqaCall& c) { c.in(kKey) = make_tensor(kFloat32, {1, 3, 16}); },
          "1: key: expected shape (B, N, Hkv*D) = (2, 3, 16); got (1, 3, 16)"},
         {"output", [](GqaCall& c) { c.out(kOutput) = make_tensor(kFloat32, {2, 3, 64}); },
          "1: output: expected shape (B, S, Hq*D) = (2, 3, 32); got (2, 3, 64)"}});
}

TEST(GqaRefusals, NewRows) {
  const auto with_rows = [](int64_t rows, bool rotary, bool past) {
    return [=](GqaCall& c) {
      if (rotary) c.rotate(kFloat32);
      if (!past) c.drop_past();
      c.in(kKey) = c.in(kValue) = make_tensor(kFloat32, {kBatch, rows, kKvHeads * kChannels});
    };
  };
  check({{"as many as queries", with_rows(kRows, true, false), ""},
         {"none over a past", with_rows(0, true, true), ""},
         {"any without rotary", with_rows(7, false, true), ""},
         {"any without rotary and past", with_rows(7, false, false), ""},
         {"none without rotary and past", with_rows(0, false, false), ""},
         {"fewer", with_rows(2, true, true),
          "1: key: expected 3 new rows, as many as query has (or 0 with a past, which appends "
          "nothing), since do_rotary is 1; got 2"},
         {"none without a past", with_rows(0, true, false),
          "1: key: expected 3 new rows, as many as query has (or 0 with a past, which appends "
          "nothing), since do_rotary is 1; got 0 and no past"}});
}

TEST(GqaRefusals, CacheShapes) {
  check({{"past rank", [](GqaCall& c) { c.in(kPastKey) = make_tensor(kFloat32, {2, 5, 16}); },
          "1: past_key: expected shape (B, Hkv, P, D) = (2, 2, ?, 8); got (2, 5, 16)"},
         {"past heads", [](GqaCall& c) { c.in(kPastValue) = make_tensor(kFloat32, {2, 4, 5, 8}); },
          "1: past_value: expected shape (B, Hkv, P, D) = (2, 2, ?, 8); got (2, 4, 5, 8)"},
         {"present head size",
          [](GqaCall& c) { c.out(kPresentKey) = make_tensor(kFloat32, {2, 2, 9, 4}); },
          "1: present_key: expected shape (B, Hkv, L, D) = (2, 2, ?, 8); got (2, 2, 9, 4)"},
         {"present batch",
          [](GqaCall& c) { c.out(kPresentValue) = make_tensor(kFloat32, {3, 2, 9, 8}); },
          "1: present_value: expected shape (B, Hkv, L, D) = (2, 2, ?, 8); got (3, 2, 9, 8)"},
         {"different capacities are legal",
          [](GqaCall& c) {
            c.in(kPastValue) = make_tensor(kFloat32, {2, 2, 6, 8});
            c.out(kPresentValue) = make_tensor(kFloat32, {2, 2, 12, 8});
          },
          ""},
         {"a present that is shorter than the past is legal",
          [](GqaCall& c) { c.out(kPresentKey) = make_tensor(kFloat32, {2, 2, 4, 8}); }, ""}});
}

TEST(GqaRefusals, InPlaceNeedsEqualStrides) {
  check({{"head strides", [](GqaCall& c) { c.share(kPastKey, kPresentKey); },
          "1: present_key: it shares the memory of past_key, which needs equal strides; got (2, 2, "
          "9, 8) with strides (144, 72, 8, 1) over (2, 2, 5, 8) with strides (80, 40, 8, 1)"},
         {"value",
          [](GqaCall& c) {
            c.share(kPastValue, kPresentValue);
            c.in(kPastValue) = c.out(kPresentValue);
            c.in(kPastValue).strides[2] = 16;
          },
          "1: present_value: it shares the memory of past_value, which needs equal strides; got "
          "(2, 2, 9, 8) with strides (144, 72, 8, 1) over (2, 2, 9, 8) with strides (144, 72, 16, "
          "1)"},
         {"a longer present over the same rows",
          [](GqaCall& c) {
            c.share(kPastKey, kPresentKey);
            c.in(kPastKey) = c.out(kPresentKey);
            c.in(kPastKey).shape[2] = 5;
          },
          ""},
         {"a past of one row has no row stride",
          [](GqaCall& c) {
            c.share(kPastKey, kPresentKey);
            c.in(kPastKey) = c.out(kPresentKey);
            c.in(kPastKey).shape[2] = 1;
            c.in(kPastKey).strides[2] = 3;
          },
          ""},
         {"an empty past has no strides",
          [](GqaCall& c) {
            c.share(kPastKey, kPresentKey);
            c.in(kPastKey) = make_tensor(kFloat32, {2, 2, 0, 8});
          },
          ""},
         {"separate buffers may differ", [](GqaCall& c) { c.in(kPastKey).strides[2] = 24; }, ""}});
}

TEST(GqaRefusals, EqualAddressesAreInPlace) {
  float buffer[2 * 2 * 9 * 8] = {};
  GqaCall call;
  call.in(kPastKey).data = buffer;
  call.out(kPresentKey).data = buffer;
  EXPECT_EQ(refusal([&] { call.lower(); }).substr(0, 58),
            "1: present_key: it shares the memory of past_key, which ne");
}

TEST(GqaRefusals, SeqlensK) {
  const auto lengths = [](DType type, std::initializer_list<int64_t> shape) {
    const Tensor tensor = make_tensor(type, shape);
    return [=](GqaCall& c) { c.in(kSeqlensK) = tensor; };
  };
  const std::string words =
      "1: seqlens_k: expected int32 of shape (B), (B, 1) or, when B is 1, a scalar, where B is 2; "
      "got ";
  check({{"(B, 1)", lengths(kInt32, {2, 1}), ""},
         {"(1, B)", lengths(kInt32, {1, 2}), words + "int32 (1, 2)"},
         {"scalar", lengths(kInt32, {}), words + "int32 scalar"},
         {"(1)", lengths(kInt32, {1}), words + "int32 (1)"},
         {"(B, 1, 1)", lengths(kInt32, {2, 1, 1}), words + "int32 (2, 1, 1)"},
         {"(0)", lengths(kInt32, {0}), words + "int32 (0)"},
         {"int64", lengths(kInt64, {2}), words + "int64 (2)"}});

  GqaCall one;
  for (const int slot : {kQuery, kKey, kValue, kPastKey, kPastValue}) one.in(slot).shape[0] = 1;
  for (const int slot : {kOutput, kPresentKey, kPresentValue}) one.out(slot).shape[0] = 1;
  for (const Tensor& form :
       {make_tensor(kInt32, {}), make_tensor(kInt32, {1}), make_tensor(kInt32, {1, 1})}) {
    one.in(kSeqlensK) = form;
    EXPECT_EQ(refusal([&] { one.lower(); }), "");
  }
  one.in(kSeqlensK) = make_tensor(kInt32, {1, 1, 1});
  EXPECT_EQ(refusal([&] { one.lower(); }),
            "1: seqlens_k: expected int32 of shape (B), (B, 1) or, when B is 1, a scalar, where B "
            "is 1; got int32 (1, 1, 1)");
}

TEST(GqaRefusals, TotalSequenceLength) {
  const auto total = [](DType type, std::initializer_list<int64_t> shape) {
    const Tensor tensor = make_tensor(type, shape);
    return [=](GqaCall& c) { c.in(kTotalLength) = tensor; };
  };
  const std::string words =
      "1: total_sequence_length: expected int32 with exactly one element, of any rank; got ";
  check({{"(1)", total(kInt32, {1}), ""},
         {"(1, 1, 1)", total(kInt32, {1, 1, 1}), ""},
         {"(2)", total(kInt32, {2}), words + "int32 (2)"},
         {"(1, 0)", total(kInt32, {1, 0}), words + "int32 (1, 0)"},
         {"int64", total(kInt64, {}), words + "int64 scalar"}});

  int32_t value = -1;
  GqaCall call;
  call.in(kTotalLength).data = &value;
  EXPECT_EQ(refusal([&] { call.lower(); }), "");  // a plan serves other values too
  call.mode = LowerMode::kExecute;
  EXPECT_EQ(refusal([&] { call.lower(); }),
            "1: total_sequence_length: expected a value of at least 0; got -1");
  value = 0;
  EXPECT_EQ(refusal([&] { call.lower(); }), "");
  value = -1;  // memory of a device is never read
  call.in(kTotalLength).placement = Placement::kDevice;
  EXPECT_EQ(refusal([&] { call.lower(); }), "");
}

TEST(GqaRefusals, RotaryTables) {
  const auto tables = [](std::initializer_list<int64_t> cos, std::initializer_list<int64_t> sin) {
    const Tensor cos_cache = make_tensor(kFloat32, cos), sin_cache = make_tensor(kFloat32, sin);
    return [=](GqaCall& c) {
      c.rotate(kFloat32);
      c.in(kCosCache) = cos_cache;
      c.in(kSinCache) = sin_cache;
    };
  };
  check({{"full width", tables({64, 4}, {64, 4}), ""},
         {"least width", tables({64, 1}, {64, 1}), ""},
         {"a table without rows", tables({0, 4}, {0, 4}), ""},
         {"cos rank", tables({64}, {64, 4}),
          "1: cos_cache: expected shape (positions, width/2); got (64)"},
         {"sin columns", tables({64, 4}, {64, 3}),
          "1: sin_cache: expected shape (positions, width/2), as cos_cache has it, = (64, 4); got "
          "(64, 3)"},
         {"sin rows", tables({64, 4}, {63, 4}),
          "1: sin_cache: expected shape (positions, width/2), as cos_cache has it, = (64, 4); got "
          "(63, 4)"},
         {"too wide", tables({64, 5}, {64, 5}),
          "1: cos_cache: expected 1 to 4 columns, half of the channels that are rotated (head size "
          "8); got (64, 5)"},
         {"no columns", tables({64, 0}, {64, 0}),
          "1: cos_cache: expected 1 to 4 columns, half of the channels that are rotated (head size "
          "8); got (64, 0)"},
         {"position_ids",
          [](GqaCall& c) {
            c.rotate(kFloat32);
            c.in(kPositionIds) = make_tensor(kInt64, {1, kRows});
          },
          "1: position_ids: expected shape (B, S) = (2, 3); got (1, 3)"},
         {"position_ids of rank 1",
          [](GqaCall& c) {
            c.rotate(kFloat32);
            c.in(kPositionIds) = make_tensor(kInt64, {kBatch});
          },
          "1: position_ids: expected shape (B, S) = (2, 3); got (2)"}});
}

TEST(GqaRefusals, WithoutRotaryTablesAndPositionsAreIgnored) {
  check({{"anything",
          [](GqaCall& c) {
            c.in(kCosCache) = make_tensor(kInt8, {1, 2, 3});
            c.in(kSinCache) = make_tensor(kBool, {});
            c.in(kPositionIds) = make_tensor(kFloat16, {7});
          },
          ""}});
}

TEST(GqaRefusals, OddHeadSizesRotateLessThanAll) {
  GqaCall call;
  const int64_t odd = 7;
  call.rotate(kFloat32);
  call.in(kQuery) = make_tensor(kFloat32, {kBatch, kRows, kHeads * odd});
  call.in(kKey) = call.in(kValue) = make_tensor(kFloat32, {kBatch, kRows, kKvHeads * odd});
  call.drop_past();
  call.drop_present();
  call.out(kOutput) = call.in(kQuery);
  EXPECT_EQ(refusal([&] { call.lower(); }), "");  // width 6
  call.in(kCosCache) = call.in(kSinCache) = make_tensor(kFloat32, {64, 4});
  EXPECT_EQ(refusal([&] { call.lower(); }),
            "1: cos_cache: expected 1 to 3 columns, half of the channels that are rotated (head "
            "size 7); got (64, 4)");
}

TEST(GqaRefusals, AttentionBias) {
  static int32_t total = 8;
  const auto bias = [](std::initializer_list<int64_t> shape) {
    const Tensor tensor = make_tensor(kFloat32, shape);
    return [=](GqaCall& c) {
      c.in(kAttentionBias) = tensor;
      c.in(kTotalLength).data = &total;
      c.mode = LowerMode::kExecute;
    };
  };
  const std::string words =
      "1: attention_bias: expected shape (B|1, Hq|1, S|1, width) with (B, Hq, S) = (2, 4, 3) and a "
      "width of at least total_sequence_length 8; got ";
  check({{"full", bias({2, 4, 3, 8}), ""},
         {"broadcast", bias({1, 1, 1, 8}), ""},
         {"as wide as a capacity", bias({1, 4, 1, 4096}), ""},
         {"too narrow", bias({2, 4, 3, 7}), words + "(2, 4, 3, 7)"},
         {"one column is no broadcast", bias({2, 4, 3, 1}), words + "(2, 4, 3, 1)"},
         {"batch", bias({3, 4, 3, 8}), words + "(3, 4, 3, 8)"},
         {"heads", bias({2, 2, 3, 8}), words + "(2, 2, 3, 8)"},
         {"rows", bias({2, 4, 2, 8}), words + "(2, 4, 2, 8)"},
         {"rank", bias({4, 3, 8}), words + "(4, 3, 8)"},
         {"scalar", bias({}), words + "a scalar"}});

  GqaCall call;  // a bound whose value is not at hand leaves the width open
  call.in(kAttentionBias) = make_tensor(kFloat32, {1, 1, 1, 0});
  EXPECT_EQ(refusal([&] { call.lower(); }), "");
  call.in(kAttentionBias) = make_tensor(kFloat32, {1, 1, 2, 0});
  EXPECT_EQ(refusal([&] { call.lower(); }),
            "1: attention_bias: expected shape (B|1, Hq|1, S|1, width) with (B, Hq, S) = (2, 4, 3) "
            "and a width of at least total_sequence_length; got (1, 1, 2, 0)");
}

TEST(GqaRefusals, Vectors) {
  check(
      {{"head_sink", [](GqaCall& c) { c.in(kHeadSink) = make_tensor(kFloat32, {kKvHeads}); },
        "1: head_sink: expected shape (Hq) = (4); got (2)"},
       {"head_sink rank", [](GqaCall& c) { c.in(kHeadSink) = make_tensor(kFloat32, {1, kHeads}); },
        "1: head_sink: expected shape (Hq) = (4); got (1, 4)"},
       {"q_norm_weight",
        [](GqaCall& c) {
          c.norm();
          c.in(kQNormWeight) = make_tensor(kFloat32, {32});
        },
        "1: q_norm_weight: expected shape (D) = (8); got (32)"},
       {"k_norm_weight",
        [](GqaCall& c) {
          c.norm();
          c.in(kKNormWeight) = make_tensor(kFloat32, {});
        },
        "1: k_norm_weight: expected shape (D) = (8); got a scalar"}});
}

TEST(GqaRefusals, ScoresAndLogSumExp) {
  static int32_t total = 8;
  const auto scores = [](int64_t qk_output, std::initializer_list<int64_t> shape) {
    const Tensor tensor = make_tensor(kFloat32, shape);
    return [=](GqaCall& c) {
      c.set("qk_output", qk_output);
      c.out(kOutputQk) = tensor;
      c.in(kTotalLength).data = &total;
      c.mode = LowerMode::kExecute;
    };
  };
  const std::string words =
      "1: output_qk: expected shape (B, Hq, S, total_sequence_length) = (2, 4, 3, 8); got ";
  check({{"scores", scores(1, {2, 4, 3, 8}), ""},
         {"probabilities", scores(2, {2, 4, 3, 8}), ""},
         {"none asked for", scores(0, {2, 4, 3, 8}),
          "1: output_qk: expected none, as attribute 'qk_output' is 0 (1 or 2 fills it); got a "
          "request for it"},
         {"too wide", scores(1, {2, 4, 3, 9}), words + "(2, 4, 3, 9)"},
         {"too narrow", scores(2, {2, 4, 3, 7}), words + "(2, 4, 3, 7)"},
         {"rank", scores(1, {2, 3, 8}), words + "(2, 3, 8)"},
         {"attribute without the output", [](GqaCall& c) { c.set("qk_output", 2); }, ""},
         {"log_sum_exp", [](GqaCall& c) { c.out(kLogSumExp) = make_tensor(kFloat32, {2, 4, 3}); },
          ""},
         {"log_sum_exp shape",
          [](GqaCall& c) { c.out(kLogSumExp) = make_tensor(kFloat32, {2, 3, 4}); },
          "1: log_sum_exp: expected shape (B, Hq, S) = (2, 4, 3); got (2, 3, 4)"}});
}

TEST(GqaRefusals, EmptyBatchesAndPromptsAreLegal) {
  GqaCall none;
  for (const int slot : {kQuery, kKey, kValue, kPastKey, kPastValue, kSeqlensK}) {
    none.in(slot).shape[0] = 0;
  }
  for (const int slot : {kOutput, kPresentKey, kPresentValue}) none.out(slot).shape[0] = 0;
  EXPECT_EQ(refusal([&] { none.lower(); }), "");
  GqaCall empty;
  for (const int slot : {kQuery, kKey, kValue}) empty.in(slot).shape[1] = 0;
  empty.out(kOutput).shape[1] = 0;
  EXPECT_EQ(refusal([&] { empty.lower(); }), "");
  empty.rotate(kFloat32);
  EXPECT_EQ(refusal([&] { empty.lower(); }), "");
  empty.drop_past();
  EXPECT_EQ(refusal([&] { empty.lower(); }), "");
}

TEST(GqaRefusals, StridesThatOverflow) {
  GqaCall call;
  call.in(kQuery).strides[2] = int64_t{1} << 61;
  EXPECT_EQ(refusal([&] { call.lower(); }),
            "1: query: expected strides that stay within memory; the last axis has stride "
            "2305843009213693952");
}

}  // namespace
}  // namespace attn::ops_test
