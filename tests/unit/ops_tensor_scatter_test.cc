// TensorScatter: attributes, every refusal with its words, axes of the problem, open sizes.
#include <gtest/gtest.h>

#include <functional>

#include "ops/tensor_scatter.h"
#include "ops_gqa_call.h"

namespace attn::ops_test {
namespace {

using namespace scatter;

constexpr DType kInt4{kCodeInt, 4, 1};

// 2 batch rows, 3 heads, a cache of 16 rows, 5 new ones, 8 channels.
struct Call {
  std::vector<Attribute> attributes;
  Arguments arguments;
  LowerMode mode = LowerMode::kPlan;

  Call() {
    in(kPastCache) = present() = make_tensor(kFloat16, {2, 3, 16, 8});
    in(kUpdate) = make_tensor(kFloat16, {2, 3, 5, 8});
    in(kWriteIndices) = make_tensor(kInt64, {2});
  }
  Tensor& in(Input slot) { return arguments.in[slot]; }
  Tensor& present() { return arguments.out[kPresentCache]; }
  std::unique_ptr<Operator> create() const {
    return create_tensor_scatter(Attributes(kTensorScatterSchema, attributes), 24);
  }
  Lowering lower() const {
    Lowering lowering;
    create()->lower(arguments, mode, lowering);
    return lowering;
  }
};

struct Case {
  const char* name;
  std::function<void(Call&)> change;
  std::string message;  // empty: accepted
};

void check(std::initializer_list<Case> cases) {
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name);
    Call call;
    test.change(call);
    EXPECT_EQ(refusal([&] { call.lower(); }), test.message);
  }
}

TEST(TensorScatter, Accepted) {
  check(
      {{"plain", [](Call&) {}, ""},
       {"no indices", [](Call& c) { c.in(kWriteIndices) = {}; }, ""},
       {"no new rows", [](Call& c) { c.in(kUpdate) = make_tensor(kFloat16, {2, 3, 0, 8}); }, ""},
       {"circular", [](Call& c) { c.attributes = {make_string("mode", "circular")}; }, ""},
       {"all types of 8 bits",
        [](Call& c) { c.in(kPastCache).type = c.in(kUpdate).type = c.present().type = {12, 8, 1}; },
        ""}});
}

TEST(TensorScatter, Attributes) {
  check({{"mode", [](Call& c) { c.attributes = {make_string("mode", "ring")}; },
          "1: attribute 'mode': expected linear or circular; got 'ring'"},
         {"batch axis", [](Call& c) { c.attributes = {make_int("axis", 0)}; },
          "1: attribute 'axis': expected 1 to 7 or, from the end, -1 to -7 (0 is the batch axis); "
          "got 0"},
         {"axis beyond any rank", [](Call& c) { c.attributes = {make_int("axis", 8)}; },
          "1: attribute 'axis': expected 1 to 7 or, from the end, -1 to -7 (0 is the batch axis); "
          "got 8"}});
}

TEST(TensorScatter, Inputs) {
  check({{"no cache", [](Call& c) { c.in(kPastCache) = {}; },
          "1: past_cache: expected a tensor of shape (B, ..., L, ...); got none (it is required)"},
         {"no update", [](Call& c) { c.in(kUpdate) = {}; },
          "1: update: expected a tensor of shape (B, ..., N, ...); got none (it is required)"},
         {"axis is the batch", [](Call& c) { c.in(kPastCache) = make_tensor(kFloat16, {2, 16}); },
          "1: past_cache: expected a rank for which axis -2 is an axis behind the batch axis 0; "
          "got float16 (2, 16)"},
         {"update type", [](Call& c) { c.in(kUpdate).type = kBfloat16; },
          "1: update: expected float16, the type of past_cache; got bfloat16"},
         {"update rank", [](Call& c) { c.in(kUpdate) = make_tensor(kFloat16, {2, 5, 8}); },
          "1: update: expected the sizes of past_cache (2, 3, 16, 8) on all axes but 2; got (2, 5, "
          "8)"},
         {"update heads", [](Call& c) { c.in(kUpdate) = make_tensor(kFloat16, {2, 1, 5, 8}); },
          "1: update: expected the sizes of past_cache (2, 3, 16, 8) on all axes but 2; got (2, 1, "
          "5, 8)"},
         {"too many rows", [](Call& c) { c.in(kUpdate) = make_tensor(kFloat16, {2, 3, 17, 8}); },
          "1: update: expected at most the 16 rows of past_cache on axis 2; got 17"},
         {"index shape", [](Call& c) { c.in(kWriteIndices) = make_tensor(kInt64, {2, 1}); },
          "1: write_indices: expected shape (B) = (2); got (2, 1)"},
         {"index type", [](Call& c) { c.in(kWriteIndices).type = kInt32; },
          "1: write_indices: expected int64; got int32"}});
  Call small;
  small.in(kPastCache).type = small.in(kUpdate).type = kInt4;
  EXPECT_NE(refusal([&] { small.lower(); }).find("got int4, whose elements share bytes"),
            std::string::npos);
}

