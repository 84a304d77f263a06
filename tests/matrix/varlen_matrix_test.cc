// The matrix of VarlenAttention and PackedVarlenAttention as a test: fixed seeds, and seeds that
// change with the day.
#include <gtest/gtest.h>

#include "matrix/matrix_seeds.h"
#include "matrix/varlen_case.h"

namespace attn::matrix {
namespace {

constexpr int kBlocks = 12;  // tests, so that shards share the work
constexpr MatrixSize kSize = {.fixed_seeds = 40 / ATTN_MATRIX_DIVISOR,
                              .rotating_seeds = 80 / ATTN_MATRIX_DIVISOR,
                              .least_problems = 500 / ATTN_MATRIX_DIVISOR};

MatrixSeeds& seeds() {
  static MatrixSeeds instance(varlen_matrix_options(), kSize);
  return instance;
}
const testing::Environment* const kTotals =
    testing::AddGlobalTestEnvironment(new MatrixTotals({seeds}));

class VarlenMatrix : public testing::TestWithParam<int> {};

TEST_P(VarlenMatrix, FixedSeeds) { seeds().run_fixed(GetParam()); }
TEST_P(VarlenMatrix, RotatingSeeds) { seeds().run_rotating(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Blocks, VarlenMatrix, testing::Range(0, kBlocks));

}  // namespace
}  // namespace attn::matrix
