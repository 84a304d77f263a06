// What the checks of all operators share: findings, rows, caches, and memory that is nobody's to
// write.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "reference/group_query_attention.h"
#include "support/scalar.h"
#include "support/tensor.h"

namespace attn::matrix {

// What is wrong, one line a finding; the first six are kept.
class Findings {
 public:
  template <class... Parts>
  void report(const Parts&... parts) {
    if (++count_ > 6) return;
    text_ << "  ";
    (text_ << ... << parts);
    text_ << "\n";
  }
  std::string text() const { return text_.str(); }

 private:
  int count_ = 0;
  std::ostringstream text_;
};

// Calls each(b, head, i, row) for all query rows; `row` counts them in this order.
template <class Each>
void for_each_row(int64_t batch, int64_t heads, int64_t rows, const Each& each) {
  size_t row = 0;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t i = 0; i < rows; ++i) each(b, head, i, row++);
    }
  }
}

// By how much more than the bar knows the rounding of a row's scores may be felt, whose expected
// size is `size`. A weight is off by what its score's last place is, which grows with the score and
// its terms; with few channels some rows draw scores far larger than the rest. Scores that spread
// to +-20 and more are within the bar as it is, and 16-bit types have larger errors.
double score_excess(test::Type type, double size);

// Brings finite elements `excess` times as near to what is wanted.
void forgive(double excess, std::span<const double> want, std::span<double> out);

// The element that is furthest off.
std::string worst_element(std::span<const double> out, std::span<const double> want);

// The first channel that should be NaN and is not, or -1: all that is fixed of rows whose values
// hold a NaN.
int64_t missing_nan(std::span<const double> out, std::span<const double> want);

// A cache (B, heads, rows, channels) after a call, and the kind of each row (B, rows).
struct CacheAfter {
  const char* name;
  test::View view;
  const std::vector<double>& want;
  const std::vector<reference::CacheRow>& kinds;
};

// Whether an element is what it should be; `row` is the wanted row.
using SameElement =
    std::function<bool(double got, double want, reference::CacheRow kind, const double* row)>;
bool same_number(double got, double want);

// Reports elements that differ; rows that are untouched or free are left out.
void check_cache(const CacheAfter& cache, const SameElement& same, Findings& findings);

// Bytes of a cache in place that a call may write: those of rows that are not untouched.
std::vector<bool> written_bytes(const test::Tensor& tensor, const test::View& view,
                                const std::vector<reference::CacheRow>& kinds);

// Reports bytes of an output that are not in `writable`, and a written fence.
void check_written(const char* name, const test::Tensor& tensor, const std::vector<bool>& writable,
                   Findings& findings);
// Reports inputs that were changed, but those in place, and written fences.
void check_inputs(std::span<const test::Tensor> inputs,
                  const std::function<bool(uint32_t slot)>& in_place, Findings& findings);

// Empty when no byte changed: what a refusal must leave behind.
std::string check_untouched(std::span<const test::Tensor> inputs,
                            std::span<const test::Tensor> outputs);

}  // namespace attn::matrix
