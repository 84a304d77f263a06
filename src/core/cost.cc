#include "core/cost.h"

#include <algorithm>

namespace attn {
namespace {

double at_least_0(int64_t size) { return static_cast<double>(std::max<int64_t>(size, 0)); }

}  // namespace

Cost attention_cost(const AttentionSpec& spec, const ShapeRange& range) {
  const double batch = at_least_0(range.batch);
  const double queries = at_least_0(range.query_rows);
  const double keys = at_least_0(range.total);
  double pairs = queries * keys;
  if (spec.causal) pairs -= std::min(queries, keys) * (std::min(queries, keys) - 1) / 2;
  const bool right_bounded = spec.causal || spec.right_window >= 0;
  if (spec.left_window >= 0 && right_bounded) {
    const double right = spec.causal ? 0 : static_cast<double>(spec.right_window);
    pairs = std::min(pairs, queries * (static_cast<double>(spec.left_window) + 1 + right));
  }
  const double channels = static_cast<double>(spec.head_size) + spec.v_head_size;
  Cost cost;
  cost.flops = 2 * batch * spec.q_heads * pairs * channels;
  cost.bytes = static_cast<double>(size_of(spec.type)) * batch * channels *
               (spec.q_heads * queries + spec.kv_heads * keys);
  return cost;
}

Cost kv_update_cost(const KvUpdateProblem& problem, const ShapeRange& range) {
  const KvUpdateSpec& spec = problem.spec;
  const double heads = at_least_0(range.batch) * spec.kv_heads;
  const double new_rows = at_least_0(problem.new_rows >= 0 ? problem.new_rows : range.query_rows);
  Cost cost;
  for (const bool key : {true, false}) {
    const CacheUpdateSpec& cache = key ? spec.key : spec.value;
    if (!cache.active) continue;
    const int32_t channels = key ? spec.head_size : spec.v_head_size;
    double rows = 2 * new_rows;
    if (!cache.in_place) {
      const int64_t held = (key ? problem.key : problem.value).present.rows;
      rows = new_rows + at_least_0(held);
      if (cache.has_past) rows += std::max(0.0, at_least_0(range.total) - new_rows);
    }
    cost.bytes += heads * rows * channels * static_cast<double>(size_of(spec.type));
    if (cache.transform.norm) cost.flops += heads * new_rows * 4 * channels;
    if (cache.transform.rotary) cost.flops += heads * new_rows * 3 * cache.transform.width;
  }
  return cost;
}

Cost rotary_cost(const RotarySpec& spec, const ShapeRange& range) {
  const double rows = at_least_0(range.batch) * at_least_0(range.query_rows) * spec.heads;
  Cost cost;
  cost.flops = rows * 3 * at_least_0(spec.transform.width);
  cost.bytes = 2 * rows * at_least_0(spec.head_size) * static_cast<double>(size_of(spec.type));
  return cost;
}

Cost scatter_cost(const ScatterProblem& problem, const ShapeRange& range) {
  double elements = at_least_0(range.batch);
  elements *= at_least_0(problem.spec.in_place ? range.query_rows : range.total);
  for (int axis = 0; axis < problem.axes; ++axis) {
    elements *= at_least_0(problem.sizes[static_cast<size_t>(axis)]);
  }
  Cost cost;
  cost.bytes = 2 * elements * static_cast<double>(size_of(problem.spec.type));
  return cost;
}

}  // namespace attn
