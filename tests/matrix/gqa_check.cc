#include "matrix/gqa_check.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "support/compare.h"

namespace attn::matrix {
namespace {

using reference::CacheRow;
using reference::RowKind;
using test::ErrorMeter;
using test::Tensor;
using test::View;

// Scores of this expected size, which spread to +-20 and more, are within float32's bar as it is.
constexpr double kBarSize = 10;

const char* const kOutputNames[kOutputs] = {"output", "present_key", "present_value", "output_qk",
                                            "log-sum-exp"};

class Checker {
 public:
  explicit Checker(const GqaCase& c)
      : c_(c), o_(c.outline), e_(c.expected), group_(o_.heads / o_.kv_heads) {}

  std::string run(CheckNumbers* numbers) {
    check_output(numbers);
    if (c_.target(kPresentKey).bound()) check_cache(kPresentKey, e_.present_key, e_.key_rows);
    if (c_.target(kPresentValue).bound()) {
      check_cache(kPresentValue, e_.present_value, e_.value_rows);
    }
    if (c_.out[kOutputQk].bound()) check_scores();
    if (c_.out[kLogSumExp].bound()) check_log_sum_exp();
    check_memory();
    return findings_.str();
  }

 private:
  template <class... Parts>
  void report(const Parts&... parts) {
    if (++count_ > 6) return;
    findings_ << "  ";
    (findings_ << ... << parts);
    findings_ << "\n";
  }

  bool padded(int64_t b, int64_t i) const {
    return e_.rows[static_cast<size_t>(b * o_.rows + i)] == RowKind::kPadded;
  }
  bool loose(int64_t b, int64_t head) const {
    return c_.loose[static_cast<size_t>(b * o_.kv_heads + head / group_)];
  }
  size_t row_number(int64_t b, int64_t head, int64_t i) const {
    return static_cast<size_t>((b * o_.heads + head) * o_.rows + i);
  }

  // Calls each(b, head, i) for all query rows.
  template <class Each>
  void for_each_row(Each each) {
    for (int64_t b = 0; b < o_.batch; ++b) {
      for (int64_t head = 0; head < o_.heads; ++head) {
        for (int64_t i = 0; i < o_.rows; ++i) each(b, head, i);
      }
    }
  }

  // By how much more than the bar knows the rounding of a row's float32 scores may be felt. A
  // weight is off by what its score's last place is, which grows with the score and its terms; with
  // few channels some rows draw scores far larger than the rest. 16-bit types have larger errors.
  double excess(int64_t b, int64_t head, int64_t i) const {
    if (o_.type != test::Type::kFloat32) return 1;
    const double size = e_.weighing_size[row_number(b, head, i)];
    return std::isfinite(size) ? std::max(1.0, size / kBarSize) : 1;
  }

  void check_output(CheckNumbers* numbers) {
    const View& view = c_.out[kOutput].view();
    ErrorMeter meter(o_.type);
    std::vector<double> out(static_cast<size_t>(o_.size)), want(out.size());
    for_each_row([&](int64_t b, int64_t head, int64_t i) {
      const double beyond = excess(b, head, i);
      for (int64_t d = 0; d < o_.size; ++d) {
        const size_t at = static_cast<size_t>(d);
        out[at] = view.at({b, i, head * o_.size + d});
        want[at] =
            e_.output[static_cast<size_t>(((b * o_.rows + i) * o_.heads + head) * o_.size + d)];
        if (beyond > 1 && std::isfinite(want[at]))
          out[at] = want[at] + (out[at] - want[at]) / beyond;
      }
      if (padded(b, i)) {
        check_padded_row(b, head, i, out);
      } else if (loose(b, head)) {
        for (size_t d = 0; d < out.size(); ++d) {
          if (std::isnan(want[d]) && !std::isnan(out[d])) {
            report("output[", b, ",", i, "] head ", head, " channel ", d, " is ", out[d],
                   ", expected NaN (V is NaN at a key that the row sees)");
          }
        }
      } else if (!meter.add(out, want, e_.output_size[row_number(b, head, i)])) {
        report("output[", b, ",", i, "] head ", head, ": ", row_text(out, want));
      }
    });
    if (numbers) *numbers = {meter.error(), meter.worst_row()};
    if (meter.rows_failed() > 0 || meter.error() > meter.bar()) {
      report("output: relative error ", meter.error(), " (bar ", meter.bar(), "), worst row ",
             meter.worst_row(), ", rows out of bounds ", meter.rows_failed());
    }
  }

