#include "api/overlap.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace attn::api {
namespace {

// A byte that both have means: sum of count-limited multiples of the strides of `a` and `b` equals
// the distance of their addresses, up to the size of an element. `Term` is one such multiple:
// 0 .. limit times `step` bytes, step > 0 (negative strides are turned around first).
struct Term {
  __int128 step;
  __int128 limit;
};

struct Search {
  std::array<Term, 2 * kMaxRank> terms;
  std::array<__int128, 2 * kMaxRank + 1> reach;  // of the terms from here on
  int count = 0;
  int budget = 512;

  void add(__int128 step, __int128 limit) {
    if (step != 0 && limit > 0) terms[static_cast<size_t>(count++)] = {step, limit};
  }

  void finish() {
    std::sort(terms.begin(), terms.begin() + count,
              [](const Term& x, const Term& y) { return x.step > y.step; });
    // Terms of one step are one term: what two of them add up to is everything up to both limits.
    // Without this, equally strided tensors would be searched once for each pair of indices.
    int kept = 0;
    for (int i = 0; i < count; ++i) {
      const Term term = terms[static_cast<size_t>(i)];
      if (kept > 0 && terms[static_cast<size_t>(kept - 1)].step == term.step) {
        terms[static_cast<size_t>(kept - 1)].limit += term.limit;
      } else {
        terms[static_cast<size_t>(kept++)] = term;
      }
    }
    count = kept;
    reach[static_cast<size_t>(count)] = 0;
    for (int i = count - 1; i >= 0; --i) {
      const size_t at = static_cast<size_t>(i);
      reach[at] = reach[at + 1] + terms[at].step * terms[at].limit;
    }
  }

  // Whether the terms from `i` on can add up to something in [low, high].
  bool solve(int i, __int128 low, __int128 high) {
    const size_t at = static_cast<size_t>(i);
    if (high < 0 || low > reach[at]) return false;
    if (low <= 0 || high >= reach[at]) return true;  // all zero, or all at their limit
    if (i == count || --budget < 0) return false;
    const Term term = terms[at];
    // What the rest cannot reach, this term must.
    const __int128 missing = low - reach[at + 1];
    const __int128 least = missing <= 0 ? 0 : (missing + term.step - 1) / term.step;
    const __int128 most = std::min(term.limit, high / term.step);
    for (__int128 n = least; n <= most; ++n) {
      if (solve(i + 1, low - n * term.step, high - n * term.step)) return true;
      if (budget < 0) return false;
    }
    return false;
  }
};

}  // namespace

bool provably_overlap(const Tensor& a, const Tensor& b) {
  // Elements of a: a0 + sum i_k s_k; of b: b0 + sum j_k t_k. With j' = limit - j the difference
  // becomes a sum of terms that are all positive: a negative step moves its whole reach into the
  // constant.
  Search search;
  __int128 distance = static_cast<__int128>(reinterpret_cast<uintptr_t>(b.data)) -
                      static_cast<__int128>(reinterpret_cast<uintptr_t>(a.data));
  const auto add = [&search, &distance](const Tensor& tensor, int sign) {
    for (int32_t i = 0; i < tensor.rank; ++i) {
      const size_t axis = static_cast<size_t>(i);
      const __int128 limit = tensor.shape[axis] - 1;
      const __int128 step =
          static_cast<__int128>(tensor.strides[axis]) * size_of(tensor.type) * sign;
      if (step < 0) distance -= step * limit;
      search.add(step < 0 ? -step : step, limit);
    }
  };
  add(a, 1);
  add(b, -1);
  search.finish();
  // The first bytes may differ by less than an element's size.
  return search.solve(0, distance - (size_of(a.type) - 1), distance + (size_of(b.type) - 1));
}

bool provably_overlaps_itself(const Tensor& tensor) {
  std::array<Term, kMaxRank> axes;  // with a second element, the finest first
  size_t count = 0;
  for (size_t axis = 0; axis < static_cast<size_t>(tensor.rank); ++axis) {
    if (tensor.shape[axis] <= 1) continue;
    const __int128 stride = tensor.strides[axis];
    const Term term = {stride < 0 ? -stride : stride, tensor.shape[axis] - 1};
    size_t at = count++;
    for (; at > 0 && axes[at - 1].step > term.step; --at) axes[at] = axes[at - 1];
    axes[at] = term;
  }
  // Where each axis steps over all that the finer ones reach, as in slices, elements are apart.
  __int128 reach = 0;
  bool nested = true;
  for (size_t i = 0; i < count; ++i) {
    nested = nested && axes[i].step > reach;
    reach += axes[i].step * axes[i].limit;
  }
  if (nested) return false;
  // Else two indices meet if their differences, times the strides, add up to nothing. Let `first`
  // be an axis where they differ, by 1 or more, and those before it the axes where they do not;
  // what the others add, from -limit to limit each, is counted from its least.
  for (size_t first = 0; first < count; ++first) {
    Search search;
    __int128 wanted = -axes[first].step;
    search.add(axes[first].step, axes[first].limit - 1);
    for (size_t i = first + 1; i < count; ++i) {
      search.add(axes[i].step, 2 * axes[i].limit);
      wanted += axes[i].step * axes[i].limit;
    }
    search.finish();
    if (axes[first].step == 0 || search.solve(0, wanted, wanted)) return true;
  }
  return false;
}

}  // namespace attn::api
