// Compares what an engine left in memory with the reference, element by element.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "matrix/attention_case.h"
#include "support/compare.h"

namespace attn::matrix {
namespace {

using reference::CacheRow;
using test::ErrorMeter;
using test::Tensor;
using test::View;

// Scores of this expected size, which spread to +-20 and more, are within the bar as it is.
constexpr double kBarSize = 10;

const char* const kNames[] = {"Y", "present_key", "present_value", "qk_matmul_output",
                              "log-sum-exp"};

class Checker : AttentionSlots {
 public:
  explicit Checker(const AttentionCase& c)
      : c_(c), o_(c.outline), e_(c.expected), group_(o_.heads / o_.kv_heads) {}

  std::string run(CheckNumbers* numbers) {
    check_output(numbers);
    if (o_.present_key) check_cache(kPresentKey, e_.present_key, e_.key_rows);
    if (o_.present_value) check_cache(kPresentValue, e_.present_value, e_.value_rows);
    if (o_.scores) check_scores();
    if (o_.log_sum_exp) check_log_sum_exp();
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

  // By how much more than the bar knows the rounding of a row's scores may be felt: a weight is off
  // by what its score's last place is. 16-bit types have larger errors.
  double excess(size_t row) const {
    if (o_.type == Type::kFloat16 || o_.type == Type::kBfloat16) return 1;
    const double size = e_.weighing_size[row];
    return std::isfinite(size) ? std::max(1.0, size / kBarSize) : 1;
  }

  void check_output(CheckNumbers* numbers) {
    const View view = by_heads(c_.wanted[kY], o_.heads);
    ErrorMeter meter(o_.type);
    std::vector<double> out(static_cast<size_t>(o_.v_size)), want(out.size());
    for_each_row([&](int64_t b, int64_t head, int64_t i) {
      const size_t row = row_number(b, head, i);
      const double beyond = excess(row);
      for (size_t d = 0; d < out.size(); ++d) {
        out[d] = view.at({b, head, i, static_cast<int64_t>(d)});
        want[d] = e_.output[row * out.size() + d];
        if (beyond > 1 && std::isfinite(want[d])) out[d] = want[d] + (out[d] - want[d]) / beyond;
      }
      if (c_.loose[static_cast<size_t>(b * o_.kv_heads + head / group_)]) {
        for (size_t d = 0; d < out.size(); ++d) {
          if (std::isnan(want[d]) && !std::isnan(out[d])) {
            report("Y[", b, ",", head, ",", i, "] channel ", d, " is ", out[d],
                   ", expected NaN (V is NaN at a key that the row sees)");
          }
        }
      } else if (!meter.add(out, want, e_.output_size[row])) {
        report("Y[", b, ",", head, ",", i, "]: ", row_text(out, want));
      }
    });
    if (numbers) *numbers = {meter.error(), meter.worst_row()};
    if (!meter.passed()) {
      report("Y: relative error ", meter.error(), " (bar ", meter.bar(), "), worst row ",
             meter.worst_row(), ", rows out of bounds ", meter.rows_failed());
    }
  }

  static std::string row_text(const std::vector<double>& out, const std::vector<double>& want) {
    size_t worst = 0;
    double largest = -1;
    for (size_t d = 0; d < out.size(); ++d) {
      double difference = std::fabs(out[d] - want[d]);
      if (std::isnan(difference)) {
        difference = out[d] == want[d] || (std::isnan(out[d]) && std::isnan(want[d])) ? 0 : 1e300;
      }
      if (difference > largest) {
        largest = difference;
        worst = d;
      }
    }
    std::ostringstream text;
    text.precision(12);
    text << "element " << worst << " is " << out[worst] << ", expected " << want[worst];
    return text.str();
  }

  void check_scores() {
    const View& view = c_.wanted[kScores];
    std::vector<double> out(static_cast<size_t>(e_.score_columns)), want(out.size());
    ErrorMeter meter(o_.type);
    for_each_row([&](int64_t b, int64_t head, int64_t i) {
      const size_t row = row_number(b, head, i);
      const double beyond = o_.score_mode == 3 ? excess(row) : 1;
      for (size_t j = 0; j < out.size(); ++j) {
        out[j] = view.at({b, head, i, static_cast<int64_t>(j)});
        want[j] = e_.scores[row * out.size() + j];
        if (beyond > 1 && std::isfinite(want[j])) out[j] = want[j] + (out[j] - want[j]) / beyond;
        // Probabilities of a row that is NaN: a masked cell may be 0 or NaN.
        if (o_.score_mode == 3 && e_.poisoned[row] && std::isnan(out[j]) && want[j] == 0)
          out[j] = 0;
      }
      const double least = o_.score_mode < 3 ? e_.score_size[row] : 0;
      if (!meter.add(out, want, std::isfinite(least) ? least : 0)) {
        report("qk_matmul_output[", b, ",", head, ",", i, "]: ", row_text(out, want));
      }
    });
    if (!meter.passed()) {
      report("qk_matmul_output: relative error ", meter.error(), " (bar ", meter.bar(), ")");
    }
  }

  void check_log_sum_exp() {
    const View& view = c_.wanted[kLogSumExp];
    // Products of 16-bit numbers are exact in float32, and the log-sum-exp is stored as float32.
    const double bound = test::error_bar(Type::kFloat32);
    for_each_row([&](int64_t b, int64_t head, int64_t i) {
      const size_t row = row_number(b, head, i);
      const double got = view.at({b, head, i});
      const double want = e_.log_sum_exp[row];
      bool good = std::isnan(want) ? std::isnan(got) : got == want;
      if (std::isfinite(want)) {
        const double size = e_.weighing_size[row];
        good = std::fabs(got - want) <= bound * std::max({1.0, std::fabs(want), size});
      }
      if (!good) report("log-sum-exp[", b, ",", head, ",", i, "] is ", got, ", expected ", want);
    });
  }

  void check_cache(uint32_t slot, const std::vector<double>& want,
                   const std::vector<CacheRow>& kinds) {
    const View& view = c_.wanted[slot];
    const int64_t rows = view.dim(2), size = view.dim(3);
    for (int64_t b = 0; b < o_.batch; ++b) {
      for (int64_t head = 0; head < o_.kv_heads; ++head) {
        for (int64_t row = 0; row < rows; ++row) {
          const CacheRow kind = kinds[static_cast<size_t>(b * rows + row)];
          if (kind == CacheRow::kUntouched) continue;
          for (int64_t d = 0; d < size; ++d) {
            const double got = view.at({b, head, row, d});
            const double expected =
                want[static_cast<size_t>(((b * o_.kv_heads + head) * rows + row) * size + d)];
            if (got == expected || (std::isnan(got) && std::isnan(expected))) continue;
            report(kNames[slot], "[", b, ",", head, ",", row, ",", d, "] is ", got, ", expected ",
                   expected,
                   kind == CacheRow::kCopied ? " (a past row)"
                   : kind == CacheRow::kNew  ? " (a new row)"
                                             : " (an unused row)");
          }
        }
      }
    }
  }

  // Bytes that belong to what the call may write in the target of `slot`.
  std::vector<bool> writable(uint32_t slot) const {
    const Tensor& tensor = c_.target(slot);
    if (!c_.aliased(slot)) return tensor.element_bytes();
    const std::vector<CacheRow>& kinds = slot == kPresentKey ? e_.key_rows : e_.value_rows;
    const View& view = c_.wanted[slot];
    std::vector<bool> bytes(static_cast<size_t>(tensor.buffer().size()), false);
    for (int64_t b = 0; b < o_.batch; ++b) {
      for (int64_t row = 0; row < view.dim(2); ++row) {
        if (kinds[static_cast<size_t>(b * view.dim(2) + row)] == CacheRow::kUntouched) continue;
        for (int64_t head = 0; head < o_.kv_heads; ++head) {
          for (int64_t d = 0; d < view.dim(3); ++d) {
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
      if (change >= 0) report(kNames[slot], ": byte ", change, " is not its to write");
      if (!tensor.buffer().fences_intact()) report(kNames[slot], ": its fence was written");
    }
    for (uint32_t slot = 0; slot < kInputs; ++slot) {
      const bool aliased = (slot == kPastKey && c_.aliased(kPresentKey)) ||
                           (slot == kPastValue && c_.aliased(kPresentValue));
      const test::Buffer& buffer = c_.in[slot].buffer();
      if (!aliased && buffer.first_change({}) >= 0) report("input ", slot, " was changed");
      if (!buffer.fences_intact()) report("the fence of input ", slot, " was written");
    }
  }

  const AttentionCase& c_;
  const AttentionOutline& o_;
  const reference::OnnxAttentionResult& e_;
  int64_t group_;
  int count_ = 0;
  std::ostringstream findings_;
};

}  // namespace

std::string AttentionCase::check(CheckNumbers* numbers) const {
  return Checker(*this).run(numbers);
}

std::string AttentionCase::untouched() const {
  std::string findings;
  const auto check = [&](const test::Buffer& buffer, const char* what, uint32_t slot) {
    if (buffer.first_change({}) >= 0 || !buffer.fences_intact()) {
      findings += std::string("  ") + what + " " + std::to_string(slot) +
                  " was written by a call that was refused\n";
    }
  };
  for (uint32_t slot = 0; slot < kInputs; ++slot) check(in[slot].buffer(), "input", slot);
  for (uint32_t slot = 0; slot < kOutputs; ++slot) check(out[slot].buffer(), "output", slot);
  return findings;
}

}  // namespace attn::matrix
