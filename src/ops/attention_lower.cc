// From checked arguments of Attention to problems. Runs on every execute: no allocation.
#include <algorithm>
#include <limits>

#include "ops/attention.h"
#include "ops/attention_settings.h"
#include "ops/attention_views.h"
#include "ops/score_scale.h"
#include "ops/shape_check.h"

namespace attn::attention {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();

// ---- mask ---------------------------------------------------------------------------------------

// The strides of a mask of any rank against (B, Hq, S, T), 0 where it broadcasts.
struct MaskView {
  int64_t batch = 0, head = 0, row = 0, column = 0;
  int64_t heads = 1, rows = 1;
  int64_t columns = kLargest;  // a scalar is as wide as it need be
};

MaskView mask_view(const Tensor& mask) {
  MaskView view;
  const int32_t rank = mask.rank;
  if (rank >= 1) {
    const size_t last = static_cast<size_t>(rank - 1);
    view.columns = mask.shape[last];
    view.column = inner_stride(mask.strides[last], view.columns);
  }
  if (rank >= 2) {
    view.row = broadcast_stride(mask, rank - 2);
    view.rows = mask.shape[static_cast<size_t>(rank - 2)];
  }
  if (rank >= 3) {
    view.head = broadcast_stride(mask, rank - 3);
    view.heads = mask.shape[static_cast<size_t>(rank - 3)];
  }
  if (rank >= 4) view.batch = broadcast_stride(mask, rank - 4);
  return view;
}

void set_mask(const Tensor& mask, AttentionProblem& problem) {
  if (!mask.present) return;
  const MaskView view = mask_view(mask);
  problem.spec.mask = mask.type == kBool ? MaskKind::kBoolean : MaskKind::kAdditive;
  problem.spec.mask_type = mask.type;
  problem.spec.unit_mask_column = view.column == 1;
  problem.mask = mask.data;
  problem.mask_batch = view.batch;
  problem.mask_head = view.head;
  problem.mask_row = view.row;
  problem.mask_column = view.column;
  problem.mask_columns = view.columns;
}

// ---- lengths ------------------------------------------------------------------------------------

void set_length_mask(const Tensor& mask, LengthMask& out) {
  const MaskView view = mask_view(mask);
  out.data = mask.data;
  out.type = mask.type;
  out.heads = view.heads;
  out.batch = view.batch;
  out.head = view.head;
  out.row = view.row;
  out.column = view.column;
  out.columns = view.columns;
  out.last_row = std::max<int64_t>(view.rows - 1, 0);
  if (view.rows != 0) return;
  // Without query rows nothing is masked.
  out.data = nullptr;
  out.type = kBool;
  out.heads = 1;
  out.batch = out.head = out.row = out.column = 0;
  out.columns = kLargest;
}

void set_lengths(const Sizes& sizes, const Arguments& arguments, Lengths& lengths) {
  const Tensor& nonpad = arguments.in[kNonpad];
  lengths.batch = sizes.batch;
  lengths.query_rows = sizes.query_rows;
  lengths.new_rows = sizes.new_rows;
  lengths.most_keys = sizes.most_keys;
  if (nonpad.present) {
    lengths.spec.rule = LengthRule::kValid;
    lengths.spec.values = nonpad.placement;
    lengths.valid = static_cast<const int64_t*>(nonpad.data);
    lengths.valid_stride = nonpad.strides[0];
  } else if (sizes.derived) {
    lengths.spec.rule = LengthRule::kMaskEnd;
    lengths.spec.values = arguments.in[kMask].placement;
    set_length_mask(arguments.in[kMask], lengths.mask);
  } else {
    lengths.spec.rule = LengthRule::kUniform;
    lengths.uniform_past = sizes.past_rows;
  }
}

// ---- caches -------------------------------------------------------------------------------------

// What becomes of the new rows of K, or of V.
struct Cache {
  Input input, past;
  Output present;
  int64_t channels;
};

bool rows_agree(const Tensor& past, const Tensor& present) {
  for (size_t axis = 0; axis < 4; ++axis) {
    const bool one = axis == 2 ? past.shape[2] <= 1 : present.shape[axis] <= 1;
    if (!one && past.strides[axis] != present.strides[axis]) return false;
  }
  return true;
}

// Whether past rows lie in the present buffer at its strides: they need not be touched.
bool stays_in_place(const Sizes& sizes, const Tensor& past, const Tensor& present) {
  if (sizes.form != CacheForm::kDense) return true;
  return past.rank == 4 && rows_agree(past, present);
}

void set_cache_update(const Sizes& sizes, const Arguments& arguments, const Cache& cache,
                      CacheUpdateSpec& spec, CacheUpdate& update) {
  const Tensor& past = arguments.in[cache.past];
  const Tensor& present = arguments.out[cache.present];
  if (!present.present) return;
  spec.active = true;
  spec.has_past = past.present;
  if (arguments.aliases(cache.past, cache.present)) {
    spec.in_place = stays_in_place(sizes, past, present);
    spec.grows = !spec.in_place;
  }
  update.source = rows_view(arguments.in[cache.input], kInputNames[cache.input], cache.channels);
  update.present = cache_view(present);
  spec.unit_channel = update.source.channel == 1 && update.present.channel == 1;
  if (past.present && !spec.in_place) {
    update.past = rows_view(past, kInputNames[cache.past], cache.channels);
    spec.unit_channel = spec.unit_channel && update.past.channel == 1;
  }
}

// Where attention reads the rows of a cache: all of them in the present buffer where there is a
// past and a present, else old ones in the past buffer and new ones where they came from. Returns
// whether all channel strides are 1.
bool set_read(const Sizes& sizes, const Arguments& arguments, const Cache& cache, View4& cached,
              View4& fresh, bool& is_fresh) {
  const Tensor& input = arguments.in[cache.input];
  const Tensor& past = arguments.in[cache.past];
  const Tensor& present = arguments.out[cache.present];
  is_fresh = false;
  if (!past.present) {
    cached = rows_view(input, kInputNames[cache.input], cache.channels);
    return cached.channel == 1;
  }
  if (present.present) {
    cached = cache_view(present);
    return cached.channel == 1;
  }
  cached = rows_view(past, kInputNames[cache.past], cache.channels);
  // A layer that only reads a cache has no new rows in any call, which lets engines that read one
  // buffer serve it. An empty call stays in the class of its fellows.
  is_fresh = sizes.new_rows != 0 || sizes.query_rows == 0;
  if (!is_fresh) return cached.channel == 1;
  fresh = rows_view(input, kInputNames[cache.input], cache.channels);
  return cached.channel == 1 && fresh.channel == 1;
}

// ---- attention ----------------------------------------------------------------------------------

constexpr ScoreStage kStages[] = {ScoreStage::kRaw, ScoreStage::kCapped, ScoreStage::kBiased,
                                  ScoreStage::kProbabilities};

void set_attention(const Settings& settings, const Sizes& sizes, const Arguments& arguments,
                   const Cache& key, const Cache& value, AttentionProblem& problem) {
  AttentionSpec& spec = problem.spec;
  const Tensor& query = arguments.in[kQ];
  const Tensor& output = arguments.out[kY];
  const bool heads_known = sizes.q_heads != kAnyDim && sizes.kv_heads != kAnyDim;
  spec.type = query.type;
  spec.q_heads = heads_known ? static_cast<int32_t>(sizes.q_heads) : 1;
  spec.kv_heads = heads_known ? static_cast<int32_t>(sizes.kv_heads) : 1;
  spec.head_size = static_cast<int32_t>(sizes.head_size);
  spec.v_head_size = static_cast<int32_t>(sizes.v_head_size);
  spec.scale = scale_or_default(settings.has_scale, settings.scale, sizes.head_size);
  spec.softcap = settings.softcap;
  spec.causal = settings.causal;
  spec.left_window = settings.left_window;
  spec.right_window = settings.right_window;

  problem.batch = sizes.batch;
  problem.query_rows = sizes.query_rows;
  problem.query = rows_view(query, kInputNames[kQ], sizes.head_size);
  bool unit = problem.query.channel == 1;
  if (output.present) {
    problem.output = rows_view(output, kOutputNames[kY], sizes.v_head_size);
    unit = unit && problem.output.channel == 1;
  }
  unit &= set_read(sizes, arguments, key, problem.key, problem.key_fresh, spec.key_fresh);
  unit &= set_read(sizes, arguments, value, problem.value, problem.value_fresh, spec.value_fresh);
  spec.unit_channel = unit;
  set_mask(arguments.in[kMask], problem);
  const float hidden = settings.score_mode == 2 ? -std::numeric_limits<float>::infinity() : 0.0f;
  set_scores(arguments.out[kScores], kStages[settings.score_mode], hidden, problem);
  set_log_sum_exp(arguments.out[kLogSumExp], problem);
}

}  // namespace

