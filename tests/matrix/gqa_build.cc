// Puts an outline into memory: tensors with their layouts, values, and poison where nothing may be
// felt.
#include <algorithm>
#include <cmath>
#include <limits>

#include "matrix/gqa_build.h"
#include "matrix/gqa_case.h"

namespace attn::matrix {

using test::LayoutChoice;
using test::Tensor;
using test::View;

Tensor Builder::make(Type type, std::vector<int64_t> shape, std::vector<bool> may_broadcast,
                     bool output) {
  LayoutChoice choice;
  choice.plain = o_.strided ? 0.4 : 1;
  choice.allow_inner_step = o_.inner_steps;
  choice.allow_reversed = choice.allow_broadcast = !output;
  choice.may_broadcast = std::move(may_broadcast);
  const int rank = static_cast<int>(shape.size());
  Tensor tensor(type, std::move(shape), draw_layout(random_, rank, choice));
  tensor.buffer().fill(random_.pick({0xCD, 0xFF}));
  return tensor;
}

void Builder::draw_tokens() {
  const int64_t width = o_.heads * o_.size, kv_width = o_.kv_heads * o_.size;
  const std::vector<bool> shared = {true, true, false};
  if (o_.packed) {
    c_.in[kQuery] = make(o_.type, {o_.batch, o_.rows, width + 2 * kv_width}, shared);
  } else {
    c_.in[kQuery] = make(o_.type, {o_.batch, o_.rows, width}, shared);
    c_.in[kKey] = make(o_.type, {o_.batch, o_.new_rows, kv_width}, shared);
    c_.in[kValue] = make(o_.type, {o_.batch, o_.new_rows, kv_width}, shared);
    fill_normal(c_.in[kKey].view(), random_);
    fill_normal(c_.in[kValue].view(), random_);
  }
  fill_normal(c_.in[kQuery].view(), random_);

  // The spread of scores is |scale| sqrt(D) times the deviations of query and key.
  const double root = std::sqrt(static_cast<double>(o_.size));
  const double scale = o_.scale == 0 ? 1 / root : std::fabs(o_.scale);
  query_sigma_ = o_.spread / (scale * root);
  if (!o_.norm) {
    const View& query = c_.in[kQuery].view();
    for_each_token(query, [&](int64_t b, int64_t row) {
      for (int64_t d = 0; d < width; ++d) {
        query.set({b, row, d}, query_sigma_ * random_.normal());
      }
    });
  }
}

void Builder::draw_caches() {
  const struct {
    const CacheOutline& outline;
    uint32_t past, present;
  } caches[] = {{o_.key, kPastKey, kPresentKey}, {o_.value, kPastValue, kPresentValue}};
  for (const auto& cache : caches) {
    if (o_.past) {
      const bool in_place = cache.outline.present.in_place;
      const int64_t rows = in_place ? cache.outline.present.rows : cache.outline.past_rows;
      c_.in[cache.past] = make(o_.type, {o_.batch, o_.kv_heads, rows, o_.size},
                               {true, false, false, false}, in_place);
      fill_normal(c_.in[cache.past].view(), random_);
    }
    if (cache.outline.present.bound && !cache.outline.present.in_place) {
      c_.out[cache.present] =
          make(o_.type, {o_.batch, o_.kv_heads, cache.outline.present.rows, o_.size}, {}, true);
    }
  }
}

void Builder::draw_outliers() {
  if (random_.chance(0.15)) {  // a value that towers over the rest
    const View& value = c_.in[o_.packed ? kQuery : kValue].view();
    if (value.elements() > 0) {
      const int64_t first = o_.packed ? (o_.heads + o_.kv_heads) * o_.size : 0;
      value.set({random_.below(value.dim(0)), random_.below(value.dim(1)),
                 first + random_.below(o_.kv_heads * o_.size)},
                100);
    }
  }
  if (random_.chance(0.1) && o_.past && c_.in[kPastKey].view().elements() > 0) {
    // A first key with three times the scores of the others, as attention sinks have.
    const View& key = c_.in[kPastKey].view();
    for (int64_t h = 0; h < o_.kv_heads; ++h) {
      for (int64_t d = 0; d < o_.size; ++d) {
        key.set({0, h, 0, d}, 3 * key.at({0, h, 0, d}));
      }
    }
  }
}

void Builder::draw_lengths() {
  std::vector<int64_t> shape = {o_.batch};
  const double form = random_.uniform();
  if (form < 0.3) shape = {o_.batch, 1};
  if (form > 0.8 && o_.batch == 1) shape = {};
  c_.in[kSeqlensK] = make(Type::kInt32, shape);
  for (int64_t b = 0; b < o_.batch; ++b) {
    const int64_t total = o_.totals[static_cast<size_t>(b)];
    c_.in[kSeqlensK].view().set_linear(b, static_cast<double>(total - 1));
  }
  c_.in[kTotalSequenceLength] = make(
      Type::kInt32, std::vector<int64_t>(static_cast<size_t>(random_.pick({0, 0, 1, 1, 2, 4})), 1));
  c_.in[kTotalSequenceLength].view().set_linear(0, static_cast<double>(o_.bound));
}

void Builder::draw_rotary() {
  if (!o_.rotary && !o_.ignored_rotary) return;
  int64_t rows = std::max<int64_t>(o_.longest(), 1);
  // Padded rows of a prompt have positions behind the longest one; the table need not have them.
  if (o_.positions) rows = random_.between(1, 50);
  if (random_.chance(0.4)) rows += random_.between(1, 30);
  c_.in[kCosCache] = make(o_.table_type, {rows, o_.rotary_width / 2});
  c_.in[kSinCache] = make(o_.table_type, {rows, o_.rotary_width / 2});
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < o_.rotary_width / 2; ++i) {
      const double angle =
          static_cast<double>(row) *
          std::pow(1000.0, -2.0 * static_cast<double>(i) / static_cast<double>(o_.rotary_width));
      c_.in[kCosCache].view().set({row, i}, std::cos(angle));
      c_.in[kSinCache].view().set({row, i}, std::sin(angle));
    }
  }
  if (o_.positions) draw_positions(rows);
}

