// The problems that every operator is lowered to: plain data, no behaviour.
//
// A problem has two kinds of fields. What stands in a `...Spec` decides which code runs; a plan is
// keyed by it. The rest (pointers, strides, lengths, batch) are launch parameters that may differ
// from call to call. Letters: B batch, S query rows, N new key rows, P past rows, T total rows,
// Hq/Hkv heads, D and Dv head sizes. All strides count elements and may be 0 or negative on inputs.
#pragma once

#include <cstdint>
#include <optional>

#include "core/dtype.h"
#include "core/linear_attention.h"
#include "core/rotary_problem.h"
#include "core/row_transform_spec.h"
#include "core/scatter_problem.h"
#include "core/view.h"

namespace attn {

// ---- lengths ------------------------------------------------------------------------------------

enum class LengthRule : uint8_t {
  // Every batch row: past = uniform_past, total = uniform_past + new_rows, queries behind the past.
  kUniform,
  kGroupQuery,  // int32 values[b] = total_b - 1 and one int32 bound (behaviour of seqlens_k)
  kValid,       // int64 valid[b] = total_b, past 0, queries end at the total
  kMaskEnd,  // total_b is one past the last key that the mask shows, new rows and queries end there
  kCumulative,  // packed tokens: int32 values[b], values[b + 1] bound the queries of sequence b,
                // key_values its keys; past 0, queries end at the total
};

struct LengthSpec {
  LengthRule rule = LengthRule::kUniform;
  Placement values = Placement::kAbsent;
  Placement bound = Placement::kAbsent;
  bool empty_slots = false;  // kGroupQuery: -1 is a slot without a sequence
  bool operator==(const LengthSpec&) const = default;
};

// Whether every sequence's lengths may change between replays of a captured call: the device reads
// them. total_sequence_length is a bound alone, and may lie elsewhere.
inline bool are_on_device(const LengthSpec& spec) {
  return spec.values == Placement::kDevice &&
         (spec.rule != LengthRule::kCumulative || spec.bound != Placement::kHost);
}

// kMaskEnd: where the mask of the last query row lies. A cell shows a key when it is true, or at
// least -1000; without `data`, all do. Strides are 0 where the mask broadcasts.
struct LengthMask {
  const void* data = nullptr;
  DType type{};
  int64_t heads = 1;
  int64_t batch = 0, head = 0, row = 0, column = 1;
  int64_t last_row = 0;
  int64_t columns = 0;
};

// Where lengths are read from, and the limits that they are checked against.
struct Lengths {
  LengthSpec spec;
  int64_t batch = 0;
  int64_t query_rows = 0;  // S
  int64_t new_rows = 0;    // N
  int64_t uniform_past = 0;
  const int32_t* values = nullptr;
  int64_t value_stride = 1;
  const int32_t* bound = nullptr;  // total_sequence_length
  int64_t past_capacity = 0;       // rows of the shorter bound past buffer, 0 without one
  int64_t present_capacity = -1;   // rows of the shorter bound present buffer, -1 without one
  // Rotary table rows that positions must lie in; -1 without rotary. positions as in RowTransform.
  int64_t table_rows = -1;
  const int64_t* positions = nullptr;
  int64_t position_batch = 0, position_row = 1;
  // Keys that no batch row exceeds: kValid, kMaskEnd and kCumulative. 0 otherwise.
  int64_t most_keys = 0;
  const int64_t* valid = nullptr;  // kValid
  int64_t valid_stride = 1;
  LengthMask mask;                      // kMaskEnd
  const int32_t* key_values = nullptr;  // kCumulative
  int64_t key_value_stride = 1;
  int64_t query_tokens = 0, key_tokens = 0;
};

// The lengths of one batch row, after its values were read and found good.
struct RowLengths {
  int64_t past = 0;         // rows [0, past) come from the past buffer
  int64_t appended = 0;     // new rows, at [past, past + appended)
  int64_t total = 0;        // keys [0, total) exist for attention
  int64_t query_start = 0;  // query row i stands at position query_start + i
  bool live = false;        // false: empty slot; output zero, caches in place untouched
  // AttentionSpec::packed: where the sequence's rows lie among the tokens, and how many it has.
  int64_t query_offset = 0, key_offset = 0;
  int64_t query_rows = 0;
};

// ---- KV update ----------------------------------------------------------------------------------

struct CacheUpdateSpec {
  bool active = false;    // a present buffer is bound
  bool has_past = false;  // a past buffer is bound
  bool in_place = false;  // present is past: append only
  bool grows = false;     // present begins where past does, with other strides: old rows must move
  bool unit_channel = true;    // all channel strides are 1
  RowTransformSpec transform;  // keys only
  bool operator==(const CacheUpdateSpec&) const = default;
};

// present[0, past) = past rows unless in place; present[past, past + appended) = transform(source);
// rows beyond are zeroed unless in place. Rows that do not fit the present buffer are not written.
// An empty slot: in place untouched, otherwise all zeros.
struct CacheUpdate {
  View4 source;   // (B, Hkv, N, channels)
  View4 past;     // (B, Hkv, P, channels)
  View4 present;  // (B, Hkv, L, channels)
  RowTransform transform;
};

struct KvUpdateSpec {
  DType type{};
  int32_t kv_heads = 0;
  int32_t head_size = 0;
  int32_t v_head_size = 0;
  CacheUpdateSpec key, value;
  bool operator==(const KvUpdateSpec&) const = default;
};

struct KvUpdateProblem {
  KvUpdateSpec spec;
  int64_t batch = 0;
  int64_t new_rows = 0;
  CacheUpdate key, value;
};

// ---- softmax attention --------------------------------------------------------------------------

enum class Sink : uint8_t { kNone, kZero, kPerHead };  // extra exp(sink - max) in the denominator
enum class MaskKind : uint8_t { kNone, kAdditive, kBoolean };
// What a score output shows. kRaw and kCapped come before masking: they have a value for every key
// below the length.
enum class ScoreStage : uint8_t { kNone, kRaw, kCapped, kBiased, kProbabilities };

struct AttentionSpec {
  DType type{};  // of Q, K, V, output
  int32_t q_heads = 0;
  int32_t kv_heads = 0;
  int32_t head_size = 0;
  int32_t v_head_size = 0;
  double scale = 0;           // literal
  double softcap = 0;         // c * tanh(x / c); 0 off
  bool causal = false;        // key j visible to position p iff j <= p
  int64_t left_window = -1;   // j >= p - left_window; -1 unbounded
  int64_t right_window = -1;  // j <= p + right_window; -1 unbounded
  Sink sink = Sink::kNone;
  MaskKind mask = MaskKind::kNone;
  DType mask_type{};
  ScoreStage scores = ScoreStage::kNone;
  float hidden_score = 0;  // written where causality, window or length hide a key from the stage
  bool log_sum_exp = false;
  bool unit_channel = true;  // channel strides of Q, K, V and output are all 1
  bool unit_mask_column = true;
  bool packed = false;     // tokens of all sequences side by side: batch strides are 0, row i of a
                           // sequence is row query_offset + i (key_offset + i) of the tensors
  bool key_fresh = false;  // keys [past, total) are read from `key_fresh`, not from `key`
  bool value_fresh = false;
  bool key_cached = true;  // `key` is bound (false: past is 0 for every batch row)
  bool value_cached = true;
  RowTransformSpec query_transform;
  RowTransformSpec key_transform;  // of fresh keys only
  bool operator==(const AttentionSpec&) const = default;
};

// out[b, h, i] = sum_j p_j V[b, h / group, j] with p the softmax over the visible keys j of
//   x_j = softcap(scale * q . k_j) + mask[b, h, i, j]    (visible: j < total and the rules above)
// plus the sink in the denominator. Key row j of batch row b is `key` row j, unless
// key_fresh and j >= past: then it is transform(`key_fresh` row j - past), rounded to `type`. V
// likewise, without a transform. Rows beyond `total`, and what is not visible, are never felt, NaN
// included (V at hidden keys below `total` excepted). A row with nothing visible is zero,
// log-sum-exp -infinity.
struct AttentionProblem {
  AttentionSpec spec;
  int64_t batch = 0;
  int64_t query_rows = 0;  // S
  int64_t max_total = 0;   // no batch row has more keys
  View4 query;             // (B, Hq, S, D)
  View4 key, value;        // (B, Hkv, rows, D | Dv)
  View4 key_fresh, value_fresh;
  View4 output;  // (B, Hq, S, Dv)
  RowTransform query_transform;
  RowTransform key_transform;
  // mask[b, h, i, j] with strides; 0 where it broadcasts. Columns at or beyond mask_columns hide.
  const void* mask = nullptr;
  int64_t mask_batch = 0, mask_head = 0, mask_row = 0, mask_column = 1;
  int64_t mask_columns = 0;
  const void* sink = nullptr;  // (Hq), the query's type
  int64_t sink_stride = 1;
  View4 scores;  // (B, Hq, S, score_columns): column stride is `channel`
  int64_t score_columns = 0;
  View4 log_sum_exp;  // float32 (B, Hq, S): channel unused
};

// What one call of an operator becomes. Stages run in this order.
struct Lowering {
  int64_t batch = 0;
  Lengths lengths;
  std::optional<KvUpdateProblem> kv_update;
  std::optional<AttentionProblem> attention;
  std::optional<RotaryProblem> rotary;
  std::optional<ScatterProblem> scatter;
  std::optional<LinearAttentionProblem> linear_attention;
};

}  // namespace attn
