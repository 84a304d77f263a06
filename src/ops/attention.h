// ai.onnx Attention, versions 23, 24 and 25: the contract and its lowering.
// docs/operators/attention.md is the contract in words.
//
//   attention.cc         attributes, the operator object, shape inference
//   attention_schema.cc  the tables for introspection
//   attention_sizes.cc   the sizes that the arguments agree on, and the form of the caches
//   attention_check.cc   every rule of presence, type and shape
//   attention_lower.cc   from checked arguments to problems
//
// Letters: B batch, S query rows, N new key rows, P and R rows of the past and present buffers, T
// keys that the score output shows, Hq/Hkv heads, D and Dv head sizes of keys and values.
#pragma once

#include <array>
#include <memory>

#include "core/problem.h"
#include "core/tensor.h"
#include "ops/operator.h"

namespace attn {

extern const OperatorSchema kAttentionSchema;

// Checks the values of the attributes. Throws Error.
std::unique_ptr<Operator> create_attention(const Attributes& attributes, int32_t version);

namespace attention {

// Positions in the schema, which are the standard's slots but for the extension.
enum Input : int { kQ, kK, kV, kMask, kPastKey, kPastValue, kNonpad, kInputCount };
enum Output : int { kY, kPresentKey, kPresentValue, kScores, kLogSumExp, kOutputCount };

inline constexpr std::array<const char*, kInputCount> kInputNames = {
    "Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"};
inline constexpr std::array<const char*, kOutputCount> kOutputNames = {
    "Y", "present_key", "present_value", "qk_matmul_output", "log_sum_exp"};

// The attributes after their values were checked.
struct Settings {
  int32_t rules = 23;    // 23, 24 or 25: the version whose rules hold
  int32_t q_heads = 0;   // 0: the 4-D query says
  int32_t kv_heads = 0;  // 0: the 4-D key or value says
  bool causal = false;
  bool has_scale = false;  // otherwise 1 / sqrt(D)
  double scale = 0;
  double softcap = 0;
  int64_t left_window = -1, right_window = -1;
  int32_t score_mode = 0;
  bool length_from_mask = false;
};

// How present follows from past and the new rows.
enum class CacheForm : uint8_t {
  kDense,     // R = P + N; also where no present is bound
  kCapacity,  // R > P + N: new rows from row P on
  kFrozen,    // R <= P: shapes say nothing of the length
};

// The sizes of one call, kAnyDim where a query leaves them open.
struct Sizes {
  int64_t batch = 0;
  int64_t query_rows = 0;
  int64_t new_rows = 0;
  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  int64_t v_head_size = 0;
  bool has_past = false;
  int64_t past_rows = 0;  // P where it counts: 0 without a past
  CacheForm form = CacheForm::kDense;
  bool derived = false;       // the mask says how many keys there are
  int64_t score_columns = 0;  // T
  int64_t most_keys = 0;      // that attention may see in this call
  int64_t planned_keys = 0;   // the same for later calls on these buffers
};

Settings read_settings(const Attributes& attributes, int32_t version);

// Rows of a tensor in either layout: (B, heads, rows, channels) or (B, rows, heads * channels).
inline int64_t rows_of(const Tensor& tensor) { return tensor.shape[tensor.rank == 4 ? 2 : 1]; }

// The sizes that the arguments agree on, after presence and ranks were checked. Outputs that are
// bound help to learn what a query leaves open. Throws Error.
Sizes read_sizes(const Settings& settings, const Arguments& arguments);

// Decides the form of the caches and what follows from it. Throws Error.
void read_form(const Settings& settings, const Arguments& arguments, Sizes& sizes);

// Checks presence, ranks, types and shapes of the inputs. Throws Error.
Sizes check_inputs(const Settings& settings, const Arguments& arguments);

// Checks the bound outputs against the inputs and decides the form of the caches. Throws Error.
void check_outputs(const Settings& settings, Sizes& sizes, const Arguments& arguments);

// Fills `out` from checked arguments. Allocates nothing.
void lower(const Settings& settings, const Sizes& sizes, const Arguments& arguments, LowerMode mode,
           Lowering& out);

}  // namespace attention
}  // namespace attn
