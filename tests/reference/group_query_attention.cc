#include "reference/group_query_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/attention.h"
#include "reference/row_transform.h"

namespace attn::reference {
namespace {

using test::Type;
using test::View;

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

int64_t integer(const View& view, int64_t linear) {
  return static_cast<int64_t>(view.at_linear(linear));
}

RowTransform transform_of(const GroupQueryAttention& p, const View& norm_weight) {
  RowTransform transform;
  transform.norm_weight = norm_weight;
  transform.epsilon = p.qk_norm_epsilon;
  transform.interleaved = p.rotary_interleaved;
  if (p.do_rotary) {
    transform.cos = p.cos_cache;
    transform.sin = p.sin_cache;
  }
  return transform;
}

// The position of token `row`: its own, or counted from `start`. Without rotation nobody asks, and
// position_ids, ignored then, may have fewer rows than there are keys.
int64_t position_of(const GroupQueryAttention& p, int64_t b, int64_t row, int64_t start) {
  if (p.do_rotary && p.position_ids.bound) {
    return static_cast<int64_t>(p.position_ids.at({b, row}));
  }
  return start + row;
}

bool in_table(const GroupQueryAttention& p, int64_t position) {
  return position >= 0 && position < std::min(p.cos_cache.dim(0), p.sin_cache.dim(0));
}

// Padded rows of a first prompt lie beyond the length: their positions are not felt.
uint32_t check_positions(const GroupQueryAttention& p, const BatchRow& row, int64_t b) {
  if (!p.do_rotary || !row.live) return 0;
  for (int64_t i = 0; i < p.query_rows() && row.query_start + i < row.total; ++i) {
    if (!in_table(p, position_of(p, b, i, row.query_start))) return kPositionOutsideTable;
  }
  return 0;
}

// Reads the length of batch row b; returns the faults.
uint32_t resolve(const GroupQueryAttention& p, int64_t b, bool first_prompt, BatchRow& row) {
  const int64_t value = integer(p.seqlens_k, b);
  if (value == -1 && p.empty_slots) return 0;
  if (value >= kInt32Max) return kTotalOverflows;
  row.live = true;
  row.total = value + 1;
  row.appended = p.new_rows();
  row.past = first_prompt ? 0 : row.total - row.appended;
  row.query_start = first_prompt ? 0 : row.total - p.query_rows();
  uint32_t faults = 0;
  if (value < 0) faults |= kLengthOutside;
  if (row.past < 0) faults |= kPastNegative;
  if (row.query_start < 0) faults |= kQueryStartNegative;
  int64_t past_rows = 0;
  if (p.past_key.bound) past_rows = std::min(p.past_key.dim(2), p.past_value.dim(2));
  if (row.past > past_rows) faults |= kPastBeyondBuffer;
  for (const PresentCache& present : {p.present_key, p.present_value}) {
    if (present.bound && row.total > present.rows) faults |= kTotalBeyondPresent;
  }
  if (row.total > integer(p.total_sequence_length, 0)) faults |= kTotalBeyondBound;
  if (faults == 0) faults |= check_positions(p, row, b);
  return faults;
}

// Where the heads of one role begin in a token, in channels of the innermost axis.
struct Source {
  View tensor;
  int64_t first_channel = 0;
};

std::vector<double> source_row(const Source& source, int64_t b, int64_t row, int64_t head,
                               int64_t size) {
  std::vector<double> values(static_cast<size_t>(size));
  for (int64_t d = 0; d < size; ++d) {
    const int64_t channel = source.first_channel + head * size + d;
    values[static_cast<size_t>(d)] = source.tensor.at({b, row, channel});
  }
  return values;
}

// One of K and V: its new rows, its past, its present and the rows that attention reads.
class Stream {
 public:
  Stream(const GroupQueryAttention& p, Source source, RowTransform transform, const View& past,
         const PresentCache& present, std::vector<double>& out, std::vector<CacheRow>& kinds)
      : p_(p),
        source_(source),
        transform_(transform),
        past_(past),
        present_(present),
        out_(out),
        kinds_(kinds),
        size_(p.head_size()) {
    if (!present.bound) return;
    out_.assign(static_cast<size_t>(p.batch() * p.kv_num_heads * present.rows * size_), 0);
    kinds_.assign(static_cast<size_t>(p.batch() * present.rows),
                  present.in_place ? CacheRow::kUntouched : CacheRow::kZero);
  }

