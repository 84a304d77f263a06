#include "matrix/attention_outline.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace attn::matrix {
namespace {

int64_t log_uniform(Random& random, int64_t low, int64_t high) {
  const double span = std::log(static_cast<double>(high + 1)) - std::log(static_cast<double>(low));
  const double value = static_cast<double>(low) * std::exp(span * random.uniform());
  return std::clamp(static_cast<int64_t>(value), low, high);
}

int64_t draw_size(Random& random) {
  const double which = random.uniform();
  if (which < 0.55) return random.pick<int64_t>({64, 80, 96, 128, 192, 256});
  if (which < 0.92) {
    return random.pick<int64_t>({1, 2, 3, 4, 7, 8, 16, 24, 32, 40, 48, 56, 72, 112, 120, 160});
  }
  return log_uniform(random, 1, 1024);
}

void draw_heads(AttentionOutline& o, Random& random) {
  struct Heads {
    int64_t q, kv;
  };
  const Heads heads = random.pick<Heads>({{1, 1},
                                          {2, 1},
                                          {2, 2},
                                          {3, 1},
                                          {4, 2},
                                          {4, 4},
                                          {5, 5},
                                          {6, 1},
                                          {8, 2},
                                          {9, 3},
                                          {12, 2},
                                          {12, 12},
                                          {16, 2}});
  o.heads = heads.q;
  o.kv_heads = heads.kv;
  o.size = draw_size(random);
  o.v_size = random.chance(0.6) ? o.size : draw_size(random);
}

void draw_form(AttentionOutline& o, Random& random) {
  const double which = random.uniform();
  o.form = which < 0.28   ? KeyForm::kPlain
           : which < 0.46 ? KeyForm::kNonpad
           : which < 0.66 ? KeyForm::kDense
           : which < 0.8  ? KeyForm::kCapacity
           : which < 0.93 ? KeyForm::kFrozen
                          : KeyForm::kMarked;
}

void draw_rows(AttentionOutline& o, const AttentionDraw& draw, Random& random) {
  const double reach = random.uniform();
  const int64_t longest = reach < 0.6 ? 60 : reach < 0.92 ? 300 : 1200;
  o.batch = random.pick<int64_t>({1, 1, 1, 2, 2, 3, 4});
  o.rows = draw.decode_only || random.chance(0.4) ? 1 : log_uniform(random, 1, longest);
  int64_t keys = random.chance(0.35) ? o.rows : log_uniform(random, 1, longest);
  // Half of the work belongs to the reference: keep it short.
  while (o.batch * o.heads * o.rows * keys * (o.size + o.v_size) > 3000000) {
    if (o.batch > 1) {
      --o.batch;
    } else if (o.rows > 16) {
      o.rows = o.rows * 3 / 4;
    } else if (keys > 16) {
      keys = keys * 3 / 4;
    } else {
      break;
    }
  }
  o.new_rows = keys;
  if (!o.has_past()) {
    if (random.chance(0.04)) o.new_rows = 0;
    return;
  }
  o.new_rows = random.chance(0.75) ? o.rows : random.between(0, 6);
  if (o.form == KeyForm::kFrozen && o.new_rows == 0) o.new_rows = 1;  // without any it is dense
  o.past_rows = random.chance(0.1) ? 0 : keys;
}

void draw_caches(AttentionOutline& o, Random& random) {
  if (!o.has_past()) {
    const int64_t slack =
        o.form == KeyForm::kPlain && random.chance(0.2) ? random.between(1, 9) : 0;
    o.present_key = random.chance(0.3);
    o.present_value = random.chance(0.3);
    o.key_capacity = o.value_capacity = o.new_rows + slack;
    return;
  }
  const int64_t full = o.past_rows + o.new_rows;
  o.present_key = random.chance(0.85);
  o.present_value = random.chance(0.85);
  if (o.form == KeyForm::kCapacity && !o.present_key && !o.present_value) o.present_key = true;
  o.aliased_key = o.present_key && random.chance(0.5);
  o.aliased_value = o.present_value && random.chance(0.5);
  o.key_capacity = o.value_capacity = full;
  if (o.form == KeyForm::kDense) return;
  if (o.form == KeyForm::kCapacity || o.form == KeyForm::kMarked) {
    o.key_capacity += random.between(1, 40);
    o.value_capacity += random.between(1, 40);
  }
  if (!o.derived()) return;
  o.present_key = o.present_value = o.aliased_key = o.aliased_value = true;
  if (o.form == KeyForm::kMarked) return;
  o.past_rows = std::max<int64_t>(o.past_rows, o.new_rows) + random.between(0, 9);
  o.key_capacity = o.past_rows - random.pick<int64_t>({0, 0, 0, 1, 2});
  o.value_capacity = o.past_rows - random.pick<int64_t>({0, 0, 0, 1, 2});
  o.key_capacity = std::max(o.key_capacity, o.new_rows);
  o.value_capacity = std::max(o.value_capacity, o.new_rows);
}

void draw_mask(AttentionOutline& o, Random& random) {
  o.mask = o.derived() || random.chance(0.5);
  if (!o.mask) return;
  o.mask_type = random.chance(0.4) ? Type::kBool
                : random.chance(0.5)
                    ? (o.type == Type::kFloat64 ? Type::kFloat64 : o.type)
                    : random.pick({Type::kFloat32, Type::kFloat16, Type::kBfloat16});
  const int64_t rank = random.pick<int64_t>({0, 1, 2, 2, 3, 3, 4, 4, 4, 4});
  int64_t width = o.columns();
  if (random.chance(0.12)) width += random.between(1, 20);
  if (random.chance(0.15)) width = random.between(0, o.columns());
  if (random.chance(0.04)) width = 1;
  const int64_t full[] = {o.batch, o.heads, o.rows, width};
  for (int64_t axis = 4 - rank; axis < 4; ++axis) {
    const bool broadcast = axis < 3 && random.chance(axis == 2 ? 0.3 : 0.5);
    o.mask_shape.push_back(broadcast ? 1 : full[axis]);
  }
}

// The keys that batch rows have where values say so.
void draw_lengths(AttentionOutline& o, Random& random) {
  if (o.form == KeyForm::kNonpad) {
    for (int64_t b = 0; b < o.batch; ++b) {
      o.lengths.push_back(random.chance(0.2) ? o.new_rows : random.between(0, o.new_rows));
    }
    return;
  }
  if (!o.derived()) return;
  const int64_t width = std::min(o.key_capacity, o.value_capacity);
  const int64_t columns = o.mask_shape.empty() ? width : std::min(width, o.mask_shape.back());
  const bool own = o.mask_shape.size() == 4 && o.mask_shape[0] != 1;
  for (int64_t b = 0; b < o.batch; ++b) {
    const int64_t low = std::min(o.new_rows, columns);
    int64_t length = random.chance(0.2) ? columns : random.between(low, columns);
    if (b > 0 && !own) length = o.lengths.front();
    // A scalar shows all keys or none.
    if (o.mask_shape.empty()) length = width;
    o.lengths.push_back(length);
  }
}

void draw_options(AttentionOutline& o, Random& random) {
  o.causal = random.chance(0.4);
  o.version = random.pick<int32_t>({23, 24, 24, 24, 25, 26, 27, 28});
  if (o.form == KeyForm::kNonpad) o.version = std::max(o.version, 24);
  if (random.chance(0.2)) {
    o.version = std::max(o.version, 25);
    const int64_t wide = o.columns() + 3;
    o.left_window = random.pick<int64_t>({-1, 0, 1, 2, 5, 17, wide / 3, wide, INT64_MAX});
    o.right_window = random.pick<int64_t>({-1, -1, 0, 1, 4, 17, wide, INT64_MAX});
  }
  if (random.chance(0.15)) o.softcap = random.pick({0.5, 2.0, 20.0, 50.0});
  o.has_scale = random.chance(0.4);
  if (o.has_scale) o.scale = random.chance(0.15) ? 0 : std::exp(random.uniform() * 4 - 3.5);
  if (random.chance(0.2)) o.softmax_precision = random.pick<int64_t>({1, 10, 11, 16});
  o.scores = random.chance(0.18);
  o.score_mode = random.between(0, 3);
  o.log_sum_exp = random.chance(0.3);
  o.strided = random.chance(0.45);
  o.inner_steps = o.strided && random.chance(0.25);
  o.spread = random.pick({1.0, 1.0, 3.0, 6.0});
}

void draw_ranks(AttentionOutline& o, Random& random) {
  const auto rank = [&] { return random.chance(0.6) ? 4 : 3; };
  o.query_rank = rank();
  o.key_rank = rank();
  o.value_rank = random.chance(0.8) ? o.key_rank : rank();
  // A past of three dimensions has no strides in common with a present of four.
  if (!o.aliased_key && !o.aliased_value && random.chance(0.1)) o.past_rank = 3;
}

void draw_breach(AttentionOutline& o, Random& random) {
  if (o.batch == 0 || o.rows == 0 || !random.chance(0.05)) return;
  if (o.form == KeyForm::kNonpad) {
    o.breach = random.pick({AttentionBreach::kNegativeLength, AttentionBreach::kLengthBeyond});
  }
  const bool own_columns = !o.mask_shape.empty() && o.mask_shape.back() > 0;
  if (o.derived() && o.new_rows > 0 && own_columns) o.breach = AttentionBreach::kShortMask;
}

const char* name_of(KeyForm form) {
  constexpr const char* kNames[] = {"plain",    "nonpad", "dense past",
                                    "capacity", "frozen", "length from mask"};
  return kNames[static_cast<size_t>(form)];
}

}  // namespace

