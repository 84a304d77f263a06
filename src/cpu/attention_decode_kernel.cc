// The worker of "simd-decode", compiled once a SIMD level.
#include "cpu/attention_decode.h"
#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attention_decode_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "cpu/simd_dot-inl.h"
#include "cpu/simd_io-inl.h"
#include "cpu/simd_load-inl.h"
#include "cpu/simd_scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// What one thread knows of the item that it works on. E is the element type of Q, K, V and output.
template <class E>
class DecodeItem {
  using Raw = typename E::Raw;

 public:
  DecodeItem(const DecodeJob& job, const DecodeScratch& scratch)
      : p_(*job.problem), spec_(p_.spec), job_(job), geo_(job.geometry), s_(scratch) {
    group_ = spec_.q_heads / spec_.kv_heads;
  }

  // Turns to an item: what its rows see, its queries. Does nothing if it is there already.
  void enter(int64_t item) {
    if (item == item_) return;
    item_ = item;
    shrink_ = 1.0f;
    batch_ = item / spec_.kv_heads;
    kv_head_ = item % spec_.kv_heads;
    lengths_ = job_.rows[static_cast<size_t>(batch_)];
    rows_ = static_cast<int>(std::min<int64_t>(geo_.rows, query_rows_of(p_, lengths_) * group_));
    block_ = decode_block(spec_, rows_);
    KeyRange seen;
    for (int r = 0; r < rows_; ++r) {
      s_.ranges[r] = lengths_.live ? visible_keys(p_, lengths_, place(r).query) : KeyRange{};
      seen = hull(seen, s_.ranges[r]);
    }
    seen_ = seen;
    cut_ = cut_spans(seen);
    if (seen.empty()) return;
    keys_ = key_rows(p_, lengths_, batch_, kv_head_);
    values_ = value_rows(p_, lengths_, batch_, kv_head_);
    for (int r = 0; r < rows_; ++r) {
      float* row = s_.query + static_cast<int64_t>(r) * geo_.depth;
      if (s_.ranges[r].empty()) {
        std::memset(row, 0, sizeof(float) * static_cast<size_t>(geo_.depth));
      } else {
        load_query_row(E{}, *job_.row_kernels, p_, lengths_, batch_, place(r),
                       static_cast<float>(p_.spec.scale), row);
      }
    }
  }

  int64_t spans() const { return cut_.count(); }

  void clear(const DecodeSums& sums) const {
    for (int r = 0; r < rows_; ++r) {
      sums.max[r] = kHidden;
      sums.sum[r] = 0.0f;
    }
    std::memset(
        sums.output, 0,
        sizeof(float) * static_cast<size_t>(geo_.rows) * static_cast<size_t>(geo_.v_channels));
  }

  // The sums of one span, from nothing.
  void run_span(int64_t span, const DecodeSums& sums) {
    clear(sums);
    const int64_t begin = cut_.begin + span * cut_.span;
    const int64_t end = std::min(begin + cut_.span, cut_.end);
    for (int64_t at = begin; at < end; at += block_) {
      const KeyRange block{std::max(at, seen_.begin), std::min(at + block_, end)};
      if (!block.empty()) run_block(block, sums);
    }
  }

  // total += sums
  void merge(const DecodeSums& sums, const DecodeSums& total) const {
    for (int r = 0; r < rows_; ++r) {
      const float max = std::max(total.max[r], sums.max[r]);
      const float reference = max == kHidden ? 0.0f : max;
      const float old_factor = exp_one(total.max[r] - reference);
      const float new_factor = exp_one(sums.max[r] - reference);
      total.max[r] = max;
      total.sum[r] = total.sum[r] * old_factor + sums.sum[r] * new_factor;
      float* to = total.output + static_cast<int64_t>(r) * geo_.v_channels;
      const float* from = sums.output + static_cast<int64_t>(r) * geo_.v_channels;
      const VF old_weight = hn::Set(kF, old_factor), new_weight = hn::Set(kF, new_factor);
      for (int c = 0; c < geo_.v_channels; c += kLanes) {
        const VF old_part = hn::Mul(hn::Load(kF, to + c), old_weight);
        hn::Store(hn::MulAdd(hn::Load(kF, from + c), new_weight, old_part), kF, to + c);
      }
    }
  }

  // Whether all that was written is finite.
  bool write(const DecodeSums& total) const {
    bool finite = true;
    for (int r = 0; r < rows_; ++r) {
      finite &=
          write_result(E{}, p_, lengths_, batch_, place(r), RowState{total.max[r], total.sum[r]},
                       total.output + static_cast<int64_t>(r) * geo_.v_channels, shrink_);
    }
    return finite;
  }

  // From here on with weights that add up to less than 1; see weight_shrink.
  void shrink_weights() { shrink_ = weight_shrink(seen_); }

