// The worker of "simd-prefill", compiled once a SIMD level.
#include "cpu/attention_prefill.h"
#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attention_prefill_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "cpu/simd_io-inl.h"
#include "cpu/simd_load-inl.h"
#include "cpu/simd_pack-inl.h"
#include "cpu/simd_scores-inl.h"
#include "cpu/simd_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// One work item and where it is in its keys. E is the element type of Q, K, V and the output.
template <class E>
class PrefillItem {
  using Raw = typename E::Raw;

 public:
  PrefillItem(const PrefillJob& job, const PrefillScratch& scratch, int64_t item)
      : p_(*job.problem), spec_(p_.spec), geo_(job.geometry), s_(scratch) {
    const int64_t heads = p_.batch * spec_.kv_heads;
    // Later query blocks see more keys: they go first, so that threads end together.
    const int64_t block = job.blocks - 1 - item / heads;
    batch_ = item % heads / spec_.kv_heads;
    kv_head_ = item % spec_.kv_heads;
    group_ = spec_.q_heads / spec_.kv_heads;
    first_row_ = block * job.item_rows;
    rows_ = static_cast<int>(std::min<int64_t>(job.item_rows, p_.query_rows * group_ - first_row_));
    lengths_ = job.rows[static_cast<size_t>(batch_)];
    plain_ = spec_.softcap == 0 && spec_.mask == MaskKind::kNone;
  }

  void run() {
    const KeyRange seen = find_ranges();
    if (!seen.empty()) {
      load_queries();
      const auto keys = key_rows(p_, lengths_.past, batch_, kv_head_);
      const auto values = value_rows(p_, lengths_.past, batch_, kv_head_);
      const int64_t first = seen.begin / geo_.key_block * geo_.key_block;
      for (int64_t begin = first; begin < seen.end; begin += geo_.key_block) {
        const KeyRange block{std::max(begin, seen.begin),
                             std::min(begin + geo_.key_block, seen.end)};
        pack(keys, values, begin, block);
        for (int band = 0; band < rows_; band += geo_.band_rows) run_band(band, begin, block);
      }
    }
    finish();
  }

 private:
  RowPlace place(int row) const {
    const int64_t r = first_row_ + row;
    return {r / group_, kv_head_ * group_ + r % group_};
  }

  // Fills the rows' visible ranges and clears their sums; returns the hull of the ranges.
  KeyRange find_ranges() {
    KeyRange all;
    for (int r = 0; r < rows_; ++r) {
      s_.ranges[r] = lengths_.live ? visible_keys(p_, lengths_, place(r).query) : KeyRange{};
      all = hull(all, s_.ranges[r]);
      s_.row_max[r] = kHidden;
      s_.row_sum[r] = 0.0f;
    }
    if (!all.empty()) {
      const int64_t padded = round_up(rows_, kTileRows);
      std::memset(s_.output, 0, sizeof(float) * static_cast<size_t>(padded * geo_.v_channels));
    }
    return all;
  }

  // Query rows, scaled, in groups of kTileRows side by side; rows that see nothing are zeros.
  void load_queries() {
    const int depth = spec_.head_size;
    const int64_t stride = geo_.row_stride;
    for (int tile = 0; tile < rows_; tile += kTileRows) {
      for (int i = 0; i < kTileRows; ++i) {
        const int r = tile + i;
        float* row = s_.rows + i * stride;
        if (r >= rows_ || s_.ranges[r].empty()) {
          std::memset(row, 0, sizeof(float) * static_cast<size_t>(stride));
        } else {
          load_query_row(E{}, p_, lengths_, batch_, place(r), row);
        }
      }
      pack_query_tile(s_.rows, stride, depth, s_.query + tile * depth);
    }
  }

  // Packs the panels of the key block at `begin` that `block` touches.
  void pack(const KvRows& keys, const KvRows& values, int64_t begin, const KeyRange& block) {
    const int depth = spec_.head_size;
    const int64_t first_panel = (block.begin - begin) / kPanel;
    const bool transformed = spec_.key_fresh && spec_.key_transform.any();
    for (int64_t c = first_panel; begin + c * kPanel < block.end; ++c) {
      const int64_t j = begin + c * kPanel;
      float* panel = s_.keys + c * kPanel * depth;
      if (transformed && j + kPanel > keys.split) {
        pack_transformed(keys, j, block.end, panel);
      } else {
        pack_key_panel(E{}, [&](int64_t key) { return keys.row(key); }, j, block.end, depth, panel);
      }
    }
    pack_values(
        E{}, [&](int64_t key) { return values.row(key); }, begin + first_panel * kPanel, block.end,
        spec_.v_head_size, geo_.value_stride, s_.values + first_panel * kPanel * kPanel);
  }

