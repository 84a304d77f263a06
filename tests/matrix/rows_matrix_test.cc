// The engine matrix of RotaryEmbedding and TensorScatter as a test: fixed seeds, and seeds that
// change with the day.
#include <gtest/gtest.h>

#include "matrix/matrix_seeds.h"
#include "matrix/rotary_case.h"
#include "matrix/scatter_case.h"

namespace attn::matrix {
namespace {

constexpr int kBlocks = 6;  // tests of each kind
// The SIMD engines refuse odd strides, which about half of the problems have.
constexpr MatrixSize kSize = {.fixed_seeds = 60 / ATTN_MATRIX_DIVISOR,
                              .rotating_seeds = 140 / ATTN_MATRIX_DIVISOR,
                              .least_problems = 500 / ATTN_MATRIX_DIVISOR};

MatrixSeeds& rotary() {
  static MatrixSeeds instance(rotary_matrix_options(), kSize);
  return instance;
}
MatrixSeeds& scatter() {
  static MatrixSeeds instance(scatter_matrix_options(), kSize);
  return instance;
}
const testing::Environment* const kTotals = add_totals(rotary, scatter);

class RowsMatrix : public testing::TestWithParam<int> {};

TEST_P(RowsMatrix, RotaryFixedSeeds) { rotary().run_fixed(GetParam()); }
TEST_P(RowsMatrix, RotaryRotatingSeeds) { rotary().run_rotating(GetParam()); }
TEST_P(RowsMatrix, ScatterFixedSeeds) { scatter().run_fixed(GetParam()); }
TEST_P(RowsMatrix, ScatterRotatingSeeds) { scatter().run_rotating(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Blocks, RowsMatrix, testing::Range(0, kBlocks));

}  // namespace
}  // namespace attn::matrix
