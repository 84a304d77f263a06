// Compares what an engine left in memory with the reference, element by element.
#include <algorithm>
#include <cmath>

#include "matrix/attention_case.h"
#include "matrix/check.h"
#include "support/compare.h"

namespace attn::matrix {
namespace {

using reference::CacheRow;
using test::ErrorMeter;
using test::View;

const char* const kNames[] = {"Y", "present_key", "present_value", "qk_matmul_output",
                              "log-sum-exp"};

class Checker : AttentionSlots {
 public:
  explicit Checker(const AttentionCase& c)
      : c_(c), o_(c.outline), e_(c.expected), group_(o_.heads / o_.kv_heads) {}

  std::string run(CheckNumbers* numbers) {
    check_output(numbers);
    if (o_.present_key) check_present(kPresentKey, e_.present_key, e_.key_rows);
    if (o_.present_value) check_present(kPresentValue, e_.present_value, e_.value_rows);
    if (o_.scores) check_scores();
    if (o_.log_sum_exp) check_log_sum_exp();
    check_memory();
    return findings_.text();
  }

 private:
  // Calls each(b, head, i, row) for all query rows.
  template <class Each>
  void for_each_query(const Each& each) const {
    for_each_row(o_.batch, o_.heads, o_.rows, each);
  }

  void check_output(CheckNumbers* numbers) {
    const View view = by_heads(c_.wanted[kY], o_.heads);
    ErrorMeter meter(o_.type);
    std::vector<double> out(static_cast<size_t>(o_.v_size)), want(out.size());
    for_each_query([&](int64_t b, int64_t head, int64_t i, size_t row) {
      for (size_t d = 0; d < out.size(); ++d) {
        out[d] = view.at({b, head, i, static_cast<int64_t>(d)});
        want[d] = e_.output[row * out.size() + d];
      }
      forgive(score_excess(o_.type, e_.weighing_size[row]), want, out);
      if (c_.loose[static_cast<size_t>(b * o_.kv_heads + head / group_)]) {
        const int64_t channel = missing_nan(out, want);
        if (channel >= 0) {
          findings_.report("Y[", b, ",", head, ",", i, "] channel ", channel, " is ",
                           out[static_cast<size_t>(channel)],
                           ", expected NaN (V is NaN at a key that the row sees)");
        }
      } else if (!meter.add(out, want, e_.output_size[row])) {
        findings_.report("Y[", b, ",", head, ",", i, "]: ", worst_element(out, want));
      }
    });
    if (numbers) *numbers = {meter.error(), meter.worst_row()};
    if (!meter.passed()) {
      findings_.report("Y: relative error ", meter.error(), " (bar ", meter.bar(), "), worst row ",
                       meter.worst_row(), ", rows out of bounds ", meter.rows_failed());
    }
  }

  void check_scores() {
    const View& view = c_.wanted[kScores];
    std::vector<double> out(static_cast<size_t>(e_.score_columns)), want(out.size());
    ErrorMeter meter(o_.type);
    for_each_query([&](int64_t b, int64_t head, int64_t i, size_t row) {
      for (size_t j = 0; j < out.size(); ++j) {
        out[j] = view.at({b, head, i, static_cast<int64_t>(j)});
        want[j] = e_.scores[row * out.size() + j];
        // Probabilities of a row that is NaN: a masked cell may be 0 or NaN.
        if (o_.score_mode == 3 && e_.poisoned[row] && std::isnan(out[j]) && want[j] == 0)
          out[j] = 0;
      }
      if (o_.score_mode == 3) forgive(score_excess(o_.type, e_.weighing_size[row]), want, out);
      const double least = o_.score_mode < 3 ? e_.score_size[row] : 0;
      if (!meter.add(out, want, std::isfinite(least) ? least : 0)) {
        findings_.report("qk_matmul_output[", b, ",", head, ",", i,
                         "]: ", worst_element(out, want));
      }
    });
    if (!meter.passed()) {
      findings_.report("qk_matmul_output: relative error ", meter.error(), " (bar ", meter.bar(),
                       ")");
    }
  }

  void check_log_sum_exp() {
    const View& view = c_.wanted[kLogSumExp];
    // Products of 16-bit numbers are exact in float32, and the log-sum-exp is stored as float32.
    const double bound = test::error_bar(Type::kFloat32);
    for_each_query([&](int64_t b, int64_t head, int64_t i, size_t row) {
      const double got = view.at({b, head, i});
      const double want = e_.log_sum_exp[row];
      bool good = same_number(got, want);
      if (std::isfinite(want)) {
        const double size = e_.weighing_size[row];
        good = std::fabs(got - want) <= bound * std::max({1.0, std::fabs(want), size});
      }
      if (!good)
        findings_.report("log-sum-exp[", b, ",", head, ",", i, "] is ", got, ", expected ", want);
    });
  }

  void check_present(uint32_t slot, const std::vector<double>& want,
                     const std::vector<CacheRow>& kinds) {
    check_cache(
        {kNames[slot], c_.wanted[slot], want, kinds},
        [](double got, double expected, CacheRow, const double*) {
          return same_number(got, expected);
        },
        findings_);
  }

  void check_memory() {
    for (uint32_t slot = 0; slot < kOutputs; ++slot) {
      const test::Tensor& tensor = c_.target(slot);
      if (!tensor.bound()) continue;
      const std::vector<CacheRow>& kinds = slot == kPresentKey ? e_.key_rows : e_.value_rows;
      check_written(
          kNames[slot], tensor,
          c_.aliased(slot) ? written_bytes(tensor, c_.wanted[slot], kinds) : tensor.element_bytes(),
          findings_);
    }
    check_inputs(
        c_.in,
        [&](uint32_t slot) {
          return (slot == kPastKey && c_.aliased(kPresentKey)) ||
                 (slot == kPastValue && c_.aliased(kPresentValue));
        },
        findings_);
  }

  const AttentionCase& c_;
  const AttentionOutline& o_;
  const reference::OnnxAttentionResult& e_;
  int64_t group_;
  Findings findings_;
};

}  // namespace

std::string AttentionCase::check(CheckNumbers* numbers) const {
  return Checker(*this).run(numbers);
}

std::string AttentionCase::untouched() const { return check_untouched(in, out); }

}  // namespace attn::matrix
