// The worker of "recurrent", compiled once a SIMD level.
#include "cpu/linear_attention_recurrent.h"
#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/linear_attention_recurrent_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include <cmath>
#include <cstring>

#include "cpu/linear_attention_gates.h"
#include "cpu/simd_load-inl.h"
#include "cpu/simd_rows.h"
#include "cpu/simd_state-inl.h"
#include "cpu/simd_step-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// The numbers of one token of a tile.
struct TokenGates {
  float beta;
  float read;   // what held and seen are multiplied by: c where it is one number
  float write;  // what a change is divided by: 1 / c
  bool rescale;
};

// What one thread knows of the item that it works on. E: type of query, key, value and output.
template <class E>
class RecurrentItem {
  using Raw = typename E::Raw;

 public:
  RecurrentItem(const RecurrentJob& job, const RecurrentScratch& scratch)
      : job_(job), p_(*job.problem), spec_(p_.spec), geo_(job.geometry), s_(scratch) {}

  void run(int64_t item) {
    const int64_t state = item / job_.spans;
    batch_ = state / spec_.kv_heads;
    head_ = state % spec_.kv_heads;
    begin_ = item % job_.spans * job_.span_size;
    end_ = std::min<int64_t>(spec_.v_head_size, begin_ + job_.span_size);
    if (p_.tokens == 0) {
      if (spec_.has_present) pass_state_on();
      return;
    }
    sum_ = 0;
    keep_ = 1.0f;
    std::memset(s_.sums, 0, sizeof(double) * static_cast<size_t>(geo_.depth));
    if (p_.tokens == 1 && spec_.has_past) {
      first_ = 0;
      count_ = 1;
      prepare(0);
      if (!keyed()) fill(s_.keep, keep_);
      run_step();
      return;
    }
    for (int64_t first = 0; first < p_.tokens; first += kTokenTile) {
      first_ = first;
      count_ = static_cast<int>(std::min<int64_t>(kTokenTile, p_.tokens - first));
      for (int n = 0; n < count_; ++n) prepare(n);
      if (first + count_ == p_.tokens && !keyed()) fill(s_.keep, keep_);
      run_blocks();
      std::memcpy(s_.write_key, write_key(count_), row_bytes());
    }
  }

 private:
  bool keyed() const { return spec_.decay == DecayForm::kPerKey; }
  size_t row_bytes() const { return sizeof(float) * static_cast<size_t>(geo_.depth); }
  void fill(float* row, float value) const { std::fill_n(row, geo_.depth, value); }

  // Rows of the tile; write_key(n) belongs to the token before token n of it.
  float* write_key(int n) const { return s_.write_key + static_cast<int64_t>(n) * geo_.depth; }
  float* read_key(int n) const {
    return keyed() ? s_.read_key + static_cast<int64_t>(n) * geo_.depth : write_key(n + 1);
  }
  float* rescale(int n) const { return s_.rescale + static_cast<int64_t>(n) * geo_.depth; }
  float* query(int n, int output) const {
    return s_.query + (static_cast<int64_t>(n) * geo_.outputs + output) * geo_.depth;
  }
  float* dot(int n) const { return s_.dots + static_cast<int64_t>(n) * geo_.outputs; }

  template <class T>
  static T* address(const View4& view, int64_t b, int64_t head, int64_t row) {
    return static_cast<T*>(view.data) + (b * view.batch + head * view.head + row * view.row);
  }

  // ---- tokens -----------------------------------------------------------------------------------

  void load_row(const View4& view, int64_t head, int64_t token, float* to) const {
    const Raw* from = address<const Raw>(view, batch_, head, token);
    for (int i = 0; i < spec_.head_size; i += kLanes) {
      hn::Store(load_upto(E{}, kF, from + i, spec_.head_size - i), kF, to + i);
    }
  }

  float dot_product(const float* a, const float* b) const {
    VF sum = hn::Zero(kF);
    for (int i = 0; i < spec_.head_size; i += kLanes) {
      sum = hn::MulAdd(hn::Load(kF, a + i), hn::Load(kF, b + i), sum);
    }
    return hn::GetLane(hn::SumOfLanes(kF, sum));
  }

  void prepare(int n) {
    const int64_t token = first_ + n;
    TokenGates& gates = gates_[n];
    gates = {1.0f, 1.0f, 1.0f, false};
    if (spec_.delta) gates.beta = beta_at(p_, batch_, head_, token);
    float* key = write_key(n + 1);
    load_row(p_.key, key_head_of_state(spec_, head_), token, key);
    for (int o = 0; o < geo_.outputs; ++o) {
      const int64_t query_head = query_head_of_output(spec_, head_ * geo_.outputs + o);
      load_row(p_.query, query_head, token, query(n, o));
      dot(n)[o] = static_cast<float>(spec_.scale) * dot_product(key, query(n, o));
    }
    if (spec_.decay == DecayForm::kPerHead) decay_head(n, token);
    if (keyed()) decay_channels(n, token);
  }

