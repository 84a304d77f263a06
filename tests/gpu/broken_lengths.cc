#include "gpu/broken_lengths.h"

#include <algorithm>

namespace attn::gpu {
namespace {

using matrix::GqaCase;
using reference::GroupQueryAttention;
using test::View;

// A batch row of a view whose first axis is the batch.
void keep_row(View& view, int64_t b) {
  if (!view.bound || view.shape.empty() || view.dim(0) <= 1) return;
  view.data = static_cast<char*>(view.data) + b * view.strides[0] * test::size_of(view.type);
  view.shape[0] = 1;
}

// The problem of one batch row alone, without what does not decide about faults.
GroupQueryAttention only_row(const GroupQueryAttention& p, int64_t b) {
  GroupQueryAttention one = p;
  for (View* view : {&one.query, &one.key, &one.value, &one.past_key, &one.past_value,
                     &one.seqlens_k, &one.position_ids, &one.attention_bias}) {
    keep_row(*view, b);
  }
  return one;
}

// The reference has a bit of its own for negative values; in public they are totals that are
// shorter than the new keys.
uint32_t public_bits(uint32_t bits) {
  if ((bits & reference::kLengthOutside) == 0) return bits;
  return (bits & ~uint32_t{reference::kLengthOutside}) | ATTN_FAULT_PAST_NEGATIVE;
}

// Runs the reference with these batch rows as empty slots.
reference::GroupQueryResult run_without(const GqaCase& c, const std::vector<bool>& rows) {
  GroupQueryAttention p = c.problem;
  p.empty_slots = true;
  std::vector<double> kept;
  for (int64_t b = 0; b < p.batch(); ++b) {
    kept.push_back(p.seqlens_k.at_linear(b));
    if (rows[static_cast<size_t>(b)]) p.seqlens_k.set_linear(b, -1);
  }
  reference::GroupQueryResult result = reference::run(p);
  for (int64_t b = 0; b < p.batch(); ++b) {
    p.seqlens_k.set_linear(b, kept[static_cast<size_t>(b)]);
  }
  return result;
}

}  // namespace

ExpectedFaults settle_faults(GqaCase& c) {
  ExpectedFaults expected;
  if (c.expected.faults == 0) return expected;
  const int64_t batch = c.problem.batch();
  for (int64_t b = 0; b < batch; ++b) {
    const uint32_t bits = public_bits(reference::run(only_row(c.problem, b)).faults);
    expected.bits |= bits;
    expected.bad.push_back(bits != 0);
    if (bits != 0 && c.problem.do_rotary) expected.may_join |= ATTN_FAULT_POSITION;
  }
  if (expected.bits == ATTN_FAULT_POSITION) expected.may_join = 0;
  c.expected = run_without(c, expected.bad);
  for (int64_t b = 0; b < batch; ++b) {
    if (!expected.bad[static_cast<size_t>(b)]) continue;
    const auto first = c.loose.begin() + b * c.outline.kv_heads;
    std::fill(first, first + c.outline.kv_heads, false);
  }
  return expected;
}

void expect_poisoned(GqaCase& c) {
  c.expected = run_without(c, std::vector<bool>(static_cast<size_t>(c.problem.batch()), true));
  for (auto* kinds : {&c.expected.key_rows, &c.expected.value_rows}) {
    std::fill(kinds->begin(), kinds->end(), reference::CacheRow::kUntouched);
  }
  std::fill(c.loose.begin(), c.loose.end(), false);
}

std::string check_caches_untouched(const GqaCase& c) {
  std::string findings;
  for (uint32_t slot : {matrix::kPresentKey, matrix::kPresentValue}) {
    if (!c.target(slot).bound()) continue;
    const int64_t change = c.target(slot).buffer().first_change({});
    if (change >= 0) {
      findings += "  output " + std::to_string(slot) + ": byte " + std::to_string(change) +
                  " was written by a poisoned session\n";
    }
  }
  return findings;
}

}  // namespace attn::gpu
