// RotaryEmbedding: attributes, every refusal with its words, the problem of each form, open sizes.
#include <gtest/gtest.h>

#include <functional>

#include "ops/rotary_embedding.h"
#include "ops_gqa_call.h"

namespace attn::ops_test {
namespace {

using namespace rotary;

// 2 batch rows, 3 heads, 5 rows, head size 8; positions in tables of 16 rows.
struct Call {
  std::vector<Attribute> attributes;
  Arguments arguments;
  LowerMode mode = LowerMode::kPlan;

  Call() {
    in(kX) = make_tensor(kFloat32, {2, 3, 5, 8});
    in(kCosCache) = make_tensor(kFloat32, {16, 4});
    in(kSinCache) = make_tensor(kFloat32, {16, 4});
    in(kPositionIds) = make_tensor(kInt64, {2, 5});
    y() = make_tensor(kFloat32, {2, 3, 5, 8});
  }
  Tensor& in(Input slot) { return arguments.in[slot]; }
  Tensor& y() { return arguments.out[kY]; }
  std::unique_ptr<Operator> create() const {
    return create_rotary_embedding(Attributes(kRotaryEmbeddingSchema, attributes), 23);
  }
  Lowering lower() const {
    Lowering lowering;
    create()->lower(arguments, mode, lowering);
    return lowering;
  }
  void together() {  // (B, S, H*D)
    attributes = {make_int("num_heads", 3)};
    in(kX) = make_tensor(kFloat32, {2, 5, 24});
    y() = make_tensor(kFloat32, {2, 5, 24});
  }
  void own_tables() {  // without positions
    in(kPositionIds) = {};
    in(kCosCache) = make_tensor(kFloat32, {2, 5, 4});
    in(kSinCache) = make_tensor(kFloat32, {2, 5, 4});
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

TEST(RotaryEmbedding, Accepted) {
  check({{"plain", [](Call&) {}, ""},
         {"rank 3", [](Call& c) { c.together(); }, ""},
         {"own tables", [](Call& c) { c.own_tables(); }, ""},
         {"no batch rows",
          [](Call& c) {
            c.in(kX) = c.y() = make_tensor(kFloat32, {0, 3, 5, 8});
            c.in(kPositionIds) = make_tensor(kInt64, {0, 5});
          },
          ""}});
}

TEST(RotaryEmbedding, Attributes) {
  check({{"odd width", [](Call& c) { c.attributes = {make_int("rotary_embedding_dim", 3)}; },
          "1: attribute 'rotary_embedding_dim': expected 0 (all channels) or an even number up to "
          "the head size; got 3"},
         {"negative width", [](Call& c) { c.attributes = {make_int("rotary_embedding_dim", -2)}; },
          "1: attribute 'rotary_embedding_dim': expected 0 (all channels) or an even number up to "
          "the head size; got -2"},
         {"negative heads", [](Call& c) { c.attributes = {make_int("num_heads", -1)}; },
          "1: attribute 'num_heads': expected 0 (not stated) to 2147483647; got -1"}});
}

TEST(RotaryEmbedding, X) {
  check({{"missing", [](Call& c) { c.in(kX) = {}; },
          "1: X: expected a tensor of shape (B, H, S, D) or (B, S, H*D); got none (it is "
          "required)"},
         {"type", [](Call& c) { c.in(kX).type = kFloat64; },
          "1: X: expected float32, float16 or bfloat16; got float64"},
         {"rank 3 without heads", [](Call& c) { c.in(kX) = make_tensor(kFloat32, {2, 5, 24}); },
          "1: X: expected rank 4, or rank 3 with the attribute num_heads; got float32 (2, 5, 24) "
          "without num_heads"},
         {"rank 2", [](Call& c) { c.in(kX) = make_tensor(kFloat32, {2, 24}); },
          "1: X: expected shape (B, H, S, D) or (B, S, H*D); got float32 (2, 24)"},
         {"other heads", [](Call& c) { c.attributes = {make_int("num_heads", 4)}; },
          "1: X: expected 4 heads, as num_heads says; got float32 (2, 3, 5, 8)"},
         {"no multiple",
          [](Call& c) {
            c.together();
            c.in(kX) = make_tensor(kFloat32, {2, 5, 25});
          },
          "1: X: expected a last dimension that is a multiple of num_heads 3; got float32 (2, 5, "
          "25)"},
         {"odd head size", [](Call& c) { c.in(kX) = make_tensor(kFloat32, {2, 3, 5, 7}); },
          "1: X: expected an even head size; got 7, of float32 (2, 3, 5, 7)"},
         {"head size 0", [](Call& c) { c.in(kX) = make_tensor(kFloat32, {2, 3, 5, 0}); },
          "1: X: expected a head size of at least 1; got float32 (2, 3, 5, 0)"},
         {"no heads", [](Call& c) { c.in(kX) = make_tensor(kFloat32, {2, 0, 5, 8}); },
          "1: X: expected a head count of at least 1; got float32 (2, 0, 5, 8)"},
         {"narrow", [](Call& c) { c.attributes = {make_int("rotary_embedding_dim", 10)}; },
          "1: X: expected a head size of at least rotary_embedding_dim 10; got 8"}});
}

TEST(RotaryEmbedding, TablesAndPositions) {
  check({{"table type", [](Call& c) { c.in(kCosCache).type = kFloat16; },
          "1: cos_cache: expected float32, the type of X; got float16"},
         {"sin type", [](Call& c) { c.in(kSinCache).type = kBfloat16; },
          "1: sin_cache: expected float32, the type of X; got bfloat16"},
         {"width", [](Call& c) { c.attributes = {make_int("rotary_embedding_dim", 4)}; },
          "1: cos_cache: expected shape (positions, width/2) = (?, 2); got (16, 4)"},
         {"sin rows", [](Call& c) { c.in(kSinCache) = make_tensor(kFloat32, {15, 4}); },
          "1: sin_cache: expected shape (positions, width/2), that of cos_cache = (16, 4); got "
          "(15, 4)"},
         {"positions with own tables",
          [](Call& c) { c.in(kCosCache) = make_tensor(kFloat32, {2, 5, 4}); },
          "1: cos_cache: expected shape (positions, width/2), as position_ids are bound; got "
          "float32 (2, 5, 4)"},
         {"a common table without positions", [](Call& c) { c.in(kPositionIds) = {}; },
          "1: cos_cache: expected shape (B, S, width/2), as there are no position_ids; got "
          "float32 (16, 4)"},
         {"own tables of other rows",
          [](Call& c) {
            c.own_tables();
            c.in(kSinCache) = make_tensor(kFloat32, {2, 4, 4});
          },
          "1: sin_cache: expected shape (B, S, width/2) = (2, 5, 4); got (2, 4, 4)"},
         {"position shape", [](Call& c) { c.in(kPositionIds) = make_tensor(kInt64, {2, 4}); },
          "1: position_ids: expected shape (B, S) = (2, 5); got (2, 4)"},
         {"position type", [](Call& c) { c.in(kPositionIds).type = kInt32; },
          "1: position_ids: expected int64; got int32"}});
}

TEST(RotaryEmbedding, Y) {
  check(
      {{"missing", [](Call& c) { c.y() = {}; },
        "1: Y: expected a tensor of shape (B, H, S, D) or (B, S, H*D); got none (it is required)"},
       {"type", [](Call& c) { c.y().type = kFloat16; },
        "1: Y: expected float32, the type of X; got float16"},
       {"shape", [](Call& c) { c.y() = make_tensor(kFloat32, {2, 3, 5, 6}); },
        "1: Y: expected the shape of X, (2, 3, 5, 8); got (2, 3, 5, 6)"},
       {"strides in place",
        [](Call& c) {
          c.arguments.alias[kY] = 1u << kX;
          c.y().strides[1] = 80;
        },
        "1: Y: expected the strides of X, (120, 40, 8, 1), as both share memory; got (120, 80, "
        "8, 1)"}});
}

TEST(RotaryEmbedding, LowersRank4) {
  Call call;
  call.attributes = {make_int("interleaved", 1)};
  const Lowering lowering = call.lower();
  EXPECT_EQ(lowering.batch, 2);
  EXPECT_EQ(lowering.lengths.query_rows, 5);
  EXPECT_FALSE(lowering.attention || lowering.kv_update || lowering.scatter);
  const RotaryProblem& problem = *lowering.rotary;
  EXPECT_EQ(problem.rows, 5);
  EXPECT_EQ(problem.spec.heads, 3);
  EXPECT_EQ(problem.spec.head_size, 8);
  EXPECT_EQ(problem.spec.transform.width, 8);
  EXPECT_TRUE(problem.spec.transform.interleaved);
  EXPECT_TRUE(problem.spec.transform.explicit_positions);
  EXPECT_TRUE(problem.spec.unit_channel);
  EXPECT_FALSE(problem.spec.in_place);
  EXPECT_EQ(problem.input.head, 40);
  EXPECT_EQ(problem.input.row, 8);
  EXPECT_EQ(problem.transform.table_rows, 16);
  EXPECT_EQ(problem.transform.position_batch, 5);
  EXPECT_EQ(problem.cos_batch, 0);
}

TEST(RotaryEmbedding, LowersRank3WithOwnTables) {
  Call call;
  call.together();
  call.own_tables();
  call.arguments.alias[kY] = 1u << kX;
  const Lowering lowering = call.lower();
  const RotaryProblem& problem = *lowering.rotary;
  EXPECT_EQ(problem.input.head, 8);
  EXPECT_EQ(problem.input.row, 24);
  EXPECT_EQ(problem.transform.table_rows, 5);
  EXPECT_EQ(problem.cos_batch, 20);
  EXPECT_EQ(problem.transform.cos_row, 4);
  EXPECT_TRUE(problem.spec.in_place);
  EXPECT_FALSE(problem.spec.transform.explicit_positions);
}

TEST(RotaryEmbedding, OpenSizes) {
  Call call;
  call.mode = LowerMode::kQuery;
  call.in(kX).shape[0] = call.in(kX).shape[2] = kAnyDim;
  call.y() = {};
  EXPECT_EQ(call.lower().batch, 2);  // positions know it
  call.in(kPositionIds).shape[0] = call.in(kPositionIds).shape[1] = kAnyDim;
  const Lowering lowering = call.lower();
  EXPECT_EQ(lowering.batch, kAnyDim);
  EXPECT_EQ(lowering.rotary->rows, kAnyDim);
  EXPECT_EQ(lowering.rotary->spec, Call().lower().rotary->spec);
}

// An unknown size leaves the strides before it unknown.
TEST(RotaryEmbedding, OpenSizesInPlace) {
  Call call;
  call.mode = LowerMode::kQuery;
  call.arguments.alias[kY] |= 1u << kX;
  for (size_t axis = 0; axis < 4; ++axis) {
    call.in(kX) = make_tensor(kFloat32, {2, 3, 5, 8});
    call.in(kX).shape[axis] = kAnyDim;
    for (size_t i = 0; i < axis; ++i) call.in(kX).strides[i] = 0;
    EXPECT_EQ(refusal([&] { call.lower(); }), "") << axis;
  }
}

TEST(RotaryEmbedding, InfersY) {
  const Call call;
  Tensor y;
  EXPECT_FALSE(call.create()->infer(call.arguments, kY, y));
  EXPECT_EQ(y.type, kFloat32);
  EXPECT_EQ(shape_text(y), "(2, 3, 5, 8)");
}

}  // namespace
}  // namespace attn::ops_test
