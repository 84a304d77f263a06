// What VarlenAttention and PackedVarlenAttention share: attributes, types, sizes of heads.
#pragma once

#include <cstdint>

#include "core/problem.h"
#include "ops/operator.h"

namespace attn {

// What both operators' attributes say.
struct VarlenSettings {
  int32_t q_heads = 0;
  int32_t kv_heads = 0;
  bool causal = false;
  bool has_scale = false;  // otherwise 1 / sqrt(D)
  double scale = 0;
  double softcap = 0;
};

// `kv_heads`: where the attribute is absent there are as many as query heads. Throws Error for a
// value that is not accepted.
VarlenSettings read_varlen_settings(const Attributes& attributes);

// Throw Error unless query, key and value have one type that is served, and a head size is one.
void check_varlen_types(const Tensor& query, const Tensor& key, const Tensor& value);
void check_head_size(const char* name, const Tensor& tensor, int64_t size);

// Types, heads and the rules of the scores.
void set_varlen_spec(const VarlenSettings& settings, DType type, int64_t head_size,
                     int64_t v_head_size, AttentionSpec& spec);

// The views of queries, keys, values and, where it is bound, output, and whether their channels
// are contiguous.
void set_varlen_views(const View4& query, const View4& key, const View4& value, const View4* output,
                      AttentionProblem& problem);

}  // namespace attn
