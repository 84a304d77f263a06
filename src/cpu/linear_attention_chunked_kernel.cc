// The worker of "chunked", compiled once a SIMD level.
#include "cpu/linear_attention_chunked.h"
#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/linear_attention_chunked_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include <cmath>
#include <cstring>

#include "cpu/linear_attention_gates.h"
#include "cpu/simd_chunk-inl.h"
#include "cpu/simd_load-inl.h"
#include "cpu/simd_pack-inl.h"
#include "cpu/simd_rows.h"
#include "cpu/simd_state-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// A decay below this one forgets all the same, and sums of a chunk keep their digits.
inline constexpr double kForgets = -65536;

// What one thread knows of the item that it works on. E: type of query, key, value and output.
template <class E>
class ChunkedItem {
  using Raw = typename E::Raw;

 public:
  ChunkedItem(const ChunkedJob& job, const ChunkedScratch& scratch)
      : job_(job), p_(*job.problem), spec_(p_.spec), geo_(job.geometry), s_(scratch) {}

  void run(int64_t item) {
    const int64_t first_state = item / job_.spans * job_.shared;
    batch_ = first_state / spec_.kv_heads;
    head_ = first_state % spec_.kv_heads;
    first_panel_ = static_cast<int>(item % job_.spans * job_.span_panels);
    end_panel_ = static_cast<int>(std::min<int64_t>(geo_.panels, first_panel_ + job_.span_panels));
    for (int n = 0; n < job_.shared; ++n) begin_state(n);
    for (first_ = 0; first_ < p_.tokens; first_ += geo_.chunk) {
      count_ = static_cast<int>(std::min<int64_t>(geo_.chunk, p_.tokens - first_));
      rows_ = static_cast<int>(round_up(count_, kTileRows));
      load_tokens();
      multiply_pairs();
      for (int n = 0; n < job_.shared; ++n) {
        weigh(n);
        run_panels(n);
      }
    }
    if (!spec_.has_present) return;
    for (int n = 0; n < job_.shared; ++n) end_state(n);
  }

 private:
  float* state_panel(int n, int panel) const {
    return s_.state + (static_cast<int64_t>(n) * geo_.panels + panel) * geo_.panel_floats;
  }
  float* query_rows(int output) const {
    return s_.query + static_cast<int64_t>(output) * geo_.chunk * geo_.key_stride;
  }
  float* pairs(float* all, int output) const {
    return all + static_cast<int64_t>(output) * geo_.chunk * geo_.pair_stride;
  }

  int64_t chunk_panel_floats() const { return static_cast<int64_t>(geo_.chunk) * kPanel; }
  float* chunk_panel(float* all, int panel) const { return all + panel * chunk_panel_floats(); }

  template <class T>
  T* address(const View4& view, int64_t head, int64_t row) const {
    return static_cast<T*>(view.data) + (batch_ * view.batch + head * view.head + row * view.row);
  }

  // ---- states -----------------------------------------------------------------------------------

  void begin_state(int n) {
    sum_[n] = 0;
    for (int panel = first_panel_; panel < end_panel_; ++panel) {
      float* to = state_panel(n, panel);
      std::memset(to, 0, sizeof(float) * static_cast<size_t>(geo_.panel_floats));
      if (!spec_.has_past) continue;
      if (spec_.state_type == kFloat32) {
        load_state(F32{}, n, panel, to);
      } else if (spec_.state_type == kFloat16) {
        load_state(F16{}, n, panel, to);
      } else {
        load_state(BF16{}, n, panel, to);
      }
    }
  }

  template <class S>
  void load_state(S type, int n, int panel, float* to) const {
    const int64_t column = static_cast<int64_t>(panel) * kPanel;
    const auto* from = address<const typename S::Raw>(p_.past, head_ + n, 0) + column;
    load_block<kPanelVectors>(type, from, p_.past.row, spec_.head_size,
                              std::min<int64_t>(kPanel, spec_.v_head_size - column), to);
  }

  void end_state(int n) {
    const auto keep = static_cast<float>(std::exp(sum_[n]));
    for (int panel = first_panel_; panel < end_panel_; ++panel) {
      if (spec_.state_type == kFloat32) {
        store_state(F32{}, n, panel, keep);
      } else if (spec_.state_type == kFloat16) {
        store_state(F16{}, n, panel, keep);
      } else {
        store_state(BF16{}, n, panel, keep);
      }
    }
  }

  template <class S>
  void store_state(S type, int n, int panel, float keep) const {
    const int64_t column = static_cast<int64_t>(panel) * kPanel;
    const float* from = state_panel(n, panel);
    auto* to = address<typename S::Raw>(p_.present, head_ + n, 0) + column;
    const VF factor = hn::Set(kF, keep);
    for (int i = 0; i < spec_.head_size; ++i) {
      for (int v = 0; v < kPanelVectors; ++v) {
        const int64_t left = spec_.v_head_size - column - v * kLanes;
        if (left <= 0) break;
        const VF u = hn::Load(kF, from + i * kPanel + v * kLanes);
        store_upto(type, hn::Mul(factor, u), to + i * p_.present.row + v * kLanes, left);
      }
    }
  }

