// linear_matrix --seed S --count N --engine E --level L: the engine matrix of LinearAttention from
// the command line, for reproducing one failure or for long runs. Exits 1 when a problem failed.
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

#include "matrix/linear_case.h"

namespace {

constexpr char kUsage[] =
    "linear_matrix [--seed S] [--count N] [--engine E] [--level L]\n"
    "  --seed S    the first seed; problem i has seed S + i (the default follows from the date)\n"
    "  --count N   problems to run (100)\n"
    "  --engine E  this engine alone    --level L  this SIMD level alone\n";

int run(int argc, char** argv) {
  attn::matrix::MatrixOptions options = attn::matrix::linear_matrix_options();
  uint64_t seed = attn::matrix::rotating_seed();
  int64_t count = 100;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) {
      std::cerr << kUsage;
      return 2;
    }
    const char* value = argv[i + 1];
    if (name == "--seed") {
      seed = std::strtoull(value, nullptr, 10);
    } else if (name == "--count") {
      count = std::strtoll(value, nullptr, 10);
    } else if (name == "--engine") {
      options.engine = value;
    } else if (name == "--level") {
      options.level = value;
    } else {
      std::cerr << kUsage;
      return 2;
    }
  }
  attn::matrix::report_crashes();
  attn::matrix::Matrix matrix(options);
  int64_t failed = 0;
  for (int64_t i = 0; i < count; ++i) {
    const std::string failures = matrix.run(seed + static_cast<uint64_t>(i));
    if (failures.empty()) continue;
    ++failed;
    std::cout << failures << std::flush;
  }
  matrix.print_counts(std::cout);
  std::cout << "seeds " << seed << " to " << seed + static_cast<uint64_t>(count) - 1 << ": "
            << failed << " of " << count << " problems failed\n";
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "linear_matrix: " << error.what() << "\n";
    return 1;
  }
}
