// The values that GroupQueryAttention's attributes may have, and what each becomes.
#include <gtest/gtest.h>

#include <cmath>

#include "ops_gqa_call.h"

namespace attn::ops_test {
namespace {

std::string refusal_with(Attribute attribute) {
  GqaCall call;
  call.set(std::move(attribute));
  return refusal([&] { call.create(); });
}

AttentionSpec spec_with(std::vector<Attribute> attributes) {
  GqaCall call;
  for (Attribute& attribute : attributes) call.set(std::move(attribute));
  return call.lower().attention->spec;
}

std::string refusal_of_heads(int64_t q_heads, int64_t kv_heads) {
  GqaCall call;
  call.attributes = {make_int("num_heads", q_heads), make_int("kv_num_heads", kv_heads)};
  return refusal([&] { call.create(); });
}

TEST(GqaAttributes, Heads) {
  EXPECT_EQ(refusal_of_heads(9, 3), "");
  EXPECT_EQ(refusal_of_heads(9, 2),
            "1: attribute 'num_heads': expected a multiple of kv_num_heads 2; got 9");
  EXPECT_EQ(refusal_of_heads(2, 4),
            "1: attribute 'num_heads': expected a multiple of kv_num_heads 4; got 2");
  EXPECT_EQ(refusal_of_heads(0, 1), "1: attribute 'num_heads': expected 1 to 2147483647; got 0");
  EXPECT_EQ(refusal_of_heads(4, -2),
            "1: attribute 'kv_num_heads': expected 1 to 2147483647; got -2");
  EXPECT_EQ(refusal_of_heads(int64_t{1} << 31, 1),
            "1: attribute 'num_heads': expected 1 to 2147483647; got 2147483648");
  GqaCall call;
  call.attributes = {make_int("kv_num_heads", 2)};
  EXPECT_EQ(refusal([&] { call.create(); }),
            "1: attribute 'num_heads' is required (INT: query heads, a multiple of kv_num_heads)");
}

TEST(GqaAttributes, Scale) {
  EXPECT_EQ(spec_with({}).scale, 1 / std::sqrt(8.0));
  EXPECT_EQ(spec_with({make_float("scale", 0)}).scale, 1 / std::sqrt(8.0));
  EXPECT_EQ(spec_with({make_float("scale", -0.25)}).scale, -0.25);
  EXPECT_EQ(spec_with({make_int("scale", 2)}).scale, 2);
  EXPECT_EQ(refusal_with(make_float("scale", std::nan(""))),
            "1: attribute 'scale': expected a finite float32; got nan");
}

TEST(GqaAttributes, Softcap) {
  EXPECT_EQ(spec_with({}).softcap, 0);
  EXPECT_EQ(spec_with({make_float("softcap", 30)}).softcap, 30);
  EXPECT_EQ(refusal_with(make_float("softcap", -1)),
            "1: attribute 'softcap': expected 0 (off) or more; got -1");
  for (const char* name : {"scale", "softcap"}) {
    for (const double tiny : {1e-50, -1e-50}) {
      EXPECT_NE(refusal_with(make_float(name, tiny))
                    .find(std::string("attribute '") + name + "': expected 0 or a number that"),
                std::string::npos);
    }
  }
  EXPECT_EQ(refusal_with(make_float("softcap", HUGE_VAL)),
            "1: attribute 'softcap': expected a finite float32; got inf");
}

TEST(GqaAttributes, WindowCountsTheCurrentToken) {
  EXPECT_TRUE(spec_with({}).causal);
  EXPECT_EQ(spec_with({}).left_window, -1);
  EXPECT_EQ(spec_with({}).right_window, -1);
  EXPECT_EQ(spec_with({make_int("local_window_size", 1)}).left_window, 0);
  EXPECT_EQ(spec_with({make_int("local_window_size", 512)}).left_window, 511);
  EXPECT_FALSE(spec_with({make_int("causal", 0)}).causal);
  for (const int64_t window : {int64_t{0}, int64_t{-2}}) {
    EXPECT_EQ(refusal_with(make_int("local_window_size", window)),
              cat("1: attribute 'local_window_size': expected -1 (no window) or at least 1 (the "
                  "current token counts); got ",
                  window));
  }
  GqaCall call;
  call.set("causal", 0);
  call.set("local_window_size", 4);
  EXPECT_EQ(refusal([&] { call.create(); }),
            "1: attribute 'local_window_size': expected -1 with causal 0; got 4");
}

TEST(GqaAttributes, Switches) {
  for (const char* name :
       {"causal", "do_rotary", "rotary_interleaved", "empty_slots", "sliding_window_cache"}) {
    EXPECT_EQ(refusal_with(make_int(name, 2)),
              cat("1: attribute '", name, "': expected 0 or 1; got 2"));
    EXPECT_EQ(refusal_with(make_int(name, 0)), "");
  }
  EXPECT_EQ(refusal_with(make_int("qk_output", 3)),
            "1: attribute 'qk_output': expected 0 (none), 1 (scores before softmax) or 2 "
            "(probabilities); got 3");
  EXPECT_EQ(refusal_with(make_int("qk_output", -1)),
            "1: attribute 'qk_output': expected 0 (none), 1 (scores before softmax) or 2 "
            "(probabilities); got -1");
  EXPECT_EQ(refusal_with(make_int("smooth_softmax", 2)),
            "1: attribute 'smooth_softmax': expected 1 (on), 0 or -1 (off); got 2");
  EXPECT_EQ(refusal_with(make_int("smooth_softmax", -2)),
            "1: attribute 'smooth_softmax': expected 1 (on), 0 or -1 (off); got -2");
}

TEST(GqaAttributes, SmoothSoftmax) {
  EXPECT_EQ(spec_with({}).sink, Sink::kNone);
  EXPECT_EQ(spec_with({make_int("smooth_softmax", -1)}).sink, Sink::kNone);
  EXPECT_EQ(spec_with({make_int("smooth_softmax", 0)}).sink, Sink::kNone);
  EXPECT_EQ(spec_with({make_int("smooth_softmax", 1)}).sink, Sink::kZero);
  for (const int64_t smooth : {-1, 0, 1}) {  // a head sink replaces it
    GqaCall call;
    call.set("smooth_softmax", smooth);
    call.in(gqa::kHeadSink) = make_tensor(kFloat32, {kHeads});
    EXPECT_EQ(call.lower().attention->spec.sink, Sink::kPerHead);
  }
}

TEST(GqaAttributes, NormEpsilons) {
  const auto epsilons = [](std::vector<Attribute> attributes) {
    GqaCall call;
    call.norm();
    for (Attribute& attribute : attributes) call.set(std::move(attribute));
    const Lowering lowering = call.lower();
    return std::pair(lowering.attention->spec.query_transform.epsilon,
                     lowering.kv_update->spec.key.transform.epsilon);
  };
  EXPECT_EQ(epsilons({}), std::pair(1e-6f, 1e-6f));
  EXPECT_EQ(epsilons({make_float("qk_norm_epsilon", 1e-5)}), std::pair(1e-5f, 1e-5f));
  EXPECT_EQ(epsilons({make_float("q_norm_epsilon", 1e-3), make_float("qk_norm_epsilon", 1e-5)}),
            std::pair(1e-3f, 1e-5f));
  EXPECT_EQ(epsilons({make_float("k_norm_epsilon", 0)}), std::pair(1e-6f, 0.0f));
  for (const char* name : {"qk_norm_epsilon", "q_norm_epsilon", "k_norm_epsilon"}) {
    EXPECT_EQ(refusal_with(make_float(name, -1e-6)),
              cat("1: attribute '", name, "': expected at least 0; got -1e-06"));
  }
}

TEST(GqaAttributes, CacheFormsThatAreNotBuilt) {
  for (const char* name : {"k_quant_type", "v_quant_type"}) {
    EXPECT_EQ(refusal_with(make_string(name, "NONE")), "");
    EXPECT_EQ(refusal_with(make_string(name, "PER_TENSOR")),
              cat("2: attribute '", name,
                  "': quantised caches are not built; expected NONE; got PER_TENSOR"));
    EXPECT_EQ(refusal_with(make_string(name, "PER_CHANNEL")),
              cat("2: attribute '", name,
                  "': quantised caches are not built; expected NONE; got PER_CHANNEL"));
    EXPECT_EQ(
        refusal_with(make_string(name, "none")),
        cat("1: attribute '", name, "': expected NONE, PER_TENSOR or PER_CHANNEL; got 'none'"));
  }
  EXPECT_EQ(refusal_with(make_int("kv_cache_bit_width", 0)), "");
  for (const int64_t bits : {4, 8}) {
    EXPECT_EQ(refusal_with(make_int("kv_cache_bit_width", bits)),
              cat("2: attribute 'kv_cache_bit_width': quantised caches are not built; expected "
                  "0; got ",
                  bits));
  }
  EXPECT_EQ(refusal_with(make_int("kv_cache_bit_width", 5)),
            "1: attribute 'kv_cache_bit_width': expected 0, 4 or 8; got 5");
  EXPECT_EQ(refusal_with(make_int("sliding_window_cache", 1)),
            "2: attribute 'sliding_window_cache': a rolling cache is not built; expected 0; got "
            "1");
}

}  // namespace
}  // namespace attn::ops_test