  void decay_head(int n, int64_t token) {
    TokenGates& gates = gates_[n];
    sum_ += decay_at(p_, batch_, head_, token, 0);
    const auto c = static_cast<float>(std::exp(sum_));
    gates.rescale = !(std::fabs(sum_) <= kLargestSum);
    keep_ = gates.rescale ? 1.0f : c;
    if (gates.rescale) {
      fill(rescale(n), c);
      sum_ = 0;
    }
    gates.read = keep_;
    gates.write = 1.0f / keep_;
  }

  void decay_channels(int n, int64_t token) {
    if (spec_.fold_decay) {
      for (int i = 0; i < spec_.head_size; ++i) {
        s_.decay[i] = decay_at(p_, batch_, head_, token, i);
      }
    } else {
      load_row(p_.decay, head_, token, s_.decay);
    }
    bool leaves = false;
    for (int i = 0; i < spec_.head_size; ++i) {
      s_.sums[i] += s_.decay[i];
      leaves |= !(std::fabs(s_.sums[i]) <= kLargestSum);
    }
    gates_[n].rescale = leaves;
    float* exponential = leaves ? rescale(n) : s_.keep;
    exp_of_sums(exponential);
    if (leaves) {
      std::memset(s_.sums, 0, sizeof(double) * static_cast<size_t>(geo_.depth));
      fill(s_.keep, 1.0f);
    }
    float* write = write_key(n + 1);
    float* read = read_key(n);
    for (int i = 0; i < spec_.head_size; i += kLanes) {
      const VF c = hn::Load(kF, s_.keep + i);
      const VF k = hn::Load(kF, write + i);
      hn::Store(hn::Mul(k, c), kF, read + i);
      hn::Store(hn::Div(k, c), kF, write + i);
      for (int o = 0; o < geo_.outputs; ++o) {
        float* q = query(n, o) + i;
        hn::Store(hn::Mul(hn::Load(kF, q), c), kF, q);
      }
    }
  }

  // e^sum of each row: what float leaves of the sum is a factor of 1 + rest.
  void exp_of_sums(float* to) const {
    HWY_ALIGN float high[kLanes], low[kLanes];
    for (int i = 0; i < spec_.head_size; i += kLanes) {
      for (int l = 0; l < kLanes; ++l) {
        const double sum = s_.sums[i + l];
        high[l] = static_cast<float>(sum);
        const auto rest = static_cast<float>(sum - high[l]);
        low[l] = std::isfinite(rest) ? rest : 0.0f;
      }
      const VF e = exp_any(hn::Load(kF, high));
      hn::Store(hn::MulAdd(e, hn::Load(kF, low), e), kF, to + i);
    }
  }

  // ---- one token --------------------------------------------------------------------------------

  // The state is read and written where it is stored, the second time from the cache that the first
  // has left it in; nothing is copied.
  void run_step() {
    if (spec_.state_type == kFloat32) {
      step(F32{});
    } else if (spec_.state_type == kFloat16) {
      step(F16{});
    } else {
      step(BF16{});
    }
  }

  template <class S>
  void step(S type) {
    if (gates_[0].rescale) {
      step_rows<true>(type);
    } else {
      step_rows<false>(type);
    }
  }

  template <bool kScale, class S>
  void step_rows(S type) {
    using Stored = typename S::Raw;
    // No copy of the state is made: its scratch has room for the sums.
    float* held = s_.state;
    float* seen = held + geo_.columns;
    float* parts = seen + geo_.columns;
    const int64_t columns = end_ - begin_;
    const auto* from = address<const Stored>(p_.past, batch_, head_, 0) + begin_;
    const auto read = [&](int output) {
      const PassRows rows = {spec_.head_size, nullptr, rescale(0), read_key(0), query(0, output)};
      if (spec_.delta && output == 0) {
        read_state<kScale, true>(type, from, p_.past.row, columns, rows, parts, geo_.columns, held,
                                 seen);
      } else {
        read_state<kScale, false>(type, from, p_.past.row, columns, rows, parts, geo_.columns, held,
                                  seen);
      }
    };
    read(0);
    change_values(0, begin_, columns, held, s_.change);
    for (int o = 0; o < geo_.outputs; ++o) {
      if (o > 0) read(o);
      write_output(0, o, begin_, columns, s_.change, seen);
    }
    if (!spec_.has_present) return;
    scale_changes(0, columns, s_.change);
    write_state<kScale>(type, from, p_.past.row, columns, spec_.head_size, rescale(0), write_key(1),
                        s_.change, s_.keep, address<Stored>(p_.present, batch_, head_, 0) + begin_,
                        p_.present.row);
  }