  // ---- what all states of the item share --------------------------------------------------------

  void load_tokens() {
    const int64_t key_head = key_head_of_state(spec_, head_);
    load_rows(p_.key, key_head, s_.key);
    for (int o = 0; o < geo_.outputs; ++o) {
      load_rows(p_.query, query_head_of_output(spec_, head_ * geo_.outputs + o), query_rows(o));
    }
    const auto row_of = [&](int64_t j) { return s_.key + j * geo_.key_stride; };
    for (int64_t j = 0; j < rows_; j += kPanel) {
      pack_key_panel(F32{}, row_of, j, count_, spec_.head_size,
                     s_.packed_key + j * spec_.head_size);
    }
  }

  // Rows of the chunk, zeros behind the last channel and the last token.
  void load_rows(const View4& view, int64_t head, float* rows) const {
    for (int64_t i = 0; i < rows_; ++i) {
      float* to = rows + i * geo_.key_stride;
      int64_t channel = 0;
      if (i < count_) {
        const Raw* from = address<const Raw>(view, head, first_ + i);
        for (; channel < spec_.head_size; channel += kLanes) {
          const int64_t left = spec_.head_size - channel;
          hn::Store(load_upto(E{}, kF, from + channel, left), kF, to + channel);
        }
      }
      for (; channel < geo_.key_stride; channel += kLanes)
        hn::Store(hn::Zero(kF), kF, to + channel);
    }
  }

  void multiply_pairs() const {
    static_assert(kTileRows % 3 == 0);
    for (int64_t i = 0; spec_.delta && i < rows_; i += 3) {
      for (int64_t j = 0; j < i + 2; j += kPanel) {
        multiply_three_rows(s_.key + i * geo_.key_stride, geo_.key_stride,
                            s_.packed_key + j * spec_.head_size, spec_.head_size,
                            s_.key_pairs + i * geo_.pair_stride + j, geo_.pair_stride);
      }
    }
    for (int o = 0; o < geo_.outputs; ++o) {
      multiply_rows_by_keys(query_rows(o), pairs(s_.query_pairs, o));
    }
  }

  // Products of queries with the keys up to them.
  void multiply_rows_by_keys(const float* rows, float* to) const {
    for (int64_t i = 0; i < rows_; i += kTileRows) {
      for (int64_t j = 0; j < i + kTileRows && j < rows_; j += kPanel) {
        multiply_rows(rows + i * geo_.key_stride, geo_.key_stride,
                      s_.packed_key + j * spec_.head_size, spec_.head_size,
                      to + i * geo_.pair_stride + j, geo_.pair_stride);
      }
    }
  }

  // ---- weights of one state ---------------------------------------------------------------------

  // to[j] = exp(exponent(j)) for j < count; whole vectors are written.
  template <class F>
  void exponentials(int64_t count, const F& exponent, float* to) const {
    for (int64_t j = 0; j < count; ++j) to[j] = static_cast<float>(exponent(j));
    for (int64_t j = count; j % kLanes != 0; ++j) to[j] = 0.0f;
    for (int64_t j = 0; j < count; j += kLanes) {
      hn::Store(exp_any(hn::Load(kF, to + j)), kF, to + j);
    }
  }

  void weigh(int n) {
    const int64_t head = head_ + n;
    for (int64_t i = 0; i < rows_; ++i) {
      s_.beta[i] = spec_.delta && i < count_ ? beta_at(p_, batch_, head, first_ + i) : 0.0f;
    }
    keep_ = 1.0f;
    if (spec_.decay == DecayForm::kNone) {
      std::fill_n(s_.decays, geo_.pair_stride, 1.0f);
      std::fill_n(s_.read, rows_, 1.0f);
      std::fill_n(s_.write, rows_, 1.0f);
    } else {
      decay(n, head);
    }
    for (int64_t i = 0; i < rows_; ++i) weigh_token(i);
    const auto scale = static_cast<float>(spec_.scale);
    for (int64_t i = 0; i < rows_; ++i) {
      s_.change_read[i] = -s_.beta[i] * s_.read[i];
      s_.output_read[i] = scale * s_.read[i];
    }
  }

