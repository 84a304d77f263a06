// The matrix of VarlenAttention and PackedVarlenAttention as a test: fixed seeds, and seeds that
// change with the day.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "matrix/run.h"
#include "matrix/varlen_case.h"

namespace attn::matrix {
namespace {

// The build divides the number of problems where the code runs slowly.
constexpr int kBlocks = 12;                                // tests, so that shards share the work
constexpr int64_t kFixedSeeds = 40 / ATTN_MATRIX_DIVISOR;  // a block
constexpr int64_t kRotatingSeeds = 80 / ATTN_MATRIX_DIVISOR;
// Problems that every engine must have accepted in the whole run.
constexpr int64_t kLeastProblems = 500 / ATTN_MATRIX_DIVISOR;

Matrix& matrix() {
  static Matrix instance(varlen_matrix_options());
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

class VarlenMatrix : public testing::TestWithParam<int> {};

void run_seeds(uint64_t first, int64_t count) {
  int failed = 0;
  for (int64_t i = 0; i < count; ++i) {
    const std::string failures = matrix().run(first + static_cast<uint64_t>(i));
    if (failures.empty()) continue;
    ADD_FAILURE() << failures;
    if (++failed == 5) FAIL() << "further seeds of this block were not tried";
  }
}

TEST_P(VarlenMatrix, FixedSeeds) {
  run_seeds(1 + static_cast<uint64_t>(GetParam()) * 1000, kFixedSeeds);
}

TEST_P(VarlenMatrix, RotatingSeeds) {
  run_seeds(rotating_seed() + static_cast<uint64_t>(GetParam()) * 1000, kRotatingSeeds);
}

INSTANTIATE_TEST_SUITE_P(Blocks, VarlenMatrix, testing::Range(0, kBlocks));

}  // namespace
}  // namespace attn::matrix