  // d of token n of the tile for `columns` columns, from v and S^T k; whole vectors are written.
  void change_values(int n, int64_t column, int64_t columns, const float* held, float* d) const {
    const TokenGates& gates = gates_[n];
    const Raw* value = address<const Raw>(p_.value, batch_, head_, first_ + n) + column;
    const VF read = hn::Set(kF, gates.read), beta = hn::Set(kF, gates.beta);
    for (int64_t i = 0; i < columns; i += kLanes) {
      VF change = load_upto(E{}, kF, value + i, columns - i);
      if (spec_.delta) {
        change = hn::Mul(beta, hn::NegMulAdd(read, hn::Load(kF, held + i), change));
      }
      hn::Store(change, kF, d + i);
    }
  }

  // One output of token n from d and S^T q.
  void write_output(int n, int output, int64_t column, int64_t columns, const float* d,
                    const float* seen) const {
    const int64_t output_head = head_ * geo_.outputs + output;
    Raw* to = address<Raw>(p_.output, batch_, output_head, first_ + n) + column;
    const VF scale = hn::Set(kF, static_cast<float>(spec_.scale) * gates_[n].read);
    const VF own = hn::Set(kF, dot(n)[output]);
    for (int64_t i = 0; i < columns; i += kLanes) {
      const VF earlier = hn::Mul(scale, hn::Load(kF, seen + i));
      store_upto(E{}, hn::MulAdd(own, hn::Load(kF, d + i), earlier), to + i, columns - i);
    }
  }

  // d in the units of U.
  void scale_changes(int n, int64_t columns, float* d) const {
    const VF write = hn::Set(kF, gates_[n].write);
    for (int64_t i = 0; i < columns; i += kLanes) {
      hn::Store(hn::Mul(hn::Load(kF, d + i), write), kF, d + i);
    }
  }

  // ---- blocks -----------------------------------------------------------------------------------

  void run_blocks() {
    int64_t column = begin_;
    while (column < end_) {
      const int64_t vectors = (end_ - column + kLanes - 1) / kLanes;
      if (vectors >= 3 && geo_.block_vectors >= 4) {
        column += run_block<4>(column);
      } else if (vectors >= 2 && geo_.block_vectors >= 2) {
        column += run_block<2>(column);
      } else {
        column += run_block<1>(column);
      }
    }
  }

  // The tokens of the tile for the columns from `column` on; returns how many these are.
  template <int NV>
  int64_t run_block(int64_t column) {
    constexpr int64_t kWidth = static_cast<int64_t>(NV) * kLanes;
    float* block = s_.state + (column - begin_) * geo_.depth;
    float* change = s_.change + (column - begin_);
    HWY_ALIGN float held[kWidth], seen[kWidth];
    for (int n = 0; n < count_; ++n) {
      const PassRows rows = {spec_.head_size, write_key(n), rescale(n), read_key(n), query(n, 0)};
      if (first_ + n == 0) {
        begin_block<NV>(column, rows, block, held, seen);
      } else if (gates_[n].rescale) {
        go<true, true, NV>(block, kWidth, block, rows, change, held, seen);
      } else {
        go<true, false, NV>(block, kWidth, block, rows, change, held, seen);
      }
      finish_token<NV>(n, column, block, change, held, seen);
    }
    if (first_ + count_ == p_.tokens && spec_.has_present) end_block<NV>(column, block, change);
    return kWidth;
  }

  template <bool kAdd, bool kScale, int NV>
  void go(const float* from, int64_t from_row, float* to, const PassRows& rows, const float* change,
          float* held, float* seen) const {
    if (spec_.delta) {
      pass_over<kAdd, kScale, true, NV>(from, from_row, to, rows, change, held, seen);
    } else {
      pass_over<kAdd, kScale, false, NV>(from, from_row, to, rows, change, held, seen);
    }
  }

