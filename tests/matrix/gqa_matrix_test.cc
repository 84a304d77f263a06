// The engine matrix as a test: fixed seeds, and seeds that change with the day.
#include <gtest/gtest.h>

#include "matrix/gqa_draw.h"
#include "matrix/matrix_seeds.h"

namespace attn::matrix {
namespace {

constexpr int kBlocks = 24;  // tests, so that shards share the work
// An engine that takes few query rows accepts about half of what is drawn.
constexpr MatrixSize kSize = {.fixed_seeds = 70 / ATTN_MATRIX_DIVISOR,
                              .rotating_seeds = 130 / ATTN_MATRIX_DIVISOR,
                              .least_problems = 2000 / ATTN_MATRIX_DIVISOR};

MatrixSeeds& seeds() {
  static MatrixSeeds instance(gqa_matrix_options(), kSize);
  return instance;
}
const testing::Environment* const kTotals = add_totals(seeds);

class GqaMatrix : public testing::TestWithParam<int> {};

TEST_P(GqaMatrix, FixedSeeds) { seeds().run_fixed(GetParam()); }
TEST_P(GqaMatrix, RotatingSeeds) { seeds().run_rotating(GetParam()); }

// Seeds that once failed.
TEST(GqaMatrixKnown, SeedsThatFailed) {
  // Scores of 40 and more from two channels: the rounding of a score is 2e-6 of its weight.
  seeds().run(71831, 1);
  // A row of three keys, of which a mask hides one and the others have a mask of -10000.
  seeds().run(21002099, 1);
  // A sink that draws most of the weight: the log-sum-exp is of the keys alone.
  seeds().run(20788019007, 1);
  // float16 scores of one large channel: products of the lower pieces were felt.
  seeds().run(7260, 1);
}

INSTANTIATE_TEST_SUITE_P(Blocks, GqaMatrix, testing::Range(0, kBlocks));

}  // namespace
}  // namespace attn::matrix
