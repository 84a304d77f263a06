// Linear attention: a recurrence over tokens with a matrix of state a head, in place of a softmax
// over keys. Letters: B batch, T tokens, Hq/Hk/Hkv heads of query, key and value, dk and dv the
// sizes of a key's and a value's head.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"

namespace attn {

enum class DecayForm : uint8_t { kNone, kPerHead, kPerKey };

struct LinearAttentionSpec {
  DType type{};        // of query, key, value, gates and output
  DType state_type{};  // of past and present state
  int32_t q_heads = 0;
  int32_t key_heads = 0;
  int32_t kv_heads = 0;     // of value and state: a multiple of key_heads
  int32_t head_size = 0;    // dk
  int32_t v_head_size = 0;  // dv
  double scale = 0;         // literal
  bool delta = false;       // what the state holds for the key is taken from the value first
  DecayForm decay = DecayForm::kNone;
  bool fold_beta = false;   // beta = sigmoid(input)
  bool fold_decay = false;  // decay = decay_scale * softplus(input + dt_bias)
  bool fold_exp = false;    // decay_scale = -exp(input)
  bool has_past = false;
  bool has_present = false;
  bool unit_channel = true;  // channel strides of all bound tensors are 1
  bool operator==(const LinearAttentionSpec&) const = default;
};

// A gate's constant for each head, or for each key channel of each head.
struct GateVector {
  const void* data = nullptr;
  int64_t head = 0;
  int64_t channel = 0;
};

// For each batch row and each of the Hkv states S (dk, dv), float32 from the first token to the
// last, token after token:
//   S = diag(exp(decay)) S                              where there is a decay
//   d = v, or beta (v - S^T k) where delta
//   S = S + k d^T
//   output = scale S^T q                                for every query head of this state
// S begins as `past` (zeros without one) and is stored to `present`, rounded once; without tokens
// too. `present` may be `past` itself, strides included.
struct LinearAttentionProblem {
  LinearAttentionSpec spec;
  int64_t batch = 0;
  int64_t tokens = 0;               // T
  View4 query;                      // (B, Hq, T, dk)
  View4 key;                        // (B, Hk, T, dk)
  View4 value;                      // (B, Hkv, T, dv)
  View4 decay;                      // (B, Hkv, T, dk or 1): logarithm of what a state keeps
  View4 beta;                       // (B, Hkv, T, 1): head stride 0 where heads share it
  View4 past, present;              // (B, Hkv, dk, dv): row is the key channel
  View4 output;                     // (B, max(Hq, Hkv), T, dv)
  GateVector dt_bias, decay_scale;  // with fold_decay, the type of `decay`
};

// Output heads of one state: the query heads of its group, or one where states share a query head.
inline int64_t outputs_of_state(const LinearAttentionSpec& spec) {
  return std::max(spec.q_heads / spec.kv_heads, 1);
}
inline int64_t query_head_of_output(const LinearAttentionSpec& spec, int64_t output_head) {
  return spec.q_heads >= spec.kv_heads ? output_head : output_head / (spec.kv_heads / spec.q_heads);
}
inline int64_t key_head_of_state(const LinearAttentionSpec& spec, int64_t kv_head) {
  return kv_head / (spec.kv_heads / spec.key_heads);
}

}  // namespace attn
