// pkg.nxrt VarlenAttention and PackedVarlenAttention, version 1: attention whose cost follows the
// valid keys of each sequence. docs/operators/varlen_attention.md is the contract in words.
#pragma once

#include <memory>

#include "ops/operator.h"

namespace attn {

extern const OperatorSchema kVarlenAttentionSchema;
extern const OperatorSchema kPackedVarlenAttentionSchema;

// Check the values of the attributes. Throw Error.
std::unique_ptr<Operator> create_varlen_attention(const Attributes& attributes, int32_t version);
std::unique_ptr<Operator> create_packed_varlen_attention(const Attributes& attributes,
                                                         int32_t version);

// What both operators' attributes say.
struct VarlenSettings {
  int32_t q_heads = 0;
  int32_t kv_heads = 0;
  bool causal = false;
  bool has_scale = false;  // otherwise 1 / sqrt(D)
  double scale = 0;
  double softcap = 0;
};

// `kv_heads`: where the attribute is absent there are as many as query heads.
VarlenSettings read_varlen_settings(const Attributes& attributes);

}  // namespace attn
