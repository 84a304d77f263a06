// Puts an outline into memory: tensors with their layouts, values, and poison where nothing may be
// felt.
#include <algorithm>
#include <cmath>
#include <limits>

#include "matrix/attention_case.h"

namespace attn::matrix {
namespace {

using test::LayoutChoice;
using test::Tensor;
using test::View;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Whether different elements share memory.
bool overlaps(const View& view) {
  for (size_t axis = 0; axis < view.shape.size(); ++axis) {
    if (view.shape[axis] > 1 && view.strides[axis] == 0) return true;
  }
  return false;
}

class Builder : AttentionSlots {
 public:
  Builder(AttentionCase& c, Random& random) : c_(c), o_(c.outline), random_(random) {
    c.loose.assign(static_cast<size_t>(o_.batch * o_.kv_heads), false);
  }

  void build(bool felt_poison) {
    draw_tokens();
    draw_cache(kPastKey, kPresentKey, o_.present_key, o_.aliased_key, o_.key_capacity, o_.size);
    draw_cache(kPastValue, kPresentValue, o_.present_value, o_.aliased_value, o_.value_capacity,
               o_.v_size);
    draw_lengths();
    draw_mask();
    draw_outputs();
    fill_problem();
    poison_beyond();
    poison_mask();
    if (felt_poison) poison_felt();
  }

 private:
  Tensor make(Type type, std::vector<int64_t> shape, bool output = false,
              std::vector<bool> may_broadcast = {}) {
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

  std::vector<int64_t> shape_of(int rank, int64_t heads, int64_t rows, int64_t channels) const {
    if (rank == 4) return {o_.batch, heads, rows, channels};
    return {o_.batch, rows, heads * channels};
  }

  void draw_input(uint32_t slot, int rank, int64_t heads, int64_t rows, int64_t channels,
                  double sigma) {
    std::vector<bool> shared(static_cast<size_t>(rank), true);
    shared.back() = false;
    if (rank == 4) shared[1] = false;
    c_.in[slot] = make(o_.type, shape_of(rank, heads, rows, channels), false, shared);
    fill_normal(c_.in[slot].view(), random_, sigma);
    c_.given[slot] = c_.in[slot].view();
  }

  void draw_tokens() {
    const double root = std::sqrt(static_cast<double>(o_.size));
    const double scale = !o_.has_scale || o_.scale == 0 ? 1 / root : o_.scale;
    draw_input(kQ, o_.query_rank, o_.heads, o_.rows, o_.size, o_.spread / (scale * root));
    draw_input(kK, o_.key_rank, o_.kv_heads, o_.new_rows, o_.size, 1);
    draw_input(kV, o_.value_rank, o_.kv_heads, o_.new_rows, o_.v_size, 1);
  }

  void draw_cache(uint32_t past, uint32_t present, bool bound, bool aliased, int64_t capacity,
                  int64_t channels) {
    if (!aliased) {
      if (o_.has_past()) {
        draw_input(past, o_.past_rank, o_.kv_heads, o_.past_rows, channels, 1);
        effective_past_[past - kPastKey] = by_heads(c_.given[past], o_.kv_heads);
      }
      if (!bound) return;
      c_.out[present] = make(o_.type, {o_.batch, o_.kv_heads, capacity, channels}, true);
      c_.wanted[present] = c_.out[present].view();
      return;
    }
    c_.in[past] =
        make(o_.type, {o_.batch, o_.kv_heads, std::max(capacity, o_.past_rows), channels}, true);
    const View& buffer = c_.in[past].view();
    fill_normal(buffer, random_);
    c_.wanted[present] = buffer;
    c_.wanted[present].shape[2] = capacity;
    View& given = c_.given[past];
    given = buffer;
    given.shape[2] = o_.past_rows;
    effective_past_[past - kPastKey] = given;
    if (o_.form == KeyForm::kFrozen) return;
    // A dense past has strides of its own and must move; of a capacity they are not looked at.
    if (o_.form == KeyForm::kDense || random_.chance(0.5)) {
      given.strides = test::contiguous_strides(given.shape);
    }
    if (o_.form != KeyForm::kDense) return;
    effective_past_[past - kPastKey] = given;
    fill_normal(given, random_);  // gaps of the buffer are among its elements
  }

  void draw_lengths() {
    if (o_.form != KeyForm::kNonpad) return;
    c_.in[kNonpad] = make(Type::kInt64, {o_.batch});
    c_.given[kNonpad] = c_.in[kNonpad].view();
    for (int64_t b = 0; b < o_.batch; ++b) {
      c_.given[kNonpad].set({b}, static_cast<double>(o_.total_of(b)));
    }
    if (o_.breach == AttentionBreach::kNone) return;
    const bool negative = o_.breach == AttentionBreach::kNegativeLength;
    const int64_t away = random_.between(1, 1000);
    c_.given[kNonpad].set({random_.below(o_.batch)},
                          static_cast<double>(negative ? -away : o_.new_rows + away));
  }

  void hide(int64_t linear) {
    const View& mask = c_.given[kMask];
    mask.set_linear(linear, mask.type == Type::kBool ? 0 : -kInfinity);
  }

  // Blocks that show all, hide all, or are mixed, as masks of padding and of windows have them.
  void draw_mask() {
    if (!o_.mask) return;
    std::vector<bool> shared(o_.mask_shape.size(), true);
    if (!shared.empty()) shared.back() = false;
    if (o_.derived()) shared.assign(o_.mask_shape.size(), false);
    c_.in[kMask] = make(o_.mask_type, o_.mask_shape, false, shared);
    View& mask = c_.given[kMask] = c_.in[kMask].view();
    const int64_t columns = o_.mask_shape.empty() ? 1 : o_.mask_shape.back();
    const bool blocks = random_.chance(0.5);
    const double hidden = random_.pick({0.0, 0.2, 0.6});
    const int64_t side = random_.pick<int64_t>({8, 64, 150});
    std::vector<int> kinds(static_cast<size_t>(columns / side + 1));
    for (int64_t k = 0; k < mask.elements(); ++k) {
      const int64_t column = columns == 0 ? 0 : k % columns;
      if (k % (columns * 7) == 0) {
        for (int& kind : kinds) kind = random_.pick({0, 1, 2});
      }
      const int kind = blocks ? kinds[static_cast<size_t>(column / side)] : 2;
      const bool shows = kind == 0 || (kind == 2 && !random_.chance(hidden));
      double value = shows ? 1 : 0;
      if (mask.type != Type::kBool) {
        value = kind == 0 ? 0 : shows ? 2 * random_.normal() : -kInfinity;
      }
      mask.set_linear(k, value);
    }
    if (o_.derived()) mark_lengths();
  }

  // Makes the last query row end where each batch row's length says.
  void mark_lengths() {
    const View& mask = c_.given[kMask];
    if (mask.elements() == 0) return;
    const auto shape = [&](size_t back) {
      return o_.mask_shape.size() < back ? 1 : o_.mask_shape[o_.mask_shape.size() - back];
    };
    const int64_t columns = shape(1), rows = shape(2), heads = shape(3), batches = shape(4);
    const double unseen = random_.chance(0.5) ? -kInfinity : -2000;  // additive and below the mark
    for (int64_t b = 0; b < batches; ++b) {
      const int64_t length = o_.lengths.empty() ? 0 : o_.lengths[static_cast<size_t>(b)];
      const bool none = o_.breach == AttentionBreach::kShortMask && b == batches - 1;
      const int64_t head = random_.below(heads);
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t row = ((b * heads + h) * rows + rows - 1) * columns;
        for (int64_t j = none ? 0 : length; j < columns; ++j) {
          mask.set_linear(row + j, mask.type == Type::kBool ? 0 : unseen);
        }
        if (none || h != head || length == 0) continue;
        mask.set_linear(row + std::min(length, columns) - 1, mask.type == Type::kBool ? 1 : 0.5);
      }
    }
  }

