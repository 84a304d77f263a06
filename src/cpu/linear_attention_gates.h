// The gates of linear attention as the operators give them that may stand before it: folding them
// into it changes no bit. All arithmetic is float32 unless said, rounded to the operator's type
// where the separate operators would store.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/linear_attention.h"

namespace attn::cpu {

// Sigmoid: the exponential in double, narrowed; the side that does not overflow.
inline float sigmoid(float x) {
  if (x >= 0) {
    const auto e = static_cast<float>(std::exp(-static_cast<double>(x)));
    return 1.0f / (1.0f + e);
  }
  const auto e = static_cast<float>(std::exp(static_cast<double>(x)));
  return e / (1.0f + e);
}

inline float softplus(float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::fabs(x))); }

// Address of element (b, head, token, channel).
inline int64_t element_of(const View4& view, int64_t b, int64_t head, int64_t row,
                          int64_t channel) {
  return b * view.batch + head * view.head + row * view.row + channel * view.channel;
}

inline float beta_at(const LinearAttentionProblem& problem, int64_t b, int64_t head,
                     int64_t token) {
  const LinearAttentionSpec& spec = problem.spec;
  const float x =
      load_float(problem.beta.data, element_of(problem.beta, b, head, token, 0), spec.type);
  return spec.fold_beta ? round_to(spec.type, sigmoid(x)) : x;
}

// The decay of a key channel (0 where there is one a head), before its exponential.
inline float decay_at(const LinearAttentionProblem& problem, int64_t b, int64_t head, int64_t token,
                      int64_t channel) {
  const LinearAttentionSpec& spec = problem.spec;
  const DType type = spec.type;
  const float x =
      load_float(problem.decay.data, element_of(problem.decay, b, head, token, channel), type);
  if (!spec.fold_decay) return x;
  const auto constant = [&](const GateVector& vector) {
    return load_float(vector.data, head * vector.head + channel * vector.channel, type);
  };
  float scale = constant(problem.decay_scale);
  if (spec.fold_exp) scale = -round_to(type, std::exp(scale));
  const float sum = round_to(type, x + constant(problem.dt_bias));
  return round_to(type, scale * round_to(type, softplus(sum)));
}

}  // namespace attn::cpu
