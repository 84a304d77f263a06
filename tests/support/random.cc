#include "support/random.h"

#include <cmath>
#include <numbers>

namespace attn::test {
namespace {

uint64_t splitmix(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

uint64_t rotate_left(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

}  // namespace

Random::Random(uint64_t seed) {
  for (uint64_t& word : state_) word = splitmix(seed);
}

uint64_t Random::next() {
  const uint64_t result = rotate_left(state_[1] * 5, 7) * 9;
  const uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = rotate_left(state_[3], 45);
  return result;
}

double Random::uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

int64_t Random::below(int64_t bound) {
  return static_cast<int64_t>(uniform() * static_cast<double>(bound));
}

int64_t Random::between(int64_t low, int64_t high) { return low + below(high - low + 1); }

double Random::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

uint64_t derive_seed(uint64_t seed, uint64_t index) {
  uint64_t state = seed ^ (index * 0xd1b54a32d192ed03u);
  splitmix(state);
  return splitmix(state);
}

void fill_normal(const View& view, Random& random, double sigma) {
  for_each_address(view, [&](void* at) { store(at, view.type, sigma * random.normal()); });
}

}  // namespace attn::test
