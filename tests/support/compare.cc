#include "support/compare.h"

#include <algorithm>
#include <cmath>

namespace attn::test {

double error_bar(Type type) {
  switch (type) {
    case Type::kFloat16:
      return 6e-4;
    case Type::kBfloat16:
      return 5e-3;
    case Type::kFloat64:
      return 2e-13;
    default:
      return 2e-6;
  }
}

bool ErrorMeter::add(std::span<const double> out, std::span<const double> reference, double least) {
  double error = 0, norm = 0;
  int64_t cells = 0;
  bool kinds_agree = true;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double want = reference[i], got = out[i];
    if (std::isnan(want)) {
      kinds_agree = kinds_agree && std::isnan(got);
    } else if (std::isinf(want) || !std::isfinite(got)) {
      kinds_agree = kinds_agree && got == want;
    } else {
      error += (got - want) * (got - want);
      norm += want * want;
      ++cells;
    }
  }
  // The type's smallest numbers are its own unit: half of one each is the rounding of the store.
  const double smallest = tiny_of(type_) / bar_;
  norm = std::max({norm, least * least, static_cast<double>(cells) * smallest * smallest});
  squared_error_ += error;
  squared_reference_ += norm;
  const double relative = error > 0 ? std::sqrt(error / norm) : 0;
  worst_ = std::max(worst_, relative);
  const bool good = kinds_agree && relative <= kRowFactor * bar_;
  if (!good) ++rows_failed_;
  return good;
}

double ErrorMeter::error() const {
  return squared_reference_ > 0 ? std::sqrt(squared_error_ / squared_reference_) : 0;
}

bool within_one_ulp(double a, double b, Type type) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == b) return true;
  const double larger = std::max(std::fabs(a), std::fabs(b));
  int exponent = 0;
  std::frexp(larger, &exponent);
  const double ulp = std::max(std::ldexp(epsilon_of(type), exponent - 1), tiny_of(type));
  return std::fabs(a - b) <= ulp;
}

}  // namespace attn::test
