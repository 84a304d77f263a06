// LinearAttention, com.microsoft version 1 and ai.onnx version 27: the contract and its lowering.
// docs/operators/linear_attention.md is the contract in words.
//
//   linear_attention.cc         attributes, the operator object, shape inference
//   linear_attention_schema.cc  the tables for introspection
//   linear_attention_check.cc   every rule of presence, type and shape
//   linear_attention_lower.cc   from checked arguments to the problem
//
// Letters: B batch, T tokens, Hq/Hk/Hkv heads of query, key and value, dk and dv head sizes.
#pragma once

#include <array>
#include <memory>

#include "core/linear_attention.h"
#include "core/problem.h"
#include "core/tensor.h"
#include "ops/operator.h"

namespace attn {

extern const OperatorSchema kLinearAttentionSchema;          // com.microsoft
extern const OperatorSchema kStandardLinearAttentionSchema;  // ai.onnx

// Check the values of the attributes. Throw Error.
std::unique_ptr<Operator> create_linear_attention(const Attributes& attributes, int32_t version);
std::unique_ptr<Operator> create_standard_linear_attention(const Attributes& attributes,
                                                           int32_t version);

namespace linear {

// Positions in the schema, which are the slots of both domains.
enum Input : int {
  kQuery,
  kKey,
  kValue,
  kPastState,
  kDecay,
  kBeta,
  kDtBias,
  kDecayScale,
  kInputCount
};
enum Output : int { kOutput, kPresentState, kOutputCount };

inline constexpr std::array<const char*, kInputCount> kInputNames = {
    "query", "key", "value", "past_state", "decay", "beta", "dt_bias", "neg_exp_A"};
inline constexpr std::array<const char*, kOutputCount> kOutputNames = {"output", "present_state"};

// Attributes that fold a gate's own operators into this one. Both spellings mean the same.
struct FoldName {
  const char* plain;
  const char* prefixed;
};
inline constexpr FoldName kFoldBeta = {"cuda_fuse_beta_sigmoid",
                                       "com.microsoft.cuda_fuse_beta_sigmoid"};
inline constexpr FoldName kFoldDecay = {"cuda_fuse_decay_softplus",
                                        "com.microsoft.cuda_fuse_decay_softplus"};
inline constexpr FoldName kFoldExp = {"cuda_fuse_neg_exp", "com.microsoft.cuda_fuse_neg_exp"};

// The attributes after their values were checked.
struct Settings {
  bool standard = false;  // ai.onnx: gates that the rule does not use are refused
  const char* rule = "";
  bool gated = false;
  bool delta = false;
  int32_t q_heads = 0;
  int32_t kv_heads = 0;
  double scale = 0;  // 0: 1 / sqrt(dk)
  bool fold_beta = false;
  bool fold_decay = false;
  bool fold_exp = false;
  // Output heads: inverse grouping has one for each state.
  int64_t output_heads() const { return q_heads > kv_heads ? q_heads : kv_heads; }
};

// The sizes of one call, kAnyDim where a query leaves them open.
struct Sizes {
  int64_t batch = 0;
  int64_t tokens = 0;
  int64_t head_size = 0;    // dk
  int64_t v_head_size = 0;  // dv
  int64_t key_heads = 0;
  DType state_type{};
  DecayForm decay = DecayForm::kNone;
};

Settings read_settings(const Attributes& attributes, bool standard);

// Check presence, types and shapes; throw Error. Outputs that are bound help to learn sizes that a
// query leaves open.
Sizes check_inputs(const Settings& settings, const Arguments& arguments);
void check_outputs(const Settings& settings, const Sizes& sizes, const Arguments& arguments);

// Fills `out` from checked arguments. Allocates nothing unless it fails.
void lower(const Settings& settings, const Sizes& sizes, const Arguments& arguments, Lowering& out);

}  // namespace linear
}  // namespace attn
