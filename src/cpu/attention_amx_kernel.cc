// The worker of "amx-prefill", compiled once a SIMD level: with the processor's tiles for the level
// that processors with AMX have, with emulated ones for every level.
#include "cpu/attention_amx.h"
#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attention_amx_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "cpu/amx_pack-inl.h"
#include "cpu/amx_product-inl.h"
#include "cpu/amx_softmax-inl.h"
#include "cpu/amx_tiles_emulated-inl.h"
#include "cpu/prefill_rows-inl.h"
#include "cpu/simd_scores-inl.h"
#if HWY_TARGET == HWY_AVX3
#include "cpu/amx_tiles_hardware.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// One work item and where it is in its keys. E is the element type of Q, K, V and the output.
template <class E, class Tiles>
class AmxItem : PrefillRows<E> {
  using Rows = PrefillRows<E>;
  using Raw = typename E::Raw;
  using Rows::batch_, Rows::kv_head_, Rows::lengths_, Rows::p_, Rows::rows_, Rows::spec_;
  static constexpr int64_t kStep = kAmxStep<E>;

 public:
  AmxItem(const AmxJob& job, const AmxScratch& scratch, Tiles& tiles, int64_t item)
      : Rows(*job.problem, job.rows, *job.row_kernels, job.item_rows, job.blocks, item),
        geo_(job.geometry),
        s_(scratch),
        tiles_(tiles),
        strips_(static_cast<int>(ceil_div(rows_, kAmxStrip))) {
    // float32 queries are scaled before they are cut. Rows of 16 bits would lose digits that way;
    // their scores are scaled, by the way where nothing else happens to them.
    const auto scale = static_cast<float>(spec_.scale);
    const bool wide = std::is_same_v<E, F32>;
    query_scale_ = wide ? scale : 1.0f;
    score_scale_ = wide ? 1.0f : scale;
    scale_first_ = !(score_scale_ > 0.0f) || spec_.softcap != 0;
  }

  void run() {
    const KeyRange seen = begin_sums();
    if (!seen.empty()) pack_queries();
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
    const int padded = strips_ * kAmxStrip;
    std::fill_n(s_.strips, strips_, AmxStrip{});
    std::fill_n(s_.row_max, padded, kHidden);
    std::fill_n(s_.row_sum, padded, 0.0f);
    std::fill_n(s_.ranges, padded, KeyRange{});
    return Rows::find_ranges(s_.ranges);
  }

  void pack_queries() {
    const int64_t strip_size = geo_.depth_steps() * kStep;
    for (int row = 0; row < strips_ * kAmxStrip; row += kAmxTile) {
      const int count = std::clamp(rows_ - row, 0, kAmxTile);
      Rows::load_queries(row, count, s_.ranges, query_scale_, s_.rows, geo_.row_stride);
      for (int r = 0; r < kAmxTile; ++r) {
        float* to = s_.rows + r * geo_.row_stride;
        std::fill(to + (r < count ? spec_.head_size : 0), to + geo_.depth, 0.0f);
      }
      pack_query_half(
          E{}, s_.rows, geo_.row_stride, geo_.depth,
          s_.query + row / kAmxStrip * strip_size + row % kAmxStrip / kAmxTile * kAmxTileSize);
    }
  }

  // All key blocks that any row sees, one after the other.
  void sum_values(const KeyRange& seen) {
    if (seen.empty()) return;
    const auto keys = key_rows(p_, lengths_, batch_, kv_head_);
    const auto values = value_rows(p_, lengths_, batch_, kv_head_);
    const int64_t first = seen.begin / geo_.key_block * geo_.key_block;
    for (int64_t begin = first; begin < seen.end; begin += geo_.key_block) {
      const KeyRange block{std::max(begin, seen.begin), std::min(begin + geo_.key_block, seen.end)};
      const KeyRange used = cut_strips(begin, block);
      if (used.empty()) continue;
      pack(keys, values, begin, used);
      for (int strip = 0; strip < strips_; ++strip) {
        if (s_.strips[strip].begin < s_.strips[strip].end) run_strip(strip, begin);
      }
    }
  }

