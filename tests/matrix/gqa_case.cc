#include "matrix/gqa_case.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "matrix/check.h"
#include "matrix/gqa_check.h"

namespace attn::matrix {

bool GqaCase::in_place(uint32_t output) const {
  if (output == kPresentKey) return problem.present_key.bound && problem.present_key.in_place;
  if (output == kPresentValue) return problem.present_value.bound && problem.present_value.in_place;
  return false;
}

const test::Tensor& GqaCase::target(uint32_t output) const {
  if (!in_place(output)) return out[output];
  return in[output == kPresentKey ? kPastKey : kPastValue];
}

test::Tensor& GqaCase::target(uint32_t output) {
  return const_cast<test::Tensor&>(std::as_const(*this).target(output));
}

attn_prepare_desc GqaCase::wide_bounds() const {
  attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
  desc.max_batch = outline.batch + 2;
  desc.max_query_length = outline.rows + 3;
  desc.max_total_length = outline.bound + outline.key.present.rows + 200;
  return desc;
}

std::string GqaCase::check(CheckNumbers* numbers) const { return check_result(*this, numbers); }

std::string GqaCase::untouched() const { return check_untouched(in, out); }

bool GqaCase::fixed_whatever_the_tiles() const {
  return std::find(loose.begin(), loose.end(), true) == loose.end();
}

std::vector<const test::Buffer*> GqaCase::results() const {
  std::vector<const test::Buffer*> buffers;
  for (uint32_t slot = 0; slot < kOutputs; ++slot) buffers.push_back(&target(slot).buffer());
  return buffers;
}

test::Attributes GqaCase::attributes() const {
  const reference::GroupQueryAttention& p = problem;
  test::Attributes list;
  list.set_int("num_heads", p.num_heads).set_int("kv_num_heads", p.kv_num_heads);
  // Defaults are sometimes left out; which ones follows from the seed.
  const bool explicit_defaults = outline.seed % 2 == 0;
  const auto set_int = [&](const char* name, int64_t value, int64_t unset) {
    if (explicit_defaults || value != unset) list.set_int(name, value);
  };
  const auto set_float = [&](const char* name, double value, double unset) {
    if (explicit_defaults || value != unset) list.set_float(name, value);
  };
  set_float("scale", p.scale, 0);
  set_float("softcap", p.softcap, 0);
  set_int("local_window_size", p.local_window_size, -1);
  set_int("causal", p.causal, 1);
  set_int("do_rotary", p.do_rotary, 0);
  set_int("rotary_interleaved", p.rotary_interleaved, 0);
  set_int("smooth_softmax", p.smooth_softmax, -1);
  set_int("qk_output", p.qk_output, 0);
  set_int("empty_slots", p.empty_slots, 0);
  set_float("qk_norm_epsilon", p.qk_norm_epsilon, static_cast<float>(1e-6));
  return list;
}

test::Arguments GqaCase::inputs() const {
  test::Arguments list;
  for (uint32_t slot = 0; slot < kInputs; ++slot) {
    if (!in[slot].bound()) continue;
    attn_tensor tensor =
        describe_memory ? test::describe(in[slot]) : test::describe(in[slot].view());
    // In place the tensor is the whole present buffer, of which past may be the first rows.
    if (slot == kPastKey) tensor.shape[2] = outline.key.past_rows;
    if (slot == kPastValue) tensor.shape[2] = outline.value.past_rows;
    list.add(slot, tensor);
  }
  return list;
}

test::Arguments GqaCase::outputs() const {
  test::Arguments list;
  for (uint32_t slot = 0; slot < kOutputs; ++slot) {
    const test::Tensor& tensor = target(slot);
    if (!tensor.bound()) continue;
    list.add(slot == kLogSumExp ? ATTN_SLOT_LOG_SUM_EXP : slot,
             describe_memory ? test::describe(tensor) : test::describe(tensor.view()));
  }
  return list;
}

std::vector<attn_alias> GqaCase::aliases() const {
  std::vector<attn_alias> list;
  if (in_place(kPresentKey)) list.push_back({kPastKey, kPresentKey});
  if (in_place(kPresentValue)) list.push_back({kPastValue, kPresentValue});
  return list;
}

void GqaCase::restore() {
  for (test::Tensor& tensor : in) tensor.buffer().restore();
  for (test::Tensor& tensor : out) tensor.buffer().restore();
}

void GqaCase::renew() {
  for (test::Tensor& tensor : in) tensor.buffer().snapshot();
  for (test::Tensor& tensor : out) tensor.buffer().snapshot();
  expected = reference::run(problem);
}

std::vector<uint64_t> GqaCase::fixed_bits() const {
  std::vector<uint64_t> bits;
  const auto add = [&bits](const test::View& view, std::initializer_list<int64_t> index) {
    uint64_t pattern = 0;
    std::memcpy(&pattern, view.address({index.begin(), index.size()}),
                static_cast<size_t>(test::size_of(view.type)));
    bits.push_back(pattern);
  };
  const GqaOutline& o = outline;
  const test::View& scores = out[kOutputQk].view();
  const test::View& log_sum_exp = out[kLogSumExp].view();
  for (int64_t b = 0; b < o.batch; ++b) {
    for (int64_t i = 0; i < o.rows; ++i) {
      const size_t row = static_cast<size_t>(b * o.rows + i);
      if (expected.rows[row] == reference::RowKind::kPadded) continue;
      for (int64_t channel = 0; channel < o.heads * o.size; ++channel) {
        add(out[kOutput].view(), {b, i, channel});
      }
      for (int64_t head = 0; head < o.heads; ++head) {
        if (log_sum_exp.bound) add(log_sum_exp, {b, head, i});
        for (int64_t j = 0; scores.bound && j < scores.dim(3); ++j) add(scores, {b, head, i, j});
      }
    }
    for (uint32_t slot : {kPresentKey, kPresentValue}) {
      const test::View& cache = target(slot).view();
      if (!cache.bound) continue;
      for (int64_t head = 0; head < o.kv_heads; ++head) {
        for (int64_t row = 0; row < o.totals[static_cast<size_t>(b)]; ++row) {
          for (int64_t d = 0; d < o.size; ++d) add(cache, {b, head, row, d});
        }
      }
    }
  }
  return bits;
}

void transplant_inputs(const GqaCase& from, GqaCase& to) {
  for (uint32_t slot = 0; slot < kInputs; ++slot) {
    const test::View& source = from.in[slot].view();
    const test::View& target = to.in[slot].view();
    if (!source.bound || !target.bound || source.shape != target.shape) continue;
    for (int64_t k = 0; k < source.elements(); ++k) {
      std::memcpy(target.address_of(k), source.address_of(k),
                  static_cast<size_t>(test::size_of(source.type)));
    }
  }
}

}  // namespace attn::matrix