int64_t AttentionOutline::columns() const {
  return derived() ? key_capacity : past_rows + new_rows;
}

int64_t AttentionOutline::total_of(int64_t b) const {
  return lengths.empty() ? past_rows + new_rows : lengths[static_cast<size_t>(b)];
}

int64_t AttentionOutline::past_of(int64_t b) const {
  return derived() ? total_of(b) - new_rows : past_rows;
}

int64_t AttentionOutline::start_of(int64_t b) const {
  return lengths.empty() ? past_rows : total_of(b) - rows;
}

AttentionOutline draw_attention_outline(uint64_t seed, const AttentionDraw& draw, Random& random) {
  AttentionOutline o;
  o.seed = seed;
  const double type = random.uniform();
  o.type = type < 0.4    ? Type::kFloat32
           : type < 0.65 ? Type::kFloat16
           : type < 0.9  ? Type::kBfloat16
                         : Type::kFloat64;
  draw_heads(o, random);
  draw_form(o, random);
  draw_rows(o, draw, random);
  draw_caches(o, random);
  if (random.chance(0.02)) (random.chance(0.5) ? o.batch : o.rows) = 0;
  draw_mask(o, random);
  draw_lengths(o, random);
  draw_options(o, random);
  draw_ranks(o, random);
  draw_breach(o, random);
  return o;
}

