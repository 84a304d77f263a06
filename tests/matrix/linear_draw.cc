// Draws LinearAttention problems: their outlines, their memory and its numbers.
#include <algorithm>
#include <cmath>
#include <limits>

#include "matrix/linear_case.h"

namespace attn::matrix {
namespace {

using namespace linear;
using test::Random;
using test::Tensor;
using test::View;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void draw_heads(LinearOutline& o, Random& random) {
  const int64_t heads = random.pick<int64_t>({1, 1, 2, 3, 4});
  o.q_heads = o.key_heads = o.kv_heads = heads;
  const int64_t group = random.pick<int64_t>({1, 1, 2, 3, 8});
  if (random.chance(0.5)) {
    o.q_heads = heads * group;
  } else if (!o.standard) {
    o.kv_heads = heads * group;
  }
  if (o.standard) {
    o.key_heads = o.kv_heads;
  } else if (random.chance(0.6)) {  // any divisor
    do {
      o.key_heads = random.between(1, o.kv_heads);
    } while (o.kv_heads % o.key_heads != 0);
  } else {
    o.key_heads = o.kv_heads;
  }
}

void draw_sizes(LinearOutline& o, Random& random) {
  o.batch = random.pick<int64_t>({1, 1, 1, 2, 3});
  o.tokens = random.pick<int64_t>({1, 1, 2, 3, 7, 8, 9, 17});
  const double kind = random.uniform();
  if (kind < 0.35) {
    o.head_size = random.between(1, 40);
    o.v_head_size = random.between(1, 40);
  } else if (kind < 0.7) {
    o.head_size = random.pick<int64_t>({16, 32, 64, 80, 128});
    o.v_head_size = random.chance(0.6) ? o.head_size : random.pick<int64_t>({32, 64, 96, 128, 256});
  } else if (kind < 0.8) {
    o.head_size = random.pick<int64_t>({129, 192, 256, 300, 576});
    o.v_head_size = random.pick<int64_t>({1, 16, 33, 128, 200});
  } else {
    o.head_size = random.between(1, 70);
    o.v_head_size = random.between(1, 200);
  }
  if (random.chance(0.04)) o.tokens = 0;
  if (random.chance(0.03)) o.batch = 0;
  if (random.chance(0.08) && o.head_size * o.v_head_size <= 4096) {
    o.tokens = random.between(65, 400);
    o.batch = 1;
  }
}

void draw_gates(LinearOutline& o, Random& random) {
  o.decay_per_key = random.chance(0.5);
  o.beta_shared = random.chance(0.3);
  o.fold_beta = o.delta && random.chance(0.3);
  o.fold_decay = o.gated && random.chance(0.3);
  o.fold_exp = o.fold_decay && random.chance(0.5);
  o.prefixed = random.chance(0.5);
  o.unused_gates = !o.standard && random.chance(0.3);
  o.decays = random.pick({DecayKind::kOrdinary, DecayKind::kOrdinary, DecayKind::kSteady,
                          DecayKind::kWeak, DecayKind::kStrong, DecayKind::kMixed});
  o.keys = random.pick({KeyKind::kOrdinary, KeyKind::kOrdinary, KeyKind::kOrdinary, KeyKind::kEqual,
                        KeyKind::kTiny});
  if (random.chance(0.2)) o.beta = random.pick({0.0, 0.999, 1.0, 2.0});
}

class Builder {
 public:
  Builder(LinearCase& c, Random& random) : c_(c), o_(c.outline), random_(random) {}

  void build() {
    const int64_t b = o_.batch, t = o_.tokens;
    make(kQuery, {b, t, o_.q_heads * o_.head_size});
    make(kKey, {b, t, o_.key_heads * o_.head_size});
    make(kValue, {b, t, o_.kv_heads * o_.v_head_size});
    test::fill_normal(view(kQuery), random_);
    test::fill_normal(view(kValue), random_);
    fill_keys();
    if (o_.past) {
      c_.in[kPastState] = tensor(o_.state_type, state_shape(), o_.in_place);
      test::fill_normal(view(kPastState), random_);
    }
    if (o_.gated || o_.unused_gates) draw_decay();
    if (o_.delta || o_.unused_gates) draw_beta();
    // Twice the rows' elements: gaps and what lies around are poison.
    c_.out[kOutput] =
        tensor(o_.type, {b, t, std::max(o_.q_heads, o_.kv_heads) * o_.v_head_size}, true);
    if (o_.present && !o_.in_place) {
      c_.out[kPresentState] = tensor(o_.state_type, state_shape(), true);
    }
    poison(c_.out[kOutput]);
    poison(c_.out[kPresentState]);
    fill_problem();
  }

