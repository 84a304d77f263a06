#include "matrix/varlen_case.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "matrix/check.h"
#include "reference/attention.h"
#include "support/compare.h"

namespace attn::matrix {
namespace {

using test::Random;
using test::Tensor;
using test::View;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

int64_t draw_size(Random& random) {
  if (random.chance(0.6)) return random.pick<int64_t>({64, 128, 80, 256, 32});
  return random.between(1, 70);
}

int64_t draw_length(Random& random, bool long_ones) {
  const double which = random.uniform();
  if (which < 0.15) return 0;
  if (which < 0.35) return 1;
  if (which < 0.9 || !long_ones) return random.between(2, 60);
  return random.between(60, 400);
}

}  // namespace

VarlenCase::VarlenCase(uint64_t seed) : seed_(seed) {
  Random random(test::derive_seed(seed, 1));
  packed_ = random.chance(0.65);
  draw_sizes(random);
  draw_tensors(random);
  hide(random);
  if (random.chance(0.06)) break_lengths(random);
  through_binding = random.chance(0.3);
  own_workspace = random.chance(0.3);
  describe_memory = random.chance(0.5);
  wide_range = random.chance(0.2);
  solve();
  for (Tensor* tensor : {&output_, &log_sum_exp_}) tensor->buffer().fill(0xFF);  // NaN
  for (Tensor* tensor : all()) tensor->buffer().snapshot();
}

void VarlenCase::draw_sizes(Random& random) {
  type_ = random.pick({Type::kFloat32, Type::kFloat16, Type::kBfloat16});
  kv_heads_ = random.between(1, 3);
  heads_ = kv_heads_ * random.pick<int64_t>({1, 1, 2, 4, 5});
  size_ = draw_size(random);
  v_size_ = random.chance(0.7) ? size_ : draw_size(random);
  const int64_t batch = random.chance(0.05) ? 0 : random.between(1, 6);
  const bool long_ones = random.chance(0.3), decodes = random.chance(0.45);
  own_keys_ = !packed_ || random.chance(0.7);
  rows_ = decodes ? random.between(1, 4) : draw_length(random, long_ones);
  keys_ = random.between(1, long_ones ? 500 : 80);
  for (int64_t b = 0; b < batch; ++b) {
    Sequence sequence;
    sequence.queries =
        packed_ ? decodes ? random.between(0, 4) : draw_length(random, long_ones) : rows_;
    sequence.keys = !packed_    ? random.below(keys_ + 1)
                    : own_keys_ ? draw_length(random, long_ones)
                                : sequence.queries;
    sequences_.push_back(sequence);
  }
  if (packed_) {
    // Tokens that no sequence holds, before and behind.
    const int64_t before = random.chance(0.3) ? random.between(1, 5) : 0;
    rows_ = keys_ = before;
    for (Sequence& sequence : sequences_) {
      sequence.first_query = rows_;
      sequence.first_key = keys_;
      rows_ += sequence.queries;
      keys_ += sequence.keys;
    }
    rows_ += random.chance(0.3) ? random.between(1, 5) : 0;
    keys_ = own_keys_ ? keys_ + random.between(0, 3) : rows_;
    int64_t most_queries = 1, most_keys = 1;
    for (const Sequence& sequence : sequences_) {
      most_queries = std::max(most_queries, sequence.queries);
      most_keys = std::max(most_keys, sequence.keys);
    }
    if (random.chance(0.5)) most_queries_ = most_queries + random.between(0, 3);
    if (random.chance(0.5)) most_keys_ = most_keys + random.between(0, 3);
    if (random.chance(0.3)) left_window_ = random.between(0, 40);
    if (random.chance(0.2)) right_window_ = random.between(0, 40);
  }
  causal_ = random.chance(0.5);
  joined_ = !packed_ && random.chance(0.5);
  if (random.chance(0.3)) softcap_ = random.pick({2.0, 30.0});
  if (random.chance(0.3)) scale_ = random.pick({0.05, 0.3, 1.0});
  spread_ = random.pick({1.0, 1.0, 4.0});
}

void VarlenCase::draw_tensors(Random& random) {
  const auto batch = static_cast<int64_t>(sequences_.size());
  const auto tensor = [&](int64_t rows, int64_t heads, int64_t size, bool input) {
    std::vector<int64_t> shape = {batch, rows, heads, size};
    if (joined_) shape = {batch, rows, heads * size};
    if (packed_) shape = {rows, heads, size};
    test::LayoutChoice choice;
    choice.plain = 0.7;
    choice.allow_inner_step = random.chance(0.2);
    choice.allow_reversed = choice.allow_broadcast = input;
    return Tensor(type_, shape, test::draw_layout(random, static_cast<int>(shape.size()), choice));
  };
  query_ = tensor(rows_, heads_, size_, true);
  key_ = tensor(keys_, kv_heads_, size_, true);
  value_ = tensor(keys_, kv_heads_, v_size_, true);
  output_ = tensor(rows_, heads_, v_size_, false);
  const double scale = scale_ == 0 ? 1 / std::sqrt(static_cast<double>(size_)) : scale_;
  const double sigma = std::sqrt(spread_ / (scale * std::sqrt(static_cast<double>(size_))));
  test::fill_normal(query_.view(), random, sigma);
  test::fill_normal(key_.view(), random, sigma);
  test::fill_normal(value_.view(), random);
  if (random.chance(0.5)) {
    std::vector<int64_t> shape = {batch, heads_, rows_};
    if (packed_) shape = {heads_, rows_};
    log_sum_exp_ = Tensor(Type::kFloat32, shape);
  }
  if (!packed_) {
    query_ends_ = Tensor(Type::kInt64, {batch});
    for (int64_t b = 0; b < batch; ++b) {
      query_ends_.view().set({b}, static_cast<double>(sequences_[static_cast<size_t>(b)].keys));
    }
    return;
  }
  const auto ends = [&](bool of_keys) {
    Tensor list(Type::kInt32, {batch + 1}, test::draw_layout(random, 1, test::LayoutChoice()));
    int64_t begin = 0;
    for (int64_t b = 0; b < batch; ++b) {
      const Sequence& s = sequences_[static_cast<size_t>(b)];
      begin = of_keys ? s.first_key : s.first_query;
      list.view().set({b}, static_cast<double>(begin));
      begin += of_keys ? s.keys : s.queries;
    }
    list.view().set({batch}, static_cast<double>(begin));
    return list;
  };
  query_ends_ = ends(false);
  if (own_keys_) key_ends_ = ends(true);
}

View VarlenCase::by_heads(const Tensor& tensor, int64_t heads) const {
  const View& from = tensor.view();
  View view = from;
  const size_t rank = from.shape.size();
  if (packed_) {
    view.shape = {1, from.shape[1], from.shape[0], from.shape[2]};
    view.strides = {0, from.strides[1], from.strides[0], from.strides[2]};
    return view;
  }
  const int64_t size = rank == 4 ? from.shape[3] : from.shape[2] / heads;
  const int64_t channel = from.strides[rank - 1];
  view.shape = {from.shape[0], heads, from.shape[1], size};
  view.strides = {from.strides[0], rank == 4 ? from.strides[2] : size * channel, from.strides[1],
                  channel};
  return view;
}

// What no query may feel is NaN: keys and values of no sequence, or beyond a sequence's length, and
// the queries of no sequence.
void VarlenCase::hide(Random& random) {
  if (!random.chance(0.7)) return;
  const auto hide_rows = [&](const Tensor& tensor, int64_t heads, int64_t rows, auto held) {
    const View view = by_heads(tensor, heads);
    if (view.strides[2] == 0 || (!packed_ && view.strides[0] == 0)) return;  // rows share memory
    for (int64_t b = 0; b < batches(); ++b) {
      for (int64_t row = 0; row < rows; ++row) {
        if (held(b, row)) continue;
        for (int64_t h = 0; h < heads; ++h) {
          for (int64_t c = 0; c < view.dim(3); ++c) view.set({b, h, row, c}, kNan);
        }
      }
    }
  };
  const auto key_is_held = [&](int64_t b, int64_t row) {
    if (!packed_) return row < sequences_[static_cast<size_t>(b)].keys;
    return std::any_of(sequences_.begin(), sequences_.end(), [&](const Sequence& s) {
      return row >= s.first_key && row < s.first_key + s.keys;
    });
  };
  const auto query_is_held = [&](int64_t, int64_t row) {
    return !packed_ || std::any_of(sequences_.begin(), sequences_.end(), [&](const Sequence& s) {
      return row >= s.first_query && row < s.first_query + s.queries;
    });
  };
  hide_rows(key_, kv_heads_, keys_, key_is_held);
  hide_rows(value_, kv_heads_, keys_, key_is_held);
  hide_rows(query_, heads_, rows_, query_is_held);
}

void VarlenCase::break_lengths(Random& random) {
  if (sequences_.empty()) return;
  const auto batch = static_cast<int64_t>(sequences_.size());
  if (!packed_) {
    const double wrong = random.pick({-1.0, static_cast<double>(keys_ + 1), 4e9});
    bad_ = random.below(batch);
    query_ends_.view().set({bad_}, wrong);
    faults_ = ATTN_FAULT_VALID_LENGTH;
    return;
  }
  const bool of_keys = own_keys_ && random.chance(0.5);
  const View& list = of_keys ? key_ends_.view() : query_ends_.view();
  const int64_t at = random.below(batch + 1), tokens = of_keys ? keys_ : rows_;
  list.set({at}, static_cast<double>(random.chance(0.5) ? tokens + random.between(1, 100) : -1));
  faults_ = ATTN_FAULT_CUMULATIVE;
}

VarlenCase::Expected VarlenCase::attend(const Sequence& s, int64_t batch, int64_t head,
                                        int64_t row) const {
  const View query = by_heads(query_, heads_), key = by_heads(key_, kv_heads_);
  const View value = by_heads(value_, kv_heads_);
  const int64_t kv_head = head / (heads_ / kv_heads_);
  std::vector<double> q, keys, values;
  for (int64_t c = 0; c < size_; ++c) q.push_back(query.at({batch, head, s.first_query + row, c}));
  for (int64_t j = 0; j < s.keys; ++j) {
    const int64_t at = s.first_key + j;
    for (int64_t c = 0; c < size_; ++c) keys.push_back(key.at({batch, kv_head, at, c}));
    for (int64_t c = 0; c < v_size_; ++c) values.push_back(value.at({batch, kv_head, at, c}));
  }
  const int64_t position = s.keys - s.queries + row;
  reference::AttentionRow asked;
  asked.query = q;
  asked.keys = keys.data();
  asked.values = values.data();
  asked.total = s.keys;
  asked.value_size = v_size_;
  asked.scale = scale_ == 0 ? 1 / std::sqrt(static_cast<double>(size_)) : scale_;
  asked.softcap = softcap_;
  asked.last = s.keys;
  if (causal_) asked.last = std::min(asked.last, position + 1);
  if (right_window_ >= 0) asked.last = std::min(asked.last, position + right_window_ + 1);
  if (left_window_ >= 0) asked.first = std::max<int64_t>(0, position - left_window_);
  asked.last = std::max<int64_t>(asked.last, 0);
  asked.first = std::min(asked.first, asked.last);
  const reference::AttentionRowResult found = reference::attend(asked);
  Expected out;
  out.output = found.output;
  out.log_sum_exp = found.log_sum_exp;
  double absolute = 0;
  for (const double channel : found.absolute) absolute += channel * channel;
  if (found.visible) {
    out.output_size =
        v_size_ < 8 ? std::sqrt(absolute) : std::sqrt(absolute / found.effective_keys) / 4;
  }
  for (size_t j = 0; j < found.probabilities.size(); ++j) {
    if (found.probabilities[j] > 0) {
      out.weighing_size += found.probabilities[j] * found.score_size[j];
    }
  }
  return out;
}

void VarlenCase::solve() {
  Expected none;
  none.output.assign(static_cast<size_t>(v_size_), 0);
  none.log_sum_exp = -kInfinity;
  expected_.assign(static_cast<size_t>(batches() * heads_ * rows_), none);
  // Bad cumulative lengths make a whole call bad, a bad valid length its batch row.
  if (faults_ != 0 && packed_) return;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    if (static_cast<int64_t>(i) == bad_) continue;
    const Sequence& s = sequences_[i];
    for (int64_t head = 0; head < heads_; ++head) {
      for (int64_t row = 0; row < s.queries; ++row) {
        expected_[row_number(batch_of(i), head, s.first_query + row)] =
            attend(s, batch_of(i), head, row);
      }
    }
  }
}

