#include "matrix/scatter_case.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <sstream>

namespace attn::matrix {
namespace {

using test::Random;
using test::Tensor;

struct ElementType {
  const char* name;
  attn_dtype dtype;
  Type carrier;
};

// Every type that the operator takes; the codes above 6 are DLPack's for 8-bit floats.
constexpr ElementType kTypes[] = {
    {"float32", {ATTN_DTYPE_FLOAT, 32, 1}, Type::kFloat32},
    {"float16", {ATTN_DTYPE_FLOAT, 16, 1}, Type::kFloat16},
    {"bfloat16", {ATTN_DTYPE_BFLOAT, 16, 1}, Type::kBfloat16},
    {"float64", {ATTN_DTYPE_FLOAT, 64, 1}, Type::kFloat64},
    {"int8", {ATTN_DTYPE_INT, 8, 1}, Type::kBool},
    {"int16", {ATTN_DTYPE_INT, 16, 1}, Type::kFloat16},
    {"int32", {ATTN_DTYPE_INT, 32, 1}, Type::kInt32},
    {"int64", {ATTN_DTYPE_INT, 64, 1}, Type::kInt64},
    {"uint8", {ATTN_DTYPE_UINT, 8, 1}, Type::kBool},
    {"uint16", {ATTN_DTYPE_UINT, 16, 1}, Type::kFloat16},
    {"uint32", {ATTN_DTYPE_UINT, 32, 1}, Type::kInt32},
    {"uint64", {ATTN_DTYPE_UINT, 64, 1}, Type::kInt64},
    {"bool", {ATTN_DTYPE_BOOL, 8, 1}, Type::kBool},
    {"float8e4m3fn", {10, 8, 1}, Type::kBool},
    {"float8e4m3fnuz", {11, 8, 1}, Type::kBool},
    {"float8e5m2", {12, 8, 1}, Type::kBool},
    {"float8e5m2fnuz", {13, 8, 1}, Type::kBool},
};

uint64_t bits_of(const test::View& view, int64_t linear) {
  uint64_t bits = 0;
  std::memcpy(&bits, view.address_of(linear), static_cast<size_t>(test::size_of(view.type)));
  return bits;
}

void fill_random(Tensor& tensor, Random& random) {
  test::Buffer& buffer = tensor.buffer();
  for (int64_t i = 0; i < buffer.size(); ++i) {
    buffer.data()[i] = static_cast<unsigned char>(random.below(256));
  }
}

}  // namespace

ScatterCase::ScatterCase(uint64_t seed) : seed_(seed) {
  Random random(test::derive_seed(seed, 2));
  draw_shape(random);
  draw_tensors(random);
  draw_indices(random);
  through_binding = random.chance(0.3);
  own_workspace = random.chance(0.3);
  describe_memory = random.chance(0.5);
  wide_range = random.chance(0.2);
  problem_.circular = circular_;
  problem_.axis = static_cast<int64_t>(axis_);
  problem_.past = past_.view();
  problem_.update = update_.view();
  problem_.write_indices = indices_.view();
  problem_.in_place = in_place_;
  bad_ = reference::bad_batch_rows(problem_);
  for (Tensor* tensor : all()) tensor->buffer().snapshot();
  take_expected();
}

void ScatterCase::draw_shape(Random& random) {
  const ElementType& type = kTypes[random.below(static_cast<int64_t>(std::size(kTypes)))];
  dtype_ = type.dtype;
  type_name_ = type.name;
  carrier_ = type.carrier;
  const int64_t rank = random.chance(0.6) ? 4 : random.between(2, 6);
  axis_ =
      static_cast<size_t>(random.chance(0.5) && rank > 2 ? rank - 2 : random.between(1, rank - 1));
  negative_axis_ = random.chance(0.5);
  circular_ = random.chance(0.5);
  in_place_ = random.chance(0.4);
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t most = static_cast<size_t>(i) == axis_ ? 40 : rank > 4 ? 4 : 9;
    shape_.push_back(random.chance(0.15) ? 1 : random.between(1, most));
  }
  if (rank <= 4 && random.chance(0.4) && axis_ + 1 != shape_.size()) {
    shape_.back() = random.pick<int64_t>({64, 80, 128, 576});
  }
  // Some are large enough for several threads.
  if (rank <= 4 && random.chance(0.1)) shape_[axis_] = random.between(100, 600);
  if (random.chance(0.03)) shape_[static_cast<size_t>(random.below(rank))] = 0;
  const int64_t rows = shape_[axis_];
  new_rows_ = random.chance(0.4) ? std::min<int64_t>(1, rows) : random.between(0, rows);
}

