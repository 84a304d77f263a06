// Compares what an engine left in memory with the reference, element by element.
#include <sstream>

#include "matrix/check.h"
#include "matrix/linear_case.h"
#include "support/compare.h"

namespace attn::matrix {
namespace {

using namespace linear;
using test::ErrorMeter;
using test::View;

class Checker {
 public:
  explicit Checker(const LinearCase& c) : c_(c), o_(c.outline), e_(c.expected) {}

  std::string run(CheckNumbers* numbers) {
    check_output(numbers);
    if (o_.present) check_present();
    check_memory();
    return findings_.text();
  }

 private:
  // One row of dv numbers; `index` names it.
  template <class At>
  void check_row(const char* name, ErrorMeter& meter, size_t row, At at, const double* want,
                 double least) {
    const size_t size = static_cast<size_t>(o_.v_head_size);
    std::vector<double> got(size);
    for (size_t j = 0; j < size; ++j) got[j] = at(static_cast<int64_t>(j));
    if (meter.add(got, {want, size}, least)) return;
    std::ostringstream text;
    for (size_t j = 0; j < size && j < 6; ++j) text << " " << got[j] << " (" << want[j] << ")";
    findings_.report(name, " row ", row, ": got (expected)", text.str());
  }

  void finish(const char* name, const ErrorMeter& meter) {
    if (meter.passed()) return;
    findings_.report(name, ": relative error ", meter.error(), " (bar ", meter.bar(),
                     "), worst row ", meter.worst_row(), ", rows out of bounds ",
                     meter.rows_failed());
  }

  void check_output(CheckNumbers* numbers) {
    const View& view = c_.out[kOutput].view();
    const int64_t heads = std::max(o_.q_heads, o_.kv_heads), dv = o_.v_head_size;
    ErrorMeter meter(o_.type);
    size_t row = 0;
    for (int64_t b = 0; b < o_.batch; ++b) {
      for (int64_t t = 0; t < o_.tokens; ++t) {
        for (int64_t h = 0; h < heads; ++h, ++row) {
          check_row(
              "output", meter, row, [&](int64_t j) { return view.at({b, t, h * dv + j}); },
              e_.output.data() + row * static_cast<size_t>(dv), e_.output_size[row]);
        }
      }
    }
    finish("output", meter);
    if (numbers) *numbers = {meter.error(), meter.worst_row()};
  }

  void check_present() {
    const View& view = c_.target(kPresentState).view();
    ErrorMeter meter(o_.state_type);
    size_t row = 0;
    for (int64_t b = 0; b < o_.batch; ++b) {
      for (int64_t h = 0; h < o_.kv_heads; ++h) {
        for (int64_t i = 0; i < o_.head_size; ++i, ++row) {
          check_row(
              "present_state", meter, row, [&](int64_t j) { return view.at({b, h, i, j}); },
              e_.present.data() + row * static_cast<size_t>(o_.v_head_size), e_.present_size[row]);
        }
      }
    }
    finish("present_state", meter);
  }

  void check_memory() {
    const char* const names[] = {"output", "present_state"};
    for (uint32_t slot = 0; slot < kOutputs; ++slot) {
      const test::Tensor& tensor = c_.target(slot);
      if (!tensor.bound()) continue;
      const bool writes = slot == kOutput || o_.present;
      check_written(names[slot], tensor, writes ? tensor.element_bytes() : std::vector<bool>(),
                    findings_);
    }
    check_inputs(
        c_.in, [&](uint32_t slot) { return slot == kPastState && o_.in_place; }, findings_);
  }

  const LinearCase& c_;
  const LinearOutline& o_;
  const reference::LinearAttentionResult& e_;
  Findings findings_;
};

}  // namespace

std::string LinearCase::check(CheckNumbers* numbers) const { return Checker(*this).run(numbers); }

std::string LinearCase::untouched() const { return check_untouched(in, out); }

}  // namespace attn::matrix
