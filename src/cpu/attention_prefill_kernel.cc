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
      : p_(*job.problem),
        spec_(p_.spec),
        geo_(job.geometry),
        s_(scratch),
        row_kernels_(*job.row_kernels) {
    const int64_t heads = p_.batch * spec_.kv_heads;
    // Later query blocks see more keys: they go first, so that threads end together.
    const int64_t block = job.blocks - 1 - item / heads;
    batch_ = item % heads / spec_.kv_heads;
    kv_head_ = item % spec_.kv_heads;
    group_ = spec_.q_heads / spec_.kv_heads;
    first_row_ = block * job.item_rows;
    lengths_ = job.rows[static_cast<size_t>(batch_)];
    // A packed sequence may end before the item begins.
    const int64_t left = query_rows_of(p_, lengths_) * group_ - first_row_;
    rows_ = static_cast<int>(std::clamp<int64_t>(left, 0, job.item_rows));
  }

  void run() {
    const KeyRange seen = find_ranges();
    if (!seen.empty()) load_queries();
    sum_values(seen);
    if (write()) return;
    // Once more: sums of large values may have left float32's range.
    shrink_ = weight_shrink(seen);
    find_ranges();
    sum_values(seen);
    write();
  }

 private:
  // Calls f(row, place) for the rows [begin, end) of the item.
  template <class F>
  HWY_INLINE void each_row(int begin, int end, const F& f) const {
    const int64_t first = first_row_ + begin;
    int64_t query = first / group_;
    int64_t member = first % group_;
    for (int row = begin; row < end; ++row) {
      f(row, RowPlace{query, kv_head_ * group_ + member});
      if (++member == group_) {
        member = 0;
        ++query;
      }
    }
  }

  RowPlace place(int row) const {
    const int64_t r = first_row_ + row;
    return {r / group_, kv_head_ * group_ + r % group_};
  }

  // Fills the rows' visible ranges and clears their sums; returns the hull of the ranges.
  KeyRange find_ranges() {
    KeyRange all;
    for (int tile = 0; tile < static_cast<int>(ceil_div(rows_, kTileRows)); ++tile) {
      s_.tiles[tile] = PrefillTile{};
    }
    each_row(0, rows_, [&](int r, const RowPlace& at) {
      if (r > 0 && at.head != kv_head_ * group_) {
        s_.ranges[r] = s_.ranges[r - 1];  // of the same query position
      } else {
        s_.ranges[r] = lengths_.live ? visible_keys(p_, lengths_, at.query) : KeyRange{};
        all = hull(all, s_.ranges[r]);
      }
      s_.row_max[r] = kHidden;
      s_.row_sum[r] = 0.0f;
    });
    return all;
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

  // Query rows, scaled, in groups of kTileRows side by side. Nobody reads what becomes of rows that
  // see nothing, but they may not exist in the tables.
  void load_queries() {
    const int depth = spec_.head_size;
    for (int tile = 0; tile < rows_; tile += kTileRows) {
      const int count = std::min(kTileRows, rows_ - tile);
      if (spec_.query_transform.unit_strides) {
        load_query_tile(tile, count);
      } else {
        each_row(tile, tile + count, [&](int r, const RowPlace& at) {
          float* row = s_.rows + (r - tile) * geo_.row_stride;
          if (s_.ranges[r].empty()) return;
          load_query_row(E{}, row_kernels_, p_, lengths_, batch_, at, row);
        });
      }
      pack_query_tile(s_.rows, geo_.row_stride, depth, s_.query + tile * depth);
    }
  }

  void load_query_tile(int tile, int count) {
    const RowTransformSpec& transform = spec_.query_transform;
    const void* source[kTileRows];
    int64_t position[kTileRows];
    each_row(tile, tile + count, [&](int r, const RowPlace& at) {
      const bool blind = s_.ranges[r].empty();
      source[r - tile] =
          blind ? static_cast<const void*>(kZeroRow) : query_row<E>(p_, lengths_, batch_, at);
      position[r - tile] = blind || !transform.rotary
                               ? -1
                               : row_position(transform, p_.query_transform, batch_, at.query,
                                              lengths_.query_start + at.query);
    });
    const RowBatch rows{spec_.type, spec_.head_size, count, source, position};
    row_kernels_.to_floats(rows, transform, p_.query_transform, static_cast<float>(spec_.scale),
                           s_.rows, geo_.row_stride);
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

  // A panel with fresh keys that are normed and rotated as they are read, as many at once as there
  // is room for.
  void pack_transformed(const KvRows& keys, int64_t j, int64_t end, float* panel) {
    const int depth = spec_.head_size;
    for (int first = 0; first < kPanel; first += kTileRows) {
      const int count = std::min(kTileRows, kPanel - first);
      load_transformed(keys, j + first, end, count);
      for (int k = 0; k < depth; ++k) {
        float* to = panel + k * kPanel + first;
        for (int i = 0; i < count; ++i) to[i] = s_.rows[i * geo_.row_stride + k];
      }
    }
  }

  // Keys [j, j + count) to s_.rows: cached ones widened, fresh ones transformed, zeros from `end`.
  void load_transformed(const KvRows& keys, int64_t j, int64_t end, int count) {
    const RowTransformSpec& transform = spec_.key_transform;
    const void* source[kTileRows];
    int64_t position[kTileRows];
    RowBatch rows{spec_.type, spec_.head_size, 0, source, position};
    int before = 0;  // rows that are not transformed come first
    for (; before < count && j + before < std::min(keys.split, end); ++before) {
      widen_row(E{}, reinterpret_cast<const Raw*>(keys.row(j + before)), spec_.head_size,
                s_.rows + before * geo_.row_stride);
    }
    for (int i = before; i < count && j + i < end; ++i, ++rows.count) {
      const int64_t fresh = j + i - keys.split;
      source[rows.count] = keys.row(j + i);
      position[rows.count] =
          transform.rotary ? row_position(transform, p_.key_transform, batch_, fresh, j + i) : -1;
    }
    float* to = s_.rows + before * geo_.row_stride;
    if (transform.unit_strides) {
      row_kernels_.to_floats(rows, transform, p_.key_transform, 1.0f, to, geo_.row_stride);
    } else {
      for (int i = 0; i < rows.count; ++i) {
        const int64_t key = j + before + i;
        transform_row(&row_kernels_, transform, p_.key_transform, spec_.type, source[i], 1,
                      spec_.head_size, batch_, key - keys.split, key, to + i * geo_.row_stride);
      }
    }
    for (int i = before + rows.count; i < count; ++i) {
      std::memset(s_.rows + i * geo_.row_stride, 0,
                  sizeof(float) * static_cast<size_t>(spec_.head_size));
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
      KeyRange seen;
      for (int r = 0; r < tile.rows; ++r) seen = hull(seen, s_.ranges[row + r]);
      seen = {std::max(seen.begin, block.begin), std::min(seen.end, block.end)};
      if (seen.empty()) continue;
      if (spec_.mask != MaskKind::kNone) {
        const MaskCells::Hull cells = see_tile(row, tile.rows, seen);
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

  // The hull of what the mask shows of the keys in `seen` to the rows of a tile that see anything;
  // plain where it shows all of that to all of them. A cell that causality hides may be among them,
  // which at worst costs a shortcut.
  MaskCells::Hull see_tile(int row, int rows, const KeyRange& seen) const {
    MaskCells cells;
    int64_t last = -1;
    each_row(row, row + rows, [&](int r, const RowPlace& at) {
      const int64_t offset = mask_row_offset(p_, batch_, at);
      if (s_.ranges[r].empty() || (r > row && offset == last)) return;
      last = offset;
      see_mask(p_, offset, seen.begin, static_cast<int>(seen.end - seen.begin), cells);
    });
    return cells.hull();
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
      prepare_scores(p_, tile.masked, batch_, place(band + r), {begin + from, begin + to},
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
    bool finite = true;
    each_row(0, rows_, [&](int r, const RowPlace& at) {
      finite &= write_result(E{}, p_, lengths_, batch_, at, RowState{s_.row_max[r], s_.row_sum[r]},
                             s_.output + static_cast<int64_t>(r) * geo_.v_channels, shrink_);
    });
    return finite;
  }

  const AttentionProblem& p_;
  const AttentionSpec& spec_;
  const PrefillGeometry& geo_;
  const PrefillScratch& s_;
  const RowKernels& row_kernels_;  // of this level
  RowLengths lengths_;
  int64_t batch_, kv_head_, group_, first_row_;
  int rows_;
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
