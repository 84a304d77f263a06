// A deterministic random generator: the same seed draws the same problem on every machine.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "support/view.h"

namespace attn::test {

// xoshiro256**, seeded through splitmix64.
class Random {
 public:
  explicit Random(uint64_t seed);

  uint64_t next();
  double uniform();                            // [0, 1)
  int64_t below(int64_t bound);                // [0, bound)
  int64_t between(int64_t low, int64_t high);  // both ends included
  bool chance(double probability) { return uniform() < probability; }
  double normal();  // N(0, 1)
  template <class T>
  T pick(std::initializer_list<T> choices) {
    return choices.begin()[below(static_cast<int64_t>(choices.size()))];
  }

 private:
  uint64_t state_[4];
};

// The seed of an independent stream number `index`.
uint64_t derive_seed(uint64_t seed, uint64_t index);

// Fills every element with N(0, sigma).
void fill_normal(const View& view, Random& random, double sigma = 1);

}  // namespace attn::test
