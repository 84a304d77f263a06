// The engine matrix as a test: fixed seeds, and seeds that change with the day.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "matrix/gqa_draw.h"

namespace attn::matrix {
namespace {

// The build divides the number of problems where the code runs slowly.
constexpr int kBlocks = 24;                                // tests, so that shards share the work
constexpr int64_t kFixedSeeds = 70 / ATTN_MATRIX_DIVISOR;  // a block
constexpr int64_t kRotatingSeeds = 130 / ATTN_MATRIX_DIVISOR;
// Problems that every engine must have accepted in the whole run. One that takes few query rows
// accepts about half of what is drawn.
constexpr int64_t kLeastProblems = 2000 / ATTN_MATRIX_DIVISOR;

Matrix& matrix() {
  static Matrix instance(gqa_matrix_options());
  return instance;
}

int64_t shards() {
  const char* text = std::getenv("GTEST_TOTAL_SHARDS");
  return text ? std::strtoll(text, nullptr, 10) : 1;
}

class Totals : public testing::Environment {
 public:
  void SetUp() override {
    report_crashes();
    std::cout << "rotating seeds begin at " << rotating_seed()
              << " (set ATTN_C_TEST_SEED to repeat them)\n";
  }
  void TearDown() override {
    matrix().print_counts(std::cout);
    if (testing::GTEST_FLAG(filter) != "*") return;
    for (const auto& [engine, count] : matrix().counts()) {
      EXPECT_GE(count.problems, kLeastProblems / shards())
          << engine << " accepted too few of the " << matrix().drawn() << " problems drawn";
    }
  }
};
const testing::Environment* const kTotals = testing::AddGlobalTestEnvironment(new Totals);

class GqaMatrix : public testing::TestWithParam<int> {};

void run_seeds(uint64_t first, int64_t count) {
  int failed = 0;
  for (int64_t i = 0; i < count; ++i) {
    const std::string failures = matrix().run(first + static_cast<uint64_t>(i));
    if (failures.empty()) continue;
    ADD_FAILURE() << failures;
    if (++failed == 5) FAIL() << "further seeds of this block were not tried";
  }
}

TEST_P(GqaMatrix, FixedSeeds) {
  run_seeds(1 + static_cast<uint64_t>(GetParam()) * 1000, kFixedSeeds);
}

TEST_P(GqaMatrix, RotatingSeeds) {
  run_seeds(rotating_seed() + static_cast<uint64_t>(GetParam()) * 1000, kRotatingSeeds);
}

// Seeds that once failed.
TEST(GqaMatrixKnown, SeedsThatFailed) {
  // Scores of 40 and more from two channels: the rounding of a score is 2e-6 of its weight.
  run_seeds(71831, 1);
  // A row of three keys, of which a mask hides one and the others have a mask of -10000.
  run_seeds(21002099, 1);
}

INSTANTIATE_TEST_SUITE_P(Blocks, GqaMatrix, testing::Range(0, kBlocks));

}  // namespace
}  // namespace attn::matrix
