// Rules of type and shape of TensorScatter, and from checked arguments to the problem. Runs on
// every execute: no allocation unless it fails.
#include <algorithm>
#include <limits>

#include "core/error.h"
#include "ops/shape_check.h"
#include "ops/tensor_scatter.h"
#include "ops/views.h"

namespace attn::scatter {
namespace {

constexpr uint8_t kFirstFloat8 = 10;  // DLPack: float8_e4m3fn
constexpr uint8_t kLastFloat8 = 13;   // float8_e5m2fnuz

bool known_type(DType type) {
  switch (type.code) {
    case kCodeInt:
    case kCodeUInt:
      return type.bits == 8 || type.bits == 16 || type.bits == 32 || type.bits == 64;
    case kCodeFloat:
      return type.bits == 16 || type.bits == 32 || type.bits == 64;
    case kCodeBfloat:
      return type.bits == 16;
    case kCodeBool:
      return type.bits == 8;
    default:
      return type.code >= kFirstFloat8 && type.code <= kLastFloat8 && type.bits == 8;
  }
}

void check_types(const Arguments& arguments) {
  const Tensor& past = arguments.in[kPastCache];
  if (!known_type(past.type)) {
    fail_unsupported("past_cache: expected one of ", kTypeNames, "; got ", name_of(past.type),
                     past.type.bits < 8 ? ", whose elements share bytes" : "");
  }
  check_type_of(kInputNames[kUpdate], arguments.in[kUpdate], past.type, kInputNames[kPastCache]);
  const Tensor& indices = arguments.in[kWriteIndices];
  if (indices.present && indices.type != kInt64) {
    fail_type(kInputNames[kWriteIndices], indices, "int64");
  }
}

int row_axis(const Settings& settings, const Tensor& past) {
  const int64_t axis = settings.axis < 0 ? settings.axis + past.rank : settings.axis;
  if (axis < 1 || axis >= past.rank) {
    fail_argument("past_cache: expected a rank for which axis ", settings.axis,
                  " is an axis behind the batch axis 0; got ", tensor_text(past));
  }
  return static_cast<int>(axis);
}

// The update has the sizes of the cache on all axes but that of the rows.
void check_update(const Arguments& arguments, const Sizes& sizes) {
  const Tensor& past = arguments.in[kPastCache];
  const Tensor& update = arguments.in[kUpdate];
  bool good = update.rank == past.rank;
  for (int32_t i = 0; good && i < past.rank; ++i) {
    const size_t axis = static_cast<size_t>(i);
    good = i == sizes.axis || fits(update.shape[axis], past.shape[axis]);
  }
  if (!good) {
    fail_argument("update: expected the sizes of past_cache ", shape_text(past),
                  " on all axes but ", sizes.axis, "; got ", shape_text(update));
  }
}

// One axis of the problem with its stride in each of the three tensors.
struct Axis {
  int64_t size = 1;
  int64_t past = 1, update = 1, present = 1;
};

// How far out an axis lies. A stride is 0 only where a size further in is not known.
uint64_t reach_of(const Axis& axis) {
  if (axis.present == 0) return std::numeric_limits<uint64_t>::max();
  return axis.present < 0 ? 0 - static_cast<uint64_t>(axis.present)
                          : static_cast<uint64_t>(axis.present);
}

// Whether `outer` goes on where `inner` ends, in one tensor.
bool goes_on(int64_t outer, int64_t inner, int64_t inner_size) {
  int64_t expected;
  return !__builtin_mul_overflow(inner, inner_size, &expected) && expected == outer;
}

bool joins(const Axis& outer, const Axis& inner) {
  if (outer.size == kAnyDim || inner.size == kAnyDim) return false;
  return goes_on(outer.past, inner.past, inner.size) &&
         goes_on(outer.update, inner.update, inner.size) &&
         goes_on(outer.present, inner.present, inner.size);
}

// The axes other than batch and rows: those of one element left out, in the order in which they lie
// in the present cache, neighbours joined where that is one run in all three tensors.
int collect_axes(const Arguments& arguments, const Sizes& sizes,
                 std::array<Axis, kScatterAxes>& axes) {
  const Tensor& past = arguments.in[kPastCache];
  const Tensor& update = arguments.in[kUpdate];
  const Tensor& out = arguments.out[kPresentCache];
  const Tensor& present = out.present ? out : past;
  int count = 0;
  for (int32_t i = 1; i < past.rank; ++i) {
    const size_t axis = static_cast<size_t>(i);
    if (i == sizes.axis || past.shape[axis] == 1) continue;
    axes[static_cast<size_t>(count++)] = {past.shape[axis], past.strides[axis],
                                          update.strides[axis], present.strides[axis]};
  }
  const auto first = axes.begin();
  // Insertion by falling stride: at most six axes, and equal ones keep their order.
  for (int i = 1; i < count; ++i) {
    for (int j = i; j > 0; --j) {
      Axis& before = first[j - 1];
      if (reach_of(before) >= reach_of(first[j])) break;
      std::swap(before, first[j]);
    }
  }
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    if (kept > 0 && joins(first[kept - 1], first[i])) {
      const int64_t size = first[kept - 1].size;
      first[kept - 1] = first[i];
      first[kept - 1].size *= size;
    } else {
      first[kept++] = first[i];
    }
  }
  if (kept == 0) axes[static_cast<size_t>(kept++)] = Axis();
  return kept;
}

ScatterView view_of(const Tensor& tensor, int row_axis) {
  ScatterView view;
  view.data = tensor.data;
  view.batch = tensor.strides[0];
  view.row = tensor.strides[static_cast<size_t>(row_axis)];
  return view;
}

}  // namespace