 private:
  RowPlace place(int row) const { return {row / group_, kv_head_ * group_ + row % group_}; }

  static float exp_one(float x) { return hn::GetLane(exp_float(hn::Set(kF, x))); }

  // One softmax step. While its scores are computed its values are fetched, and while its values
  // are added the keys of the next step: the hardware does not foresee either.
  void run_block(const KeyRange& block, const DecodeSums& sums) {
    bool masked[kMaxDecodeRows] = {};
    if (spec_.mask != MaskKind::kNone && !see_masks(block, masked)) return;
    const int n = static_cast<int>(block.end - block.begin);
    const Raw* key[kDecodeBlock + 4];
    const Raw* value[kDecodeBlock];
    int j = 0;
    for (; j < n; ++j) {
      key[j] = reinterpret_cast<const Raw*>(keys_.row(block.begin + j));
      value[j] = reinterpret_cast<const Raw*>(values_.row(block.begin + j));
    }
    // Keys are scored in fours: the last one fills up.
    for (; j % 4 != 0; ++j) key[j] = key[n - 1];
    for (int r = 0; r < rows_; r += 4) score_rows(r, key, value, n);
    const int padded = static_cast<int>(round_up(n, std::max(kLanes, 4)));
    for (int r = 0; r < rows_; ++r) {
      float* s = s_.scores + r * kDecodeBlock;
      const KeyRange& seen = s_.ranges[r];
      if (spec_.softcap != 0 || masked[r] || padded != n || seen.begin > block.begin ||
          seen.end < block.end) {
        const KeyRange visible{seen.begin, std::min(seen.end, block.end)};
        prepare_scores(p_, masked[r], batch_, place(r), visible, block.begin, s, padded);
      }
      RowState state{sums.max[r], sums.sum[r]};
      s_.factors[r] = softmax_row(s, padded, state);
      if (shrink_ != 1.0f) scale_weights(s, padded, shrink_);
      sums.max[r] = state.max;
      sums.sum[r] = state.sum;
    }
    const int64_t next = std::min(block.end + block_, seen_.end);
    for (int r = 0; r < rows_; r += 4) {
      add_rows(r, value, n, sums, KeyRange{block.end, r == 0 ? next : block.end});
    }
  }

  // Whether some row sees a key of the block as far as the mask goes; `masked`: the rows whose
  // scores it changes.
  bool see_masks(const KeyRange& block, bool* masked) const {
    bool shows = false;
    int64_t last_offset = 0;
    KeyRange last;
    bool changes = false;
    for (int r = 0; r < rows_; ++r) {
      const KeyRange seen{std::max(block.begin, s_.ranges[r].begin),
                          std::min(block.end, s_.ranges[r].end)};
      if (seen.empty()) continue;
      const int64_t offset = mask_row_offset(p_, batch_, place(r));
      if (last.empty() || offset != last_offset || seen.begin != last.begin ||
          seen.end != last.end) {
        const int n = static_cast<int>(seen.end - seen.begin);
        MaskCells cells;
        see_mask(p_, offset, seen.begin, n, cells);
        const MaskCells::Hull shown = cells.hull();
        changes = !shown.plain || shown.begin > 0 || shown.end < n;
        shows = shows || !shown.empty();
        last = seen;
        last_offset = offset;
      }
      masked[r] = changes;
    }
    return shows;
  }

