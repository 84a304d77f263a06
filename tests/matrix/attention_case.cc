#include "matrix/attention_case.h"

#include <algorithm>

namespace attn::matrix {

test::View by_heads(const test::View& view, int64_t heads) {
  if (!view.bound || view.shape.size() != 3) return view;
  test::View out = view;
  const int64_t channels = view.shape[2] / heads;
  out.shape = {view.shape[0], heads, view.shape[1], channels};
  out.strides = {view.strides[0], view.strides[2] * channels, view.strides[1], view.strides[2]};
  return out;
}

test::Attributes AttentionCase::attributes() const {
  const AttentionOutline& o = outline;
  test::Attributes list;
  // Head counts are required with 3-D inputs; up to version 24 they may stand beside 4-D ones.
  const bool windows = o.left_window >= 0 || o.right_window >= 0;
  const bool explicit_defaults = o.seed % 2 == 0;
  const bool may_repeat = o.version <= 24 && explicit_defaults;
  if (o.query_rank == 3 || may_repeat) list.set_int("q_num_heads", o.heads);
  if ((o.key_rank == 3 && o.value_rank == 3) || may_repeat) {
    list.set_int("kv_num_heads", o.kv_heads);
  }
  if (o.causal || explicit_defaults) list.set_int("is_causal", o.causal);
  if (o.has_scale) list.set_float("scale", o.scale);
  if (o.softcap != 0 || explicit_defaults) list.set_float("softcap", o.softcap);
  if (o.softmax_precision != 0) list.set_int("softmax_precision", o.softmax_precision);
  if (o.score_mode != 0 || explicit_defaults) {
    list.set_int("qk_matmul_output_mode", o.score_mode);
  }
  if (windows || (explicit_defaults && o.version >= 27)) {
    list.set_int("left_window_size", o.left_window);
    list.set_int("right_window_size", o.right_window);
  }
  if (o.form == KeyForm::kMarked) list.set_int("length_from_mask", 1);
  return list;
}

test::Arguments AttentionCase::inputs() const {
  test::Arguments list;
  for (uint32_t slot = 0; slot < kInputs; ++slot) {
    if (!given[slot].bound) continue;
    attn_tensor tensor = test::describe(given[slot]);
    if (describe_memory) {
      tensor.data = in[slot].buffer().data();
      tensor.byte_offset = static_cast<uint64_t>(in[slot].byte_offset());
      tensor.data_bytes = static_cast<uint64_t>(in[slot].buffer().size());
    }
    list.add(slot, tensor);
  }
  return list;
}

test::Arguments AttentionCase::outputs() const {
  test::Arguments list;
  for (uint32_t slot = 0; slot < kOutputs; ++slot) {
    if (!wanted[slot].bound) continue;
    attn_tensor tensor = test::describe(wanted[slot]);
    if (describe_memory) {
      const test::Tensor& owner = target(slot);
      tensor.data = owner.buffer().data();
      tensor.byte_offset = static_cast<uint64_t>(owner.byte_offset());
      tensor.data_bytes = static_cast<uint64_t>(owner.buffer().size());
    }
    list.add(slot == kLogSumExp ? ATTN_SLOT_LOG_SUM_EXP : slot, tensor);
  }
  return list;
}

std::vector<attn_alias> AttentionCase::aliases() const {
  std::vector<attn_alias> list;
  if (outline.aliased_key) list.push_back({kPastKey, kPresentKey});
  if (outline.aliased_value) list.push_back({kPastValue, kPresentValue});
  return list;
}

attn_prepare_desc AttentionCase::wide_bounds() const {
  attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
  desc.max_batch = outline.batch + 2;
  desc.max_query_length = outline.rows + 3;
  desc.max_total_length =
      outline.past_rows + outline.new_rows + outline.key_capacity + outline.value_capacity + 70;
  return desc;
}

void AttentionCase::restore() {
  for (test::Tensor& tensor : in) tensor.buffer().restore();
  for (test::Tensor& tensor : out) tensor.buffer().restore();
}

bool AttentionCase::fixed_whatever_the_tiles() const {
  return std::find(loose.begin(), loose.end(), true) == loose.end();
}

std::vector<const test::Buffer*> AttentionCase::results() const {
  std::vector<const test::Buffer*> buffers;
  for (uint32_t slot = 0; slot < kOutputs; ++slot) buffers.push_back(&target(slot).buffer());
  return buffers;
}

void AttentionCase::renew() {
  for (test::Tensor& tensor : in) tensor.buffer().snapshot();
  for (test::Tensor& tensor : out) tensor.buffer().snapshot();
  expected = reference::run(problem);
}

MatrixOptions attention_matrix_options(const AttentionDraw& draw) {
  MatrixOptions options;
  options.tool = "attention_matrix";
  options.engines = {"simd-prefill",        "simd-decode",       "generic",
                     "simd-kv-update",      "generic-kv-update", "amx-prefill",
                     "amx-prefill-emulated"};
  options.draw = [draw](uint64_t seed) {
    Random random(seed);
    const AttentionOutline outline = draw_attention_outline(seed, draw, random);
    return std::make_unique<AttentionCase>(build_attention_case(outline, random));
  };
  return options;
}

}  // namespace attn::matrix
