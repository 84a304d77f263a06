// The worker of "simd-prefill", compiled once a SIMD level.
#include "cpu/attention_prefill.h"
#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attention_prefill_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "cpu/prefill_rows-inl.h"
#include "cpu/simd_load-inl.h"
#include "cpu/simd_pack-inl.h"
#include "cpu/simd_scores-inl.h"
#include "cpu/simd_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// One work item and where it is in its keys. E is the element type of Q, K, V and the output.
template <class E>
class PrefillItem : PrefillRows<E> {
  using Rows = PrefillRows<E>;
  using Raw = typename E::Raw;
  using Rows::batch_, Rows::kv_head_, Rows::lengths_, Rows::p_, Rows::rows_, Rows::spec_;

 public:
  PrefillItem(const PrefillJob& job, const PrefillScratch& scratch, int64_t item)
      : Rows(*job.problem, job.rows, *job.row_kernels, job.item_rows, job.blocks, item),
        geo_(job.geometry),
        s_(scratch) {}

  void run() {
    const KeyRange seen = begin_sums();
    if (!seen.empty()) load_queries();
    sum_values(seen);
    if (write()) return;
    // Once more: sums of large values may have left float32's range.
    shrink_ = weight_shrink(seen);
    begin_sums();
    sum_values(seen);
    write();
  }

 private:
  // Fills the rows' visible ranges and clears their sums; returns the hull of the ranges.
  KeyRange begin_sums() {
    for (int tile = 0; tile < static_cast<int>(ceil_div(rows_, kTileRows)); ++tile) {
      s_.tiles[tile] = PrefillTile{};
    }
    std::fill_n(s_.row_max, rows_, kHidden);
    std::fill_n(s_.row_sum, rows_, 0.0f);
    return Rows::find_ranges(s_.ranges);
  }

  // All key blocks that any row sees, one after the other.
  void sum_values(const KeyRange& seen) {
    if (seen.empty()) return;
    const auto keys = key_rows(p_, lengths_, batch_, kv_head_);
    const auto values = value_rows(p_, lengths_, batch_, kv_head_);
    const int64_t first = seen.begin / geo_.key_block * geo_.key_block;
    for (int64_t begin = first; begin < seen.end; begin += geo_.key_block) {
      const KeyRange block{std::max(begin, seen.begin), std::min(begin + geo_.key_block, seen.end)};
      const KeyRange used = cut_tiles(begin, block);
      if (used.empty()) continue;
      pack(keys, values, begin, used);
      for (int band = 0; band < rows_; band += geo_.band_rows) run_band(band, begin);
    }
  }

  // Query rows, scaled, in groups of kTileRows side by side.
  void load_queries() {
    const int depth = spec_.head_size;
    const auto scale = static_cast<float>(spec_.scale);
    for (int tile = 0; tile < rows_; tile += kTileRows) {
      const int count = std::min(kTileRows, rows_ - tile);
      Rows::load_queries(tile, count, s_.ranges, scale, s_.rows, geo_.row_stride);
      pack_query_tile(s_.rows, geo_.row_stride, depth, s_.query + tile * depth);
    }
  }

