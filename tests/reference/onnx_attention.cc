#include "reference/onnx_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/attention.h"

namespace attn::reference {
namespace {

using test::Type;
using test::View;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A cell of a mask by right-aligned indices; an axis of one element serves all.
double cell_at(const View& mask, const int64_t (&index)[4]) {
  int64_t linear = 0;
  for (size_t axis = 0; axis < mask.shape.size(); ++axis) {
    const size_t from = axis + 4 - mask.shape.size();
    const bool last = axis + 1 == mask.shape.size();
    const int64_t at = mask.shape[axis] == 1 && !last ? 0 : index[from];
    linear = linear * mask.shape[axis] + at;
  }
  return mask.at_linear(linear);
}

int64_t size_from_right(const View& mask, size_t back) {
  return mask.shape.size() < back ? 1 : mask.shape[mask.shape.size() - back];
}

// How a call's lengths follow from its shapes.
struct Form {
  bool derived = false;
  int64_t past = 0;
  int64_t columns = 0;  // T
  int64_t width = 0;    // the most keys that a mask may show
};

Form form_of(const OnnxAttention& p) {
  Form form;
  form.past = p.past_key.bound ? p.past_key.dim(2) : 0;
  const int64_t full = form.past + p.key.dim(2);
  form.columns = form.width = full;
  const PresentCache& present = p.present_key.bound ? p.present_key : p.present_value;
  if (!present.bound || present.rows == full) return form;
  const bool frozen = p.past_key.bound && present.rows <= form.past && present.rows < full;
  if (!frozen && !p.length_from_mask) return form;
  form.derived = true;
  form.columns = p.present_key.rows;
  form.width = std::min(p.present_key.rows, p.present_value.rows);
  return form;
}

uint32_t resolve(const OnnxAttention& p, const Form& form, int64_t b, BatchRow& row) {
  const int64_t queries = p.query.dim(2), fresh = p.key.dim(2);
  row.live = true;
  row.appended = fresh;
  if (p.nonpad.bound) {
    row.total = static_cast<int64_t>(p.nonpad.at({b}));
    row.query_start = row.total - queries;
    return row.total < 0 || row.total > fresh ? uint32_t{kLengthOutside} : 0u;
  }
  if (form.derived) {
    row.total = mask_end(p.mask, b, p.query.dim(1), form.width);
    row.past = row.total - fresh;
    row.query_start = row.total - queries;
    return row.past < 0 ? uint32_t{kPastNegative} : 0u;
  }
  row.past = form.past;
  row.total = form.past + fresh;
  row.query_start = form.past;
  return 0;
}

// Rows [0, total) of one head of K or V, and what becomes of the head's present rows.
struct Stream {
  const View& fresh;
  const View& past;
  const PresentCache& present;
  std::vector<double>& out;
  std::vector<CacheRow>& kinds;

  void prepare(int64_t batch) {
    if (!present.bound) return;
    out.assign(static_cast<size_t>(batch * fresh.dim(1) * present.rows * fresh.dim(3)), 0);
    kinds.assign(static_cast<size_t>(batch * present.rows),
                 present.in_place ? CacheRow::kUntouched : CacheRow::kZero);
  }

