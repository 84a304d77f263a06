// The engine matrix of LinearAttention as a test: fixed seeds, and seeds that change with the day.
#include <gtest/gtest.h>

#include "matrix/linear_case.h"
#include "matrix/matrix_seeds.h"

namespace attn::matrix {
namespace {

constexpr int kBlocks = 8;  // tests, so that shards share the work
constexpr MatrixSize kSize = {.fixed_seeds = 36 / ATTN_MATRIX_DIVISOR,
                              .rotating_seeds = 84 / ATTN_MATRIX_DIVISOR,
                              .least_problems = 500 / ATTN_MATRIX_DIVISOR};

MatrixSeeds& seeds() {
  static MatrixSeeds instance(linear_matrix_options(), kSize);
  return instance;
}
const testing::Environment* const kTotals = add_totals(seeds);

class LinearMatrix : public testing::TestWithParam<int> {};

TEST_P(LinearMatrix, FixedSeeds) { seeds().run_fixed(GetParam()); }
TEST_P(LinearMatrix, RotatingSeeds) { seeds().run_rotating(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Blocks, LinearMatrix, testing::Range(0, kBlocks));

}  // namespace
}  // namespace attn::matrix
