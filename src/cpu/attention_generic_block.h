// One work item of the generic attention engine: a block of query rows of one head, from scores to
// output. Acc is the type that everything is computed in: float, or double for double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/problem.h"
#include "cpu/row_transform.h"
#include "cpu/row_transform_simd.h"

namespace attn::cpu::generic {

inline constexpr int64_t kBlockRows = 16;  // query rows of a work item
inline constexpr int64_t kTileKeys = 32;   // keys that are converted at once
inline constexpr size_t kCacheLine = 64;

// Partial sums that a compiler can keep in vector registers; they also halve the rounding error of
// long rows. Their order is fixed.
inline constexpr int32_t kDotLanes = 16;

// What one thread works in: Acc is float, or double for double.
template <class Acc>
struct Scratch {
  Acc* query;                 // (kBlockRows, D), transformed
  Acc* key;                   // (kTileKeys, D)
  Acc* value;                 // (kTileKeys, Dv)
  Acc* output;                // (kBlockRows, Dv), not yet divided
  Acc* partial;               // (Dv): what one tile adds to a row's output
  Acc* scores;                // (kTileKeys)
  Acc* maximum;               // (kBlockRows): of the visible scores so far
  Acc* sum;                   // (kBlockRows): of exp(score - maximum)
  const RowKernels* kernels;  // of the level, to load rows with; null for plain loops
};

template <class Acc>
size_t scratch_elements(const AttentionSpec& spec) {
  const size_t head = static_cast<size_t>(spec.head_size);
  const size_t v_head = static_cast<size_t>(spec.v_head_size);
  return (kBlockRows + kTileKeys) * (head + v_head) + v_head + kTileKeys + 2 * kBlockRows;
}

template <class Acc>
size_t scratch_bytes(const AttentionSpec& spec) {
  const size_t bytes = sizeof(Acc) * scratch_elements<Acc>(spec);
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

template <class Acc>
Scratch<Acc> lay_out(const AttentionSpec& spec, std::byte* memory, const RowKernels* kernels) {
  const int64_t head = spec.head_size;
  const int64_t v_head = spec.v_head_size;
  Scratch<Acc> s;
  s.query = reinterpret_cast<Acc*>(memory);
  s.key = s.query + kBlockRows * head;
  s.value = s.key + kTileKeys * head;
  s.output = s.value + kTileKeys * v_head;
  s.partial = s.output + kBlockRows * v_head;
  s.scores = s.partial + v_head;
  s.maximum = s.scores + kTileKeys;
  s.sum = s.maximum + kBlockRows;
  s.kernels = kernels;
  return s;
}

inline const char* row_at(const View4& view, DType type, int64_t batch, int64_t head, int64_t row) {
  return static_cast<const char*>(view.data) +
         (batch * view.batch + head * view.head + row * view.row) * size_of(type);
}

inline char* output_row(const View4& view, int64_t size, int64_t batch, int64_t head, int64_t row) {
  return static_cast<char*>(view.data) +
         (batch * view.batch + head * view.head + row * view.row) * size;
}

// Rows with a transform are never double (see `supports`).
inline void load_row(const RowKernels* kernels, const RowTransformSpec& spec,
                     const RowTransform& transform, DType type, const char* src, int64_t stride,
                     int32_t count, int64_t batch, int64_t row, int64_t position, float* dst) {
  transform_row(kernels, spec, transform, type, src, stride, count, batch, row, position, dst);
}

inline void load_row(const RowKernels* /*kernels*/, const RowTransformSpec& /*spec*/,
                     const RowTransform& /*transform*/, DType type, const char* src, int64_t stride,
                     int32_t count, int64_t /*batch*/, int64_t /*row*/, int64_t /*position*/,
                     double* dst) {
  for (int32_t i = 0; i < count; ++i) dst[i] = load_double(src, i * stride, type);
}

template <class Acc>
void load_plain_row(const RowKernels* kernels, DType type, const char* src, int64_t stride,
                    int32_t count, Acc* dst) {
  static constexpr RowTransformSpec kNoTransform;
  static constexpr RowTransform kNoTables;
  load_row(kernels, kNoTransform, kNoTables, type, src, stride, count, 0, 0, 0, dst);
}

template <class Acc>
void store_value(void* row, int64_t index, DType type, Acc value) {
  if (type == kFloat64) {
    static_cast<double*>(row)[index] = static_cast<double>(value);
  } else {
    store_float(row, index, type, static_cast<float>(value));
  }
}

template <class Acc>
Acc dot(const Acc* a, const Acc* b, int32_t count) {
  Acc lane[kDotLanes] = {};
  int32_t i = 0;
  for (; i + kDotLanes <= count; i += kDotLanes) {
    for (int32_t l = 0; l < kDotLanes; ++l) lane[l] += a[i + l] * b[i + l];
  }
  for (int32_t l = 0; i < count; ++i, ++l) lane[l] += a[i] * b[i];
  for (int32_t half = kDotLanes / 2; half > 0; half /= 2) {
    for (int32_t l = 0; l < half; ++l) lane[l] += lane[l + half];
  }
  return lane[0];
}

struct KeyRange {
  int64_t begin = 0, end = 0;  // keys [begin, end) are visible, the mask aside
};

inline int64_t query_rows_of(const AttentionProblem& problem, const RowLengths& lengths) {
  return problem.spec.packed ? lengths.query_rows : problem.query_rows;
}

// What causality, window and length leave of the keys for a query at `position`.
inline KeyRange visible_keys(const AttentionSpec& spec, const RowLengths& lengths,
                             int64_t position) {
  KeyRange range{0, lengths.live ? lengths.total : 0};
  if (spec.causal) range.end = std::min(range.end, position + 1);
  // Positions may be negative and windows as large as an int64: compare without adding to them.
  if (spec.right_window >= 0 && spec.right_window < lengths.total - position) {
    range.end = std::min(range.end, position + spec.right_window + 1);
  }
  if (spec.left_window >= 0 && spec.left_window < position) {
    range.begin = position - spec.left_window;
  }
  range.end = std::max(range.end, range.begin);
  return range;
}

// One block of query rows of one head.
template <class Acc>
class Block {
 public:
  Block(const AttentionProblem& problem, const RowLengths& lengths, const Scratch<Acc>& scratch,
        int64_t batch, int64_t head, int64_t first_row)
      : p_(problem),
        spec_(problem.spec),
        lengths_(lengths),
        s_(scratch),
        batch_(batch),
        head_(head),
        kv_head_(head / (problem.spec.q_heads / problem.spec.kv_heads)),
        first_row_(first_row),
        rows_(std::min(kBlockRows, query_rows_of(problem, lengths) - first_row)) {}

  void run() {
    if (rows_ <= 0) return;  // a packed sequence with fewer rows than others
    KeyRange all{std::numeric_limits<int64_t>::max(), 0};  // that any row of the block sees
    for (int64_t r = 0; r < rows_; ++r) {
      range_[r] = visible_keys(spec_, lengths_, lengths_.query_start + first_row_ + r);
      if (range_[r].begin == range_[r].end) continue;
      all.begin = std::min(all.begin, range_[r].begin);
      all.end = std::max(all.end, range_[r].end);
    }
    if (all.begin < all.end || shows_hidden_keys()) load_queries();
    sum_values(all);
    if (!finish_rows()) {
      // Sums of values near the end of the type's range leave it, although no weight is above 1 and
      // the result is a mean. Once more, then, with weights that add up to less than 1.
      shrink_ = 1;
      for (int64_t keys = 2 * (all.end - all.begin); keys > 0; keys /= 2) shrink_ /= 2;
      sum_values(all);
      finish_rows();
    }
    if (spec_.scores != ScoreStage::kNone) write_scores(all);
  }

 private:
  // Whether the score output has a value for keys that no row may see.
  bool shows_hidden_keys() const {
    const bool unmasked = spec_.scores == ScoreStage::kRaw || spec_.scores == ScoreStage::kCapped;
    return unmasked && lengths_.live && lengths_.total > 0;
  }

  // The keys whose cells in the score output have a value of their own.
  KeyRange scored_keys(int64_t r) const {
    return shows_hidden_keys() ? KeyRange{0, lengths_.total} : range_[r];
  }

  void load_queries() {
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t i = first_row_ + r;
      load_row(s_.kernels, spec_.query_transform, p_.query_transform, spec_.type,
               row_at(p_.query, spec_.type, batch_, head_, lengths_.query_offset + i),
               p_.query.channel, spec_.head_size, batch_, i, lengths_.query_start + i,
               s_.query + r * spec_.head_size);
    }
  }

  void sum_values(const KeyRange& all) {
    for (int64_t r = 0; r < rows_; ++r) {
      s_.maximum[r] = -std::numeric_limits<Acc>::infinity();
      s_.sum[r] = 0;
      std::fill_n(s_.output + r * spec_.v_head_size, spec_.v_head_size, Acc{0});
    }
    for (int64_t tile = all.begin; tile < all.end; tile += kTileKeys) {
      const int64_t tile_end = std::min(tile + kTileKeys, all.end);
      load_tile(tile, tile_end, true);
      for (int64_t r = 0; r < rows_; ++r) accumulate(r, tile, tile_end);
    }
  }

  // Whether all that was written is finite.
  bool finish_rows() {
    bool finite = true;
    for (int64_t r = 0; r < rows_; ++r) finite &= finish_row(r);
    return finite;
  }

  void load_tile(int64_t begin, int64_t end, bool with_values) {
    const int64_t offset = lengths_.key_offset;
    for (int64_t j = begin; j < end; ++j) {
      Acc* key = s_.key + (j - begin) * spec_.head_size;
      const int64_t fresh = j - lengths_.past;
      if (spec_.key_fresh && fresh >= 0) {
        load_row(s_.kernels, spec_.key_transform, p_.key_transform, spec_.type,
                 row_at(p_.key_fresh, spec_.type, batch_, kv_head_, offset + fresh),
                 p_.key_fresh.channel, spec_.head_size, batch_, fresh, j, key);
      } else {
        load_plain_row(s_.kernels, spec_.type,
                       row_at(p_.key, spec_.type, batch_, kv_head_, offset + j), p_.key.channel,
                       spec_.head_size, key);
      }
      if (!with_values) continue;
      const bool value_fresh = spec_.value_fresh && fresh >= 0;
      const View4& view = value_fresh ? p_.value_fresh : p_.value;
      load_plain_row(s_.kernels, spec_.type,
                     row_at(view, spec_.type, batch_, kv_head_, offset + (value_fresh ? fresh : j)),
                     view.channel, spec_.v_head_size, s_.value + (j - begin) * spec_.v_head_size);
    }
  }

  // Whether the mask shows key j to row r; `bias` is what it adds then. Cells that a length, window
  // or causality hides are never read.
  bool mask_cell(int64_t r, int64_t j, Acc* bias) const {
    *bias = 0;
    if (spec_.mask == MaskKind::kNone) return true;
    if (j >= p_.mask_columns) return false;
    const int64_t index = batch_ * p_.mask_batch + head_ * p_.mask_head +
                          (first_row_ + r) * p_.mask_row + j * p_.mask_column;
    if (spec_.mask == MaskKind::kBoolean) {
      return static_cast<const uint8_t*>(p_.mask)[index] != 0;
    }
    if constexpr (std::is_same_v<Acc, double>) {
      *bias = load_double(p_.mask, index, spec_.mask_type);
    } else {
      *bias = load_float(p_.mask, index, spec_.mask_type);
    }
    return *bias != -std::numeric_limits<Acc>::infinity();
  }

  Acc raw_score(int64_t r, const Acc* key) const {
    return static_cast<Acc>(spec_.scale) *
           dot(s_.query + r * spec_.head_size, key, spec_.head_size);
  }

  Acc cap(Acc score) const {
    if (spec_.softcap == 0) return score;
    const Acc c = static_cast<Acc>(spec_.softcap);
    return c * std::tanh(score / c);
  }

  // One online-softmax step of row r over the tile.
  void accumulate(int64_t r, int64_t tile, int64_t tile_end) {
    const int64_t begin = std::max(tile, range_[r].begin);
    const int64_t end = std::min(tile_end, range_[r].end);
    Acc maximum = s_.maximum[r];
    for (int64_t j = begin; j < end; ++j) {
      Acc bias;
      Acc& x = s_.scores[j - tile];
      x = -std::numeric_limits<Acc>::infinity();
      if (!mask_cell(r, j, &bias)) continue;
      x = cap(raw_score(r, s_.key + (j - tile) * spec_.head_size)) + bias;
      if (x > maximum || x != x) maximum = x;  // a NaN stays: nothing is greater
    }
    if (begin >= end || maximum == -std::numeric_limits<Acc>::infinity()) return;

    Acc* out = s_.output + r * spec_.v_head_size;
    if (maximum != s_.maximum[r]) {
      const Acc shrink = std::exp(s_.maximum[r] - maximum);
      s_.sum[r] *= shrink;
      for (int32_t c = 0; c < spec_.v_head_size; ++c) out[c] *= shrink;
      s_.maximum[r] = maximum;
    }
    // A tile's sums are made by themselves and then added: the rounding error of a row grows with
    // the root of its tiles, not of its keys.
    Acc* partial = s_.partial;
    Acc sum = 0;
    std::fill_n(partial, spec_.v_head_size, Acc{0});
    for (int64_t j = begin; j < end; ++j) {
      const Acc x = s_.scores[j - tile];
      if (x == -std::numeric_limits<Acc>::infinity()) continue;  // its value is not felt
      const Acc weight = std::exp(x - maximum);
      sum += weight;
      const Acc shrunk = weight * shrink_;
      const Acc* value = s_.value + (j - tile) * spec_.v_head_size;
      for (int32_t c = 0; c < spec_.v_head_size; ++c) partial[c] += shrunk * value[c];
    }
    s_.sum[r] += sum;
    for (int32_t c = 0; c < spec_.v_head_size; ++c) out[c] += partial[c];
  }

  bool nothing_visible(int64_t r) const {
    return s_.maximum[r] == -std::numeric_limits<Acc>::infinity();
  }

  // The denominator in the scale of the row's maximum, which a sink above all scores becomes.
  Acc add_sink(int64_t r, Acc* maximum) const {
    *maximum = s_.maximum[r];
    if (spec_.sink == Sink::kNone) return s_.sum[r];
    Acc sink = 0;
    if (spec_.sink == Sink::kPerHead) {
      sink = static_cast<Acc>(load_double(p_.sink, head_ * p_.sink_stride, spec_.type));
    }
    if (sink > *maximum) *maximum = sink;
    return s_.sum[r] * std::exp(s_.maximum[r] - *maximum) + std::exp(sink - *maximum);
  }

  // A mean in full size again. That of finite values is no larger than the largest: what rounding
  // puts beyond is that.
  Acc grow_back(Acc mean) const {
    const Acc grown = mean / shrink_;
    if (std::isfinite(grown) || !std::isfinite(mean)) return grown;
    return std::copysign(std::numeric_limits<Acc>::max(), mean);
  }

  // Whether all that was written is finite.
  bool finish_row(int64_t r) {
    const int64_t i = lengths_.query_offset + first_row_ + r;
    const int64_t size = size_of(spec_.type);
    char* to = output_row(p_.output, size, batch_, head_, i);
    const Acc* out = s_.output + r * spec_.v_head_size;
    bool finite = true;
    if (nothing_visible(r)) {
      for (int32_t c = 0; c < spec_.v_head_size; ++c) {
        store_value(to, c * p_.output.channel, spec_.type, Acc{0});
      }
    } else {
      Acc maximum;
      const Acc denominator = add_sink(r, &maximum);
      const Acc factor = std::exp(s_.maximum[r] - maximum) / denominator;
      for (int32_t c = 0; c < spec_.v_head_size; ++c) {
        const Acc mean = grow_back(out[c] * factor);
        finite &= std::isfinite(mean);
        store_value(to, c * p_.output.channel, spec_.type, mean);
      }
    }
    if (!spec_.log_sum_exp) return finite;
    const Acc log_sum = nothing_visible(r) ? -std::numeric_limits<Acc>::infinity()
                                           : s_.maximum[r] + std::log(s_.sum[r]);
    store_float(output_row(p_.log_sum_exp, sizeof(float), batch_, head_, i), 0, kFloat32,
                static_cast<float>(log_sum));
    return finite;
  }

  // Scores of the whole block: the tiles once more, now that maximum and sum are known.
  void write_scores(KeyRange all) {
    for (int64_t r = 0; r < rows_; ++r) {
      char* to = score_row(r);
      const KeyRange scored = scored_keys(r);
      for (int64_t j = 0; j < p_.score_columns; ++j) {
        if (j >= scored.begin && j < scored.end) continue;
        store_value(to, j * p_.scores.channel, spec_.type, static_cast<Acc>(spec_.hidden_score));
      }
    }
    if (shows_hidden_keys()) all = {0, lengths_.total};
    all.end = std::min(all.end, p_.score_columns);
    for (int64_t tile = all.begin; tile < all.end; tile += kTileKeys) {
      const int64_t tile_end = std::min(tile + kTileKeys, all.end);
      load_tile(tile, tile_end, false);
      for (int64_t r = 0; r < rows_; ++r) {
        char* to = score_row(r);
        Acc maximum = 0;
        Acc denominator = 1;
        if (spec_.scores == ScoreStage::kProbabilities && !nothing_visible(r)) {
          denominator = add_sink(r, &maximum);
        }
        const KeyRange scored = scored_keys(r);
        const int64_t end = std::min(tile_end, scored.end);
        for (int64_t j = std::max(tile, scored.begin); j < end; ++j) {
          const Acc* key = s_.key + (j - tile) * spec_.head_size;
          store_value(to, j * p_.scores.channel, spec_.type,
                      staged_score(r, j, key, maximum, denominator));
        }
      }
    }
  }

  char* score_row(int64_t r) const {
    return output_row(p_.scores, size_of(spec_.type), batch_, head_,
                      lengths_.query_offset + first_row_ + r);
  }

  // The value of a cell that only the mask may hide, at the stage that is asked for.
  Acc staged_score(int64_t r, int64_t j, const Acc* key, Acc maximum, Acc denominator) const {
    if (spec_.scores == ScoreStage::kRaw) return raw_score(r, key);
    if (spec_.scores == ScoreStage::kCapped) return cap(raw_score(r, key));
    Acc bias;
    const bool shown = mask_cell(r, j, &bias);
    if (spec_.scores == ScoreStage::kBiased) {
      return shown ? cap(raw_score(r, key)) + bias : -std::numeric_limits<Acc>::infinity();
    }
    if (!shown || nothing_visible(r)) return 0;
    return std::exp(cap(raw_score(r, key)) + bias - maximum) / denominator;
  }

  const AttentionProblem& p_;
  const AttentionSpec& spec_;
  const RowLengths& lengths_;
  const Scratch<Acc>& s_;
  const int64_t batch_, head_, kv_head_, first_row_, rows_;
  Acc shrink_ = 1;  // of the weights of the values
  KeyRange range_[kBlockRows];
};

}  // namespace attn::cpu::generic