 private:
  View view(Input slot) const { return c_.in[slot].view(); }
  std::vector<int64_t> state_shape() const {
    return {o_.batch, o_.kv_heads, o_.head_size, o_.v_head_size};
  }

  Tensor tensor(Type type, std::vector<int64_t> shape, bool output) {
    test::LayoutChoice choice;
    choice.plain = o_.odd_layouts ? 0.2 : 1;
    choice.allow_inner_step = random_.chance(0.5);
    if (!output) choice.may_broadcast.assign(shape.size(), true);
    // A tensor whose strides are all 0 is row-major where a query leaves data out.
    if (!output) choice.may_broadcast[0] = false;
    choice.allow_broadcast = !output;
    const int rank = static_cast<int>(shape.size());
    return Tensor(type, std::move(shape), test::draw_layout(random_, rank, choice));
  }
  void make(Input slot, std::vector<int64_t> shape) {
    c_.in[slot] = tensor(o_.type, std::move(shape), false);
  }

  static void poison(Tensor& tensor) {
    if (tensor.bound()) tensor.buffer().fill(0xff);
  }

  // Rows of norm 1, as the delta rules need them; some are one and the same row.
  void fill_keys() {
    const View keys = view(kKey);
    test::fill_normal(keys, random_);
    if (keys.elements() == 0) return;
    std::vector<double> row(static_cast<size_t>(o_.head_size));
    for (int64_t b = 0; b < o_.batch; ++b) {
      for (int64_t t = 0; t < o_.tokens; ++t) {
        for (int64_t h = 0; h < o_.key_heads; ++h) {
          const bool equal = o_.keys == KeyKind::kEqual && t % 5 != 4;
          for (int64_t i = 0; i < o_.head_size; ++i) {
            row[static_cast<size_t>(i)] = keys.at({b, equal ? 0 : t, h * o_.head_size + i});
          }
          double squares = 0;
          for (double x : row) squares += x * x;
          const double size = o_.keys == KeyKind::kTiny && t % 2 == 0 ? 1e-3 : 1;
          const double factor = squares > 0 ? size / std::sqrt(squares) : 0;
          for (int64_t i = 0; i < o_.head_size; ++i) {
            keys.set({b, t, h * o_.head_size + i}, factor * row[static_cast<size_t>(i)]);
          }
        }
      }
    }
    // Elements that share memory were normalised more than once, or as parts of several rows.
    if (*std::max_element(keys.strides.begin(), keys.strides.end()) == 0) return;
    shrink_long_keys(keys);
  }

  void shrink_long_keys(const View& keys) {
    double largest = 0;
    for (int64_t b = 0; b < o_.batch; ++b) {
      for (int64_t t = 0; t < o_.tokens; ++t) {
        for (int64_t h = 0; h < o_.key_heads; ++h) {
          double squares = 0;
          for (int64_t i = 0; i < o_.head_size; ++i) {
            squares += std::pow(keys.at({b, t, h * o_.head_size + i}), 2);
          }
          largest = std::max(largest, std::sqrt(squares));
        }
      }
    }
    if (largest < 1.05) return;
    test::for_each_address(keys, [&](void* at) {
      const double value = test::load(at, o_.type);
      if (std::fabs(value) > 1 / std::sqrt(static_cast<double>(o_.head_size))) {
        test::store(at, o_.type, value / largest);
      }
    });
  }

  double draw_log_decay(double steady) {
    switch (o_.decays) {
      case DecayKind::kSteady:
        return steady;
      case DecayKind::kWeak:
        return -1e-4 * random_.uniform();
      case DecayKind::kStrong:
        return random_.chance(0.1) ? -kInfinity : -20 * random_.uniform();
      case DecayKind::kMixed:
        return random_.pick({0.0, -1e-3, -0.5, -4.0, -90.0, -kInfinity, 0.2});
      default:
        return -std::fabs(random_.normal());
    }
  }

