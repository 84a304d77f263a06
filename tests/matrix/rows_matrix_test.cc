// The engine matrix of RotaryEmbedding and TensorScatter as a test: fixed seeds, and seeds that
// change with the day.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "matrix/rotary_case.h"
#include "matrix/scatter_case.h"

namespace attn::matrix {
namespace {

constexpr int kBlocks = 6;                                 // tests of each kind
constexpr int64_t kFixedSeeds = 60 / ATTN_MATRIX_DIVISOR;  // a block
constexpr int64_t kRotatingSeeds = 140 / ATTN_MATRIX_DIVISOR;
// Problems that every engine must have accepted in the whole run: the SIMD engines refuse odd
// strides, which about half of the problems have.
constexpr int64_t kLeastProblems = 500 / ATTN_MATRIX_DIVISOR;

Matrix& rotary() {
  static Matrix instance(rotary_matrix_options());
  return instance;
}
Matrix& scatter() {
  static Matrix instance(scatter_matrix_options());
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
    for (Matrix* matrix : {&rotary(), &scatter()}) {
      matrix->print_counts(std::cout);
      if (testing::GTEST_FLAG(filter) != "*") continue;
      for (const auto& [engine, count] : matrix->counts()) {
        EXPECT_GE(count.problems, kLeastProblems / shards())
            << engine << " accepted too few of the " << matrix->drawn() << " problems drawn";
      }
    }
  }
};
const testing::Environment* const kTotals = testing::AddGlobalTestEnvironment(new Totals);

void run_seeds(Matrix& matrix, uint64_t first, int64_t count) {
  int failed = 0;
  for (int64_t i = 0; i < count; ++i) {
    const std::string failures = matrix.run(first + static_cast<uint64_t>(i));
    if (failures.empty()) continue;
    ADD_FAILURE() << failures;
    if (++failed == 5) FAIL() << "further seeds of this block were not tried";
  }
}

class RowsMatrix : public testing::TestWithParam<int> {
 protected:
  static uint64_t fixed() { return 1 + static_cast<uint64_t>(GetParam()) * 1000; }
  static uint64_t rotating() { return rotating_seed() + static_cast<uint64_t>(GetParam()) * 1000; }
};

TEST_P(RowsMatrix, RotaryFixedSeeds) { run_seeds(rotary(), fixed(), kFixedSeeds); }
TEST_P(RowsMatrix, RotaryRotatingSeeds) { run_seeds(rotary(), rotating(), kRotatingSeeds); }
TEST_P(RowsMatrix, ScatterFixedSeeds) { run_seeds(scatter(), fixed(), kFixedSeeds); }
TEST_P(RowsMatrix, ScatterRotatingSeeds) { run_seeds(scatter(), rotating(), kRotatingSeeds); }

INSTANTIATE_TEST_SUITE_P(Blocks, RowsMatrix, testing::Range(0, kBlocks));

}  // namespace
}  // namespace attn::matrix
