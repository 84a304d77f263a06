#include "matrix/check.h"

#include <algorithm>
#include <cmath>

namespace attn::matrix {

using reference::CacheRow;
using test::Tensor;
using test::Type;
using test::View;

namespace {

constexpr double kBarSize = 10;  // of scores that are within the bar as it is

}  // namespace

double score_excess(Type type, double size) {
  if (type == Type::kFloat16 || type == Type::kBfloat16) return 1;
  return std::isfinite(size) ? std::max(1.0, size / kBarSize) : 1;
}

void forgive(double excess, std::span<const double> want, std::span<double> out) {
  if (excess <= 1) return;
  for (size_t i = 0; i < out.size(); ++i) {
    if (std::isfinite(want[i])) out[i] = want[i] + (out[i] - want[i]) / excess;
  }
}

bool same_number(double got, double want) {
  return got == want || (std::isnan(got) && std::isnan(want));
}

std::string worst_element(std::span<const double> out, std::span<const double> want) {
  size_t worst = 0;
  double largest = -1;
  for (size_t d = 0; d < out.size(); ++d) {
    double difference = std::fabs(out[d] - want[d]);
    if (std::isnan(difference)) difference = same_number(out[d], want[d]) ? 0 : 1e300;
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

int64_t missing_nan(std::span<const double> out, std::span<const double> want) {
  for (size_t d = 0; d < out.size(); ++d) {
    if (std::isnan(want[d]) && !std::isnan(out[d])) return static_cast<int64_t>(d);
  }
  return -1;
}

void check_cache(const CacheAfter& cache, const SameElement& same, Findings& findings) {
  const View& view = cache.view;
  const int64_t rows = view.dim(2), size = view.dim(3);
  for_each_row(view.dim(0), view.dim(1), rows,
               [&](int64_t b, int64_t head, int64_t row, size_t number) {
                 const CacheRow kind = cache.kinds[static_cast<size_t>(b * rows + row)];
                 if (kind == CacheRow::kUntouched || kind == CacheRow::kFree) return;
                 const double* want = cache.want.data() + number * static_cast<size_t>(size);
                 for (int64_t d = 0; d < size; ++d) {
                   const double got = view.at({b, head, row, d});
                   if (same(got, want[d], kind, want)) continue;
                   findings.report(cache.name, "[", b, ",", head, ",", row, ",", d, "] is ", got,
                                   ", expected ", want[d],
                                   kind == CacheRow::kCopied ? " (a past row)"
                                   : kind == CacheRow::kNew  ? " (a new row)"
                                                             : " (an unused row)");
                 }
               });
}

std::vector<bool> written_bytes(const Tensor& tensor, const View& view,
                                const std::vector<CacheRow>& kinds) {
  std::vector<bool> bytes(static_cast<size_t>(tensor.buffer().size()), false);
  const int64_t rows = view.dim(2);
  for_each_row(view.dim(0), view.dim(1), rows, [&](int64_t b, int64_t head, int64_t row, size_t) {
    if (kinds[static_cast<size_t>(b * rows + row)] == CacheRow::kUntouched) return;
    for (int64_t d = 0; d < view.dim(3); ++d) {
      const int64_t index[] = {b, head, row, d};
      const int64_t at = static_cast<unsigned char*>(view.address(index)) - tensor.buffer().data();
      for (int64_t k = 0; k < test::size_of(view.type); ++k) {
        bytes[static_cast<size_t>(at + k)] = true;
      }
    }
  });
  return bytes;
}

void check_written(const char* name, const Tensor& tensor, const std::vector<bool>& writable,
                   Findings& findings) {
  const int64_t change = tensor.buffer().first_change(writable);
  if (change >= 0) findings.report(name, ": byte ", change, " is not its to write");
  if (!tensor.buffer().fences_intact()) findings.report(name, ": its fence was written");
}

void check_inputs(std::span<const Tensor> inputs,
                  const std::function<bool(uint32_t slot)>& in_place, Findings& findings) {
  for (uint32_t slot = 0; slot < inputs.size(); ++slot) {
    const test::Buffer& buffer = inputs[slot].buffer();
    if (!in_place(slot) && buffer.first_change({}) >= 0) {
      findings.report("input ", slot, " was changed");
    }
    if (!buffer.fences_intact()) findings.report("the fence of input ", slot, " was written");
  }
}

std::string check_untouched(std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  std::string text;
  const auto check = [&](std::span<const Tensor> tensors, const char* what) {
    for (size_t slot = 0; slot < tensors.size(); ++slot) {
      const test::Buffer& buffer = tensors[slot].buffer();
      if (buffer.first_change({}) < 0 && buffer.fences_intact()) continue;
      text += std::string("  ") + what + " " + std::to_string(slot) +
              " was written by a call that was refused\n";
    }
  };
  check(inputs, "input");
  check(outputs, "output");
  return text;
}

}  // namespace attn::matrix
