#include "cuda/launch_params.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/lengths.h"

namespace attn::cuda {

int type_number(DType type) {
  if (type == kFloat16) return attnk::kTypeFloat16;
  if (type == kBfloat16) return attnk::kTypeBfloat16;
  if (type == kBool) return attnk::kTypeBool;
  return attnk::kTypeFloat32;
}

attnk::View kernel_view(const View4& v) {
  return {v.data, v.batch, v.head, v.row, v.channel, v.rows};
}

namespace {

bool is_on_16_bytes(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

// Whether the rows begin on 16 bytes, hold whole 16-byte pieces and no gaps.
bool in_pieces(const View4& v, int channels, int64_t bytes) {
  const auto whole = [&](int64_t elements) { return elements * bytes % 16 == 0; };
  return is_on_16_bytes(v.data) && v.channel == 1 && whole(channels) && whole(v.batch) &&
         whole(v.head) && whole(v.row);
}

// Whether rows of whole pieces can be rotated piece by piece, by tables that are read likewise.
bool in_pieces(const RowTransformSpec& spec, const RowTransform& t, DType type) {
  const int64_t bytes = size_of(spec.table);
  return spec.rotary && !spec.norm && spec.width * size_of(type) % 32 == 0 &&
         (spec.table == kFloat32 || spec.table == type) && t.cos_col == 1 && t.sin_col == 1 &&
         t.cos_row * bytes % 16 == 0 && t.sin_row * bytes % 16 == 0 && is_on_16_bytes(t.cos) &&
         is_on_16_bytes(t.sin);
}

attnk::TransformParams transform(const RowTransformSpec& spec, const RowTransform& t, DType type) {
  attnk::TransformParams out{};
  out.weight = t.weight;
  out.weight_stride = t.weight_stride;
  out.cos = t.cos;
  out.sin = t.sin;
  out.cos_row = t.cos_row;
  out.cos_col = t.cos_col;
  out.sin_row = t.sin_row;
  out.sin_col = t.sin_col;
  out.table_rows = t.table_rows;
  out.positions = reinterpret_cast<const attnk::i64*>(t.positions);
  out.position_batch = t.position_batch;
  out.position_row = t.position_row;
  out.norm = spec.norm;
  out.rotary = spec.rotary;
  out.interleaved = spec.interleaved;
  out.explicit_positions = spec.explicit_positions;
  out.table_type = type_number(spec.table);
  out.width = spec.width;
  out.epsilon = spec.epsilon;
  out.in_pieces = in_pieces(spec, t, type);
  return out;
}

attnk::CacheParams cache(const CacheUpdateSpec& spec, const CacheUpdate& update, int channels,
                         DType type) {
  const auto bytes = static_cast<int64_t>(size_of(type));
  attnk::CacheParams out{};
  out.source = kernel_view(update.source);
  out.past = kernel_view(update.past);
  out.present = kernel_view(update.present);
  out.transform = transform(spec.transform, update.transform, type);
  out.active = spec.active;
  out.has_past = spec.has_past;
  out.in_place = spec.in_place;
  out.channels = channels;
  out.present_in_pieces = in_pieces(update.present, channels, bytes);
  out.source_in_pieces = out.present_in_pieces && in_pieces(update.source, channels, bytes);
  out.past_in_pieces = out.present_in_pieces && in_pieces(update.past, channels, bytes);
  return out;
}

// The mask's last query row, whose strides then are those of batch rows, heads and columns.
void fill_mask(const LengthMask& mask, attnk::LengthMaskParams& out) {
  out.data = nullptr;
  if (mask.data != nullptr) {
    out.data =
        static_cast<const std::byte*>(mask.data) + mask.last_row * mask.row * size_of(mask.type);
  }
  out.batch = mask.batch;
  out.head = mask.head;
  out.column = mask.column;
  out.heads = mask.heads;
  out.columns = mask.columns;
  out.type = type_number(mask.type);
}

}  // namespace

void fill_lengths(const Lengths& lengths, attnk::LengthParams& out) {
  out.values = lengths.values;
  out.value_stride = lengths.value_stride;
  if (lengths.spec.rule == LengthRule::kValid) {
    out.valid = reinterpret_cast<const attnk::i64*>(lengths.valid);
    out.value_stride = lengths.valid_stride;
  }
  out.most_keys = lengths.most_keys;
  if (lengths.spec.rule == LengthRule::kMaskEnd) fill_mask(lengths.mask, out.mask);
  out.bound = lengths.spec.bound == Placement::kDevice ? lengths.bound : nullptr;
  out.bound_value = 0;
  if (lengths.spec.bound == Placement::kHost) out.bound_value = *lengths.bound;
  out.query_rows = lengths.query_rows;
  out.new_rows = lengths.new_rows;
  out.uniform_past = lengths.uniform_past;
  out.past_capacity = std::max<int64_t>(lengths.past_capacity, 0);
  out.present_capacity = lengths.present_capacity;
  out.table_rows = lengths.table_rows;
  out.positions = reinterpret_cast<const attnk::i64*>(lengths.positions);
  out.position_batch = lengths.position_batch;
  out.position_row = lengths.position_row;
  out.rule = lengths.spec.rule == LengthRule::kUniform   ? attnk::kLengthUniform
             : lengths.spec.rule == LengthRule::kValid   ? attnk::kLengthValid
             : lengths.spec.rule == LengthRule::kMaskEnd ? attnk::kLengthMaskEnd
                                                         : attnk::kLengthGroupQuery;
  out.empty_slots = may_be_empty(lengths);
}

void fill_packed(const Lengths& lengths, const AttentionProblem& problem,
                 attnk::PackedParams& out) {
  out.query_ends = lengths.values;
  out.query_ends_stride = lengths.value_stride;
  out.key_ends = lengths.key_values;
  out.key_ends_stride = lengths.key_value_stride;
  out.batch = lengths.batch;
  out.query_tokens = lengths.query_tokens;
  out.key_tokens = lengths.key_tokens;
  out.most_queries = lengths.query_rows;
  out.most_keys = lengths.most_keys;
  out.output = kernel_view(problem.output);
  out.lse = kernel_view(problem.log_sum_exp);
  out.heads = problem.spec.q_heads;
  out.channels = problem.spec.v_head_size;
  out.has_lse = problem.spec.log_sum_exp;
}

void fill_kv_update(const KvUpdateProblem& problem, attnk::KvUpdateParams& out) {
  const KvUpdateSpec& spec = problem.spec;
  out.caches[0] = cache(spec.key, problem.key, spec.head_size, spec.type);
  out.caches[1] = cache(spec.value, problem.value, spec.v_head_size, spec.type);
  out.kv_heads = spec.kv_heads;
}

void fill_attention(const AttentionProblem& problem, attnk::AttentionParams& out) {
  const AttentionSpec& spec = problem.spec;
  out.query = kernel_view(problem.query);
  out.key = kernel_view(problem.key);
  out.value = kernel_view(problem.value);
  out.key_fresh = kernel_view(problem.key_fresh);
  out.value_fresh = kernel_view(problem.value_fresh);
  out.output = kernel_view(problem.output);
  out.scores = kernel_view(problem.scores);
  out.lse = kernel_view(problem.log_sum_exp);
  out.query_transform = transform(spec.query_transform, problem.query_transform, spec.type);
  out.key_transform = transform(spec.key_transform, problem.key_transform, spec.type);
  out.mask = problem.mask;
  out.mask_batch = problem.mask_batch;
  out.mask_head = problem.mask_head;
  out.mask_row = problem.mask_row;
  out.mask_column = problem.mask_column;
  out.mask_columns = problem.mask_columns;
  out.sink = problem.sink;
  out.sink_stride = problem.sink_stride;
  out.score_columns = problem.score_columns;
  out.batch = problem.batch;
  out.q_heads = spec.q_heads;
  out.kv_heads = spec.kv_heads;
  out.query_rows = problem.query_rows;
  out.head_size = spec.head_size;
  out.v_head_size = spec.v_head_size;
  out.left_window = spec.left_window;
  out.right_window = spec.right_window;
  out.splits = 1;
  out.scale = static_cast<float>(spec.scale);
  out.softcap = static_cast<float>(spec.softcap);
  out.hidden_score = spec.hidden_score;
  out.causal = spec.causal;
  out.mask_kind = static_cast<int>(spec.mask);
  out.mask_type = type_number(spec.mask_type);
  out.sink_kind = static_cast<int>(spec.sink);
  out.score_stage = static_cast<int>(spec.scores);
  out.has_lse = spec.log_sum_exp;
  out.key_is_fresh = spec.key_fresh;
  out.value_is_fresh = spec.value_fresh;
  out.has_query_transform = spec.query_transform.any();
  out.has_key_transform = spec.key_transform.any();
  out.packed = spec.packed;
}

}  // namespace attn::cuda