void ScatterCase::draw_tensors(Random& random) {
  const int rank = static_cast<int>(shape_.size());
  std::vector<int64_t> update_shape = shape_;
  update_shape[axis_] = new_rows_;
  test::LayoutChoice input;
  input.may_broadcast.assign(shape_.size(), true);
  const test::LayoutChoice output;
  past_ = Tensor(carrier_, shape_, test::draw_layout(random, rank, in_place_ ? output : input));
  update_ = Tensor(carrier_, update_shape, test::draw_layout(random, rank, input));
  fill_random(past_, random);
  fill_random(update_, random);
  if (in_place_) return;
  present_ = Tensor(carrier_, shape_, test::draw_layout(random, rank, output));
  fill_random(present_, random);
}

void ScatterCase::draw_indices(Random& random) {
  if (random.chance(0.2)) return;
  const int64_t batch = shape_[0], room = shape_[axis_] - new_rows_;
  test::LayoutChoice choice;
  choice.may_broadcast = {true};
  indices_ = Tensor(Type::kInt64, {batch}, test::draw_layout(random, 1, choice));
  const auto set = [this](int64_t b, int64_t index) {
    *static_cast<int64_t*>(indices_.view().address_of(b)) = index;
  };
  for (int64_t b = 0; b < batch; ++b) {
    int64_t index = random.between(0, room);
    if (circular_) index = random.between(-2000, 2000);
    if (circular_ && random.chance(0.1)) {
      index = random.pick(
          {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min(), int64_t{-1}});
    }
    set(b, index);
  }
  if (batch == 0 || !random.chance(0.1)) return;
  set(random.below(batch),
      random.pick({int64_t{-1}, room + 1, shape_[axis_] + 1, int64_t{1} << 40,
                   std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}));
}

void ScatterCase::take_expected() {
  const std::vector<reference::ScatterSource> sources = reference::run(problem_);
  fresh_bytes_.assign(static_cast<size_t>(past_.buffer().size()), false);
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto& [from, linear] = sources[i];
    const bool fresh = from == reference::ScatterSource::kUpdate;
    const bool zero = from == reference::ScatterSource::kZero;
    expected_.push_back(zero ? 0 : bits_of(fresh ? update_.view() : past_.view(), linear));
    if (!in_place_ || !fresh) continue;
    const auto* at =
        static_cast<const unsigned char*>(past_.view().address_of(static_cast<int64_t>(i)));
    for (int64_t k = 0; k < test::size_of(carrier_); ++k) {
      fresh_bytes_[static_cast<size_t>(at - past_.buffer().data() + k)] = true;
    }
  }
}

std::set<std::string> ScatterCase::features() const {
  std::set<std::string> names = {type_name_, circular_ ? "circular" : "linear"};
  names.insert("rank " + std::to_string(shape_.size()));
  names.insert(axis_ + 1 == shape_.size() ? "axis -1" : axis_ == 1 ? "axis 1" : "axis between");
  if (in_place_) names.insert("in place");
  if (indices_.bound()) names.insert("write indices");
  if (past_.view().elements() == 0 || new_rows_ == 0) names.insert("empty");
  if (faults() != 0) names.insert("broken index");
  return names;
}