  void draw_outputs() {
    c_.out[kY] = make(o_.type, shape_of(o_.query_rank, o_.heads, o_.rows, o_.v_size), true);
    if (o_.scores) {
      c_.out[kScores] = make(o_.type, {o_.batch, o_.heads, o_.rows, o_.columns()}, true);
    }
    if (o_.log_sum_exp) {
      c_.out[kLogSumExp] = make(Type::kFloat32, {o_.batch, o_.heads, o_.rows}, true);
    }
    for (const uint32_t slot : {kY, kScores, kLogSumExp}) c_.wanted[slot] = c_.out[slot].view();
  }

  void fill_problem() {
    reference::OnnxAttention& p = c_.problem;
    p.causal = o_.causal;
    p.scale =
        o_.has_scale ? static_cast<float>(o_.scale) : 1 / std::sqrt(static_cast<double>(o_.size));
    p.softcap = static_cast<float>(o_.softcap);
    p.left_window = o_.left_window;
    p.right_window = o_.right_window;
    p.score_mode = o_.score_mode;
    p.scores = o_.scores;
    p.length_from_mask = o_.form == KeyForm::kMarked;
    p.query = by_heads(c_.given[kQ], o_.heads);
    p.key = by_heads(c_.given[kK], o_.kv_heads);
    p.value = by_heads(c_.given[kV], o_.kv_heads);
    p.mask = c_.given[kMask];
    p.past_key = effective_past_[0];
    p.past_value = effective_past_[1];
    p.nonpad = c_.given[kNonpad];
    const bool moves = o_.form == KeyForm::kDense;
    p.present_key = {o_.present_key, o_.key_capacity, o_.aliased_key && !moves};
    p.present_value = {o_.present_value, o_.value_capacity, o_.aliased_value && !moves};
  }

  // The lengths as they were drawn, for poison; a breach changes the values afterwards.
  reference::BatchRow row_of(int64_t b) const {
    return {true, o_.past_of(b), o_.new_rows, o_.total_of(b), o_.start_of(b)};
  }

