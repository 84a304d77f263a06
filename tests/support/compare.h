// How far results may be from the float64 reference, and the measuring of it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "support/scalar.h"

namespace attn::test {

// The bound on the relative error of a whole result; no single row may exceed four times that.
double error_bar(Type type);
inline constexpr double kRowFactor = 4;

// Collects the rows of one result. Errors are Frobenius norms: |out - ref| / |ref|.
class ErrorMeter {
 public:
  explicit ErrorMeter(Type type) : type_(type), bar_(error_bar(type)) {}

  // Adds a row. `least` replaces |ref| where that is smaller: what the row's norm is expected to be
  // when its terms cancel by chance. Where the reference is NaN or infinite the output must be so
  // too; those cells do not count further. Returns false for a row that is out of bounds.
  bool add(std::span<const double> out, std::span<const double> reference, double least = 0);

  double error() const;  // of all rows
  double worst_row() const { return worst_; }
  bool passed() const { return rows_failed_ == 0 && error() <= bar_; }
  int64_t rows_failed() const { return rows_failed_; }
  double bar() const { return bar_; }

 private:
  Type type_;
  double bar_;
  double squared_error_ = 0;
  double squared_reference_ = 0;
  double worst_ = 0;
  int64_t rows_failed_ = 0;
};

// Whether two stored numbers of a type are the same number or neighbours (NaN equals NaN).
bool within_one_ulp(double a, double b, Type type);

}  // namespace attn::test
