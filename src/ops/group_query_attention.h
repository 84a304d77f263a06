// com.microsoft GroupQueryAttention, version 1: the contract and its lowering.
// docs/operators/group_query_attention.md is the contract in words.
//
//   group_query_attention.cc         attributes, the operator object, shape inference
//   group_query_attention_schema.cc  the tables for introspection
//   group_query_attention_sizes.cc   the sizes that the arguments agree on
//   group_query_attention_check.cc   every rule of presence, type and shape
//   group_query_attention_lower.cc   from checked arguments to problems
//
// Letters: B batch, S query rows, N new key rows, P and L rows of the past and present buffers,
// Hq/Hkv heads, D head size.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "core/problem.h"
#include "core/tensor.h"
#include "ops/operator.h"

namespace attn {

extern const OperatorSchema kGroupQueryAttentionSchema;

// Checks the values of the attributes. Throws Error.
std::unique_ptr<Operator> create_group_query_attention(const Attributes& attributes,
                                                       int32_t version);

namespace gqa {

// Positions in the schema, which are the standard's slots but for the extension.
enum Input : int {
  kQuery,
  kKey,
  kValue,
  kPastKey,
  kPastValue,
  kSeqlensK,
  kTotalLength,
  kCosCache,
  kSinCache,
  kPositionIds,
  kAttentionBias,
  kHeadSink,
  kKScale,
  kVScale,
  kQNormWeight,
  kKNormWeight,
  kQuerySeqlens,
  kInputCount
};
enum Output : int { kOutput, kPresentKey, kPresentValue, kOutputQk, kLogSumExp, kOutputCount };

inline constexpr std::array<const char*, kInputCount> kInputNames = {"query",
                                                                     "key",
                                                                     "value",
                                                                     "past_key",
                                                                     "past_value",
                                                                     "seqlens_k",
                                                                     "total_sequence_length",
                                                                     "cos_cache",
                                                                     "sin_cache",
                                                                     "position_ids",
                                                                     "attention_bias",
                                                                     "head_sink",
                                                                     "k_scale",
                                                                     "v_scale",
                                                                     "q_norm_weight",
                                                                     "k_norm_weight",
                                                                     "query_seqlens"};
inline constexpr std::array<const char*, kOutputCount> kOutputNames = {
    "output", "present_key", "present_value", "output_qk", "log_sum_exp"};

// The attributes after their values were checked.
struct Settings {
  int32_t q_heads = 0;
  int32_t kv_heads = 0;
  bool causal = true;
  int64_t window = -1;  // keys that a query sees, its own included; -1 unbounded
  double scale = 0;     // 0: 1 / sqrt(D)
  double softcap = 0;
  bool rotary = false;
  bool interleaved = false;
  bool smooth_softmax = false;
  bool empty_slots = false;
  int32_t qk_output = 0;
  float q_epsilon = 0;
  float k_epsilon = 0;
};

// The sizes of one call, kAnyDim where a query leaves them open.
struct Sizes {
  bool packed = false;
  bool has_past = false;
  bool q_norm = false;
  int64_t batch = 0;
  int64_t query_rows = 0;
  int64_t new_rows = 0;
  int64_t head_size = 0;
  int64_t past_key_rows = 0;  // 0 without a past
  int64_t past_value_rows = 0;
  int64_t table_rows = -1;       // with rotary
  int64_t rotary_width = 0;      // channels
  std::optional<int32_t> total;  // total_sequence_length where the host can read it
};

Settings read_settings(const Attributes& attributes);

// The sizes that query, key and value have, after the presence of arguments was checked: B, S, N, D
// and what is bound. Throws Error.
Sizes read_sizes(const Settings& settings, const Arguments& arguments);

// Checks presence, types and shapes of the inputs. Outputs that are bound only help to learn sizes
// that a query leaves open. Throws Error.
// `read_values`: host memory of total_sequence_length is read and widths are held against it.
Sizes check_inputs(const Settings& settings, const Arguments& arguments, bool read_values);

// Checks the bound outputs against the inputs. Throws Error.
void check_outputs(const Settings& settings, const Sizes& sizes, const Arguments& arguments);

// What score output `output_qk` is refused with where qk_output is 0.
[[noreturn]] void fail_no_scores();

// Fills `out` from checked arguments. Allocates nothing.
void lower(const Settings& settings, const Sizes& sizes, const Arguments& arguments, LowerMode mode,
           Lowering& out);

}  // namespace gqa
}  // namespace attn
