// pkg.nxrt VarlenAttention and PackedVarlenAttention, version 1: attention whose cost follows the
// valid keys of each sequence. docs/operators/varlen_attention.md is the contract in words.
#pragma once

#include <memory>

#include "ops/operator.h"
#include "ops/varlen_settings.h"

namespace attn {

extern const OperatorSchema kVarlenAttentionSchema;
extern const OperatorSchema kPackedVarlenAttentionSchema;

// Check the values of the attributes. Throw Error.
std::unique_ptr<Operator> create_varlen_attention(const Attributes& attributes, int32_t version);
std::unique_ptr<Operator> create_packed_varlen_attention(const Attributes& attributes,
                                                         int32_t version);

}  // namespace attn
