#include "matrix/gqa_check.h"

#include <algorithm>
#include <cmath>

#include "matrix/check.h"
#include "support/compare.h"

namespace attn::matrix {
namespace {

using reference::CacheRow;
using reference::RowKind;
using test::ErrorMeter;
using test::View;

const char* const kOutputNames[kOutputs] = {"output", "present_key", "present_value", "output_qk",
                                            "log-sum-exp"};

class Checker {
 public:
  explicit Checker(const GqaCase& c)
      : c_(c), o_(c.outline), e_(c.expected), group_(o_.heads / o_.kv_heads) {}

  std::string run(CheckNumbers* numbers) {
    check_output(numbers);
    if (c_.target(kPresentKey).bound()) check_present(kPresentKey, e_.present_key, e_.key_rows);
    if (c_.target(kPresentValue).bound()) {
      check_present(kPresentValue, e_.present_value, e_.value_rows);
    }
    if (c_.out[kOutputQk].bound()) check_scores();
    if (c_.out[kLogSumExp].bound()) check_log_sum_exp();
    check_memory();
    return findings_.text();
  }

 private:
  bool padded(int64_t b, int64_t i) const {
    return e_.rows[static_cast<size_t>(b * o_.rows + i)] == RowKind::kPadded;
  }
  bool loose(int64_t b, int64_t head) const {
    return c_.loose[static_cast<size_t>(b * o_.kv_heads + head / group_)];
  }

  // Calls each(b, head, i, row) for all query rows.
  template <class Each>
  void for_each_query(const Each& each) const {
    for_each_row(o_.batch, o_.heads, o_.rows, each);
  }

  void check_output(CheckNumbers* numbers) {
    const View& view = c_.out[kOutput].view();
    ErrorMeter meter(o_.type);
    std::vector<double> out(static_cast<size_t>(o_.size)), want(out.size());
    for_each_query([&](int64_t b, int64_t head, int64_t i, size_t row) {
      for (int64_t d = 0; d < o_.size; ++d) {
        const size_t at = static_cast<size_t>(d);
        out[at] = view.at({b, i, head * o_.size + d});
        want[at] =
            e_.output[static_cast<size_t>(((b * o_.rows + i) * o_.heads + head) * o_.size + d)];
      }
      forgive(score_excess(o_.type, e_.weighing_size[row]), want, out);
      if (padded(b, i)) {
        check_padded_row(b, head, i, out);
      } else if (loose(b, head)) {
        const int64_t channel = missing_nan(out, want);
        if (channel >= 0) {
          findings_.report("output[", b, ",", i, "] head ", head, " channel ", channel, " is ",
                           out[static_cast<size_t>(channel)],
                           ", expected NaN (V is NaN at a key that the row sees)");
        }
      } else if (!meter.add(out, want, e_.output_size[row])) {
        findings_.report("output[", b, ",", i, "] head ", head, ": ", worst_element(out, want));
      }
    });
    if (numbers) *numbers = {meter.error(), meter.worst_row()};
    if (!meter.passed()) {
      findings_.report("output: relative error ", meter.error(), " (bar ", meter.bar(),
                       "), worst row ", meter.worst_row(), ", rows out of bounds ",
                       meter.rows_failed());
    }
  }

  void check_padded_row(int64_t b, int64_t head, int64_t i, const std::vector<double>& out) {
    if (!c_.finite_padding) return;
    for (double value : out) {
      if (!std::isfinite(value)) {
        findings_.report("output[", b, ",", i, "] head ", head, " is padding and holds ", value,
                         ", expected finite values");
        return;
      }
    }
  }

  void check_scores() {
    const View& view = c_.out[kOutputQk].view();
    std::vector<double> out(static_cast<size_t>(o_.bound)), want(out.size());
    ErrorMeter meter(o_.type);
    for_each_query([&](int64_t b, int64_t head, int64_t i, size_t row) {
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
        findings_.report("output_qk[", b, ",", head, ",", i, "]: ", worst_element(out, want));
      }
    });
    if (!meter.passed()) {
      findings_.report("output_qk: relative error ", meter.error(), " (bar ", meter.bar(), ")");
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
    for_each_query([&](int64_t b, int64_t head, int64_t i, size_t row) {
      const double got = view.at({b, head, i});
      const double want = e_.log_sum_exp[row];
      // It is of the keys alone: theirs is all of the weight, however much a sink draws.
      const double share = e_.key_share[row];
      const double size = share > 0 ? e_.weighing_size[row] / share : 0;
      bool good;
      if (padded(b, i)) {
        good = !c_.finite_padding || std::isfinite(got) || (std::isinf(want) && got == want);
      } else if (std::isfinite(want)) {
        good = std::fabs(got - want) <= bound * std::max({1.0, std::fabs(want), size});
      } else {
        good = same_number(got, want);
      }
      if (!good) {
        findings_.report("log-sum-exp[", b, ",", head, ",", i, "] is ", got, ", expected ", want,
                         ", off by ", std::fabs(got - want), " at a size of ", size);
      }
    });
  }

  void check_present(uint32_t slot, const std::vector<double>& want,
                     const std::vector<CacheRow>& kinds) {
    const bool exact = slot == kPresentValue || e_.new_keys_exact;
    check_cache(
        {kOutputNames[slot], c_.target(slot).view(), want, kinds},
        [&](double got, double expected, CacheRow kind, const double* row) {
          return same_number(got, expected) ||
                 (!exact && kind == CacheRow::kNew && near(got, expected, row));
        },
        findings_);
  }

  // New keys whose norm or 16-bit rotation may round either way: one unit, or float32's own error
  // relative to the row where rotation cancels.
  bool near(double got, double want, const double* row) const {
    if (std::isnan(want)) return false;
    if (test::within_one_ulp(got, want, o_.type)) return true;
    double largest = 0;
    for (int64_t d = 0; d < o_.size; ++d) largest = std::max(largest, std::fabs(row[d]));
    return std::fabs(got - want) <= 5e-7 * largest;
  }

  void check_memory() {
    for (uint32_t slot = 0; slot < kOutputs; ++slot) {
      const test::Tensor& tensor = c_.target(slot);
      if (!tensor.bound()) continue;
      const std::vector<CacheRow>& kinds = slot == kPresentKey ? e_.key_rows : e_.value_rows;
      check_written(
          kOutputNames[slot], tensor,
          c_.in_place(slot) ? written_bytes(tensor, tensor.view(), kinds) : tensor.element_bytes(),
          findings_);
    }
    check_inputs(
        c_.in,
        [&](uint32_t slot) {
          return (slot == kPastKey && c_.in_place(kPresentKey)) ||
                 (slot == kPastValue && c_.in_place(kPresentValue));
        },
        findings_);
  }

  const GqaCase& c_;
  const GqaOutline& o_;
  const reference::GroupQueryResult& e_;
  int64_t group_;
  Findings findings_;
};

}  // namespace

std::string check_result(const GqaCase& c, CheckNumbers* numbers) {
  return Checker(c).run(numbers);
}

}  // namespace attn::matrix