  void decay(int n, int64_t head) {
    double sum = 0;
    for (int64_t i = 0; i < rows_; ++i) {
      if (i < count_) {
        const double decay = decay_at(p_, batch_, head, first_ + i, 0);
        sum += decay < kForgets ? kForgets : decay;
      }
      s_.sums[i] = sum;
    }
    const double before = sum_[n];
    exponentials(rows_, [&](int64_t i) { return before + s_.sums[i]; }, s_.read);
    double after = before + sum;
    if (!(std::fabs(after) <= kLargestChunkSum)) {
      keep_ = static_cast<float>(std::exp(after));
      after = 0;
    }
    exponentials(rows_, [&](int64_t i) { return sum - s_.sums[i] - after; }, s_.write);
    sum_[n] = after;
  }

  // Row i of the weights of earlier tokens' changes; what is written behind i is not used.
  void weigh_token(int64_t i) const {
    const int64_t count = i + 1;
    if (spec_.decay != DecayForm::kNone) {
      exponentials(count, [&](int64_t j) { return s_.sums[i] - s_.sums[j]; }, s_.decays);
    }
    const int64_t row = i * geo_.pair_stride;
    const VD beta = hn::Set(kD, -static_cast<double>(s_.beta[i]));
    for (int64_t j = 0; spec_.delta && j < i; j += kDoubles) {
      const VD weight = hn::Mul(beta, load_double(s_.decays + j));
      hn::Store(hn::Mul(weight, hn::Load(kD, s_.key_pairs + row + j)), kD,
                s_.change_weights + row + j);
    }
    const auto scale = static_cast<float>(spec_.scale);
    for (int o = 0; o < geo_.outputs; ++o) {
      weigh_row(count, scale, pairs(s_.query_pairs, o) + row, pairs(s_.output_weights, o) + row);
    }
  }

  void weigh_row(int64_t count, float factor, const float* from, float* to) const {
    const VF f = hn::Set(kF, factor);
    for (int64_t j = 0; j < count; j += kLanes) {
      const VF weight = hn::Mul(f, hn::Load(kF, s_.decays + j));
      hn::Store(hn::Mul(weight, hn::Load(kF, from + j)), kF, to + j);
    }
  }

  // ---- panels of columns of one state -----------------------------------------------------------

  void run_panels(int n) const {
    load_values(n);
    const int panels = end_panel_ - first_panel_;
    for (int panel = 0; panel < panels; ++panel) {
      fetch_ahead(n * panels + panel, job_.shared * panels);
      run_panel(n, first_panel_ + panel);
    }
    for (int o = 0; o < geo_.outputs; ++o) write_output(n, o);
  }

  void run_panel(int n, int panel) const {
    float* state = state_panel(n, panel);
    float* change = chunk_panel(s_.change, panel);
    if (spec_.delta) {
      multiply_by_state(s_.key, state, s_.held);
      take_what_is_held(change);
      for (int64_t i = 0; i < rows_; i += kTileRows) {
        substitute_rows(s_.change_weights, geo_.pair_stride, i, s_.exact, change);
      }
    }
    for (int o = 0; o < geo_.outputs; ++o) {
      float* seen = chunk_panel(s_.seen, o * geo_.panels + panel);
      multiply_by_state(query_rows(o), state, seen);
      for (int64_t i = 0; i < rows_; i += kTileRows) {
        combine_rows(pairs(s_.output_weights, o), geo_.pair_stride, i, change, s_.output_read,
                     seen);
      }
    }
    if (spec_.decay != DecayForm::kNone) scale_changes(change);
    update_panel(s_.key, geo_.key_stride, change, count_, keep_, spec_.head_size, state);
  }

  // Fetches one of `parts` parts of the next chunk's rows. A head's rows are far apart, a page or
  // more where there are many heads, which the hardware's own guesses do not follow.
  HWY_INLINE void fetch_ahead(int part, int parts) const {
    const int64_t next = first_ + geo_.chunk;
    const int64_t count = std::min<int64_t>(geo_.chunk, p_.tokens - next);
    const int64_t column = static_cast<int64_t>(first_panel_) * kPanel;
    const int64_t columns = static_cast<int64_t>(end_panel_ - first_panel_) * kPanel;
    for (int64_t i = count * part / parts; i < count * (part + 1) / parts; ++i) {
      fetch_row<0>(p_.key, key_head_of_state(spec_, head_), next + i, 0, spec_.head_size);
      for (int n = 0; n < job_.shared; ++n) {
        fetch_row<0>(p_.value, head_ + n, next + i, column, columns);
        for (int o = 0; o < geo_.outputs; ++o) {
          const int64_t head = (head_ + n) * geo_.outputs + o;
          fetch_row<1>(p_.output, head, next + i, column, columns);
          if (n > 0) continue;  // states that are carried together share their queries
          fetch_row<0>(p_.query, query_head_of_output(spec_, head), next + i, 0, spec_.head_size);
        }
      }
    }
  }