  // The first token: the state comes from memory, or is zero.
  template <int NV>
  void begin_block(int64_t column, const PassRows& rows, float* block, float* held,
                   float* seen) const {
    constexpr int64_t kWidth = static_cast<int64_t>(NV) * kLanes;
    if (!spec_.has_past) {
      std::memset(block, 0, sizeof(float) * static_cast<size_t>(kWidth * spec_.head_size));
      std::memset(held, 0, sizeof(float) * kWidth);
      std::memset(seen, 0, sizeof(float) * kWidth);
      return;
    }
    const float* from = block;
    int64_t from_row = kWidth;
    const int64_t columns = std::min(kWidth, spec_.v_head_size - column);
    if (spec_.state_type == kFloat32 && columns == kWidth) {
      from = address<const float>(p_.past, batch_, head_, 0) + column;
      from_row = p_.past.row;
    } else if (spec_.state_type == kFloat32) {
      load<NV>(F32{}, column, columns, block);
    } else if (spec_.state_type == kFloat16) {
      load<NV>(F16{}, column, columns, block);
    } else {
      load<NV>(BF16{}, column, columns, block);
    }
    if (gates_[0].rescale) {
      go<false, true, NV>(from, from_row, block, rows, nullptr, held, seen);
    } else {
      go<false, false, NV>(from, from_row, block, rows, nullptr, held, seen);
    }
  }

  template <int NV, class S>
  void load(S type, int64_t column, int64_t columns, float* block) const {
    using Stored = const typename S::Raw;
    load_block<NV>(type, address<Stored>(p_.past, batch_, head_, 0) + column, p_.past.row,
                   spec_.head_size, columns, block);
  }

  // From what a pass has found: the change of the token, and its outputs.
  template <int NV>
  void finish_token(int n, int64_t column, const float* block, float* change, const float* held,
                    float* seen) const {
    const int64_t columns =
        std::min<int64_t>(static_cast<int64_t>(NV) * kLanes, spec_.v_head_size - column);
    change_values(n, column, columns, held, change);
    for (int o = 0; o < geo_.outputs; ++o) {
      if (o > 0) read_block<NV>(block, spec_.head_size, query(n, o), seen);
      write_output(n, o, column, columns, change, seen);
    }
    scale_changes(n, columns, change);
    // Columns behind the last one stay zero.
    for (int64_t i = round_up(columns, kLanes); i < NV * kLanes; i += kLanes) {
      hn::Store(hn::Zero(kF), kF, change + i);
    }
  }

  template <int NV>
  void end_block(int64_t column, const float* block, const float* change) const {
    if (spec_.state_type == kFloat32) {
      store<NV>(F32{}, column, block, change);
    } else if (spec_.state_type == kFloat16) {
      store<NV>(F16{}, column, block, change);
    } else {
      store<NV>(BF16{}, column, block, change);
    }
  }

  template <int NV, class S>
  void store(S type, int64_t column, const float* block, const float* change) const {
    using Stored = typename S::Raw;
    store_block<NV>(type, block, spec_.head_size, write_key(count_), change, s_.keep,
                    spec_.v_head_size - column,
                    address<Stored>(p_.present, batch_, head_, 0) + column, p_.present.row);
  }

  // No tokens: present is past, or zeros.
  void pass_state_on() const {
    const int64_t size = size_of(spec_.state_type);
    const auto bytes = static_cast<size_t>((end_ - begin_) * size);
    const auto row_of = [&](const View4& view, int64_t i) {
      return static_cast<std::byte*>(view.data) +
             (batch_ * view.batch + head_ * view.head + i * view.row + begin_) * size;
    };
    for (int i = 0; i < spec_.head_size; ++i) {
      if (spec_.has_past) {
        std::memmove(row_of(p_.present, i), row_of(p_.past, i), bytes);
      } else {
        std::memset(row_of(p_.present, i), 0, bytes);
      }
    }
  }

  const RecurrentJob& job_;
  const LinearAttentionProblem& p_;
  const LinearAttentionSpec& spec_;
  const RecurrentGeometry& geo_;
  const RecurrentScratch& s_;
  int64_t batch_ = 0, head_ = 0;
  int64_t begin_ = 0, end_ = 0;  // columns
  int64_t first_ = 0;            // token of the tile
  int count_ = 0;                // tokens of the tile
  double sum_ = 0;               // of decays since U was rescaled, where a head has one
  float keep_ = 1.0f;            // exp of it
  TokenGates gates_[kTokenTile];
};

template <class E>
void recur(RecurrentJob& job, int slot) {
  RecurrentScratch scratch;
  lay_out(job.geometry, job.scratch + static_cast<size_t>(slot) * job.scratch_stride, &scratch);
  RecurrentItem<E> item(job, scratch);
  for (;;) {
    const int64_t at = job.items.take(slot);
    if (at < 0) return;
    item.run(at);
  }
}

extern const RecurrentKernels kRecurrent;
const RecurrentKernels kRecurrent = {recur<F32>, recur<F16>, recur<BF16>};

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attn::cpu {

const RecurrentKernels* recurrent_kernels(SimdLevel level) {
  switch (level) {
    ATTN_SIMD_TABLE_CASES(kRecurrent)
    default:
      return nullptr;
  }
}

}  // namespace attn::cpu
#endif  // HWY_ONCE
