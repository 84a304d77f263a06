// Compares what an engine left in memory with the reference, element by element.
#include <sstream>

#include "matrix/linear_case.h"
#include "support/compare.h"

namespace attn::matrix {
namespace {

using namespace linear;
using test::ErrorMeter;
using test::Tensor;
using test::View;

class Checker {
 public:
  explicit Checker(const LinearCase& c) : c_(c), o_(c.outline), e_(c.expected) {}

  std::string run(CheckNumbers* numbers) {
    check_output(numbers);
    if (o_.present) check_present();
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
    report(name, " row ", row, ": got (expected)", text.str());
  }

  void finish(const char* name, const ErrorMeter& meter) {
    if (meter.passed()) return;
    report(name, ": relative error ", meter.error(), " (bar ", meter.bar(), "), worst row ",
           meter.worst_row(), ", rows out of bounds ", meter.rows_failed());
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
      const Tensor& tensor = c_.target(slot);
      if (!tensor.bound()) continue;
      const bool writes = slot == kOutput || o_.present;
      const int64_t change =
          tensor.buffer().first_change(writes ? tensor.element_bytes() : std::vector<bool>());
      if (change >= 0) report(names[slot], ": byte ", change, " is not its to write");
      if (!tensor.buffer().fences_intact()) report(names[slot], ": its fence was written");
    }
    for (uint32_t slot = 0; slot < kInputs; ++slot) {
      const test::Buffer& buffer = c_.in[slot].buffer();
      const bool aliased = slot == kPastState && o_.in_place;
      if (!aliased && buffer.first_change({}) >= 0) report("input ", slot, " was changed");
      if (!buffer.fences_intact()) report("the fence of input ", slot, " was written");
    }
  }

  const LinearCase& c_;
  const LinearOutline& o_;
  const reference::LinearAttentionResult& e_;
  int count_ = 0;
  std::ostringstream findings_;
};

}  // namespace

std::string LinearCase::check(CheckNumbers* numbers) const { return Checker(*this).run(numbers); }

std::string LinearCase::untouched() const {
  std::string findings;
  const auto check = [&](const Tensor& tensor, const char* what, uint32_t slot) {
    if (tensor.buffer().first_change({}) >= 0 || !tensor.buffer().fences_intact()) {
      findings += std::string("  ") + what + " " + std::to_string(slot) +
                  " was written by a call that was refused\n";
    }
  };
  for (uint32_t slot = 0; slot < kInputs; ++slot) check(in[slot], "input", slot);
  for (uint32_t slot = 0; slot < kOutputs; ++slot) check(out[slot], "output", slot);
  return findings;
}

}  // namespace attn::matrix
