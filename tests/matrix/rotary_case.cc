#include "matrix/rotary_case.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

namespace attn::matrix {
namespace {

using test::Random;
using test::Tensor;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Head sizes of models, others that no vector divides, and large ones.
int64_t draw_size(Random& random) {
  const double which = random.uniform();
  if (which < 0.4) return random.pick<int64_t>({64, 80, 96, 128, 192, 256});
  if (which < 0.9) return 2 * random.between(1, 40);
  return 2 * random.between(100, 512);
}

test::LayoutChoice inputs_may(const std::vector<bool>& broadcast) {
  test::LayoutChoice choice;
  choice.may_broadcast = broadcast;
  return choice;
}

}  // namespace

RotaryCase::RotaryCase(uint64_t seed) : seed_(seed) {
  Random random(test::derive_seed(seed, 1));
  draw_sizes(random);
  draw_tensors(random);
  if (positions_.bound()) draw_positions(random);
  poison(random);
  through_binding = random.chance(0.3);
  own_workspace = random.chance(0.3);
  describe_memory = random.chance(0.5);
  wide_range = random.chance(0.2);
  problem_.interleaved = interleaved_;
  problem_.rotary_embedding_dim = whole_ ? 0 : width_;
  problem_.num_heads = heads_;
  problem_.x = x_.view();
  problem_.cos = cos_.view();
  problem_.sin = sin_.view();
  problem_.position_ids = positions_.view();
  bad_ = reference::bad_batch_rows(problem_);
  expected_ = reference::run(problem_);
  y_.buffer().fill(0xFF);  // NaN in every type
  for (Tensor* tensor : all()) tensor->buffer().snapshot();
}

void RotaryCase::draw_sizes(Random& random) {
  type_ = random.pick({Type::kFloat32, Type::kFloat16, Type::kBfloat16});
  heads_apart_ = random.chance(0.5);
  interleaved_ = random.chance(0.5);
  in_place_ = random.chance(0.3);
  batch_ = random.chance(0.05) ? 0 : random.between(1, 4);
  heads_ = random.chance(0.2) ? random.between(30, 70) : random.between(1, 9);
  rows_ = random.chance(0.05) ? 0 : random.chance(0.4) ? 1 : random.between(2, 70);
  size_ = draw_size(random);
  whole_ = random.chance(0.5);
  width_ = whole_ ? size_ : 2 * random.between(1, size_ / 2);
  // Some are large enough for several threads.
  if (random.chance(0.1)) {
    rows_ = random.between(60, 200);
    size_ = 64 + 16 * random.between(0, 4);
    width_ = whole_ ? size_ : 2 * random.between(1, size_ / 2);
  }
}

void RotaryCase::draw_tensors(Random& random) {
  std::vector<int64_t> shape = {batch_, rows_, heads_ * size_};
  if (heads_apart_) shape = {batch_, heads_, rows_, size_};
  const int rank = static_cast<int>(shape.size());
  std::vector<bool> broadcast(shape.size(), true);
  broadcast.back() = false;
  test::LayoutChoice choice;
  if (!in_place_) choice.may_broadcast = broadcast;
  x_ = Tensor(type_, shape, test::draw_layout(random, rank, choice));
  test::fill_normal(x_.view(), random, random.pick({1.0, 30.0}));
  if (!in_place_) {
    y_ = Tensor(type_, shape, test::draw_layout(random, rank, test::LayoutChoice()));
  }

  std::vector<int64_t> table = {batch_, rows_, width_ / 2};
  if (random.chance(0.6)) {
    table_rows_ = random.between(1, 90);
    table = {table_rows_, width_ / 2};
    positions_ = Tensor(Type::kInt64, {batch_, rows_},
                        test::draw_layout(random, 2, inputs_may({true, false})));
  }
  const int table_rank = static_cast<int>(table.size());
  // Every second pair of tables has the same angles for all batch rows (or positions).
  std::vector<bool> same(table.size(), false);
  same[0] = true;
  cos_ = Tensor(type_, table, test::draw_layout(random, table_rank, inputs_may(same)));
  sin_ = Tensor(type_, table, test::draw_layout(random, table_rank, inputs_may(same)));
  const int64_t elements = cos_.view().elements();
  for (int64_t i = 0; i < elements; ++i) {
    const double angle = random.uniform() * 6.283185307179586;
    cos_.view().set_linear(i, std::cos(angle));
    sin_.view().set_linear(i, std::sin(angle));
  }
}

void RotaryCase::draw_positions(Random& random) {
  for (int64_t b = 0; b < batch_; ++b) {
    const int64_t start = random.below(table_rows_);
    for (int64_t i = 0; i < rows_; ++i) {
      const bool ascending = random.chance(0.7);
      const int64_t position = ascending ? (start + i) % table_rows_ : random.below(table_rows_);
      positions_.view().set({b, i}, static_cast<double>(position));
    }
  }
  if (batch_ == 0 || rows_ == 0 || !random.chance(0.08)) return;
  const double wrong = random.pick({-1.0, static_cast<double>(table_rows_), 4e9, -4e9});
  positions_.view().set({random.below(batch_), random.below(rows_)}, wrong);
}

// NaN and infinity stay in their pair, and a table row that no position names is not felt.
void RotaryCase::poison(Random& random) {
  const int64_t elements = x_.view().elements();
  if (elements > 0 && random.chance(0.2)) {
    x_.view().set_linear(random.below(elements), random.pick({kNan, kInfinity, -kInfinity}));
  }
  if (!positions_.bound() || cos_.view().strides[0] == 0 || sin_.view().strides[0] == 0) return;
  std::vector<bool> named(static_cast<size_t>(table_rows_), false);
  for (const double position : test::values_of(positions_.view())) {
    if (position >= 0 && position < static_cast<double>(table_rows_)) {
      named[static_cast<size_t>(position)] = true;
    }
  }
  for (int64_t row = 0; row < table_rows_; ++row) {
    if (named[static_cast<size_t>(row)]) continue;
    for (int64_t i = 0; i < width_ / 2; ++i) {
      cos_.view().set({row, i}, kNan);
      sin_.view().set({row, i}, kNan);
    }
  }
}

std::set<std::string> RotaryCase::features() const {
  std::set<std::string> names = {test::name_of(type_), heads_apart_ ? "rank 4" : "rank 3"};
  if (interleaved_) names.insert("interleaved");
  if (in_place_) names.insert("in place");
  if (positions_.bound()) names.insert("positions");
  if (width_ < size_) names.insert("partial");
  if (batch_ * rows_ == 0) names.insert("empty");
  if (faults() != 0) names.insert("broken position");
  return names;
}

std::string RotaryCase::text() const {
  std::ostringstream out;
  out << test::name_of(type_) << " B " << batch_ << " H " << heads_ << " S " << rows_ << " D "
      << size_ << " width " << width_ << (heads_apart_ ? " rank 4" : " rank 3")
      << (interleaved_ ? " interleaved" : "") << (in_place_ ? " in place" : "");
  if (positions_.bound()) out << " positions in " << table_rows_;
  if (through_binding) out << " binding";
  return out.str();
}

test::Attributes RotaryCase::attributes() const {
  test::Attributes list;
  if (!heads_apart_ || seed_ % 2 == 0) list.set_int("num_heads", heads_);
  if (interleaved_ || seed_ % 2 == 0) list.set_int("interleaved", interleaved_);
  if (!whole_) list.set_int("rotary_embedding_dim", width_);
  return list;
}

test::Arguments RotaryCase::inputs() const {
  test::Arguments list;
  uint32_t slot = 0;
  for (const Tensor* tensor : {&x_, &cos_, &sin_, &positions_}) {
    if (tensor->bound()) {
      list.add(slot, describe_memory ? test::describe(*tensor) : test::describe(tensor->view()));
    }
    ++slot;
  }
  return list;
}

test::Arguments RotaryCase::outputs() const {
  test::Arguments list;
  list.add(0, describe_memory ? test::describe(y()) : test::describe(y().view()));
  return list;
}

std::vector<attn_alias> RotaryCase::aliases() const {
  if (!in_place_) return {};
  return {{0, 0}};
}

attn_prepare_desc RotaryCase::wide_bounds() const {
  attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
  desc.max_batch = batch_ + 2;
  desc.max_query_length = rows_ + 3;
  return desc;
}

void RotaryCase::restore() {
  for (Tensor* tensor : all()) tensor->buffer().restore();
}

uint32_t RotaryCase::faults() const {
  return std::find(bad_.begin(), bad_.end(), true) != bad_.end() ? ATTN_FAULT_POSITION : 0;
}

std::string RotaryCase::check(CheckNumbers* numbers) const {
  std::ostringstream out;
  int count = 0;
  for (size_t i = 0; i < expected_.size(); ++i) {
    const double got = y().view().at_linear(static_cast<int64_t>(i));
    const double want = expected_[i];
    if (got == want || (std::isnan(got) && std::isnan(want))) continue;
    if (++count <= 6) out << "  Y element " << i << " is " << got << ", expected " << want << "\n";
  }
  if (count > 6) out << "  and " << count - 6 << " more\n";
  if (numbers != nullptr) *numbers = {};  // every bit is right, or the case fails
  if (y().buffer().first_change(y().element_bytes()) >= 0) {
    out << "  a byte that is no element of Y was written\n";
  }
  for (const Tensor* tensor : all()) {
    if (tensor != &y() && tensor->buffer().first_change({}) >= 0) out << "  an input changed\n";
    if (!tensor->buffer().fences_intact()) out << "  a fence was written\n";
  }
  return out.str();
}

std::string RotaryCase::untouched() const {
  for (const Tensor* tensor : all()) {
    if (tensor->buffer().first_change({}) >= 0 || !tensor->buffer().fences_intact()) {
      return "  memory was written by a call that was refused\n";
    }
  }
  return {};
}

MatrixOptions rotary_matrix_options() {
  MatrixOptions options;
  options.tool = "rows_matrix";
  options.engines = {"simd-rotary", "generic-rotary"};
  options.draw = [](uint64_t seed) { return std::make_unique<RotaryCase>(seed); };
  return options;
}

}  // namespace attn::matrix
