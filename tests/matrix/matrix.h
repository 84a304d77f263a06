// The engine matrix: random problems, each under every engine and SIMD level, counted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "matrix/run.h"

namespace attn::matrix {

struct MatrixOptions {
  const char* tool = "";  // the program that reproduces one problem
  // Makes the problem of a seed.
  std::function<std::unique_ptr<Case>(uint64_t seed)> draw;
  std::vector<std::string> engines;  // those of the operator; empty: all of the context
  std::string engine;                // one engine alone; empty: all
  std::string level;                 // one SIMD level alone; empty: all
  bool check_threads = true;         // some problems again with other thread counts, bit for bit
};

// The largest errors of a type, and the seeds that gave them.
struct WorstErrors {
  double output = 0;  // of a whole output
  uint64_t output_seed = 0;
  double row = 0;
  uint64_t row_seed = 0;
};

// What one engine did, over all levels unless said otherwise.
struct EngineCount {
  int64_t problems = 0;                      // accepted by at least one level
  int64_t refused = 0;                       // by all levels
  int64_t lacking = 0;                       // runs that this machine or level has no unit for
  std::map<std::string, int64_t> runs;       // by level
  std::map<std::string, int64_t> features;   // accepted problems by feature
  std::map<std::string, int64_t> reasons;    // why it refused, numbers replaced by '#'
  std::map<std::string, WorstErrors> worst;  // by type
};

class Matrix {
 public:
  explicit Matrix(MatrixOptions options);

  // Draws the problem of `seed` and runs it everywhere. Empty when all is right, else the failures
  // with the line that reproduces each.
  std::string run(uint64_t seed);

  const std::map<std::string, EngineCount>& counts() const { return counts_; }
  const std::vector<std::string>& engines() const { return engines_; }
  const std::vector<std::string>& levels() const { return levels_; }
  int64_t drawn() const { return drawn_; }
  void print_counts(std::ostream& out) const;

 private:
  Device& device(const std::string& level, int threads);
  std::string run_engine(Case& c, const std::string& engine);
  std::string run_threads(Case& c);
  std::string failure(const Case& c, const std::string& engine, const std::string& level,
                      const std::string& text) const;
  std::string reproduction(const Case& c, const std::string& engine,
                           const std::string& level) const;

  MatrixOptions options_;
  std::vector<std::string> engines_, levels_;
  std::map<std::string, Device> devices_;
  std::map<std::string, EngineCount> counts_;
  std::map<std::string, int64_t> drawn_features_;
  int64_t drawn_ = 0;
  int64_t broken_ = 0;  // drawn to be refused
};

// Prints what is running when the process dies of a memory fault, then lets it die.
void report_crashes();

// The first seed of a run: ATTN_C_TEST_SEED, or one that follows from the date.
uint64_t rotating_seed();

}  // namespace attn::matrix
