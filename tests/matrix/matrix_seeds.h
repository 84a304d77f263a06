// The engine matrix as tests: what is the same for every operator. A file of tests has one
// MatrixSeeds an operator, runs blocks of seeds of it in its cases, and makes one MatrixTotals.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <new>
#include <string>
#include <utility>

#include "matrix/matrix.h"

namespace attn::matrix {

// How many problems there are. The build divides the numbers where the code runs slowly.
struct MatrixSize {
  int64_t fixed_seeds = 0;  // a block
  int64_t rotating_seeds = 0;
  int64_t least_problems = 0;  // that every engine must have accepted in the whole run
};

// The matrix of one operator and the seeds that are run. For one thread.
class MatrixSeeds {
 public:
  MatrixSeeds(MatrixOptions options, const MatrixSize& size)
      : matrix_(std::move(options)), size_(size) {}

  // The same seeds at each run.
  void run_fixed(int block) { run(first_of(block) + 1, size_.fixed_seeds); }
  // Seeds that change with the day.
  void run_rotating(int block) { run(rotating_seed() + first_of(block), size_.rotating_seeds); }

  // Adds a failure for each problem that is not right, up to five.
  void run(uint64_t first, int64_t count) {
    int failed = 0;
    for (int64_t i = 0; i < count; ++i) {
      const std::string failures = matrix_.run(first + static_cast<uint64_t>(i));
      if (failures.empty()) continue;
      ADD_FAILURE() << failures;
      if (++failed == 5) FAIL() << "further seeds of this block were not tried";
    }
  }

  // Prints what was run, and checks that it was enough where nothing was left out.
  void finish() const {
    matrix_.print_counts(std::cout);
    if (testing::GTEST_FLAG(filter) != "*") return;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): the tests' threads have ended
    const char* shards = std::getenv("GTEST_TOTAL_SHARDS");
    const int64_t parts = shards != nullptr ? std::strtoll(shards, nullptr, 10) : 1;
    for (const auto& [engine, count] : matrix_.counts()) {
      if (count.problems == 0 && count.lacking > 0) {
        std::cout << engine << " was not run: " << count.reasons.begin()->first << "\n";
        continue;
      }
      EXPECT_GE(count.problems, size_.least_problems / parts)
          << engine << " accepted too few of the " << matrix_.drawn() << " problems drawn";
    }
  }

 private:
  static uint64_t first_of(int block) { return static_cast<uint64_t>(block) * 1000; }

  Matrix matrix_;
  MatrixSize size_;
};

// Says where rotating seeds begin, and finishes the operators' seeds when all tests have run.
class MatrixTotals : public testing::Environment {
 public:
  using Seeds = MatrixSeeds& (*)();
  // Functions that make their MatrixSeeds when they are first called.
  explicit MatrixTotals(Seeds first, Seeds second = nullptr) noexcept : seeds_{first, second} {}

  void SetUp() override {
    report_crashes();
    std::cout << "rotating seeds begin at " << rotating_seed()
              << " (set ATTN_C_TEST_SEED to repeat them)\n";
  }
  void TearDown() override {
    for (const Seeds seeds : seeds_) {
      if (seeds != nullptr) seeds().finish();
    }
  }

 private:
  std::array<Seeds, 2> seeds_;
};

// Makes the totals and registers them with GoogleTest, which owns them. `MatrixSeeds` are made by
// the functions when they are first called.
inline const testing::Environment* add_totals(MatrixTotals::Seeds first,
                                              MatrixTotals::Seeds second = nullptr) noexcept {
  auto* totals = new (std::nothrow) MatrixTotals(first, second);
  return totals == nullptr ? nullptr : testing::AddGlobalTestEnvironment(totals);
}

}  // namespace attn::matrix
