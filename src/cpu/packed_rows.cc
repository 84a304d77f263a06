#include "cpu/packed_rows.h"

#include <cstring>
#include <limits>

namespace attn::cpu {
namespace {

void clear_rows(const AttentionProblem& problem, int64_t begin, int64_t end) {
  const AttentionSpec& spec = problem.spec;
  const int64_t size = size_of(spec.type);
  const View4& output = problem.output;
  const View4& log_sum_exp = problem.log_sum_exp;
  for (int64_t row = begin; row < end; ++row) {
    for (int32_t head = 0; head < spec.q_heads; ++head) {
      char* to = static_cast<char*>(output.data) + (head * output.head + row * output.row) * size;
      for (int32_t c = 0; c < spec.v_head_size; ++c) {
        std::memset(to + c * output.channel * size, 0, static_cast<size_t>(size));
      }
      if (!spec.log_sum_exp) continue;
      static_cast<float*>(log_sum_exp.data)[head * log_sum_exp.head + row * log_sum_exp.row] =
          -std::numeric_limits<float>::infinity();
    }
  }
}

}  // namespace

void clear_loose_rows(const AttentionProblem& problem, std::span<const RowLengths> rows) {
  const int64_t tokens = problem.output.rows;
  if (rows.empty()) {
    clear_rows(problem, 0, tokens);
    return;
  }
  const RowLengths& last = rows.back();
  clear_rows(problem, 0, rows.front().query_offset);
  clear_rows(problem, last.query_offset + last.query_rows, tokens);
}

}  // namespace attn::cpu