std::set<std::string> features_of(const AttentionOutline& o) {
  std::set<std::string> names = {test::name_of(o.type), std::string("keys: ") + name_of(o.form),
                                 o.rows == 1 ? "rows: one" : "rows: many"};
  const auto add = [&](bool has, const char* name) {
    if (has) names.insert(name);
  };
  add(o.mask, o.mask_type == Type::kBool ? "mask: bool" : "mask: additive");
  if (o.mask) names.insert("mask rank " + std::to_string(o.mask_shape.size()));
  add(!o.mask_shape.empty() && o.mask_shape.back() < o.columns(), "mask: short");
  add(o.causal, "causal");
  add(o.left_window >= 0 || o.right_window >= 0, "window");
  add(o.softcap > 0, "softcap");
  add(o.has_scale && o.scale == 0, "scale 0");
  add(o.scores, "scores");
  add(o.log_sum_exp, "log-sum-exp");
  add(o.size != o.v_size, "Dv not D");
  add(o.heads != o.kv_heads, "groups");
  add(o.aliased_key || o.aliased_value, "in place");
  add(o.strided, "strided");
  add(o.query_rank == 3, "3-D query");
  return names;
}

std::string text_of(const AttentionOutline& o) {
  std::ostringstream text;
  text << test::name_of(o.type) << " " << name_of(o.form) << " version " << o.version << " B "
       << o.batch << " S " << o.rows << " N " << o.new_rows << " P " << o.past_rows << " heads "
       << o.heads << "/" << o.kv_heads << " D " << o.size << "/" << o.v_size << " ranks "
       << o.query_rank << o.key_rank << o.value_rank << o.past_rank << " present "
       << (o.present_key ? o.key_capacity : -1) << "/" << (o.present_value ? o.value_capacity : -1)
       << (o.aliased_key ? " key aliased" : "") << (o.aliased_value ? " value aliased" : "");
  if (!o.lengths.empty()) {
    text << " lengths";
    for (const int64_t length : o.lengths) text << " " << length;
  }
  if (o.mask) {
    text << " mask " << test::name_of(o.mask_type) << " (";
    for (const int64_t size : o.mask_shape) text << size << ",";
    text << ")";
  }
  if (o.causal) text << " causal";
  text << " window " << o.left_window << "/" << o.right_window << " softcap " << o.softcap;
  if (o.has_scale) text << " scale " << o.scale;
  if (o.scores) text << " scores mode " << o.score_mode;
  if (o.log_sum_exp) text << " log-sum-exp";
  if (o.strided) text << " strided" << (o.inner_steps ? " with inner steps" : "");
  text << " spread " << o.spread << " breach " << static_cast<int>(o.breach);
  return text.str();
}

}  // namespace attn::matrix