  // Packs the panels of the key block at `begin` that `block` touches.
  void pack(const KvRows& keys, const KvRows& values, int64_t begin, const KeyRange& block) {
    const int depth = spec_.head_size;
    const int64_t first_panel = (block.begin - begin) / kPanel;
    const bool transformed = Rows::transforms_keys();
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

  // A panel with fresh keys that are normed and rotated as they are read, as many at once as there
  // is room for.
  void pack_transformed(const KvRows& keys, int64_t j, int64_t end, float* panel) {
    const int depth = spec_.head_size;
    for (int first = 0; first < kPanel; first += kTileRows) {
      const int count = std::min(kTileRows, kPanel - first);
      Rows::load_transformed(keys, j + first, end, count, s_.rows, geo_.row_stride);
      for (int k = 0; k < depth; ++k) {
        float* to = panel + k * kPanel + first;
        for (int i = 0; i < count; ++i) to[i] = s_.rows[i * geo_.row_stride + k];
      }
    }
  }

  // One band of rows against the packed key block that starts at `begin`.
  void run_band(int band, int64_t begin) {
    PrefillTile* tiles = s_.tiles + band / kTileRows;
    const int rows = std::min(geo_.band_rows, rows_ - band);
    int first = kScoreStride;
    int end = 0;
    for (int r = 0; r < rows; r += kTileRows) {
      const PrefillTile& tile = tiles[r / kTileRows];
      if (tile.first >= tile.end) continue;
      first = std::min(first, tile.first);
      end = std::max(end, tile.end);
    }
    const int depth = spec_.head_size;
    for (int c = first; c < end; c += kPanel) {
      for (int r = 0; r < rows; r += kTileRows) {
        const PrefillTile& tile = tiles[r / kTileRows];
        if (c < tile.first || c >= tile.end) continue;
        score_rows(tile.rows, tile.end - c > kLanes, s_.query + (band + r) * depth,
                   s_.keys + c * depth, depth, s_.scores + r * kScoreStride + c, kScoreStride);
      }
    }
    for (int r = 0; r < rows; ++r) weigh_row(band, r, begin, tiles[r / kTileRows]);
    for (int c = 0; c < geo_.v_channels; c += kPanel) {
      const float* panel = s_.values + c / kPanel * geo_.value_stride;
      for (int r = 0; r < rows; r += kTileRows) {
        const PrefillTile& tile = tiles[r / kTileRows];
        if (tile.first >= tile.end) continue;
        output_rows(tile.rows, !tile.started, s_.scores + r * kScoreStride + tile.first,
                    kScoreStride, panel + tile.first * kPanel, tile.end - tile.first,
                    s_.output + static_cast<int64_t>(band + r) * geo_.v_channels + c,
                    geo_.v_channels, s_.factors + r);
      }
    }
    for (int r = 0; r < rows; r += kTileRows) {
      PrefillTile& tile = tiles[r / kTileRows];
      tile.started = tile.started || tile.first < tile.end;
    }
  }

  // What each tile sees of the key block at `begin`; returns the hull of that.
  KeyRange cut_tiles(int64_t begin, const KeyRange& block) {
    KeyRange used;
    for (int row = 0; row < rows_; row += kTileRows) {
      PrefillTile& tile = s_.tiles[row / kTileRows];
      tile.rows = std::min(kTileRows, rows_ - row);
      tile.first = tile.begin = tile.end = 0;
      KeyRange seen = Rows::ranges_hull(s_.ranges, row, tile.rows, block);
      if (seen.empty()) continue;
      if (spec_.mask != MaskKind::kNone) {
        const MaskCells::Hull cells = Rows::see_rows(s_.ranges, row, tile.rows, seen);
        if (cells.empty()) continue;
        tile.masked = !cells.plain;
        seen = {seen.begin + cells.begin, seen.begin + cells.end};
      }
      tile.begin = static_cast<int>(seen.begin - begin);
      tile.first = tile.begin / kPanel * kPanel;
      tile.end = static_cast<int>(seen.end - begin);
      used = hull(used, seen);
    }
    return used;
  }

  // Scores that a row sees become weights; the rest of its tile's columns becomes zeros.
  void weigh_row(int band, int r, int64_t begin, const PrefillTile& tile) {
    if (tile.first >= tile.end) return;
    float* s = s_.scores + r * kScoreStride;
    const KeyRange& seen = s_.ranges[band + r];
    const int padded = static_cast<int>(round_up(tile.end, kLanes));
    const int from =
        static_cast<int>(std::clamp<int64_t>(seen.begin - begin, tile.begin, tile.end));
    const int to = static_cast<int>(std::clamp<int64_t>(seen.end - begin, from, tile.end));
    const int first = from / kLanes * kLanes;
    const int end = from == to ? first : static_cast<int>(round_up(to, kLanes));
    for (int c = tile.first; c < first; c += kLanes) hn::Store(hn::Zero(kF), kF, s + c);
    for (int c = end; c < padded; c += kLanes) hn::Store(hn::Zero(kF), kF, s + c);
    s_.factors[r] = 1.0f;
    if (first == end) return;
    if (spec_.softcap != 0 || tile.masked) {
      prepare_scores(p_, tile.masked, batch_, Rows::place(band + r), {begin + from, begin + to},
                     begin + first, s + first, end - first);
    } else if (first < from || to < end) {
      hide_outside(s + first, end - first, from - first, to - first);
    }
    RowState state{s_.row_max[band + r], s_.row_sum[band + r]};
    s_.factors[r] = softmax_row(s + first, end - first, state);
    if (shrink_ != 1.0f) scale_weights(s + first, end - first, shrink_);
    s_.row_max[band + r] = state.max;
    s_.row_sum[band + r] = state.sum;
  }

  // Whether all that was written is finite.
  bool write() {
    return Rows::write_rows(s_.row_max, s_.row_sum, s_.output, geo_.v_channels, shrink_);
  }

  const PrefillGeometry& geo_;
  const PrefillScratch& s_;
  float shrink_ = 1.0f;  // of the weights of the values
};

template <class E>
void work(PrefillJob& job, int slot) {
  PrefillScratch scratch;
  lay_out(job.problem->spec, job.geometry,
          job.scratch + static_cast<size_t>(slot) * job.scratch_stride, &scratch);
  for (;;) {
    const int64_t item = job.items.take(slot);
    if (item < 0) return;
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