  std::vector<double> build(const BatchRow& row, int64_t b, int64_t head) const {
    const int64_t size = fresh.dim(3);
    const int64_t rows = std::max(row.total, row.past + row.appended);
    std::vector<double> values(static_cast<size_t>(rows * size), 0);
    for (int64_t j = 0; j < row.past + row.appended; ++j) {
      const bool old = j < row.past;
      const View& from = old ? past : fresh;
      double* to = &values[static_cast<size_t>(j * size)];
      for (int64_t d = 0; d < size; ++d) to[d] = from.at({b, head, old ? j : j - row.past, d});
      if (!present.bound || j >= present.rows) continue;
      CacheRow& kind = kinds[static_cast<size_t>(b * present.rows + j)];
      if (old && kind == CacheRow::kUntouched) continue;
      kind = old ? CacheRow::kCopied : CacheRow::kNew;
      const int64_t at = ((b * fresh.dim(1) + head) * present.rows + j) * size;
      std::copy(to, to + size, out.begin() + at);
    }
    return values;
  }
};

// What is written for one query row.
void store(const OnnxAttention& p, const AttentionRowResult& row, const BatchRow& batch, size_t at,
           const AttentionRow& asked, OnnxAttentionResult& result) {
  const Type type = p.query.type;
  const size_t channels = row.output.size();
  result.log_sum_exp[at] = row.log_sum_exp;
  result.poisoned[at] = row.poisoned;
  double absolute = 0;
  for (size_t d = 0; d < channels; ++d) {
    result.output[at * channels + d] = test::round_to(type, row.output[d]);
    absolute += row.absolute[d] * row.absolute[d];
  }
  // With independent values a row's norm is about |sum p |v|| sqrt(sum p^2); one that cancels to
  // far less by chance is measured by a quarter. A few channels cancel all at once now and then:
  // what the rounding of weights does to them follows from sum p |v| itself.
  if (row.visible) {
    result.output_size[at] =
        channels < 8 ? std::sqrt(absolute) : std::sqrt(absolute / row.effective_keys) / 4;
  }
  double scores = 0;
  const int64_t total = batch.live ? batch.total : 0;
  for (size_t j = 0; j < static_cast<size_t>(total); ++j) {
    if (row.probabilities[j] > 0) {
      result.weighing_size[at] += row.probabilities[j] * row.score_size[j];
    }
    scores += row.raw_size[j] * row.raw_size[j];
  }
  result.score_size[at] = std::sqrt(scores) / 4;
  if (!p.scores) return;
  const size_t columns = static_cast<size_t>(result.score_columns);
  for (size_t j = 0; j < columns; ++j) {
    const int64_t key = static_cast<int64_t>(j);
    const bool seen = key >= asked.first && key < asked.last;
    double value = p.score_mode == 2 ? -kInfinity : 0;
    if (key < total && p.score_mode == 0) value = row.raw[j];
    if (key < total && p.score_mode == 1) value = row.capped[j];
    if (seen && p.score_mode == 2) value = row.biased[j];
    if (seen && p.score_mode == 3) value = row.probabilities[j];
    result.scores[at * columns + j] = test::round_to(type, value);
  }
}

}  // namespace

MaskCell mask_cell(const View& mask, int64_t b, int64_t h, int64_t i, int64_t j) {
  MaskCell cell;
  if (!mask.bound) return cell;
  if (!mask.shape.empty() && j >= mask.shape.back()) return {false, -kInfinity};
  const double value = cell_at(mask, {b, h, i, j});
  if (mask.type == Type::kBool) {
    cell.shown = value != 0;
    cell.bias = cell.shown ? 0 : -kInfinity;
  } else {
    cell.shown = value != -kInfinity;
    cell.bias = value;
  }
  return cell;
}

int64_t mask_end(const View& mask, int64_t b, int64_t heads, int64_t width) {
  const int64_t rows = size_from_right(mask, 2);
  if (rows == 0) return width;
  for (int64_t j = width - 1; j >= 0; --j) {
    if (!mask.shape.empty() && j >= mask.shape.back()) continue;
    for (int64_t h = 0; h < heads; ++h) {
      const double value = cell_at(mask, {b, h, rows - 1, j});
      if (mask.type == Type::kBool ? value != 0 : value >= -1000) return j + 1;
    }
  }
  return 0;
}

void visible_range(const OnnxAttention& p, const BatchRow& row, int64_t i, int64_t* first,
                   int64_t* last) {
  const int64_t position = row.query_start + i;
  *first = 0;
  *last = row.live ? row.total : 0;
  if (p.causal) *last = std::min(*last, position + 1);
  // Windows can be as large as an int64, positions negative: compare without adding.
  if (p.right_window >= 0 && p.right_window < row.total - position) {
    *last = std::min(*last, position + p.right_window + 1);
  }
  if (p.left_window >= 0 && p.left_window < position) *first = position - p.left_window;
  *last = std::max<int64_t>(*last, 0);
  *first = std::min(*first, *last);
}

OnnxAttentionResult run(const OnnxAttention& p) {
  OnnxAttentionResult result;
  const int64_t batch = p.query.dim(0), q_heads = p.query.dim(1), rows = p.query.dim(2);
  const int64_t size = p.query.dim(3), kv_heads = p.key.dim(1), v_size = p.value.dim(3);
  const Form form = form_of(p);
  result.score_columns = form.columns;
  result.batch.resize(static_cast<size_t>(batch));
  for (int64_t b = 0; b < batch; ++b) {
    result.faults |= resolve(p, form, b, result.batch[static_cast<size_t>(b)]);
  }
  if (result.faults != 0) return result;

  const size_t count = static_cast<size_t>(batch * q_heads * rows);
  result.output.assign(count * static_cast<size_t>(v_size), 0);
  result.log_sum_exp.assign(count, -kInfinity);
  result.poisoned.assign(count, false);
  for (auto* sizes : {&result.output_size, &result.score_size, &result.weighing_size}) {
    sizes->assign(count, 0);
  }
  if (p.scores) result.scores.assign(count * static_cast<size_t>(form.columns), 0);
  Stream keys{p.key, p.past_key, p.present_key, result.present_key, result.key_rows};
  Stream values{p.value, p.past_value, p.present_value, result.present_value, result.value_rows};
  keys.prepare(batch);
  values.prepare(batch);

  for (int64_t b = 0; b < batch; ++b) {
    const BatchRow& lengths = result.batch[static_cast<size_t>(b)];
    for (int64_t kv_head = 0; kv_head < kv_heads; ++kv_head) {
      const std::vector<double> key_rows = keys.build(lengths, b, kv_head);
      const std::vector<double> value_rows = values.build(lengths, b, kv_head);
      for (int64_t head = 0; head < q_heads; ++head) {
        if (head * kv_heads / q_heads != kv_head) continue;
        for (int64_t i = 0; i < rows; ++i) {
          std::vector<double> query(static_cast<size_t>(size));
          for (int64_t d = 0; d < size; ++d)
            query[static_cast<size_t>(d)] = p.query.at({b, head, i, d});
          AttentionRow row;
          row.query = query;
          row.keys = key_rows.data();
          row.values = value_rows.data();
          row.total = lengths.total;
          row.value_size = v_size;
          row.scale = p.scale;
          row.softcap = p.softcap;
          row.unmasked = p.scores && p.score_mode < 2;
          visible_range(p, lengths, i, &row.first, &row.last);
          std::vector<double> bias(static_cast<size_t>(lengths.total), 0);
          for (int64_t j = row.first; j < row.last; ++j) {
            bias[static_cast<size_t>(j)] = mask_cell(p.mask, b, head, i, j).bias;
          }
          row.bias = bias;
          store(p, attend(row), lengths, static_cast<size_t>((b * q_heads + head) * rows + i), row,
                result);
        }
      }
    }
  }
  return result;
}

}  // namespace attn::reference