void Builder::draw_positions(int64_t table_rows) {
  c_.in[kPositionIds] = make(Type::kInt64, {o_.batch, o_.rows});
  const View& positions = c_.in[kPositionIds].view();
  const bool poison = random_.chance(0.4);
  for_each_token(positions, [&](int64_t b, int64_t row) {
    const int64_t total = o_.totals[static_cast<size_t>(b)];
    const bool unused = o_.start_of(b) + row >= total;  // padding, or an empty slot
    double position = static_cast<double>(random_.below(table_rows));
    if (unused && poison) position = random_.pick({-5.0, 1e9, -9e18, 9e18});
    positions.set({b, row}, position);
  });
}

void Builder::draw_small_inputs() {
  if (o_.norm) {
    for (uint32_t slot : {kQNormWeight, kKNormWeight}) {
      c_.in[slot] = make(o_.type, {o_.size});
      for (int64_t d = 0; d < o_.size; ++d) {
        const double weight = 1 + 0.2 * random_.normal();
        c_.in[slot].view().set({d}, slot == kQNormWeight ? weight * query_sigma_ : weight);
      }
    }
  }
  if (o_.sink) {
    c_.in[kHeadSink] = make(o_.type, {o_.heads});
    for (int64_t h = 0; h < o_.heads; ++h) {
      double sink = 2 * random_.normal();
      if (random_.chance(0.05)) sink = -std::numeric_limits<double>::infinity();
      if (random_.chance(0.05)) sink = 12;
      c_.in[kHeadSink].view().set({h}, sink);
    }
  }
}

void Builder::draw_outputs() {
  c_.out[kOutput] = make(o_.type, {o_.batch, o_.rows, o_.heads * o_.size}, {}, true);
  if (o_.qk_output) {
    c_.out[kOutputQk] = make(o_.type, {o_.batch, o_.heads, o_.rows, o_.bound}, {}, true);
  }
  if (o_.log_sum_exp) {
    c_.out[kLogSumExp] = make(Type::kFloat32, {o_.batch, o_.heads, o_.rows}, {}, true);
  }
}

void Builder::fill_problem() {
  reference::GroupQueryAttention& p = c_.problem;
  p.num_heads = o_.heads;
  p.kv_num_heads = o_.kv_heads;
  p.scale = static_cast<float>(o_.scale);  // attributes are float32 in a model
  p.softcap = static_cast<float>(o_.softcap);
  p.local_window_size = o_.window;
  p.causal = o_.causal;
  p.do_rotary = o_.rotary;
  p.rotary_interleaved = o_.interleaved;
  p.smooth_softmax = o_.smooth;
  p.qk_output = o_.qk_output;
  p.empty_slots = o_.empty_slots;
  p.qk_norm_epsilon = static_cast<float>(o_.epsilon);
  const struct {
    View* view;
    uint32_t slot;
  } views[] = {{&p.query, kQuery},
               {&p.key, kKey},
               {&p.value, kValue},
               {&p.past_key, kPastKey},
               {&p.past_value, kPastValue},
               {&p.seqlens_k, kSeqlensK},
               {&p.total_sequence_length, kTotalSequenceLength},
               {&p.cos_cache, kCosCache},
               {&p.sin_cache, kSinCache},
               {&p.position_ids, kPositionIds},
               {&p.attention_bias, kAttentionBias},
               {&p.head_sink, kHeadSink},
               {&p.q_norm_weight, kQNormWeight},
               {&p.k_norm_weight, kKNormWeight}};
  for (const auto& entry : views) *entry.view = c_.in[entry.slot].view();
  if (o_.past) {
    p.past_key.shape[2] = o_.key.past_rows;
    p.past_value.shape[2] = o_.value.past_rows;
  }
  p.present_key = o_.key.present;
  p.present_value = o_.value.present;
}

GqaCase build_case(const GqaOutline& outline, Random& random, bool felt_poison) {
  GqaCase c;
  c.outline = outline;
  Builder builder(c, random);
  builder.draw_tokens();
  builder.draw_caches();
  builder.draw_outliers();
  builder.draw_lengths();
  builder.draw_rotary();
  builder.draw_small_inputs();
  builder.draw_bias();
  builder.draw_outputs();
  builder.poison_unused();
  if (felt_poison) builder.poison_keys_and_values();
  builder.break_rule();
  builder.fill_problem();
  c.through_binding = random.chance(0.4);
  c.own_workspace = random.chance(0.5);
  c.describe_memory = random.chance(0.5);
  c.wide_range = random.chance(0.2);
  c.renew();
  if (outline.breach != Breach::kNone && c.expected.faults == 0) {
    // The change stayed within the rules but shows rows that were poisoned for other lengths.
    c.loose.assign(c.loose.size(), true);
    c.finite_padding = false;
  }
  return c;
}

GqaCase draw_case(uint64_t seed, const DrawOptions& options) {
  Random random(seed);
  const GqaOutline outline = draw_outline(seed, options, random);
  return build_case(outline, random);
}

}  // namespace attn::matrix