  void draw_decay() {
    const int64_t width = o_.kv_heads * (o_.decay_per_key ? o_.head_size : 1);
    if (!o_.gated) {  // ignored, whatever it is
      make(kDecay, {o_.batch + 1, 3});
      c_.in[kDecay].buffer().fill(0xff);
      return;
    }
    make(kDecay, {o_.batch, o_.tokens, width});
    const double steady = -std::exp(-random_.uniform() * 8);
    test::for_each_address(view(kDecay), [&](void* at) {
      test::store(at, o_.type, o_.fold_decay ? 2 * random_.normal() : draw_log_decay(steady));
    });
    if (!o_.fold_decay) return;
    std::vector<int64_t> shape = {width};
    if (random_.chance(0.3)) shape = {1, o_.kv_heads, width / o_.kv_heads};
    for (const Input constant : {kDtBias, kDecayScale}) {
      c_.in[constant] = tensor(o_.type, shape, true);
      test::fill_normal(view(constant), random_);
    }
    if (o_.fold_exp) return;
    test::for_each_address(view(kDecayScale), [&](void* at) {
      test::store(at, o_.type, -std::fabs(test::load(at, o_.type)));
    });
  }

  void draw_beta() {
    if (!o_.delta) {
      make(kBeta, {2});
      test::fill_normal(view(kBeta), random_);
      view(kBeta).set_linear(0, kNan);
      return;
    }
    make(kBeta, {o_.batch, o_.tokens, o_.beta_shared ? 1 : o_.kv_heads});
    test::for_each_address(view(kBeta), [&](void* at) {
      double beta = o_.beta >= 0 ? o_.beta : random_.uniform();
      if (o_.fold_beta) beta = random_.chance(0.05) ? 100 * random_.normal() : 3 * random_.normal();
      test::store(at, o_.type, beta);
    });
  }

  void fill_problem() {
    reference::LinearAttention& p = c_.problem;
    p.decays = o_.gated;
    p.delta = o_.delta;
    p.q_num_heads = o_.q_heads;
    p.kv_num_heads = o_.kv_heads;
    p.scale = o_.scale;
    p.fold_beta = o_.fold_beta;
    p.fold_decay = o_.fold_decay;
    p.fold_exp = o_.fold_exp;
    p.query = view(kQuery);
    p.key = view(kKey);
    p.value = view(kValue);
    p.past_state = view(kPastState);
    p.decay = view(kDecay);
    p.beta = view(kBeta);
    p.dt_bias = view(kDtBias);
    p.decay_scale = view(kDecayScale);
    p.state_type = o_.state_type;
  }

  LinearCase& c_;
  const LinearOutline& o_;
  Random& random_;
};

}  // namespace

LinearOutline draw_linear_outline(uint64_t seed) {
  Random random(test::derive_seed(seed, 10));
  LinearOutline o;
  o.seed = seed;
  o.type = random.pick({Type::kFloat32, Type::kFloat16, Type::kBfloat16});
  o.standard = random.chance(0.4);
  o.gated = random.chance(0.65);
  o.delta = random.chance(0.65);
  draw_heads(o, random);
  draw_sizes(o, random);
  draw_gates(o, random);
  o.scale = random.pick({0.0, 0.0, 1.0, 0.25, -0.5});
  if (random.chance(0.1)) o.scale = random.normal();
  o.scale = static_cast<float>(o.scale);
  o.state_type = random.chance(0.6) ? o.type : Type::kFloat32;
  if (o.standard && random.chance(0.3)) {
    o.state_type = random.pick({Type::kFloat32, Type::kFloat16, Type::kBfloat16});
  }
  o.past = random.chance(0.7);
  o.present = random.chance(0.9);
  o.in_place = o.past && o.present && random.chance(0.5);
  // Without either state its type is nowhere to be seen.
  if (!o.past && !o.present) o.state_type = o.type;
  o.odd_layouts = random.chance(0.4);
  return o;
}

LinearCase build_linear_case(const LinearOutline& outline, Random& random) {
  LinearCase c;
  c.outline = outline;
  Builder(c, random).build();
  c.through_binding = random.chance(0.3);
  c.own_workspace = random.chance(0.3);
  c.describe_memory = random.chance(0.5);
  c.wide_range = random.chance(0.3);
  c.renew();
  return c;
}

}  // namespace attn::matrix
