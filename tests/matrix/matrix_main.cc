#include "matrix/matrix_main.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iostream>

namespace attn::matrix {
namespace {

struct Request {
  uint64_t seed = rotating_seed();
  int64_t count = 100;
  std::string engine, level;
};

void print_usage(const std::string& tool, const std::vector<MatrixFlag>& flags) {
  std::cerr << tool
            << " [--seed S] [--count N] [--engine E] [--level L] and flags\n"
               "  --seed S    the first seed; problem i has seed S + i (the default follows from "
               "the date)\n"
               "  --count N   problems to run (100)\n"
               "  --engine E  this engine alone    --level L  this SIMD level alone\n";
  for (const MatrixFlag& flag : flags) {
    std::cerr << "  " << flag.name << "    " << flag.meaning << "\n";
  }
}

// False where an argument is not known.
bool read(int argc, char** argv, const std::vector<MatrixFlag>& flags, Request& request) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto flag = std::find_if(flags.begin(), flags.end(),
                                   [&](const MatrixFlag& one) { return one.name == name; });
    if (flag != flags.end()) {
      *flag->given = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const char* value = argv[++i];
    if (name == "--seed") {
      request.seed = std::strtoull(value, nullptr, 10);
    } else if (name == "--count") {
      request.count = std::strtoll(value, nullptr, 10);
    } else if (name == "--engine") {
      request.engine = value;
    } else if (name == "--level") {
      request.level = value;
    } else {
      return false;
    }
  }
  return true;
}

int run(const Request& request, MatrixOptions options) {
  options.engine = request.engine;
  options.level = request.level;
  report_crashes();
  Matrix matrix(std::move(options));
  int64_t failed = 0;
  for (int64_t i = 0; i < request.count; ++i) {
    const std::string failures = matrix.run(request.seed + static_cast<uint64_t>(i));
    if (failures.empty()) continue;
    ++failed;
    std::cout << failures << std::flush;
  }
  matrix.print_counts(std::cout);
  std::cout << "seeds " << request.seed << " to "
            << request.seed + static_cast<uint64_t>(request.count) - 1 << ": " << failed << " of "
            << request.count << " problems failed\n";
  return failed == 0 ? 0 : 1;
}

}  // namespace

int matrix_main(int argc, char** argv, const std::vector<MatrixFlag>& flags,
                const std::function<MatrixOptions()>& options) {
  try {
    Request request;
    if (!read(argc, argv, flags, request)) {
      print_usage(options().tool, flags);
      return 2;
    }
    return run(request, options());
  } catch (const std::exception& error) {
    std::cerr << options().tool << ": " << error.what() << "\n";
    return 1;
  }
}

}  // namespace attn::matrix