  // Inlined: a function that only fetches counts as one without effects, and its calls go.
  template <int kWrite>
  HWY_INLINE void fetch_row(const View4& view, int64_t head, int64_t token, int64_t begin,
                            int64_t count) const {
    const Raw* row = address<const Raw>(view, head, token) + begin;
    for (int64_t c = 0; c < count; c += 64 / static_cast<int64_t>(sizeof(Raw))) {
      __builtin_prefetch(row + c, kWrite, 2);
    }
  }

  void multiply_by_state(const float* rows, const float* state, float* to) const {
    for (int64_t i = 0; i < rows_; i += kTileRows) {
      multiply_rows(rows + i * geo_.key_stride, geo_.key_stride, state, spec_.head_size,
                    to + i * kPanel, kPanel);
    }
  }

  // change = v, in whole rows as they are stored; zeros behind the last token.
  void load_values(int n) const {
    const int64_t column = static_cast<int64_t>(first_panel_) * kPanel;
    const int64_t columns =
        std::min<int64_t>(spec_.v_head_size, static_cast<int64_t>(end_panel_) * kPanel) - column;
    const auto row_of = [&](int64_t i) {
      return address<const Raw>(p_.value, head_ + n, first_ + i) + column;
    };
    float* to = chunk_panel(s_.change, first_panel_);
    pack_values(E{}, row_of, 0, count_, static_cast<int>(columns), chunk_panel_floats(), to);
    const auto rest = sizeof(float) * static_cast<size_t>((rows_ - count_) * kPanel);
    if (rest == 0) return;
    for (int panel = first_panel_; panel < end_panel_; ++panel) {
      std::memset(chunk_panel(s_.change, panel) + count_ * kPanel, 0, rest);
    }
  }

  // change = beta v - beta exp(G) c (U^T k).
  void take_what_is_held(float* change) const {
    const float* held = s_.held;
    for (int64_t i = 0; i < rows_; ++i) {
      const VF beta = hn::Set(kF, s_.beta[i]), read = hn::Set(kF, s_.change_read[i]);
      for (int v = 0; v < kPanelVectors; ++v, change += kLanes, held += kLanes) {
        const VF taken = hn::Mul(read, hn::Load(kF, held));
        hn::Store(hn::MulAdd(beta, hn::Load(kF, change), taken), kF, change);
      }
    }
  }

  void scale_changes(float* change) const {
    for (int64_t i = 0; i < count_; ++i) {
      const VF weight = hn::Set(kF, s_.write[i]);
      for (int v = 0; v < kPanelVectors; ++v, change += kLanes) {
        hn::Store(hn::Mul(weight, hn::Load(kF, change)), kF, change);
      }
    }
  }

  void write_output(int n, int output) const {
    const int64_t head = (head_ + n) * geo_.outputs + output;
    for (int64_t i = 0; i < count_; ++i) {
      Raw* to = address<Raw>(p_.output, head, first_ + i);
      for (int panel = first_panel_; panel < end_panel_; ++panel) {
        const float* from = chunk_panel(s_.seen, output * geo_.panels + panel) + i * kPanel;
        for (int v = 0; v < kPanelVectors; ++v) {
          const int64_t column = static_cast<int64_t>(panel) * kPanel + v * kLanes;
          if (column >= spec_.v_head_size) break;
          store_upto(E{}, hn::Load(kF, from + v * kLanes), to + column, spec_.v_head_size - column);
        }
      }
    }
  }

  const ChunkedJob& job_;
  const LinearAttentionProblem& p_;
  const LinearAttentionSpec& spec_;
  const ChunkedGeometry& geo_;
  const ChunkedScratch& s_;
  int64_t batch_ = 0, head_ = 0;         // of the first state
  int first_panel_ = 0, end_panel_ = 0;  // columns
  int64_t first_ = 0;                    // token of the chunk
  int count_ = 0;                        // tokens of the chunk
  int rows_ = 0;                         // whole tiles of them
  float keep_ = 1.0f;                    // what the chunk multiplies U by
  double sum_[kMaxSharedStates] = {};    // of decays since U was rescaled
};

template <class E>
void work_in_chunks(ChunkedJob& job, int slot) {
  ChunkedScratch scratch;
  lay_out(job.geometry, job.problem->spec.head_size,
          job.scratch + static_cast<size_t>(slot) * job.scratch_stride, &scratch);
  ChunkedItem<E> item(job, scratch);
  for (;;) {
    const int64_t at = job.items.take(slot);
    if (at < 0) return;
    item.run(at);
  }
}

extern const ChunkedKernels kChunked;
const ChunkedKernels kChunked = {kTileRows, kPanel, work_in_chunks<F32>, work_in_chunks<F16>,
                                 work_in_chunks<BF16>};

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attn::cpu {

const ChunkedKernels* chunked_kernels(SimdLevel level) {
  switch (level) {
    ATTN_SIMD_TABLE_CASES(kChunked)
    default:
      return nullptr;
  }
}

}  // namespace attn::cpu
#endif  // HWY_ONCE