TEST(TensorScatter, Present) {
  check({{"missing", [](Call& c) { c.present() = {}; },
          "1: present_cache: expected a tensor of shape (B, ..., L, ...); got none (it is "
          "required)"},
         {"type", [](Call& c) { c.present().type = kFloat32; },
          "1: present_cache: expected float16, the type of past_cache; got float32"},
         {"shape", [](Call& c) { c.present() = make_tensor(kFloat16, {2, 3, 17, 8}); },
          "1: present_cache: expected the shape of past_cache, (2, 3, 16, 8); got (2, 3, 17, 8)"},
         {"strides in place",
          [](Call& c) {
            c.arguments.alias[kPresentCache] = 1u << kPastCache;
            c.present().strides[2] = 16;
          },
          "1: present_cache: expected the strides of past_cache, (384, 128, 8, 1), as both share "
          "memory; got (384, 128, 16, 1)"}});
}

TEST(TensorScatter, HeadsAndChannelsStayApart) {
  const ScatterProblem problem = *Call().lower().scatter;
  EXPECT_EQ(problem.cache_rows, 16);
  EXPECT_EQ(problem.new_rows, 5);
  ASSERT_EQ(problem.axes, 2);
  EXPECT_EQ(problem.sizes[0], 3);
  EXPECT_EQ(problem.sizes[1], 8);
  EXPECT_EQ(problem.past.axes[0], 128);
  EXPECT_EQ(problem.update.axes[0], 40);
  EXPECT_EQ(problem.past.row, 8);
  EXPECT_TRUE(problem.spec.unit_inner);
  EXPECT_TRUE(problem.spec.indexed);
}

TEST(TensorScatter, AxesBehindTheRowsJoin) {
  Call call;
  call.attributes = {make_int("axis", 1)};
  call.in(kUpdate) = make_tensor(kFloat16, {2, 2, 16, 8});
  const ScatterProblem problem = *call.lower().scatter;
  ASSERT_EQ(problem.axes, 1);
  EXPECT_EQ(problem.sizes[0], 128);
  EXPECT_EQ(problem.cache_rows, 3);
  EXPECT_EQ(problem.past.row, 128);
}

TEST(TensorScatter, RowsMayBeInnermost) {
  Call call;
  call.attributes = {make_int("axis", -1)};
  call.in(kUpdate) = make_tensor(kFloat16, {2, 3, 16, 2});
  const ScatterProblem problem = *call.lower().scatter;
  EXPECT_EQ(problem.past.row, 1);
  EXPECT_EQ(problem.cache_rows, 8);
  EXPECT_FALSE(problem.spec.unit_inner);
  // A cache of rows alone still has an innermost axis, of one element.
  call.attributes = {};
  call.in(kPastCache) = call.present() = make_tensor(kFloat16, {2, 16, 1});
  call.in(kUpdate) = make_tensor(kFloat16, {2, 5, 1});
  const ScatterProblem rows = *call.lower().scatter;
  EXPECT_EQ(rows.axes, 1);
  EXPECT_EQ(rows.sizes[0], 1);
  EXPECT_TRUE(rows.spec.unit_inner);
}

TEST(TensorScatter, OpenSizes) {
  Call call;
  call.mode = LowerMode::kQuery;
  call.present() = {};
  call.in(kPastCache).shape[0] = call.in(kPastCache).shape[2] = kAnyDim;
  call.in(kUpdate).shape[0] = call.in(kUpdate).shape[2] = kAnyDim;
  call.in(kWriteIndices).shape[0] = kAnyDim;
  const Lowering lowering = call.lower();
  EXPECT_EQ(lowering.batch, kAnyDim);
  EXPECT_EQ(lowering.scatter->cache_rows, kAnyDim);
  EXPECT_EQ(lowering.scatter->spec, Call().lower().scatter->spec);
}

TEST(TensorScatter, InfersPresent) {
  const Call call;
  Tensor present;
  EXPECT_FALSE(call.create()->infer(call.arguments, kPresentCache, present));
  EXPECT_EQ(present.type, kFloat16);
  EXPECT_EQ(shape_text(present), "(2, 3, 16, 8)");
}

}  // namespace
}  // namespace attn::ops_test
