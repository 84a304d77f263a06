// The front end of LinearAttention: every refusal with its words, what a call becomes, open sizes.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "ops/linear_attention.h"
#include "ops_gqa_call.h"

namespace attn::ops_test {
namespace {

using namespace linear;

constexpr int64_t kB = 2, kT = 3, kHq = 4, kHkv = 2, kDk = 8, kDv = 6;

// A gated_delta call with grouped heads, a past and a present. It starts as com.microsoft's.
struct LinearCall {
  std::vector<Attribute> attributes = {make_int("q_num_heads", kHq),
                                       make_int("kv_num_heads", kHkv)};
  Arguments arguments;
  LowerMode mode = LowerMode::kPlan;
  bool standard = false;

  explicit LinearCall(DType type = kFloat32) {
    in(linear::kQuery) = make_tensor(type, {kB, kT, kHq * kDk});
    in(linear::kKey) = make_tensor(type, {kB, kT, kHkv * kDk});
    in(linear::kValue) = make_tensor(type, {kB, kT, kHkv * kDv});
    in(kPastState) = make_tensor(type, {kB, kHkv, kDk, kDv});
    in(kDecay) = make_tensor(type, {kB, kT, kHkv});
    in(kBeta) = make_tensor(type, {kB, kT, kHkv});
    out(linear::kOutput) = make_tensor(type, {kB, kT, kHq * kDv});
    out(kPresentState) = make_tensor(type, {kB, kHkv, kDk, kDv});
  }
  Tensor& in(int position) { return arguments.in[static_cast<size_t>(position)]; }
  Tensor& out(int position) { return arguments.out[static_cast<size_t>(position)]; }
  void set(Attribute attribute) { attributes.push_back(std::move(attribute)); }
  void set(const char* name, int64_t value) { set(make_int(name, value)); }
  void rule(const char* name) { set(make_string("update_rule", name)); }
  void heads(int64_t query, int64_t value) {
    attributes[0].i = query;
    attributes[1].i = value;
  }
  void fold_decay(std::initializer_list<int64_t> shape = {kHkv}) {
    set("cuda_fuse_decay_softplus", 1);
    in(kDtBias) = in(kDecayScale) = make_tensor(in(linear::kQuery).type, shape);
  }
  const OperatorSchema& schema() const {
    return standard ? kStandardLinearAttentionSchema : kLinearAttentionSchema;
  }
  std::unique_ptr<Operator> create() const {
    const Attributes checked(schema(), attributes);
    return standard ? create_standard_linear_attention(checked, 27)
                    : create_linear_attention(checked, 1);
  }
  LinearAttentionProblem lower() const {
    Lowering lowering;
    create()->lower(arguments, mode, lowering);
    return *lowering.linear_attention;
  }
  Tensor infer(int position) const {
    Tensor tensor;
    EXPECT_FALSE(create()->infer(arguments, position, tensor));
    return tensor;
  }
};

struct Case {
  const char* name;
  std::function<void(LinearCall&)> change;
  std::string message;  // empty: accepted
};

void check(std::initializer_list<Case> cases, bool standard = false) {
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name);
    LinearCall call;
    call.standard = standard;
    test.change(call);
    EXPECT_EQ(refusal([&] { call.lower(); }), test.message);
  }
}

TEST(LinearRefusals, Attributes) {
  check({{"plain", [](LinearCall&) {}, ""},
         {"no heads", [](LinearCall& c) { c.heads(0, 2); },
          "1: attribute 'q_num_heads': expected 1 to 2147483647; got 0"},
         {"heads", [](LinearCall& c) { c.heads(3, 2); },
          "1: attribute 'q_num_heads': expected a multiple or a divisor of kv_num_heads 2; got 3"},
         {"rule", [](LinearCall& c) { c.rule("rwkv"); },
          "1: attribute 'update_rule': expected linear, gated, delta or gated_delta; got 'rwkv'"},
         {"scale", [](LinearCall& c) { c.set(make_float("scale", 1e-60)); },
          "1: attribute 'scale': expected 0 or a number that float32 can hold; got 1e-60"},
         {"window", [](LinearCall& c) { c.set("state_window", 9); },
          "1: attribute 'state_window': expected 0 to 8; got 9"},
         {"window not built", [](LinearCall& c) { c.set("state_window", 2); },
          "2: attribute 'state_window': states of earlier tokens are not built; expected 0; got "
          "2"},
         {"chunk size", [](LinearCall& c) { c.set("chunk_size", -3); }, ""}});
  check({{"plain", [](LinearCall&) {}, ""},
         {"inverse groups", [](LinearCall& c) { c.heads(2, 4); },
          "1: attribute 'q_num_heads': expected a multiple of kv_num_heads 4; got 2"}},
        true);
}