std::string VarlenCase::check(CheckNumbers* numbers) const {
  Findings findings;
  const View output = by_heads(output_, heads_);
  test::ErrorMeter meter(type_);
  std::vector<double> got(static_cast<size_t>(v_size_));
  for_each_row(batches(), heads_, rows_, [&](int64_t b, int64_t head, int64_t i, size_t row) {
    const Expected& want = expected_[row];
    for (size_t c = 0; c < got.size(); ++c) {
      got[c] = output.at({b, head, i, static_cast<int64_t>(c)});
    }
    forgive(score_excess(type_, want.weighing_size), want.output, got);
    if (!meter.add(got, want.output, want.output_size)) {
      findings.report("output[", b, ",", head, ",", i, "]: ", worst_element(got, want.output));
    }
    if (!log_sum_exp_.bound()) return;
    const View& lse = log_sum_exp_.view();
    const double found = packed_ ? lse.at({head, i}) : lse.at({b, head, i});
    const double bound = log_sum_exp_room * test::error_bar(Type::kFloat32) *
                         std::max({1.0, std::fabs(want.log_sum_exp), want.weighing_size});
    const bool near =
        std::isfinite(want.log_sum_exp) && std::fabs(found - want.log_sum_exp) <= bound;
    if (found != want.log_sum_exp && !near) {
      findings.report("log_sum_exp[", b, ",", head, ",", i, "] is ", found, ", expected ",
                      want.log_sum_exp);
    }
  });
  if (numbers != nullptr) *numbers = {meter.error(), meter.worst_row()};
  if (!meter.passed()) {
    findings.report("output: relative error ", meter.error(), " (bar ", meter.bar(),
                    "), worst row ", meter.worst_row());
  }
  for (const Tensor* tensor : all()) {
    const bool written = tensor == &output_ || tensor == &log_sum_exp_;
    const auto free = written && tensor->bound() ? tensor->element_bytes() : std::vector<bool>();
    if (tensor->buffer().first_change(free) >= 0) findings.report("a byte changed that is not its");
    if (!tensor->buffer().fences_intact()) findings.report("a fence was written");
  }
  return findings.text();
}