std::string ScatterCase::text() const {
  std::ostringstream out;
  out << type_name_ << " cache";
  for (const int64_t size : shape_) out << " " << size;
  out << " axis " << axis_ << " rows " << new_rows_ << (circular_ ? " circular" : "")
      << (in_place_ ? " in place" : "") << (through_binding ? " binding" : "");
  for (int64_t b = 0; indices_.bound() && b < shape_[0]; ++b) {
    out << (b == 0 ? " at " : ",") << *static_cast<const int64_t*>(indices_.view().address_of(b));
  }
  return out.str();
}

test::Attributes ScatterCase::attributes() const {
  test::Attributes list;
  const auto axis = static_cast<int64_t>(axis_);
  const int64_t stated = negative_axis_ ? axis - static_cast<int64_t>(shape_.size()) : axis;
  if (stated != -2 || seed_ % 2 == 0) list.set_int("axis", stated);
  if (circular_ || seed_ % 2 == 0) list.set_text("mode", circular_ ? "circular" : "linear");
  return list;
}

attn_tensor ScatterCase::describe(const Tensor& tensor) const {
  attn_tensor out = describe_memory ? test::describe(tensor) : test::describe(tensor.view());
  if (&tensor != &indices_) out.dtype = dtype_;
  return out;
}

test::Arguments ScatterCase::inputs() const {
  test::Arguments list;
  list.add(0, describe(past_));
  list.add(1, describe(update_));
  if (indices_.bound()) list.add(2, describe(indices_));
  return list;
}

test::Arguments ScatterCase::outputs() const {
  test::Arguments list;
  list.add(0, describe(present()));
  return list;
}

std::vector<attn_alias> ScatterCase::aliases() const {
  if (!in_place_) return {};
  return {{0, 0}};
}

attn_prepare_desc ScatterCase::wide_bounds() const {
  attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
  desc.max_batch = shape_[0] + 2;
  desc.max_query_length = new_rows_ + 3;
  desc.max_total_length = shape_[axis_] + 100;
  return desc;
}

void ScatterCase::restore() {
  for (Tensor* tensor : all()) tensor->buffer().restore();
}

uint32_t ScatterCase::faults() const {
  return std::find(bad_.begin(), bad_.end(), true) != bad_.end() ? ATTN_FAULT_WRITE_INDEX : 0;
}

std::string ScatterCase::check(CheckNumbers* numbers) const {
  std::ostringstream out;
  int count = 0;
  for (size_t i = 0; i < expected_.size(); ++i) {
    const uint64_t got = bits_of(present().view(), static_cast<int64_t>(i));
    if (got == expected_[i] || ++count > 6) continue;
    out << "  present_cache element " << i << " has bits " << std::hex << got << ", expected "
        << expected_[i] << std::dec << "\n";
  }
  if (numbers != nullptr) *numbers = {};
  const std::vector<bool> writable = in_place_ ? fresh_bytes_ : present().element_bytes();
  if (present().buffer().first_change(writable) >= 0) {
    out << "  a byte that is none of the present cache's to write was written\n";
  }
  for (const Tensor* tensor : all()) {
    if (tensor != &present() && tensor->buffer().first_change({}) >= 0) {
      out << "  an input changed\n";
    }
    if (!tensor->buffer().fences_intact()) out << "  a fence was written\n";
  }
  return out.str();
}

std::string ScatterCase::untouched() const {
  for (const Tensor* tensor : all()) {
    if (tensor->buffer().first_change({}) >= 0 || !tensor->buffer().fences_intact()) {
      return "  memory was written by a call that was refused\n";
    }
  }
  return {};
}

MatrixOptions scatter_matrix_options() {
  MatrixOptions options;
  options.tool = "rows_matrix --scatter";
  options.engines = {"block-scatter", "generic-scatter"};
  options.draw = [](uint64_t seed) { return std::make_unique<ScatterCase>(seed); };
  return options;
}

}  // namespace attn::matrix
