#include <algorithm>
#include <cmath>
#include <limits>

#include "matrix/gqa_build.h"

namespace attn::matrix {
namespace {

using test::View;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSentinel = -10000;  // a finite mask, as models have
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Whether different elements share memory.
bool overlaps(const View& view) {
  for (size_t axis = 0; axis < view.shape.size(); ++axis) {
    if (view.shape[axis] > 1 && view.strides[axis] == 0) return true;
  }
  return false;
}

}  // namespace

void Builder::visible_range(int64_t b, int64_t i, int64_t* first, int64_t* last) const {
  const int64_t total = o_.totals[static_cast<size_t>(b)];
  const int64_t position = o_.start_of(b) + i;
  *last = o_.causal ? std::min(total, position + 1) : total;
  *first = o_.window > 0 ? std::clamp<int64_t>(position - o_.window + 1, 0, *last) : 0;
}

bool Builder::seen(int64_t b, int64_t j) const {
  for (int64_t i = 0; i < o_.rows; ++i) {
    int64_t first, last;
    visible_range(b, i, &first, &last);
    if (j >= first && j < last) return true;
  }
  return false;
}

void Builder::draw_bias() {
  if (!o_.bias) return;
  const std::vector<int64_t> shape = {o_.bias_batch ? o_.batch : 1, o_.bias_head ? o_.heads : 1,
                                      o_.bias_row ? o_.rows : 1, o_.bound + o_.bias_extra};
  c_.in[kAttentionBias] = make(o_.type, shape, {true, true, true, false});
  const View& bias = c_.in[kAttentionBias].view();
  if (bias.elements() == 0) return;
  const double hidden = random_.pick({0.0, 0.2, 0.6});
  const double sentinel = random_.chance(0.2) ? kSentinel : -kInfinity;
  for (int64_t k = 0; k < bias.elements(); ++k) {
    bias.set_linear(k, random_.chance(hidden) ? sentinel : 2 * random_.normal());
  }
  if (random_.chance(0.3)) {  // a row without a visible key
    const int64_t b = random_.below(shape[0]), h = random_.below(shape[1]);
    const int64_t i = random_.below(shape[2]);
    for (int64_t j = 0; j < shape[3]; ++j) bias.set({b, h, i, j}, -kInfinity);
  }
  if (std::isfinite(sentinel)) keep_one_visible(sentinel);
  if (overlaps(bias) || random_.chance(0.3)) return;
  // Poison the cells that causality, window and length hide from every row that shares them.
  std::vector<bool> used(static_cast<size_t>(shape[0] * shape[2] * shape[3]), false);
  const auto cell = [&](int64_t b, int64_t i, int64_t j) {
    return static_cast<size_t>(
        ((shape[0] == 1 ? 0 : b) * shape[2] + (shape[2] == 1 ? 0 : i)) * shape[3] + j);
  };
  for (int64_t b = 0; b < o_.batch; ++b) {
    for (int64_t i = 0; i < o_.rows; ++i) {
      int64_t first, last;
      visible_range(b, i, &first, &last);
      // A padded query row is not felt either, but its own output then need not be finite.
      if (o_.start_of(b) + i >= o_.totals[static_cast<size_t>(b)]) c_.finite_padding = false;
      for (int64_t j = first; j < last; ++j) used[cell(b, i, j)] = true;
    }
  }
  for (int64_t b = 0; b < shape[0]; ++b) {
    for (int64_t h = 0; h < shape[1]; ++h) {
      for (int64_t i = 0; i < shape[2]; ++i) {
        for (int64_t j = 0; j < shape[3]; ++j) {
          if (!used[cell(b, i, j)]) bias.set({b, h, i, j}, random_.pick({kNan, kInfinity}));
        }
      }
    }
  }
}

// Gives every row that sees keys at least one whose mask is not the sentinel: in a row of -10000
// alone float32 has a thousandth left for the scores, as its sums are the contract's.
void Builder::keep_one_visible(double sentinel) {
  const View& bias = c_.in[kAttentionBias].view();
  for (int64_t b = 0; b < o_.batch; ++b) {
    for (int64_t i = 0; i < o_.rows; ++i) {
      int64_t first, last;
      visible_range(b, i, &first, &last);
      for (int64_t h = 0; h < bias.dim(1) && last > first; ++h) {
        const int64_t row[] = {bias.dim(0) == 1 ? 0 : b, h, bias.dim(2) == 1 ? 0 : i};
        bool kept = false;
        int64_t masked = -1;
        for (int64_t j = first; j < last; ++j) {
          const double mask = bias.at({row[0], row[1], row[2], j});
          kept = kept || (mask != sentinel && std::isfinite(mask));
          if (mask == sentinel) masked = j;
        }
        if (!kept && masked >= 0) bias.set({row[0], row[1], row[2], masked}, 0);
      }
    }
  }
}

void Builder::poison_unused() {
  if (random_.chance(0.25)) return;
  // The norm of a row of huge numbers overflows in float32; padding is normalised too.
  const double poison = o_.norm ? kNan : random_.pick({kNan, kNan, kInfinity, 1e30});
  // Cache rows beyond each past.
  for (uint32_t slot : {kPastKey, kPastValue}) {
    const View& cache = c_.in[slot].view();
    if (!cache.bound || overlaps(cache)) continue;
    for (int64_t b = 0; b < o_.batch; ++b) {
      for (int64_t h = 0; h < o_.kv_heads; ++h) {
        for (int64_t row = o_.past_of(b); row < cache.dim(2); ++row) {
          for (int64_t d = 0; d < o_.size; ++d) cache.set({b, h, row, d}, poison);
        }
      }
    }
  }
  // Tokens of padded rows and of empty slots.
  for (uint32_t slot : {kQuery, kKey, kValue}) {
    const View& tokens = c_.in[slot].view();
    if (!tokens.bound || overlaps(tokens)) continue;
    for_each_token(tokens, [&](int64_t b, int64_t row) {
      const int64_t total = o_.totals[static_cast<size_t>(b)];
      const int64_t start = slot == kQuery ? o_.start_of(b) : o_.past_of(b);
      if (total != 0 && start + row < total) return;
      if (total != 0 && slot == kQuery) c_.finite_padding = false;
      for (int64_t d = 0; d < tokens.dim(2); ++d) tokens.set({b, row, d}, poison);
    });
  }
}

bool Builder::set_key(bool value, int64_t b, int64_t head, int64_t j, int64_t channel, double to) {
  const int64_t past = o_.past_of(b);
  if (j < past) {
    const View& cache = c_.in[value ? kPastValue : kPastKey].view();
    if (overlaps(cache)) return false;
    cache.set({b, head, j, channel}, to);
    return true;
  }
  const View& tokens = c_.in[o_.packed ? kQuery : value ? kValue : kKey].view();
  if (overlaps(tokens)) return false;
  const int64_t heads_before = o_.packed ? o_.heads + (value ? o_.kv_heads : 0) : 0;
  tokens.set({b, j - past, (heads_before + head) * o_.size + channel}, to);
  return true;
}

void Builder::poison_keys_and_values() {
  if (o_.batch == 0 || o_.rows == 0) return;
  const int64_t b = random_.below(o_.batch);
  const int64_t total = o_.totals[static_cast<size_t>(b)];
  if (total == 0) return;
  const double which = random_.uniform();
  if (which < 0.3) {
    // Keys that causality or the window hide from every row.
    for (int64_t j = 0; j < total; ++j) {
      if (seen(b, j)) continue;
      for (int64_t h = 0; h < o_.kv_heads; ++h) {
        set_key(false, b, h, j, random_.below(o_.size), kNan);
      }
    }
  } else if (which < 0.5 && o_.bias) {
    // A key that the mask hides from every row.
    const View& bias = c_.in[kAttentionBias].view();
    const int64_t j = random_.below(total);
    for (int64_t k = 0; k < bias.dim(0); ++k) {
      for (int64_t h = 0; h < bias.dim(1); ++h) {
        for (int64_t i = 0; i < bias.dim(2); ++i) bias.set({k, h, i, j}, -kInfinity);
      }
    }
    keep_one_visible(kSentinel);
    set_key(false, b, random_.below(o_.kv_heads), j, random_.below(o_.size), kNan);
  } else if (which < 0.55) {
    // A key that is seen by some rows: those are NaN, the others as ever.
    set_key(false, b, random_.below(o_.kv_heads), random_.below(total), random_.below(o_.size),
            kNan);
    c_.finite_padding = false;
  } else if (which < 0.6) {
    const int64_t head = random_.below(o_.kv_heads);
    const int64_t j = random_.below(total);
    if (set_key(true, b, head, j, random_.below(o_.size), kNan)) {
      c_.loose[static_cast<size_t>(b * o_.kv_heads + head)] = true;
    }
    c_.finite_padding = false;
  }
}

void Builder::break_rule() {
  if (o_.breach == Breach::kNone) return;
  const int64_t b = random_.below(o_.batch);
  const View& lengths = c_.in[kSeqlensK].view();
  const auto set_total = [&](int64_t total) {
    lengths.set_linear(b, static_cast<double>(total - 1));
  };
  switch (o_.breach) {
    case Breach::kNone:
      break;
    case Breach::kNegativeLength:
      set_total(-random_.between(1, 1000));
      break;
    case Breach::kHugeLength:
      lengths.set_linear(b, 2147483647.0);
      break;
    case Breach::kBeyondBound:
      set_total(o_.bound + 1);
      break;
    case Breach::kBeyondPresent:
      set_total(std::max(o_.key.present.rows, o_.value.present.rows) + 1);
      break;
    case Breach::kBeyondPast:
      set_total(o_.key.past_rows + o_.new_rows + 1);
      break;
    case Breach::kShorterThanNew:
      set_total(0);
      if (!o_.empty_slots && !o_.first_prompt()) set_total(std::max<int64_t>(o_.rows - 1, 0));
      break;
    case Breach::kPosition:
      c_.in[kPositionIds].view().set(
          {b, 0}, random_.chance(0.5) ? -1.0 : static_cast<double>(c_.in[kCosCache].view().dim(0)));
      break;
  }
}

}  // namespace attn::matrix