  void check_padded_row(int64_t b, int64_t head, int64_t i, const std::vector<double>& out) {
    if (!c_.finite_padding) return;
    for (double value : out) {
      if (!std::isfinite(value)) {
        report("output[", b, ",", i, "] head ", head, " is padding and holds ", value,
               ", expected finite values");
        return;
      }
    }
  }

  static std::string row_text(const std::vector<double>& out, const std::vector<double>& want) {
    size_t worst = 0;
    double largest = -1;
    for (size_t d = 0; d < out.size(); ++d) {
      double difference = std::fabs(out[d] - want[d]);
      if (std::isnan(difference))
        difference = std::isnan(out[d]) == std::isnan(want[d]) ? 0 : 1e300;
      if (difference > largest) {
        largest = difference;
        worst = d;
      }
    }
    std::ostringstream text;
    text.precision(9);
    text << "element " << worst << " is " << out[worst] << ", expected " << want[worst];
    return text.str();
  }

  void check_scores() {
    const View& view = c_.out[kOutputQk].view();
    std::vector<double> out(static_cast<size_t>(o_.bound)), want(out.size());
    ErrorMeter meter(o_.type);
    for_each_row([&](int64_t b, int64_t head, int64_t i) {
      const size_t row = row_number(b, head, i);
      for (size_t j = 0; j < out.size(); ++j) {
        out[j] = view.at({b, head, i, static_cast<int64_t>(j)});
        want[j] = e_.scores[row * out.size() + j];
      }
      if (padded(b, i)) return;
      // Probabilities of a row that is NaN: a masked cell may be 0 or NaN.
      if (o_.qk_output == 2 && e_.poisoned[row]) {
        for (size_t j = 0; j < out.size(); ++j) {
          if (std::isnan(out[j]) && want[j] == 0) out[j] = 0;
        }
      }
      const double least = o_.qk_output == 1 ? e_.score_size[row] : 0;
      if (!meter.add(out, want, least)) {
        report("output_qk[", b, ",", head, ",", i, "]: ", row_text(out, want));
      }
    });
    if (!meter.passed()) {
      report("output_qk: relative error ", meter.error(), " (bar ", meter.bar(), ")");
    }
  }

  void check_log_sum_exp() {
    const View& view = c_.out[kLogSumExp].view();
    // Products of 16-bit numbers are exact in float32, and the log-sum-exp is stored as float32:
    // whatever the type, its error is that of float32 sums. Only a norm may round a query or key to
    // 16 bits either way, which moves scores by a unit of the type.
    const double bound = o_.norm && o_.type != Type::kFloat32
                             ? test::kRowFactor * test::error_bar(o_.type)
                             : c_.log_sum_exp_room * test::error_bar(Type::kFloat32);
    for_each_row([&](int64_t b, int64_t head, int64_t i) {
      const double got = view.at({b, head, i});
      const double want = e_.log_sum_exp[row_number(b, head, i)];
      bool good;
      if (padded(b, i)) {
        good = !c_.finite_padding || std::isfinite(got) || (std::isinf(want) && got == want);
      } else if (std::isnan(want)) {
        good = std::isnan(got);
      } else if (std::isinf(want)) {
        good = got == want;
      } else {
        const double size = e_.weighing_size[row_number(b, head, i)];
        good = std::fabs(got - want) <= bound * std::max({1.0, std::fabs(want), size});
      }
      if (!good) {
        report("log-sum-exp[", b, ",", head, ",", i, "] is ", got, ", expected ", want, ", off by ",
               std::fabs(got - want), " at a size of ", e_.weighing_size[row_number(b, head, i)]);
      }
    });
  }

  void check_cache(uint32_t slot, const std::vector<double>& want,
                   const std::vector<CacheRow>& kinds) {
    const View& view = c_.target(slot).view();
    const int64_t rows = view.dim(2);
    const bool exact = slot == kPresentValue || e_.new_keys_exact;
    for (int64_t b = 0; b < o_.batch; ++b) {
      for (int64_t head = 0; head < o_.kv_heads; ++head) {
        for (int64_t row = 0; row < rows; ++row) {
          const CacheRow kind = kinds[static_cast<size_t>(b * rows + row)];
          if (kind == CacheRow::kUntouched || kind == CacheRow::kFree) continue;
          const double* expected =
              &want[static_cast<size_t>(((b * o_.kv_heads + head) * rows + row) * o_.size)];
          const bool exact_row = exact || kind != CacheRow::kNew;
          for (int64_t d = 0; d < o_.size; ++d) {
            const double got = view.at({b, head, row, d});
            if (same(got, expected[d], exact_row, expected)) continue;
            report(kOutputNames[slot], "[", b, ",", head, ",", row, ",", d, "] is ", got,
                   ", expected ", expected[d],
                   kind == CacheRow::kCopied ? " (a past row)"
                   : kind == CacheRow::kNew  ? " (a new row)"
                                             : " (an unused row)");
          }
        }
      }
    }
  }