void lower(const Settings& settings, const Sizes& sizes, const Arguments& arguments, LowerMode mode,
           Lowering& out) {
  const Cache key{kK, kPastKey, kPresentKey, sizes.head_size};
  const Cache value{kV, kPastValue, kPresentValue, sizes.v_head_size};
  out.batch = sizes.batch;
  set_lengths(sizes, arguments, out.lengths);

  AttentionProblem& attention = out.attention.emplace();
  set_attention(settings, sizes, arguments, key, value, attention);
  // A plan is to serve the longer calls that follow on the same buffers.
  attention.max_total =
      std::min(mode == LowerMode::kExecute ? sizes.most_keys : sizes.planned_keys, kLargest);

  if (!arguments.out[kPresentKey].present && !arguments.out[kPresentValue].present) return;
  KvUpdateProblem& update = out.kv_update.emplace();
  update.spec.type = arguments.in[kQ].type;
  update.spec.kv_heads = attention.spec.kv_heads;
  update.spec.head_size = attention.spec.head_size;
  update.spec.v_head_size = attention.spec.v_head_size;
  update.batch = sizes.batch;
  update.new_rows = sizes.new_rows;
  set_cache_update(sizes, arguments, key, update.spec.key, update.key);
  set_cache_update(sizes, arguments, value, update.spec.value, update.value);
}

}  // namespace attn::attention