TEST(LinearRefusals, Presence) {
  check({{"query", [](LinearCall& c) { c.in(linear::kQuery) = {}; },
          "1: query: expected a tensor of shape (B, T, Hq*dk); got none (it is required)"},
         {"output", [](LinearCall& c) { c.out(linear::kOutput) = {}; },
          "1: output: expected a tensor of shape (B, T, max(Hq, Hkv)*dv); got none (it is "
          "required)"},
         {"decay", [](LinearCall& c) { c.in(kDecay) = {}; },
          "1: decay: expected a tensor of shape (B, T, Hkv) or (B, T, Hkv*dk), since update_rule "
          "is gated_delta; got none"},
         {"beta",
          [](LinearCall& c) {
            c.rule("delta");
            c.in(kBeta) = {};
          },
          "1: beta: expected a tensor of shape (B, T, Hkv) or (B, T, 1), since update_rule is "
          "delta; got none"},
         {"dt_bias", [](LinearCall& c) { c.set("cuda_fuse_decay_softplus", 1); },
          "1: dt_bias: expected a tensor of shape (Hkv) or (Hkv*dk), since "
          "cuda_fuse_decay_softplus is set; got none"},
         {"unused gates",
          [](LinearCall& c) {
            c.rule("linear");
            c.in(kDecay) = make_tensor(kInt32, {7});
          },
          ""},
         {"no states",
          [](LinearCall& c) {
            c.in(kPastState) = {};
            c.out(kPresentState) = {};
          },
          ""}});
  check({{"unused decay", [](LinearCall& c) { c.rule("delta"); },
          "1: decay: expected none, since update_rule delta has no decay; got float32 (2, 3, 2)"},
         {"unused beta", [](LinearCall& c) { c.rule("gated"); },
          "1: beta: expected none, since update_rule gated has no beta; got float32 (2, 3, 2)"},
         {"unused bias", [](LinearCall& c) { c.in(kDtBias) = make_tensor(kFloat32, {kHkv}); },
          "1: dt_bias: expected none, since update_rule gated_delta folds no gate that needs "
          "dt_bias; got float32 (2)"}},
        true);
}

TEST(LinearRefusals, Types) {
  check({{"query", [](LinearCall& c) { c.in(linear::kQuery).type = kFloat64; },
          "1: query: expected float32, float16 or bfloat16; got float64"},
         {"key", [](LinearCall& c) { c.in(linear::kKey).type = kFloat16; },
          "1: key: expected float32, the type of query; got float16"},
         {"decay", [](LinearCall& c) { c.in(kDecay).type = kFloat16; },
          "1: decay: expected float32, the type of query; got float16"},
         {"past", [](LinearCall& c) { c.in(kPastState).type = kFloat16; },
          "1: past_state: expected float32, the type of query; got float16"},
         {"present", [](LinearCall& c) { c.out(kPresentState).type = kFloat16; },
          "1: present_state: expected float32, the type of past_state; got float16"}});
  check({{"any state",
          [](LinearCall& c) { c.in(kPastState).type = c.out(kPresentState).type = kFloat16; }, ""},
         {"double state", [](LinearCall& c) { c.in(kPastState).type = kFloat64; },
          "1: past_state: expected float32, float16 or bfloat16; got float64"}},
        true);
  LinearCall narrow(kFloat16);
  narrow.in(kPastState).type = narrow.out(kPresentState).type = kFloat32;
  EXPECT_EQ(narrow.lower().spec.state_type, kFloat32);
  narrow.in(kPastState).type = kBfloat16;
  EXPECT_EQ(refusal([&] { narrow.lower(); }),
            "1: past_state: expected float16, the type of query, or float32; got bfloat16");
}