  // New keys whose norm or 16-bit rotation may round either way: one unit, or float32's own error
  // relative to the row where rotation cancels.
  bool same(double got, double want, bool exact, const double* row) const {
    if (std::isnan(want)) return std::isnan(got);
    if (got == want) return true;
    if (exact) return false;
    if (test::within_one_ulp(got, want, o_.type)) return true;
    double largest = 0;
    for (int64_t d = 0; d < o_.size; ++d) largest = std::max(largest, std::fabs(row[d]));
    return std::fabs(got - want) <= 5e-7 * largest;
  }

  // Bytes that belong to what the call may write in the target of `slot`.
  std::vector<bool> writable(uint32_t slot) const {
    const Tensor& tensor = c_.target(slot);
    if (!c_.in_place(slot)) return tensor.element_bytes();
    const std::vector<CacheRow>& kinds = slot == kPresentKey ? e_.key_rows : e_.value_rows;
    const View& view = tensor.view();
    std::vector<bool> bytes(static_cast<size_t>(tensor.buffer().size()), false);
    for (int64_t b = 0; b < o_.batch; ++b) {
      for (int64_t row = 0; row < view.dim(2); ++row) {
        if (kinds[static_cast<size_t>(b * view.dim(2) + row)] == CacheRow::kUntouched) continue;
        for (int64_t head = 0; head < o_.kv_heads; ++head) {
          for (int64_t d = 0; d < o_.size; ++d) {
            const int64_t index[] = {b, head, row, d};
            const int64_t at =
                static_cast<unsigned char*>(view.address(index)) - tensor.buffer().data();
            for (int64_t k = 0; k < test::size_of(o_.type); ++k) {
              bytes[static_cast<size_t>(at + k)] = true;
            }
          }
        }
      }
    }
    return bytes;
  }

  void check_memory() {
    for (uint32_t slot = 0; slot < kOutputs; ++slot) {
      const Tensor& tensor = c_.target(slot);
      if (!tensor.bound()) continue;
      const int64_t change = tensor.buffer().first_change(writable(slot));
      if (change >= 0) report(kOutputNames[slot], ": byte ", change, " is not its to write");
      if (!tensor.buffer().fences_intact()) report(kOutputNames[slot], ": its fence was written");
    }
    for (uint32_t slot = 0; slot < kInputs; ++slot) {
      const bool aliased = (slot == kPastKey && c_.in_place(kPresentKey)) ||
                           (slot == kPastValue && c_.in_place(kPresentValue));
      const test::Buffer& buffer = c_.in[slot].buffer();
      if (!aliased && buffer.first_change({}) >= 0) report("input ", slot, " was changed");
      if (!buffer.fences_intact()) report("the fence of input ", slot, " was written");
    }
  }

  const GqaCase& c_;
  const GqaOutline& o_;
  const reference::GroupQueryResult& e_;
  int64_t group_;
  int count_ = 0;
  std::ostringstream findings_;
};

}  // namespace

std::string check_result(const GqaCase& c, CheckNumbers* numbers) {
  return Checker(c).run(numbers);
}

std::string check_untouched(const GqaCase& c) {
  std::string findings;
  const auto check = [&](const test::Buffer& buffer, const char* what, uint32_t slot) {
    if (buffer.first_change({}) >= 0 || !buffer.fences_intact()) {
      findings += std::string("  ") + what + " " + std::to_string(slot) +
                  " was written by a call that was refused\n";
    }
  };
  for (uint32_t slot = 0; slot < kInputs; ++slot) check(c.in[slot].buffer(), "input", slot);
  for (uint32_t slot = 0; slot < kOutputs; ++slot) check(c.out[slot].buffer(), "output", slot);
  return findings;
}

}  // namespace attn::matrix