  // What each strip sees of the key block at `begin`; returns the hull of that.
  KeyRange cut_strips(int64_t begin, const KeyRange& block) {
    KeyRange used;
    for (int row = 0; row < rows_; row += kAmxStrip) {
      AmxStrip& strip = s_.strips[row / kAmxStrip];
      strip.rows = std::min(kAmxStrip, rows_ - row);
      strip.begin = strip.end = 0;
      strip.masked = false;
      KeyRange seen = Rows::ranges_hull(s_.ranges, row, strip.rows, block);
      if (seen.empty()) continue;
      if (spec_.mask != MaskKind::kNone) seen = see_strip(row, strip, seen);
      if (seen.empty()) continue;
      strip.begin = static_cast<int>(seen.begin - begin);
      strip.end = static_cast<int>(seen.end - begin);
      used = hull(used, seen);
    }
    return used;
  }

  // The hull of what the mask shows of the keys in `seen`, as many at once as can be looked at.
  KeyRange see_strip(int row, AmxStrip& strip, const KeyRange& seen) const {
    KeyRange shown;
    for (int64_t j = seen.begin; j < seen.end; j += kMaskCells) {
      const KeyRange part{j, std::min<int64_t>(j + kMaskCells, seen.end)};
      const MaskCells::Hull cells = Rows::see_rows(s_.ranges, row, strip.rows, part);
      if (cells.empty()) continue;
      const KeyRange found{j + cells.begin, j + cells.end};
      // A gap between two parts is hidden.
      strip.masked |= !cells.plain || (!shown.empty() && shown.end != found.begin);
      shown = hull(shown, found);
    }
    return shown;
  }

  // Packs the groups of the key block at `begin` that `used` touches.
  void pack(const KvRows& keys, const KvRows& values, int64_t begin, const KeyRange& used) {
    const int64_t key_size = geo_.depth_steps() * kStep;
    const int64_t value_size = geo_.groups() * kStep;
    for (int64_t g = (used.begin - begin) / kAmxStrip; begin + g * kAmxStrip < used.end; ++g) {
      const int64_t j = begin + g * kAmxStrip;
      for (int half = 0; half < 2; ++half) {
        uint16_t* to = s_.keys + g * key_size + half * kAmxTileSize;
        pack_keys(keys, j + half * kAmxTile, used.end, to);
      }
      const Raw* row[kAmxStrip];
      for (int i = 0; i < kAmxStrip; ++i) row[i] = existing_row(values, j + i, used.end);
      pack_value_group(E{}, row, spec_.v_head_size, value_size, s_.values + g * kStep);
    }
  }

  void pack_keys(const KvRows& keys, int64_t j, int64_t end, uint16_t* to) {
    if (Rows::transforms_keys() && j + kAmxTile > keys.split) {
      const float* row[kAmxTile];
      for (int i = 0; i < kAmxTile; ++i) row[i] = s_.rows + i * geo_.row_stride;
      Rows::load_transformed(keys, j, end, kAmxTile, s_.rows, geo_.row_stride);
      pack_key_half(E{}, F32{}, row, spec_.head_size, s_.transpose, to);
      return;
    }
    const Raw* row[kAmxTile];
    for (int i = 0; i < kAmxTile; ++i) row[i] = existing_row(keys, j + i, end);
    pack_key_half(E{}, E{}, row, spec_.head_size, s_.transpose, to);
  }

  static const Raw* existing_row(const KvRows& rows, int64_t j, int64_t end) {
    return j < end ? reinterpret_cast<const Raw*>(rows.row(j))
                   : reinterpret_cast<const Raw*>(kZeroRow);
  }

  // One strip against the packed key block that starts at `begin`.
  void run_strip(int strip, int64_t begin) {
    AmxStrip& cut = s_.strips[strip];
    const int first = cut.begin / kAmxStrip;
    const int groups = static_cast<int>(ceil_div(cut.end, kAmxStrip)) - first;
    const int64_t steps = geo_.depth_steps();
    const uint16_t* query = s_.query + strip * steps * kStep;
    for (int g = first; g < first + groups; ++g) {
      const uint16_t* keys = s_.keys + g * steps * kStep;
      float* scores = s_.scores + g * kAmxStrip;
      // Scores are exact to float32's last places in every type: a large one would show the rest.
      multiply<kPieces<E>, true>(tiles_, query, keys, steps, scores, geo_.score_stride);
    }
    HWY_ALIGN float factors[kAmxStrip];
    for (int half = 0; half < 2; ++half) {
      weigh(strip * kAmxStrip + half * kAmxTile, half, cut, begin, first, groups,
            factors + half * kAmxTile);
    }
    HWY_ALIGN float product[kAmxStrip * kAmxStrip];
    for (int c = 0; c < geo_.v_channels; c += kAmxStrip) {
      const int64_t group = c / kAmxStrip * geo_.groups() + first;
      multiply<kPieces<E>, false>(tiles_, s_.weights, s_.values + group * kStep, groups, product,
                                  kAmxStrip);
      add_output(product, cut.rows, !cut.started, factors,
                 s_.output + int64_t{strip} * kAmxStrip * geo_.v_channels + c, geo_.v_channels);
    }
    cut.started = true;
  }