TEST(LinearRefusals, Shapes) {
  check(
      {{"rank", [](LinearCall& c) { c.in(linear::kQuery) = make_tensor(kFloat32, {kT, 32}); },
        "1: query: expected shape (B, T, heads * head size); got (3, 32)"},
       {"width", [](LinearCall& c) { c.in(linear::kQuery).shape[2] = 30; },
        "1: query: expected a last dimension that is a multiple of 4 (q_num_heads); got (2, 3, "
        "30)"},
       {"head size 0", [](LinearCall& c) { c.in(linear::kQuery).shape[2] = 0; },
        "1: query: expected a head size of at least 1; got (2, 3, 0), which is a head size of 0"},
       {"key heads", [](LinearCall& c) { c.in(linear::kKey).shape[2] = 3 * kDk; },
        "1: key: expected a last dimension of Hk*dk with dk = 8 (of query) and Hk a divisor of "
        "kv_num_heads 2; got (2, 3, 24)"},
       {"one key head", [](LinearCall& c) { c.in(linear::kKey).shape[2] = kDk; }, ""},
       {"value tokens", [](LinearCall& c) { c.in(linear::kValue).shape[1] = 4; },
        "1: value: expected shape (B, T, Hkv*dv) = (2, 3, 12); got (2, 4, 12)"},
       {"past", [](LinearCall& c) { c.in(kPastState).shape[2] = 7; },
        "1: past_state: expected shape (B, Hkv, dk, dv) = (2, 2, 8, 6); got (2, 2, 7, 6)"},
       {"decay", [](LinearCall& c) { c.in(kDecay).shape[2] = 5; },
        "1: decay: expected shape (B, T, Hkv) or (B, T, Hkv*dk) with (B, T) = (2, 3), Hkv = 2 and "
        "dk = 8; got (2, 3, 5)"},
       {"beta", [](LinearCall& c) { c.in(kBeta).shape[2] = 4; },
        "1: beta: expected shape (B, T, Hkv) or (B, T, 1) with (B, T, Hkv) = (2, 3, 2); got (2, 3, "
        "4)"},
       {"shared beta", [](LinearCall& c) { c.in(kBeta).shape[2] = 1; }, ""},
       {"bias", [](LinearCall& c) { c.fold_decay({3}); },
        "1: dt_bias: expected 2 elements, Hkv as decay has a token, of any rank; got float32 (3)"},
       {"output", [](LinearCall& c) { c.out(linear::kOutput).shape[2] = 12; },
        "1: output: expected shape (B, T, max(Hq, Hkv)*dv) = (2, 3, 24); got (2, 3, 12)"},
       {"present", [](LinearCall& c) { c.out(kPresentState).shape[3] = 8; },
        "1: present_state: expected shape (B, Hkv, dk, dv) = (2, 2, 8, 6); got (2, 2, 8, 8)"}});
  check({{"one key head", [](LinearCall& c) { c.in(linear::kKey).shape[2] = kDk; },
          "1: key: expected shape (B, T, Hkv*dk) = (2, 3, 16); got (2, 3, 8)"}},
        true);
}

TEST(LinearRefusals, StatesThatShareMemory) {
  LinearCall call;
  call.arguments.alias[kPresentState] |= 1u << kPastState;
  EXPECT_EQ(refusal([&] { call.lower(); }), "");
  call.out(kPresentState).strides[2] = 7;
  EXPECT_EQ(refusal([&] { call.lower(); }),
            "1: present_state: it shares the memory of past_state, which needs equal strides; got "
            "strides (96, 48, 7, 1) over (96, 48, 6, 1)");
}

TEST(LinearLower, ARuleBecomesASpec) {
  LinearCall call(kFloat16);
  const LinearAttentionProblem problem = call.lower();
  EXPECT_EQ(problem.spec.type, kFloat16);
  EXPECT_EQ(problem.spec.state_type, kFloat16);
  EXPECT_EQ(problem.spec.q_heads, kHq);
  EXPECT_EQ(problem.spec.key_heads, kHkv);
  EXPECT_EQ(problem.spec.kv_heads, kHkv);
  EXPECT_EQ(problem.spec.head_size, kDk);
  EXPECT_EQ(problem.spec.v_head_size, kDv);
  EXPECT_EQ(problem.spec.scale, 1 / std::sqrt(8.0));
  EXPECT_TRUE(problem.spec.delta && problem.spec.has_past && problem.spec.has_present);
  EXPECT_EQ(problem.spec.decay, DecayForm::kPerHead);
  EXPECT_EQ(problem.batch, kB);
  EXPECT_EQ(problem.tokens, kT);
  EXPECT_EQ(problem.beta.head, 1);
  EXPECT_EQ(problem.past.row, kDv);
  EXPECT_EQ(outputs_of_state(problem.spec), 2);

  LinearCall plain;
  plain.rule("linear");
  EXPECT_FALSE(plain.lower().spec.delta);
  EXPECT_EQ(plain.lower().spec.decay, DecayForm::kNone);
}