  // Rows of K, V and the caches beyond each length.
  void poison_beyond() {
    if (random_.chance(0.25) || o_.breach != AttentionBreach::kNone) return;
    const double poison = random_.pick({kNan, kNan, kInfinity, 1e30});
    for (int64_t b = 0; b < o_.batch; ++b) {
      if (o_.form == KeyForm::kNonpad) {
        for (const View* view : {&c_.problem.key, &c_.problem.value}) {
          if (!overlaps(*view)) set_rows(*view, b, o_.total_of(b), view->dim(2), poison);
        }
      }
      if (o_.form == KeyForm::kDense || !o_.has_past()) continue;
      for (const uint32_t slot : {kPresentKey, kPresentValue}) {
        if (!c_.aliased(slot)) continue;
        const View& buffer = c_.target(slot).view();
        set_rows(buffer, b, std::max<int64_t>(o_.past_of(b), 0), buffer.dim(2), poison);
      }
    }
  }

  void set_rows(const View& view, int64_t b, int64_t begin, int64_t end, double value) {
    for (int64_t h = 0; h < view.dim(1); ++h) {
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t d = 0; d < view.dim(3); ++d) view.set({b, h, row, d}, value);
      }
    }
  }

  // Cells that causality, window and length hide from every row that shares them.
  void poison_mask() {
    const View& mask = c_.given[kMask];
    if (!o_.mask || o_.mask_type == Type::kBool || o_.derived() || o_.mask_shape.empty()) return;
    if (overlaps(mask) || mask.elements() == 0 || random_.chance(0.4)) return;
    if (o_.breach != AttentionBreach::kNone) return;
    const int64_t columns = o_.mask_shape.back();
    const auto shape = [&](size_t back) {
      return o_.mask_shape.size() < back ? 1 : o_.mask_shape[o_.mask_shape.size() - back];
    };
    const int64_t rows = shape(2), heads = shape(3), batches = shape(4);
    std::vector<bool> used(static_cast<size_t>(batches * rows * columns), false);
    for (int64_t b = 0; b < o_.batch; ++b) {
      for (int64_t i = 0; i < o_.rows; ++i) {
        int64_t first, last;
        reference::visible_range(c_.problem, row_of(b), i, &first, &last);
        const int64_t line = (batches == 1 ? 0 : b) * rows + (rows == 1 ? 0 : i);
        for (int64_t j = first; j < std::min(last, columns); ++j) {
          used[static_cast<size_t>(line * columns + j)] = true;
        }
      }
    }
    for (int64_t k = 0; k < mask.elements(); ++k) {
      const int64_t line = k / columns;
      const int64_t own = line / (heads * rows) * rows + line % rows;
      if (!used[static_cast<size_t>(own * columns + k % columns)]) {
        mask.set_linear(k, random_.pick({kNan, kInfinity}));
      }
    }
  }

  // Whether some query row of key head `kv_head` sees key j of batch row b.
  bool seen(int64_t b, int64_t kv_head, int64_t j) const {
    const int64_t group = o_.heads / o_.kv_heads;
    for (int64_t i = 0; i < o_.rows; ++i) {
      int64_t first, last;
      reference::visible_range(c_.problem, row_of(b), i, &first, &last);
      if (j < first || j >= last) continue;
      for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        if (reference::mask_cell(c_.given[kMask], b, h, i, j).shown) return true;
      }
    }
    return false;
  }

  // Sets one channel of key (or value) row j, wherever it comes from; false if it shares memory.
  bool set_key(bool value, int64_t b, int64_t head, int64_t j, double to) {
    const int64_t past = o_.has_past() ? o_.past_of(b) : 0;
    const View& from = j < past ? effective_past_[value ? 1 : 0]
                       : value  ? c_.problem.value
                                : c_.problem.key;
    if (overlaps(from)) return false;
    from.set({b, head, j < past ? j : j - past, random_.below(from.dim(3))}, to);
    return true;
  }

  void poison_felt() {
    if (o_.batch == 0 || o_.rows == 0 || o_.breach != AttentionBreach::kNone) return;
    const int64_t b = random_.below(o_.batch), head = random_.below(o_.kv_heads);
    if (o_.total_of(b) <= 0 || (o_.derived() && o_.past_of(b) < 0)) return;
    const int64_t j = random_.below(o_.total_of(b));
    const double which = random_.uniform();
    if (!seen(b, head, j)) {
      if (which < 0.6) set_key(false, b, head, j, random_.pick({kNan, kInfinity}));
    } else if (which < 0.06) {
      set_key(false, b, head, j, kNan);
    } else if (which < 0.12 && set_key(true, b, head, j, kNan)) {
      c_.loose[static_cast<size_t>(b * o_.kv_heads + head)] = true;
    }
  }

  AttentionCase& c_;
  const AttentionOutline& o_;
  Random& random_;
  View effective_past_[2];
};

}  // namespace

AttentionCase build_attention_case(const AttentionOutline& outline, Random& random,
                                   bool felt_poison) {
  AttentionCase c;
  c.outline = outline;
  Builder(c, random).build(felt_poison);
  c.through_binding = random.chance(0.4);
  c.own_workspace = random.chance(0.5);
  c.describe_memory = random.chance(0.5);
  c.wide_range = random.chance(0.2);
  c.renew();
  return c;
}

}  // namespace attn::matrix