std::string VarlenCase::untouched() const {
  for (const Tensor* tensor : all()) {
    if (tensor->buffer().first_change({}) >= 0 || !tensor->buffer().fences_intact()) {
      return "  memory was written by a call that was refused\n";
    }
  }
  return {};
}

void VarlenCase::restore() {
  for (Tensor* tensor : all()) tensor->buffer().restore();
}

std::set<std::string> VarlenCase::features() const {
  std::set<std::string> names = {packed_ ? "packed" : "padded"};
  const auto add = [&](bool has, const char* name) {
    if (has) names.insert(name);
  };
  add(causal_, "causal");
  add(left_window_ >= 0 || right_window_ >= 0, "window");
  add(softcap_ != 0, "softcap");
  add(log_sum_exp_.bound(), "log-sum-exp");
  add(heads_ != kv_heads_, "grouped");
  add(size_ != v_size_, "two head sizes");
  add(packed_ && !own_keys_, "one list of ends");
  add(std::any_of(sequences_.begin(), sequences_.end(),
                  [](const Sequence& s) { return s.queries > 0 && s.keys == 0; }),
      "empty sequence");
  return names;
}

std::string VarlenCase::text() const {
  std::ostringstream out;
  out << name().type << " " << test::name_of(type_) << " H " << heads_ << "/" << kv_heads_ << " D "
      << size_ << "/" << v_size_ << " rows " << rows_ << " keys " << keys_ << " sequences";
  for (const Sequence& s : sequences_) out << " " << s.queries << "x" << s.keys;
  if (causal_) out << " causal";
  if (left_window_ >= 0) out << " left " << left_window_;
  if (right_window_ >= 0) out << " right " << right_window_;
  if (softcap_ != 0) out << " softcap " << softcap_;
  if (scale_ != 0) out << " scale " << scale_;
  if (faults_ != 0) out << " broken";
  if (through_binding) out << " binding";
  if (wide_range) out << " wide range";
  return out.str();
}

