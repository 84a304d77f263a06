#include "reference/linear_attention.h"

#include <algorithm>
#include <cmath>

namespace attn::reference {
namespace {

using test::round_to;
using test::Type;
using test::View;

// ---- the separate operators that a fold stands for ----------------------------------------------

float to_type(float value, Type type) { return static_cast<float>(round_to(type, value)); }

// Sigmoid(x)
float sigmoid_op(float x, Type type) {
  const double magnitude = std::fabs(static_cast<double>(x));
  const float small = static_cast<float>(std::exp(-magnitude));  // exp(-|x|), in (0, 1]
  const float result = std::signbit(x) && x != 0 ? small / (1.0f + small) : 1.0f / (1.0f + small);
  return to_type(result, type);
}

// Neg(Exp(x))
float neg_exp_op(float x, Type type) { return -to_type(std::exp(x), type); }

// Mul(scale, Softplus(Add(x, bias)))
float decay_op(float x, float bias, float scale, Type type) {
  const float sum = to_type(x + bias, type);
  const float tail = std::log1p(std::exp(-std::fabs(sum)));
  const float plus = to_type((sum > 0 ? sum : 0.0f) + tail, type);
  return to_type(scale * plus, type);
}

// ---- the recurrence -----------------------------------------------------------------------------

// Below this, numbers of float32 are subnormal or soon will be.
constexpr double kLeastSize = 1e-36;

// One state of one batch row.
class State {
 public:
  State(const LinearAttention& p, int64_t b, int64_t head, const std::vector<double>& decay,
        const std::vector<double>& beta)
      : p_(p),
        b_(b),
        head_(head),
        dk_(p.head_size()),
        dv_(p.v_head_size()),
        decay_(decay),
        beta_(beta),
        values_(static_cast<size_t>(dk_ * dv_), 0.0),
        sizes_(values_.size(), 0.0) {
    if (!p.past_state.bound) return;
    for (int64_t i = 0; i < dk_; ++i) {
      for (int64_t j = 0; j < dv_; ++j) at(i, j) = p.past_state.at({b, head, i, j});
    }
  }

  double& at(int64_t i, int64_t j) { return values_[static_cast<size_t>(i * dv_ + j)]; }

  // The size of the terms that an element was made of: what its rounding errors are relative to,
  // now and, fading, for some tokens after terms have cancelled.
  double& size_of_terms(int64_t i, int64_t j) { return sizes_[static_cast<size_t>(i * dv_ + j)]; }

  void step(int64_t t) {
    const std::vector<double> key = token_row(p_.key, t, head_ / group_of_key(), dk_);
    std::vector<double> change = token_row(p_.value, t, head_, dv_);
    std::vector<double> change_size = change;
    if (p_.decays) {
      for (int64_t i = 0; i < dk_; ++i) {
        const double keep = std::exp(gate(decay_, p_.decay, t, i));
        for (int64_t j = 0; j < dv_; ++j) {
          at(i, j) *= keep;
          size_of_terms(i, j) *= keep;
        }
      }
    }
    if (p_.delta) {
      const double beta = gate(beta_, p_.beta, t, 0);
      for (int64_t j = 0; j < dv_; ++j) {
        double held = 0;
        for (int64_t i = 0; i < dk_; ++i) held += at(i, j) * key[static_cast<size_t>(i)];
        double& c = change[static_cast<size_t>(j)];
        change_size[static_cast<size_t>(j)] = beta * (std::fabs(c) + std::fabs(held));
        c = beta * (c - held);
      }
    }
    for (int64_t i = 0; i < dk_; ++i) {
      for (int64_t j = 0; j < dv_; ++j) {
        const double k = key[static_cast<size_t>(i)];
        const double terms = std::hypot(at(i, j), k * change_size[static_cast<size_t>(j)]);
        size_of_terms(i, j) = std::max(terms, size_of_terms(i, j) / 2);
        at(i, j) += k * change[static_cast<size_t>(j)];
      }
    }
  }

  // scale S^T q of one query head; `size` is what the norm of a row would be if no terms cancelled,
  // and never less than float32 can hold with all its digits.
  std::vector<double> read(int64_t t, int64_t query_head, double scale, double* size) {
    const std::vector<double> query = token_row(p_.query, t, query_head, dk_);
    std::vector<double> row(static_cast<size_t>(dv_), 0.0);
    double squares = 0;
    for (int64_t j = 0; j < dv_; ++j) {
      for (int64_t i = 0; i < dk_; ++i) {
        const double factor = scale * query[static_cast<size_t>(i)];
        row[static_cast<size_t>(j)] += factor * at(i, j);
        const double size_here = factor * std::max(std::fabs(at(i, j)), size_of_terms(i, j));
        if (std::isfinite(size_here)) squares += size_here * size_here;
      }
    }
    *size = std::max(std::sqrt(squares), kLeastSize);
    return row;
  }