Sizes check_inputs(const Settings& settings, const Arguments& arguments) {
  const auto& in = arguments.in;
  const Tensor& past = in[kPastCache];
  const Tensor& update = in[kUpdate];
  check_present(kInputNames[kPastCache], past, "(B, ..., L, ...)");
  check_present(kInputNames[kUpdate], update, "(B, ..., N, ...)");
  check_types(arguments);
  Sizes sizes;
  sizes.axis = row_axis(settings, past);
  check_update(arguments, sizes);
  sizes.batch = known_of(past.shape[0], update.shape[0]);
  sizes.cache_rows = past.shape[static_cast<size_t>(sizes.axis)];
  sizes.new_rows = update.shape[static_cast<size_t>(sizes.axis)];
  const bool known = sizes.cache_rows != kAnyDim && sizes.new_rows != kAnyDim;
  if (known && sizes.new_rows > sizes.cache_rows) {
    fail_argument("update: expected at most the ", sizes.cache_rows, " rows of past_cache on axis ",
                  sizes.axis, "; got ", sizes.new_rows);
  }
  if (in[kWriteIndices].present) {
    check_shape(kInputNames[kWriteIndices], in[kWriteIndices], "(B)", {sizes.batch});
  }
  return sizes;
}

void check_output(const Arguments& arguments) {
  const Tensor& past = arguments.in[kPastCache];
  const Tensor& present = arguments.out[kPresentCache];
  if (!present.present) return;
  check_type_of(kOutputName, present, past.type, kInputNames[kPastCache]);
  bool same = present.rank == past.rank;
  for (int32_t i = 0; same && i < past.rank; ++i) {
    same = fits(present.shape[static_cast<size_t>(i)], past.shape[static_cast<size_t>(i)]);
  }
  if (!same) {
    fail_argument("present_cache: expected the shape of past_cache, ", shape_text(past), "; got ",
                  shape_text(present));
  }
  if (arguments.aliases(kPastCache, kPresentCache) && !same_strides(past, present)) {
    fail_argument("present_cache: expected the strides of past_cache, ", strides_text(past),
                  ", as both share memory; got ", strides_text(present));
  }
}

void lower(const Settings& settings, const Sizes& sizes, const Arguments& arguments,
           Lowering& out) {
  const Tensor& past = arguments.in[kPastCache];
  const Tensor& indices = arguments.in[kWriteIndices];
  const Tensor& present = arguments.out[kPresentCache];
  out.batch = sizes.batch;
  out.lengths.batch = sizes.batch;
  out.lengths.query_rows = sizes.new_rows;
  ScatterProblem& problem = out.scatter.emplace();
  problem.batch = sizes.batch;
  problem.new_rows = sizes.new_rows;
  problem.cache_rows = sizes.cache_rows;
  problem.past = view_of(past, sizes.axis);
  problem.update = view_of(arguments.in[kUpdate], sizes.axis);
  problem.present = view_of(present.present ? present : past, sizes.axis);
  std::array<Axis, kScatterAxes> axes;
  problem.axes = collect_axes(arguments, sizes, axes);
  for (size_t i = 0; i < static_cast<size_t>(problem.axes); ++i) {
    problem.sizes[i] = axes[i].size;
    problem.past.axes[i] = axes[i].past;
    problem.update.axes[i] = axes[i].update;
    problem.present.axes[i] = axes[i].present;
  }
  if (indices.present) {
    problem.indices = static_cast<const int64_t*>(indices.data);
    problem.index_stride = indices.strides[0];
  }
  const Axis& inner = axes[static_cast<size_t>(problem.axes) - 1];
  ScatterSpec& spec = problem.spec;
  spec.type = past.type;
  spec.circular = settings.circular;
  spec.indexed = indices.present;
  spec.in_place = arguments.aliases(kPastCache, kPresentCache);
  spec.unit_inner = inner.past == 1 && inner.update == 1 && inner.present == 1;
}

}  // namespace attn::scatter