test::Attributes VarlenCase::attributes() const {
  test::Attributes list;
  list.set_int("num_heads", heads_);
  if (kv_heads_ != heads_ || seed_ % 2 == 0) list.set_int("kv_num_heads", kv_heads_);
  if (causal_ || seed_ % 2 == 0) list.set_int("is_causal", causal_);
  if (softcap_ != 0) list.set_float("softcap", static_cast<float>(softcap_));
  if (scale_ != 0) list.set_float("scale", static_cast<float>(scale_));
  if (left_window_ >= 0) list.set_int("left_window_size", left_window_);
  if (right_window_ >= 0) list.set_int("right_window_size", right_window_);
  if (most_queries_ > 0) list.set_int("max_seqlen_q", most_queries_);
  if (most_keys_ > 0) list.set_int("max_seqlen_k", most_keys_);
  return list;
}

test::Arguments VarlenCase::inputs() const {
  test::Arguments list;
  uint32_t slot = 0;
  for (const Tensor* tensor : {&query_, &key_, &value_, &query_ends_, &key_ends_}) {
    if (tensor->bound()) {
      list.add(slot, describe_memory ? test::describe(*tensor) : test::describe(tensor->view()));
    }
    ++slot;
  }
  return list;
}

test::Arguments VarlenCase::outputs() const {
  test::Arguments list;
  list.add(0, describe_memory ? test::describe(output_) : test::describe(output_.view()));
  if (log_sum_exp_.bound()) list.add(ATTN_SLOT_LOG_SUM_EXP, test::describe(log_sum_exp_.view()));
  return list;
}

attn_prepare_desc VarlenCase::wide_bounds() const {
  attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
  desc.max_batch = static_cast<int64_t>(sequences_.size()) + 2;
  desc.max_query_length = rows_ + 3;
  desc.max_total_length = keys_ + 3;
  return desc;
}

MatrixOptions varlen_matrix_options() {
  MatrixOptions options;
  options.tool = "varlen_matrix";
  options.engines = {"simd-prefill", "simd-decode", "generic", "amx-prefill",
                     "amx-prefill-emulated"};
  options.draw = [](uint64_t seed) { return std::make_unique<VarlenCase>(seed); };
  return options;
}

}  // namespace attn::matrix