 private:
  int64_t group_of_key() const { return p_.kv_num_heads / p_.key_heads(); }

  std::vector<double> token_row(const View& view, int64_t t, int64_t head, int64_t size) const {
    std::vector<double> row(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i)
      row[static_cast<size_t>(i)] = view.at({b_, t, head * size + i});
    return row;
  }

  // A gate's value: one number for all heads, one a head, or one a key channel.
  double gate(const std::vector<double>& values, const View& view, int64_t t, int64_t i) const {
    const int64_t width = view.dim(2);
    int64_t at = head_;
    if (width == p_.kv_num_heads * dk_) at = head_ * dk_ + i;
    if (width == 1) at = 0;
    return values[static_cast<size_t>((b_ * p_.tokens() + t) * width + at)];
  }

  const LinearAttention& p_;
  const int64_t b_, head_, dk_, dv_;
  const std::vector<double>&decay_, &beta_;
  std::vector<double> values_, sizes_;
};

}  // namespace

std::vector<double> folded_beta(const LinearAttention& problem) {
  std::vector<double> gates = test::values_of(problem.beta);
  for (double& gate : gates) gate = sigmoid_op(static_cast<float>(gate), problem.beta.type);
  return gates;
}

std::vector<double> folded_decay(const LinearAttention& problem) {
  const Type type = problem.decay.type;
  std::vector<double> gates = test::values_of(problem.decay);
  const std::vector<double> bias = test::values_of(problem.dt_bias);
  std::vector<double> scale = test::values_of(problem.decay_scale);
  if (problem.fold_exp) {
    for (double& value : scale) value = neg_exp_op(static_cast<float>(value), type);
  }
  for (size_t k = 0; k < gates.size(); ++k) {
    const size_t channel = k % bias.size();
    gates[k] = decay_op(static_cast<float>(gates[k]), static_cast<float>(bias[channel]),
                        static_cast<float>(scale[channel]), type);
  }
  return gates;
}

LinearAttentionResult run(const LinearAttention& p) {
  const int64_t dk = p.head_size(), dv = p.v_head_size(), outputs = p.output_heads();
  const double scale = p.scale != 0 ? p.scale : 1 / std::sqrt(static_cast<double>(dk));
  std::vector<double> decay, beta;
  if (p.decays) decay = p.fold_decay ? folded_decay(p) : test::values_of(p.decay);
  if (p.delta) beta = p.fold_beta ? folded_beta(p) : test::values_of(p.beta);

  LinearAttentionResult result;
  const auto cells = [&](int64_t count) { return static_cast<size_t>(p.batch() * count); };
  result.output.resize(cells(p.tokens() * outputs * dv));
  result.output_size.resize(cells(p.tokens() * outputs));
  result.present.resize(cells(p.kv_num_heads * dk * dv));
  result.present_size.assign(cells(p.kv_num_heads * dk), 0.0);
  for (int64_t b = 0; b < p.batch(); ++b) {
    for (int64_t head = 0; head < p.kv_num_heads; ++head) {
      State state(p, b, head, decay, beta);
      for (int64_t t = 0; t < p.tokens(); ++t) {
        state.step(t);
        for (int64_t o = 0; o < outputs; ++o) {
          if (o * p.kv_num_heads / outputs != head) continue;
          const int64_t row_at = (b * p.tokens() + t) * outputs + o;
          const std::vector<double> row =
              state.read(t, o * p.q_num_heads / outputs, scale,
                         &result.output_size[static_cast<size_t>(row_at)]);
          for (int64_t j = 0; j < dv; ++j) {
            result.output[static_cast<size_t>(row_at * dv + j)] =
                round_to(p.query.type, row[static_cast<size_t>(j)]);
          }
        }
      }
      const int64_t first = (b * p.kv_num_heads + head) * dk;
      double squares = 0;
      for (int64_t i = 0; i < dk; ++i) {
        for (int64_t j = 0; j < dv; ++j) {
          const double size = std::max(std::fabs(state.at(i, j)), state.size_of_terms(i, j));
          if (std::isfinite(size)) squares += size * size;
          result.present[static_cast<size_t>((first + i) * dv + j)] =
              round_to(p.state_type, state.at(i, j));
        }
      }
      // Rows of a state share its rounding errors through the changes that they all enter.
      const double size = std::max(std::sqrt(squares / static_cast<double>(dk)), kLeastSize);
      std::fill_n(result.present_size.begin() + first, dk, size);
    }
  }
  return result;
}

}  // namespace attn::reference