  // Rows [0, total) of a head, and the head's part of present.
  std::vector<double> build(const BatchRow& row, int64_t b, int64_t head) {
    std::vector<double> rows(static_cast<size_t>(std::max(row.total, row.past) * size_), 0);
    for (int64_t j = 0; j < row.past; ++j) {
      for (int64_t d = 0; d < size_; ++d) {
        rows[static_cast<size_t>(j * size_ + d)] = past_.at({b, head, j, d});
      }
      emit(b, head, j, &rows[static_cast<size_t>(j * size_)],
           present_.in_place ? CacheRow::kUntouched : CacheRow::kCopied);
    }
    for (int64_t n = 0; row.live && n < row.appended; ++n) {
      std::vector<double> values = source_row(source_, b, n, head, size_);
      const int64_t slot = row.past + n;
      CacheRow kind = CacheRow::kNew;
      if (transform_.any()) {
        const int64_t position = position_of(p_, b, n, row.past);
        if (p_.do_rotary && !in_table(p_, position)) {
          kind = CacheRow::kFree;
        } else {
          transform_row(transform_, position, p_.query.type, values);
        }
      }
      if (slot < row.total) {
        std::copy(values.begin(), values.end(), rows.begin() + slot * size_);
      }
      emit(b, head, slot, values.data(), kind);
    }
    return rows;
  }

 private:
  void emit(int64_t b, int64_t head, int64_t slot, const double* values, CacheRow kind) {
    if (!present_.bound || slot >= present_.rows) return;
    kinds_[static_cast<size_t>(b * present_.rows + slot)] = kind;
    const int64_t at = ((b * p_.kv_num_heads + head) * present_.rows + slot) * size_;
    std::copy(values, values + size_, out_.begin() + at);
  }

  const GroupQueryAttention& p_;
  Source source_;
  RowTransform transform_;
  const View& past_;
  PresentCache present_;
  std::vector<double>& out_;
  std::vector<CacheRow>& kinds_;
  int64_t size_;
};

// The attention of one query row, and everything that is written for it.
class Rows {
 public:
  Rows(const GroupQueryAttention& p, GroupQueryResult& result)
      : p_(p),
        result_(result),
        size_(p.head_size()),
        columns_(p.qk_output ? integer(p.total_sequence_length, 0) : 0) {
    const size_t rows = static_cast<size_t>(p.batch() * p.num_heads * p.query_rows());
    result.output.assign(rows * static_cast<size_t>(size_), 0);
    result.log_sum_exp.assign(rows, -std::numeric_limits<double>::infinity());
    result.poisoned.assign(rows, false);
    result.output_size.assign(rows, 0);
    result.score_size.assign(rows, 0);
    result.weighing_size.assign(rows, 0);
    result.key_share.assign(rows, 0);
    result.scores.assign(rows * static_cast<size_t>(columns_), 0);
    result.rows.assign(static_cast<size_t>(p.batch() * p.query_rows()), RowKind::kChecked);
  }

  void run(const BatchRow& batch, int64_t b, int64_t head, int64_t i, std::span<const double> query,
           const std::vector<double>& keys, const std::vector<double>& values) {
    const int64_t position = batch.query_start + i;
    if (position >= batch.total) {
      result_.rows[static_cast<size_t>(b * p_.query_rows() + i)] = RowKind::kPadded;
    }
    AttentionRow row;
    row.query = query;
    row.keys = keys.data();
    row.values = values.data();
    row.total = batch.total;
    row.value_size = size_;
    row.scale = p_.scale != 0 ? p_.scale : 1 / std::sqrt(static_cast<double>(size_));
    row.softcap = p_.softcap;
    row.last = p_.causal ? std::min(batch.total, position + 1) : batch.total;
    if (p_.local_window_size > 0) row.first = position - p_.local_window_size + 1;
    row.first = std::clamp<int64_t>(row.first, 0, row.last);
    std::vector<double> bias;
    if (p_.attention_bias.bound) {
      bias = bias_row(b, head, i, row);
      row.bias = bias;
    }
    row.has_sink = p_.head_sink.bound || p_.smooth_softmax == 1;
    row.sink = p_.head_sink.bound ? p_.head_sink.at({head}) : 0;
    store(attend(row), batch, b, head, i);
  }

 private:
  std::vector<double> bias_row(int64_t b, int64_t head, int64_t i, const AttentionRow& row) const {
    const View& bias = p_.attention_bias;
    std::vector<double> values(static_cast<size_t>(row.total), 0);
    for (int64_t j = row.first; j < row.last; ++j) {
      values[static_cast<size_t>(j)] = bias.at(
          {bias.dim(0) == 1 ? 0 : b, bias.dim(1) == 1 ? 0 : head, bias.dim(2) == 1 ? 0 : i, j});
    }
    return values;
  }

