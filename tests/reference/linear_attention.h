// LinearAttention (com.microsoft 1, ai.onnx 27) in float64, written from the operator's contract.
//
// Letters: B batch, T tokens, Hq/Hk/Hkv heads of query, key and value, dk and dv head sizes. It
// rounds where the contract stores: folded gates after each of the operators they stand for, the
// output once, the state once at the end.
#pragma once

#include <cstdint>
#include <vector>

#include "support/view.h"

namespace attn::reference {

struct LinearAttention {
  bool decays = false;  // update_rule gated or gated_delta
  bool delta = false;   // update_rule delta or gated_delta
  int64_t q_num_heads = 0;
  int64_t kv_num_heads = 0;
  double scale = 0;  // 0: 1 / sqrt(dk)
  bool fold_beta = false, fold_decay = false, fold_exp = false;

  test::View query;       // (B, T, Hq dk)
  test::View key;         // (B, T, Hk dk)
  test::View value;       // (B, T, Hkv dv)
  test::View past_state;  // (B, Hkv, dk, dv); unbound: zeros
  test::View decay;       // (B, T, Hkv) or (B, T, Hkv dk)
  test::View beta;        // (B, T, Hkv) or (B, T, 1)
  test::View dt_bias;     // as many elements as decay has a token
  test::View decay_scale;
  test::Type state_type = test::Type::kFloat32;

  int64_t batch() const { return query.dim(0); }
  int64_t tokens() const { return query.dim(1); }
  int64_t head_size() const { return query.dim(2) / q_num_heads; }
  int64_t v_head_size() const { return value.dim(2) / kv_num_heads; }
  int64_t key_heads() const { return key.dim(2) / head_size(); }
  int64_t output_heads() const { return q_num_heads > kv_num_heads ? q_num_heads : kv_num_heads; }
};

struct LinearAttentionResult {
  std::vector<double> output;        // (B, T, output heads, dv), rounded to the operator's type
  std::vector<double> present;       // (B, Hkv, dk, dv), rounded to the state's type
  std::vector<double> output_size;   // (B, T, output heads): least norm to measure a row's error by
  std::vector<double> present_size;  // (B, Hkv, dk): likewise
};

// Reads the past state before it returns: call it before an engine runs in place.
LinearAttentionResult run(const LinearAttention& problem);

// The gates that the folded inputs stand for, (B, T, width) each, computed operator by operator in
// float32 and rounded to the operator's type after each: what an unfused model would feed.
std::vector<double> folded_beta(const LinearAttention& problem);
std::vector<double> folded_decay(const LinearAttention& problem);

}  // namespace attn::reference
