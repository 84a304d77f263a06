// From checked arguments of GroupQueryAttention to problems. Runs on every execute: no allocation.
#include <algorithm>
#include <limits>

#include "ops/group_query_attention.h"
#include "ops/score_scale.h"
#include "ops/shape_check.h"
#include "ops/views.h"

namespace attn::gqa {
namespace {

// ---- transforms ---------------------------------------------------------------------------------

void set_rotary(const Settings& settings, const Sizes& sizes, const Arguments& arguments,
                RowTransformSpec& spec, RowTransform& transform) {
  const Tensor& cos = arguments.in[kCosCache];
  const Tensor& sin = arguments.in[kSinCache];
  const Tensor& positions = arguments.in[kPositionIds];
  spec.rotary = true;
  spec.interleaved = settings.interleaved;
  spec.explicit_positions = positions.present;
  spec.table = cos.type;
  spec.width = static_cast<int32_t>(sizes.rotary_width);
  transform.cos = cos.data;
  transform.sin = sin.data;
  transform.cos_row = cos.strides[0];
  transform.sin_row = sin.strides[0];
  transform.cos_col = inner_stride(cos.strides[1], cos.shape[1]);
  transform.sin_col = inner_stride(sin.strides[1], sin.shape[1]);
  transform.table_rows = sizes.table_rows;
  spec.unit_strides = spec.unit_strides && transform.cos_col == 1 && transform.sin_col == 1;
  if (positions.present) {
    transform.positions = static_cast<const int64_t*>(positions.data);
    transform.position_batch = positions.strides[0];
    transform.position_row = positions.strides[1];
  }
}

void set_norm(const Tensor& weight, float epsilon, RowTransformSpec& spec,
              RowTransform& transform) {
  spec.norm = true;
  spec.epsilon = epsilon;
  transform.weight = weight.data;
  transform.weight_stride = inner_stride(weight.strides[0], weight.shape[0]);
  spec.unit_strides = spec.unit_strides && transform.weight_stride == 1;
}

void set_transform(const Settings& settings, const Sizes& sizes, const Arguments& arguments,
                   Input weight, float epsilon, RowTransformSpec& spec, RowTransform& transform) {
  if (sizes.q_norm) set_norm(arguments.in[weight], epsilon, spec, transform);
  if (settings.rotary) set_rotary(settings, sizes, arguments, spec, transform);
}

// ---- lengths ------------------------------------------------------------------------------------

int64_t least_known(int64_t a, int64_t b) {
  if (a == kAnyDim || b == kAnyDim) return known_of(a, b);
  return std::min(a, b);
}

int64_t present_rows(const Arguments& arguments, Output present) {
  return arguments.out[present].present ? arguments.out[present].shape[2] : kAnyDim;
}

void set_lengths(const Settings& settings, const Sizes& sizes, const Arguments& arguments,
                 Lengths& lengths) {
  const Tensor& values = arguments.in[kSeqlensK];
  const Tensor& bound = arguments.in[kTotalLength];
  const Tensor& positions = arguments.in[kPositionIds];
  lengths.spec.rule = LengthRule::kGroupQuery;
  lengths.spec.values = values.placement;
  lengths.spec.bound = bound.placement;
  lengths.spec.empty_slots = settings.empty_slots;
  lengths.batch = sizes.batch;
  lengths.query_rows = sizes.query_rows;
  lengths.new_rows = sizes.new_rows;
  lengths.values = static_cast<const int32_t*>(values.data);
  lengths.value_stride = values.rank == 0 ? 0 : values.strides[0];
  lengths.bound = static_cast<const int32_t*>(bound.data);
  lengths.past_capacity = least_known(sizes.past_key_rows, sizes.past_value_rows);
  lengths.present_capacity =
      least_known(present_rows(arguments, kPresentKey), present_rows(arguments, kPresentValue));
  if (!settings.rotary) return;
  lengths.table_rows = sizes.table_rows;
  if (positions.present) {
    lengths.positions = static_cast<const int64_t*>(positions.data);
    lengths.position_batch = positions.strides[0];
    lengths.position_row = positions.strides[1];
  }
}

// The keys that no batch row exceeds: what the buffers hold. The stated bound counts only when
// executing: a plan is to serve later, longer calls on the same buffers.
int64_t max_total(const Sizes& sizes, const Lengths& lengths, LowerMode mode) {
  constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
  int64_t most = lengths.present_capacity;
  if (lengths.past_capacity != kAnyDim && sizes.new_rows != kAnyDim) {
    most = least_known(
        most, std::min(lengths.past_capacity, kLargest) + std::min(sizes.new_rows, kLargest));
  }
  if (mode == LowerMode::kExecute && sizes.total) {
    most = least_known(most, static_cast<int64_t>(*sizes.total));
  }
  return std::min(most, kLargest);
}

// ---- caches -------------------------------------------------------------------------------------

// What becomes of the new rows of K, or of V.
struct Cache {
  Input input, past;
  Output present;
  int64_t packed_head;  // where its heads begin in a packed query
};

View4 source_view(const Sizes& sizes, const Arguments& arguments, const Cache& cache) {
  const Input from = sizes.packed ? kQuery : cache.input;
  return heads_view(arguments.in[from], kInputNames[from], sizes.head_size,
                    sizes.packed ? cache.packed_head : 0);
}

void set_cache_update(const Sizes& sizes, const Arguments& arguments, const Cache& cache,
                      CacheUpdateSpec& spec, CacheUpdate& update) {
  const Tensor& past = arguments.in[cache.past];
  const Tensor& present = arguments.out[cache.present];
  if (!present.present) return;
  spec.active = true;
  spec.has_past = past.present;
  spec.in_place = arguments.aliases(cache.past, cache.present);
  update.source = source_view(sizes, arguments, cache);
  update.present = cache_view(present);
  spec.unit_channel = update.source.channel == 1 && update.present.channel == 1;
  if (past.present) {
    update.past = cache_view(past);
    const bool read = !spec.in_place;
    spec.unit_channel = spec.unit_channel && (!read || update.past.channel == 1);
  }
}

// Where attention reads the rows of a cache: all of them in the present buffer when there is one,
// else old ones in the past buffer and new ones where they came from. Returns whether all channel
// strides are 1.
bool set_read(const Sizes& sizes, const Arguments& arguments, const Cache& cache, View4& cached,
              View4& fresh, bool& is_cached, bool& is_fresh) {
  const Tensor& past = arguments.in[cache.past];
  const Tensor& present = arguments.out[cache.present];
  is_cached = present.present || past.present;
  // A layer that only reads a cache has no new rows in any call, which lets engines that read one
  // buffer serve it. An empty call (no query rows either) stays in the class of its fellows.
  const bool reads_only = past.present && sizes.new_rows == 0 && sizes.query_rows != 0;
  is_fresh = !present.present && !reads_only;
  bool unit = true;
  if (is_cached) {
    cached = cache_view(present.present ? present : past);
    unit = cached.channel == 1;
  }
  if (is_fresh) {
    fresh = source_view(sizes, arguments, cache);
    unit = unit && fresh.channel == 1;
  }
  return unit;
}

// ---- attention ----------------------------------------------------------------------------------

void set_scores(const Settings& settings, const Arguments& arguments, AttentionProblem& problem) {
  const Tensor& scores = arguments.out[kOutputQk];
  if (!scores.present) return;
  problem.spec.scores = settings.qk_output == 1 ? ScoreStage::kBiased : ScoreStage::kProbabilities;
  problem.spec.hidden_score = 0;
  problem.scores.data = scores.data;
  problem.scores.batch = scores.strides[0];
  problem.scores.head = scores.strides[1];
  problem.scores.row = scores.strides[2];
  problem.scores.channel = scores.strides[3];
  problem.scores.rows = scores.shape[2];
  problem.score_columns = scores.shape[3];
}

void set_log_sum_exp(const Arguments& arguments, AttentionProblem& problem) {
  const Tensor& log_sum_exp = arguments.out[kLogSumExp];
  if (!log_sum_exp.present) return;
  problem.spec.log_sum_exp = true;
  problem.log_sum_exp.data = log_sum_exp.data;
  problem.log_sum_exp.batch = log_sum_exp.strides[0];
  problem.log_sum_exp.head = log_sum_exp.strides[1];
  problem.log_sum_exp.row = log_sum_exp.strides[2];
  problem.log_sum_exp.rows = log_sum_exp.shape[2];
}

void set_bias(const Arguments& arguments, AttentionProblem& problem) {
  const Tensor& bias = arguments.in[kAttentionBias];
  if (!bias.present) return;
  problem.spec.mask = MaskKind::kAdditive;
  problem.spec.mask_type = bias.type;
  problem.mask = bias.data;
  problem.mask_batch = broadcast_stride(bias, 0);
  problem.mask_head = broadcast_stride(bias, 1);
  problem.mask_row = broadcast_stride(bias, 2);
  problem.mask_column = inner_stride(bias.strides[3], bias.shape[3]);
  problem.mask_columns = bias.shape[3];
  problem.spec.unit_mask_column = problem.mask_column == 1;
}

void set_sink(const Settings& settings, const Arguments& arguments, AttentionProblem& problem) {
  const Tensor& sink = arguments.in[kHeadSink];
  if (sink.present) {  // replaces the smooth term
    problem.spec.sink = Sink::kPerHead;
    problem.sink = sink.data;
    problem.sink_stride = sink.strides[0];
  } else if (settings.smooth_softmax) {
    problem.spec.sink = Sink::kZero;
  }
}

void set_attention(const Settings& settings, const Sizes& sizes, const Arguments& arguments,
                   const Cache& key, const Cache& value, AttentionProblem& problem) {
  AttentionSpec& spec = problem.spec;
  const Tensor& query = arguments.in[kQuery];
  const Tensor& output = arguments.out[kOutput];
  spec.type = query.type;
  spec.q_heads = settings.q_heads;
  spec.kv_heads = settings.kv_heads;
  spec.head_size = static_cast<int32_t>(sizes.head_size);
  spec.v_head_size = spec.head_size;
  spec.scale = scale_or_default(settings.scale != 0, settings.scale, sizes.head_size);
  spec.softcap = settings.softcap;
  spec.causal = settings.causal;
  spec.left_window = settings.window == -1 ? -1 : settings.window - 1;

  problem.batch = sizes.batch;
  problem.query_rows = sizes.query_rows;
  problem.query = heads_view(query, kInputNames[kQuery], sizes.head_size, 0);
  bool unit = problem.query.channel == 1;
  if (output.present) {
    problem.output = heads_view(output, kOutputNames[kOutput], sizes.head_size, 0);
    unit = unit && problem.output.channel == 1;
  }
  unit &= set_read(sizes, arguments, key, problem.key, problem.key_fresh, spec.key_cached,
                   spec.key_fresh);
  unit &= set_read(sizes, arguments, value, problem.value, problem.value_fresh, spec.value_cached,
                   spec.value_fresh);
  spec.unit_channel = unit;
  set_transform(settings, sizes, arguments, kQNormWeight, settings.q_epsilon, spec.query_transform,
                problem.query_transform);
  if (spec.key_fresh) {
    set_transform(settings, sizes, arguments, kKNormWeight, settings.k_epsilon, spec.key_transform,
                  problem.key_transform);
  }
  set_bias(arguments, problem);
  set_sink(settings, arguments, problem);
  set_scores(settings, arguments, problem);
  set_log_sum_exp(arguments, problem);
}

}  // namespace

void lower(const Settings& settings, const Sizes& sizes, const Arguments& arguments, LowerMode mode,
           Lowering& out) {
  const Cache key{kKey, kPastKey, kPresentKey, settings.q_heads};
  const Cache value{kValue, kPastValue, kPresentValue,
                    static_cast<int64_t>(settings.q_heads) + settings.kv_heads};
  out.batch = sizes.batch;
  set_lengths(settings, sizes, arguments, out.lengths);

  if (arguments.out[kPresentKey].present || arguments.out[kPresentValue].present) {
    KvUpdateProblem& update = out.kv_update.emplace();
    update.spec.type = arguments.in[kQuery].type;
    update.spec.kv_heads = settings.kv_heads;
    update.spec.head_size = static_cast<int32_t>(sizes.head_size);
    update.spec.v_head_size = update.spec.head_size;
    update.batch = sizes.batch;
    update.new_rows = sizes.new_rows;
    set_cache_update(sizes, arguments, key, update.spec.key, update.key);
    set_cache_update(sizes, arguments, value, update.spec.value, update.value);
    if (update.spec.key.active) {
      set_transform(settings, sizes, arguments, kKNormWeight, settings.k_epsilon,
                    update.spec.key.transform, update.key.transform);
    }
  }

  AttentionProblem& attention = out.attention.emplace();
  set_attention(settings, sizes, arguments, key, value, attention);
  attention.max_total = max_total(sizes, out.lengths, mode);
}

}  // namespace attn::gqa