  void store(const AttentionRowResult& row, const BatchRow& batch, int64_t b, int64_t head,
             int64_t i) {
    const size_t at = static_cast<size_t>((b * p_.num_heads + head) * p_.query_rows() + i);
    result_.log_sum_exp[at] = row.log_sum_exp;
    result_.poisoned[at] = row.poisoned;
    double absolute = 0;
    for (int64_t d = 0; d < size_; ++d) {
      const size_t channel = static_cast<size_t>(d);
      const int64_t to = ((b * p_.query_rows() + i) * p_.num_heads + head) * size_ + d;
      result_.output[static_cast<size_t>(to)] = test::round_to(p_.query.type, row.output[channel]);
      absolute += row.absolute[channel] * row.absolute[channel];
    }
    // With independent values the row's norm is about 1.25 |sum p |v|| sqrt(sum p^2); a row that
    // cancels to far less than that (one or two channels do, by chance) is measured by a quarter.
    if (row.visible) {
      result_.output_size[at] = std::sqrt(absolute / row.effective_keys) / 4;
    }
    for (int64_t j = 0; j < batch.total; ++j) {
      const size_t cell = static_cast<size_t>(j);
      const double weight = row.probabilities[cell];
      if (weight > 0) {
        result_.weighing_size[at] += weight * row.score_size[cell];
        result_.key_share[at] += weight;
      }
    }
    double scores = 0;
    for (int64_t j = 0; j < std::min(columns_, batch.total); ++j) {
      const size_t cell = static_cast<size_t>(j);
      const double value = p_.qk_output == 1 ? row.biased[cell] : row.probabilities[cell];
      result_.scores[at * static_cast<size_t>(columns_) + cell] =
          test::round_to(p_.query.type, value);
      scores += row.score_size[cell] * row.score_size[cell];
    }
    result_.score_size[at] = std::sqrt(scores) / 4;
  }

  const GroupQueryAttention& p_;
  GroupQueryResult& result_;
  int64_t size_;
  int64_t columns_;
};

}  // namespace

GroupQueryResult run(const GroupQueryAttention& p) {
  GroupQueryResult result;
  const int64_t bound = integer(p.total_sequence_length, 0);
  result.first_prompt = bound == p.query_rows() && p.new_rows() == p.query_rows();
  result.batch.resize(static_cast<size_t>(p.batch()));
  for (int64_t b = 0; b < p.batch(); ++b) {
    result.faults |= resolve(p, b, result.first_prompt, result.batch[static_cast<size_t>(b)]);
  }
  if (result.faults != 0) return result;
  result.new_keys_exact =
      !p.k_norm_weight.bound && (!p.do_rotary || p.query.type == Type::kFloat32);

  const int64_t size = p.head_size();
  const int64_t group = p.num_heads / p.kv_num_heads;
  const Source key_source{p.packed() ? p.query : p.key, p.packed() ? p.num_heads * size : 0};
  const Source value_source{p.packed() ? p.query : p.value,
                            p.packed() ? (p.num_heads + p.kv_num_heads) * size : 0};
  Stream keys(p, key_source, transform_of(p, p.k_norm_weight), p.past_key, p.present_key,
              result.present_key, result.key_rows);
  Stream values(p, value_source, RowTransform{}, p.past_value, p.present_value,
                result.present_value, result.value_rows);
  Rows rows(p, result);
  const RowTransform query_transform = transform_of(p, p.q_norm_weight);

  for (int64_t b = 0; b < p.batch(); ++b) {
    const BatchRow& batch = result.batch[static_cast<size_t>(b)];
    if (!batch.live) continue;
    for (int64_t kv_head = 0; kv_head < p.kv_num_heads; ++kv_head) {
      const std::vector<double> key_rows = keys.build(batch, b, kv_head);
      const std::vector<double> value_rows = values.build(batch, b, kv_head);
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (int64_t i = 0; i < p.query_rows(); ++i) {
          std::vector<double> query = source_row({p.query, 0}, b, i, head, size);
          const int64_t position = position_of(p, b, i, batch.query_start);
          if (query_transform.any() && (!p.do_rotary || in_table(p, position))) {
            transform_row(query_transform, position, p.query.type, query);
          }
          rows.run(batch, b, head, i, query, key_rows, value_rows);
        }
      }
    }
  }
  return result;
}

}  // namespace attn::reference