  // The scores of 16 rows from `row` on, half of the strip `cut`, become weights.
  void weigh(int row, int half, const AmxStrip& cut, int64_t begin, int first, int groups,
             float* factors) {
    float* scores = s_.scores + half * kAmxTile * geo_.score_stride;
    const bool prepared = cut.masked || scale_first_;
    AmxColumns columns[kAmxTile];
    for (int r = 0; r < kAmxTile; ++r) {
      const KeyRange& seen = s_.ranges[row + r];
      AmxColumns& c = columns[r];
      c.from = static_cast<int>(std::clamp<int64_t>(seen.begin - begin, cut.begin, cut.end));
      c.to = static_cast<int>(std::clamp<int64_t>(seen.end - begin, c.from, cut.end));
      if (c.to <= c.from) continue;
      const int at = c.first_group() * kAmxStrip;
      const int count = c.end_group() * kAmxStrip - at;
      float* s = scores + r * geo_.score_stride + at;
      if (prepared) {
        if (score_scale_ != 1.0f) scale_weights(s, count, score_scale_);
        prepare_scores(p_, cut.masked, batch_, Rows::place(row + r), {begin + c.from, begin + c.to},
                       begin + at, s, count);
      } else if (at < c.from || c.to < at + count) {
        hide_outside(s, count, c.from - at, c.to - at);
      }
    }
    const float scale = prepared ? 1.0f : score_scale_;
    HWY_ALIGN float maxima[kAmxTile];
    HWY_ALIGN float references[kAmxTile];
    HWY_ALIGN float sums[kAmxTile];
    row_maxima(scores, geo_.score_stride, columns, maxima);
    raise_maxima(maxima, scale, s_.row_max + row, references, factors);
    weigh_half(E{}, scores, geo_.score_stride, columns, first, groups, scale, shrink_, references,
               sums, s_.weights + half * kAmxTileSize);
    add_sums(sums, factors, s_.row_sum + row);
  }

  // Whether all that was written is finite.
  bool write() {
    return Rows::write_rows(s_.row_max, s_.row_sum, s_.output, geo_.v_channels, shrink_);
  }

  const AmxGeometry& geo_;
  const AmxScratch& s_;
  Tiles& tiles_;
  const int strips_;
  float query_scale_, score_scale_;
  bool scale_first_;     // the scores' scale cannot wait for the weights
  float shrink_ = 1.0f;  // of the weights of the values
};

template <class E, class Tiles>
void work(AmxJob& job, int slot) {
  AmxScratch scratch;
  lay_out(job.geometry, job.scratch + static_cast<size_t>(slot) * job.scratch_stride, &scratch);
  Tiles tiles;
  for (;;) {
    const int64_t item = job.items.take(slot);
    if (item < 0) return;
    AmxItem<E, Tiles>(job, scratch, tiles, item).run();
  }
}

extern const AmxKernels kEmulated;
const AmxKernels kEmulated = {work<F32, EmulatedTiles>, work<F16, EmulatedTiles>,
                              work<BF16, EmulatedTiles>};
#if HWY_TARGET == HWY_AVX3
extern const AmxKernels kHardware;
const AmxKernels kHardware = {work<F32, HardwareTiles>, work<F16, HardwareTiles>,
                              work<BF16, HardwareTiles>};
#endif

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attn::cpu {

const AmxKernels* amx_kernels(SimdLevel level) {
#if defined(__x86_64__)
  return level == SimdLevel::kAvx512 ? &N_AVX3::kHardware : nullptr;
#else
  static_cast<void>(level);
  return nullptr;
#endif
}

const AmxKernels* amx_emulated_kernels(SimdLevel level) {
  switch (level) {
    ATTN_SIMD_TABLE_CASES(kEmulated)
    default:
      return nullptr;
  }
}

}  // namespace attn::cpu
#endif  // HWY_ONCE
