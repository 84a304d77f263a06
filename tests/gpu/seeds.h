// Random problems by seed on many lanes at once, until enough were served.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/run.h"

namespace attn::gpu {

// What the lanes of a run share. A test's own counts are in a class derived from it.
class SeedTotals {
 public:
  virtual ~SeedTotals() = default;
  void fail(std::string text);
  // Every failure so far, a paragraph each.
  std::string failures();
  // Whether no further seed is wanted: enough was served, or too much failed.
  bool done();

 protected:
  virtual bool has_enough() const = 0;  // under the mutex
  // Adds a test failure for each; whether there was none. After the lanes have ended.
  bool report_failures() const;

  std::mutex mutex_;
  std::vector<std::string> failures_;
};

struct SeedRange {
  uint64_t first = 1;
  uint64_t most = 0;
  bool whole = true;  // ends where the totals are done; else every seed is run
};

// `most` seeds that change with the day and are printed; ATTN_C_TEST_SEED and ATTN_C_TEST_COUNT of
// the environment repeat some of them.
SeedRange rotating_seeds(uint64_t most);

// Runs one(lane, seed) for the range's seeds on a lane a thread; how many were drawn. What `one`
// throws is a failure.
uint64_t run_seeds(const Gpu& gpu, const SeedRange& range, SeedTotals& totals,
                   const std::function<void(Lane&, uint64_t)>& one);

// The words of a failed problem: seed, engine (empty: chosen), what was found, the problem, and how
// to repeat it alone under `filter`.
std::string seed_failure(uint64_t seed, const std::string& engine, const std::string& found,
                         const std::string& problem, const char* filter);

}  // namespace attn::gpu
