// Views and outputs that the softmax operators share.
#pragma once

#include "core/problem.h"
#include "core/tensor.h"
#include "ops/views.h"

namespace attn {

// Rows of a tensor in either layout: (B, heads, rows, channels) or (B, rows, heads * channels).
inline View4 rows_view(const Tensor& tensor, const char* name, int64_t channels) {
  return tensor.rank == 4 ? cache_view(tensor) : heads_view(tensor, name, channels, 0);
}

// log-sum-exp of shape (B, Hq, S), where it is bound.
inline void set_log_sum_exp(const Tensor& log_sum_exp, AttentionProblem& problem) {
  if (!log_sum_exp.present) return;
  problem.spec.log_sum_exp = true;
  problem.log_sum_exp.data = log_sum_exp.data;
  problem.log_sum_exp.batch = log_sum_exp.strides[0];
  problem.log_sum_exp.head = log_sum_exp.strides[1];
  problem.log_sum_exp.row = log_sum_exp.strides[2];
  problem.log_sum_exp.rows = log_sum_exp.shape[2];
}

// Scores of shape (B, Hq, S, T), where they are bound.
inline void set_scores(const Tensor& scores, ScoreStage stage, float hidden,
                       AttentionProblem& problem) {
  if (!scores.present) return;
  problem.spec.scores = stage;
  problem.spec.hidden_score = hidden;
  problem.scores.data = scores.data;
  problem.scores.batch = scores.strides[0];
  problem.scores.head = scores.strides[1];
  problem.scores.row = scores.strides[2];
  problem.scores.channel = scores.strides[3];
  problem.scores.rows = scores.shape[2];
  problem.score_columns = scores.shape[3];
}

}  // namespace attn