TEST(LinearLower, HeadCounts) {
  LinearCall inverse;  // 2 query heads, 4 states, 1 key head
  inverse.heads(2, 4);
  inverse.in(linear::kQuery) = make_tensor(kFloat32, {kB, kT, 2 * kDk});
  inverse.in(linear::kKey) = make_tensor(kFloat32, {kB, kT, kDk});
  inverse.in(linear::kValue) = make_tensor(kFloat32, {kB, kT, 4 * kDv});
  inverse.in(kDecay) = make_tensor(kFloat32, {kB, kT, 4 * kDk});
  inverse.in(kBeta) = make_tensor(kFloat32, {kB, kT, 1});
  inverse.in(kPastState) = inverse.out(kPresentState) = make_tensor(kFloat32, {kB, 4, kDk, kDv});
  inverse.out(linear::kOutput) = make_tensor(kFloat32, {kB, kT, 4 * kDv});
  const LinearAttentionProblem problem = inverse.lower();
  EXPECT_EQ(problem.spec.key_heads, 1);
  EXPECT_EQ(problem.spec.decay, DecayForm::kPerKey);
  EXPECT_EQ(problem.beta.head, 0);
  EXPECT_EQ(outputs_of_state(problem.spec), 1);
  EXPECT_EQ(query_head_of_output(problem.spec, 3), 1);
  EXPECT_EQ(query_head_of_output(problem.spec, 1), 0);
  EXPECT_EQ(key_head_of_state(problem.spec, 3), 0);
}

TEST(LinearLower, FoldsCountOnlyWhereTheRuleHasTheGate) {
  LinearCall call;
  call.rule("gated");
  call.set("com.microsoft.cuda_fuse_beta_sigmoid", 1);
  call.set("cuda_fuse_neg_exp", 1);
  LinearAttentionSpec spec = call.lower().spec;
  EXPECT_FALSE(spec.fold_beta || spec.fold_decay || spec.fold_exp);
  call.fold_decay({1, kHkv, 1});
  spec = call.lower().spec;
  EXPECT_TRUE(spec.fold_decay && spec.fold_exp && !spec.fold_beta);

  LinearCall delta;
  delta.set("com.microsoft.cuda_fuse_beta_sigmoid", -4);
  EXPECT_TRUE(delta.lower().spec.fold_beta);
}

TEST(LinearLower, ConstantsOfAnyRankAndStride) {
  LinearCall call;
  call.in(kDecay) = make_tensor(kFloat32, {kB, kT, kHkv * kDk});
  call.fold_decay({kHkv, 1, kDk});
  EXPECT_EQ(call.lower().dt_bias.head, kDk);
  EXPECT_EQ(call.lower().dt_bias.channel, 1);
  call.in(kDtBias).strides[0] = 40;  // rows apart
  EXPECT_EQ(call.lower().dt_bias.head, 40);
  call.in(kDtBias) = make_tensor(kFloat32, {4, 4});
  call.in(kDtBias).strides[0] = 9;
  EXPECT_EQ(refusal([&] { call.lower(); }),
            "2: dt_bias: strides that neither one step nor one step a head and one a channel (8 a "
            "head) go through are not built; got (4, 4) with strides (9, 1)");
}

TEST(LinearQuery, OpenSizes) {
  LinearCall call;
  call.mode = LowerMode::kQuery;
  for (Tensor& tensor : call.arguments.in) {
    for (int32_t i = 0; i < tensor.rank; ++i) tensor.shape[static_cast<size_t>(i)] = kAnyDim;
  }
  call.out(linear::kOutput) = call.out(kPresentState) = {};
  EXPECT_EQ(call.lower().spec.head_size, kAnyDim);
  EXPECT_EQ(call.lower().batch, kAnyDim);
  EXPECT_EQ(shape_text(call.infer(linear::kOutput)), "(?, ?, ?)");
  EXPECT_EQ(shape_text(call.infer(kPresentState)), "(?, 2, ?, ?)");
}

TEST(LinearQuery, Inference) {
  LinearCall call(kBfloat16);
  EXPECT_EQ(shape_text(call.infer(linear::kOutput)), "(2, 3, 24)");
  EXPECT_EQ(call.infer(linear::kOutput).type, kBfloat16);
  EXPECT_EQ(shape_text(call.infer(kPresentState)), "(2, 2, 8, 6)");
  call.in(kPastState).type = kFloat32;
  EXPECT_EQ(call.infer(kPresentState).type, kFloat32);
  call.in(kPastState) = {};
  EXPECT_EQ(call.infer(kPresentState).type, kBfloat16);
}

}  // namespace
}  // namespace attn::ops_test