  static void fetch_row(const void* row, int64_t bytes) {
    const char* at = static_cast<const char*>(row);
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 0, 2);
  }

  // Scores of up to four rows from r on.
  void score_rows(int r, const Raw* const* key, const Raw* const* value, int n) {
    const float* q = s_.query + static_cast<int64_t>(r) * geo_.depth;
    float* s = s_.scores + r * kDecodeBlock;
    const int depth = spec_.head_size;
    const int64_t value_bytes = spec_.v_head_size * static_cast<int64_t>(sizeof(Raw));
    const int rows = std::min(4, rows_ - r);
    for (int j = 0; j < n; j += 4) {
      if (r == 0) {
        for (int i = j; i < std::min(j + 4, n); ++i) fetch_row(value[i], value_bytes);
      }
      switch (rows) {
        case 1:
          score_four_keys<1>(E{}, q, geo_.depth, key + j, depth, s + j, kDecodeBlock);
          break;
        case 2:
          score_four_keys<2>(E{}, q, geo_.depth, key + j, depth, s + j, kDecodeBlock);
          break;
        case 3:
          score_four_keys<3>(E{}, q, geo_.depth, key + j, depth, s + j, kDecodeBlock);
          break;
        default:
          score_four_keys<4>(E{}, q, geo_.depth, key + j, depth, s + j, kDecodeBlock);
      }
    }
  }

  // Weighted values of up to four rows from r on; fetches the keys of `next` meanwhile.
  void add_rows(int r, const Raw* const* value, int n, const DecodeSums& sums, KeyRange next) {
    const float* w = s_.scores + r * kDecodeBlock;
    float* out = sums.output + static_cast<int64_t>(r) * geo_.v_channels;
    const float* f = s_.factors + r;
    const int channels = spec_.v_head_size;
    const int64_t key_bytes = spec_.head_size * static_cast<int64_t>(sizeof(Raw));
    const auto fetch = [&](int done) {
      const int64_t upto = std::min(next.end, next.begin + ceil_div(block_ * done, channels));
      for (; fetched_ < upto; ++fetched_) fetch_row(keys_.row(fetched_), key_bytes);
    };
    fetched_ = next.begin;
    switch (std::min(4, rows_ - r)) {
      case 1:
        return add_values<1>(E{}, w, kDecodeBlock, value, n, channels, out, geo_.v_channels, f,
                             fetch);
      case 2:
        return add_values<2>(E{}, w, kDecodeBlock, value, n, channels, out, geo_.v_channels, f,
                             fetch);
      case 3:
        return add_values<3>(E{}, w, kDecodeBlock, value, n, channels, out, geo_.v_channels, f,
                             fetch);
      default:
        return add_values<4>(E{}, w, kDecodeBlock, value, n, channels, out, geo_.v_channels, f,
                             fetch);
    }
  }

  const AttentionProblem& p_;
  const AttentionSpec& spec_;
  const DecodeJob& job_;
  const DecodeGeometry& geo_;
  const DecodeScratch& s_;
  RowLengths lengths_;
  KvRows keys_, values_;
  KeyRange seen_;
  SpanCut cut_;
  int64_t fetched_ = 0;  // keys below are on their way
  float shrink_ = 1.0f;  // of the weights of the values
  int rows_ = 0;         // query rows of the item, at most geo_.rows
  int block_ = 0;        // keys of a softmax step
  int64_t item_ = -1, batch_ = 0, kv_head_ = 0, group_ = 1;
};

// The sums of a whole item, to scratch.total: its spans one after the other.
template <class E>
void sum_item(DecodeItem<E>& item, const DecodeScratch& scratch) {
  const int64_t spans = item.spans();
  if (spans == 0) return item.clear(scratch.total);
  item.run_span(0, scratch.total);
  for (int64_t span = 1; span < spans; ++span) {
    item.run_span(span, scratch.span);
    item.merge(scratch.span, scratch.total);
  }
}

// A result that is not finite, once more: sums of large values may have left float32's range.
template <class E>
void run_shrunk(DecodeItem<E>& item, const DecodeScratch& scratch) {
  item.shrink_weights();
  sum_item(item, scratch);
  item.write(scratch.total);
}

template <class E>
void run_item(DecodeItem<E>& item, const DecodeScratch& scratch) {
  sum_item(item, scratch);
  if (!item.write(scratch.total)) run_shrunk(item, scratch);
}

// One span of a split item; whoever finishes an item's last span merges and writes.
template <class E>
void run_unit(DecodeJob& job, DecodeItem<E>& item, int64_t index, int64_t span,
              const DecodeScratch& scratch) {
  const auto kept = [&](int64_t s) {
    DecodeSums sums;
    lay_out(job.geometry,
            job.kept + static_cast<size_t>(index * job.max_spans + s) * job.kept_stride, &sums);
    return sums;
  };
  const int64_t spans = std::max<int64_t>(1, item.spans());
  if (span >= spans) return;
  if (spans == 1) return run_item(item, scratch);
  item.run_span(span, kept(span));
  const int32_t done = job.open_spans[index].fetch_add(1, std::memory_order_acq_rel) + 1;
  if (done < spans) return;
  const DecodeSums total = kept(0);
  for (int64_t s = 1; s < spans; ++s) item.merge(kept(s), total);
  if (!item.write(total)) run_shrunk(item, scratch);
}

template <class E>
void work(DecodeJob& job, int slot) {
  DecodeScratch scratch;
  lay_out(job.geometry, job.scratch + static_cast<size_t>(slot) * job.scratch_stride, &scratch);
  DecodeItem<E> item(job, scratch);
  for (;;) {
    const int64_t unit = job.next.fetch_add(1, std::memory_order_relaxed);
    if (unit >= job.units) return;
    if (job.max_spans == 0) {
      item.enter(unit);
      run_item(item, scratch);
    } else {
      item.enter(unit / job.max_spans);
      run_unit(job, item, unit / job.max_spans, unit % job.max_spans, scratch);
    }
  }
}

extern const DecodeKernels kDecode;
const DecodeKernels kDecode = {work<F32>, work<F16>, work<BF16>};

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attn::cpu {

const DecodeKernels* decode_kernels(SimdLevel level) {
  switch (level) {
    ATTN_SIMD_TABLE_CASES(kDecode)
    default:
      return nullptr;
  }
}

}  // namespace attn::cpu
#endif  // HWY_ONCE