  // A panel with fresh keys that are normed and rotated as they are read.
  void pack_transformed(const KvRows& keys, int64_t j, int64_t end, float* panel) {
    const int depth = spec_.head_size;
    for (int c = 0; c < kPanel; ++c) {
      const int64_t key = j + c;
      if (key >= end) {
        std::memset(s_.rows, 0, sizeof(float) * static_cast<size_t>(depth));
      } else if (key < keys.split) {
        widen_row(E{}, reinterpret_cast<const Raw*>(keys.row(key)), depth, s_.rows);
      } else {
        transform_row(spec_.key_transform, p_.key_transform, spec_.type, keys.row(key), 1, depth,
                      batch_, key - keys.split, key, s_.rows);
      }
      for (int k = 0; k < depth; ++k) panel[k * kPanel + c] = s_.rows[k];
    }
  }

  // One band of rows against the packed key block that starts at `begin`.
  void run_band(int band, int64_t begin, const KeyRange& block) {
    const int rows = std::min(geo_.band_rows, rows_ - band);
    KeyRange seen;
    for (int r = 0; r < rows; ++r) seen = hull(seen, s_.ranges[band + r]);
    seen.begin = std::max(seen.begin, block.begin);
    seen.end = std::min(seen.end, block.end);
    if (seen.empty()) return;
    const int depth = spec_.head_size;
    const int first = static_cast<int>((seen.begin - begin) / kPanel * kPanel);
    const int end = static_cast<int>(round_up(seen.end - begin, kPanel));
    for (int c = first; c < end; c += kPanel) {
      for (int r = 0; r < rows; r += kTileRows) {
        score_rows(rows - r, s_.query + (band + r) * depth, s_.keys + c * depth, depth,
                   s_.scores + r * kScoreStride + c, kScoreStride);
      }
    }
    for (int r = 0; r < rows; ++r) weigh_row(band, r, begin, first, end);
    const int keys = static_cast<int>(std::min<int64_t>(end, block.end - begin)) - first;
    for (int c = 0; c < geo_.v_channels; c += kPanel) {
      const float* panel = s_.values + c / kPanel * geo_.value_stride + first * kPanel;
      for (int r = 0; r < rows; r += kTileRows) {
        output_rows(rows - r, s_.scores + r * kScoreStride + first, kScoreStride, panel, keys,
                    s_.output + static_cast<int64_t>(band + r) * geo_.v_channels + c,
                    geo_.v_channels, s_.factors + r);
      }
    }
  }

  // Scores of columns [first, end) of the block become weights.
  void weigh_row(int band, int r, int64_t begin, int first, int end) {
    float* s = s_.scores + r * kScoreStride + first;
    const KeyRange& seen = s_.ranges[band + r];
    const int n = end - first;
    if (plain_ && seen.begin <= begin + first && seen.end >= begin + end) {
      // Every key is visible as it is.
    } else {
      prepare_scores(p_, batch_, place(band + r), seen, begin + first, s, n);
    }
    RowState state{s_.row_max[band + r], s_.row_sum[band + r]};
    s_.factors[r] = softmax_row(s, n, state);
    s_.row_max[band + r] = state.max;
    s_.row_sum[band + r] = state.sum;
  }

  void finish() {
    for (int r = 0; r < rows_; ++r) {
      write_result(E{}, p_, batch_, place(r), RowState{s_.row_max[r], s_.row_sum[r]},
                   s_.output + static_cast<int64_t>(r) * geo_.v_channels);
    }
  }

  const AttentionProblem& p_;
  const AttentionSpec& spec_;
  const PrefillGeometry& geo_;
  const PrefillScratch& s_;
  RowLengths lengths_;
  int64_t batch_, kv_head_, group_, first_row_;
  int rows_;
  bool plain_;  // neither cap nor mask
};

template <class E>
void work(PrefillJob& job, int slot) {
  PrefillScratch scratch;
  lay_out(job.problem->spec, job.geometry,
          job.scratch + static_cast<size_t>(slot) * job.scratch_stride, &scratch);
  for (;;) {
    const int64_t item = job.next.fetch_add(1, std::memory_order_relaxed);
    if (item >= job.items) return;
    PrefillItem<E>(job, scratch, item).run();
  }
}

extern const PrefillKernels kPrefill;
const PrefillKernels kPrefill = {kTileRows, kPanel, work<F32>, work<F16>, work<BF16>};

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attn::cpu {

const PrefillKernels* prefill_kernels(SimdLevel level) {
  switch (level) {
    ATTN_SIMD_TABLE_CASES(kPrefill)
    default:
      return nullptr;
  }
}

}  // namespace attn::cpu
#endif  // HWY_ONCE
