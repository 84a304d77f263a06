// attention_matrix --seed S --count N --engine E --level L: the matrix of Attention from the command line, for
// reproducing one failure or for long runs. Exits 1 when a problem failed.
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>

#include "matrix/attention_case.h"

namespace {

constexpr char kUsage[] =
    "attention_matrix [--seed S] [--count N] [--engine E] [--level L] [--decode]\n"
    "  --seed S    the first seed; problem i has seed S + i (the default follows from the date)\n"
    "  --count N   problems to run (100)\n"
    "  --engine E  this engine alone    --level L  this SIMD level alone\n"
    "  --decode    one query row alone\n";

int run(int argc, char** argv) {
  attn::matrix::AttentionDraw draw;
  attn::matrix::MatrixOptions options;
  uint64_t seed = attn::matrix::rotating_seed();
  int64_t count = 100;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--decode") {
      draw.decode_only = true;
    } else if (i + 1 < argc && name == "--seed") {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (i + 1 < argc && name == "--count") {
      count = std::strtoll(argv[++i], nullptr, 10);
    } else if (i + 1 < argc && name == "--engine") {
      options.engine = argv[++i];
    } else if (i + 1 < argc && name == "--level") {
      options.level = argv[++i];
    } else {
      std::cerr << kUsage;
      return 2;
    }
  }
  const attn::matrix::MatrixOptions defaults = attn::matrix::attention_matrix_options(draw);
  options.tool = defaults.tool;
  options.engines = defaults.engines;
  options.draw = defaults.draw;
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
    std::cerr << "attention_matrix: " << error.what() << "\n";
    return 1;
  }
}
