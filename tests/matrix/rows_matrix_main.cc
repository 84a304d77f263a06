// rows_matrix --operator rotary|scatter --seed S --count N: the engine matrix of the operators that
// work row by row, for reproducing one failure or for long runs. Exits 1 when a problem failed.
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

#include "matrix/rotary_case.h"
#include "matrix/scatter_case.h"

namespace {

constexpr char kUsage[] =
    "rows_matrix --operator rotary|scatter [--seed S] [--count N] [--engine E] [--level L]\n"
    "  --seed S    the first seed; problem i has seed S + i (the default follows from the date)\n"
    "  --count N   problems to run (100)\n"
    "  --engine E  this engine alone    --level L  this SIMD level alone\n";

int run(int argc, char** argv) {
  std::string name, engine, level;
  uint64_t seed = attn::matrix::rotating_seed();
  int64_t count = 100;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i], value = argv[i + 1];
    if (option == "--operator") name = value;
    if (option == "--seed") seed = std::strtoull(argv[i + 1], nullptr, 10);
    if (option == "--count") count = std::strtoll(argv[i + 1], nullptr, 10);
    if (option == "--engine") engine = value;
    if (option == "--level") level = value;
  }
  if (argc % 2 == 0 || (name != "rotary" && name != "scatter")) {
    std::cerr << kUsage;
    return 2;
  }
  attn::matrix::MatrixOptions options = name == "rotary" ? attn::matrix::rotary_matrix_options()
                                                         : attn::matrix::scatter_matrix_options();
  options.engine = engine;
  options.level = level;
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
    std::cerr << "rows_matrix: " << error.what() << "\n";
    return 1;
  }
}
