#include "cuda/row_operators.h"

#include <algorithm>

#include "common/row_params.h"
#include "core/cost.h"
#include "core/error.h"
#include "cuda/device_read.h"
#include "cuda/launch_params.h"

namespace attn::cuda {
namespace {

constexpr int64_t kThreads = 256;
constexpr int64_t kPieceBytes = 16;

bool on_pieces(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(kPieceBytes) == 0;
}

// Whether a stride of elements keeps the place within a piece.
bool keeps_pieces(int64_t stride, int64_t bytes) { return stride * bytes % kPieceBytes == 0; }

// Several blocks a multiprocessor where there is enough, each with some units a thread: what a
// block reads to begin with (positions of its batch row) is spread over its units.
attnk::RowGrid grid_of(int64_t batch, int64_t rows, int64_t units, int multiprocessors) {
  constexpr int64_t kBlocksEach = 16, kUnitsEach = 4;
  attnk::RowGrid grid{};
  grid.units = std::max<int64_t>(units, 1);  // divided by, even where there is nothing to do
  grid.total = rows * units;
  const int64_t spread = grid.total * batch / (multiprocessors * kBlocksEach * kThreads);
  grid.span = kThreads * std::clamp<int64_t>(spread, 1, kUnitsEach * 16);
  grid.chunks = std::max<int64_t>(1, (grid.total + grid.span - 1) / grid.span);
  return grid;
}

// ---- rotary -------------------------------------------------------------------------------------

attnk::TransformParams tables(const RowTransformSpec& spec, const RowTransform& t) {
  attnk::TransformParams out{};
  out.cos = t.cos;
  out.sin = t.sin;
  out.cos_row = t.cos_row;
  out.cos_col = t.cos_col;
  out.sin_row = t.sin_row;
  out.sin_col = t.sin_col;
  out.table_rows = t.table_rows;
  out.positions = reinterpret_cast<const attnk::i64*>(t.positions);
  out.position_batch = t.position_batch;
  out.position_row = t.position_row;
  out.rotary = 1;
  out.interleaved = spec.interleaved;
  out.explicit_positions = spec.explicit_positions;
  out.table_type = type_number(spec.table);
  out.width = spec.width;
  return out;
}

bool view_in_pieces(const View4& view, int64_t bytes) {
  return view.channel == 1 && on_pieces(view.data) && keeps_pieces(view.batch, bytes) &&
         keeps_pieces(view.head, bytes) && keeps_pieces(view.row, bytes);
}

bool rotary_in_pieces(const RotaryProblem& problem) {
  const RowTransform& t = problem.transform;
  const int64_t bytes = size_of(problem.spec.type), elements = kPieceBytes / bytes;
  return problem.spec.transform.width / 2 % elements == 0 &&
         problem.spec.head_size % elements == 0 && view_in_pieces(problem.input, bytes) &&
         view_in_pieces(problem.output, bytes) && t.cos_col == 1 && t.sin_col == 1 &&
         on_pieces(t.cos) && on_pieces(t.sin) && keeps_pieces(t.cos_row, bytes) &&
         keeps_pieces(t.sin_row, bytes) && keeps_pieces(problem.cos_batch, bytes) &&
         keeps_pieces(problem.sin_batch, bytes);
}

int64_t distance(int64_t stride) { return stride < 0 ? -stride : stride; }

attnk::RotaryParams rotary_params(const CudaContext& context, const RotaryProblem& problem) {
  const RotarySpec& spec = problem.spec;
  attnk::RotaryParams out{};
  out.input = kernel_view(problem.input);
  out.output = kernel_view(problem.output);
  out.transform = tables(spec.transform, problem.transform);
  out.cos_batch = problem.cos_batch;
  out.sin_batch = problem.sin_batch;
  out.heads = spec.heads;
  out.rows = problem.rows;
  out.channels = spec.head_size;
  out.along_heads = distance(problem.output.head) < distance(problem.output.row);
  out.in_place = spec.in_place;
  out.pieces = rotary_in_pieces(problem);
  const int64_t step = out.pieces ? kPieceBytes / size_of(spec.type) : 1;
  const int64_t units =
      spec.transform.width / 2 / step + (spec.head_size - spec.transform.width) / step;
  out.grid = grid_of(problem.batch, problem.rows * spec.heads, units, context.multiprocessors);
  return out;
}

// ---- scatter ------------------------------------------------------------------------------------

attnk::ScatterView scatter_view(const ScatterView& view) {
  attnk::ScatterView out{};
  out.data = view.data;
  out.batch = view.batch;
  out.row = view.row;
  std::copy(view.axes.begin(), view.axes.end(), out.axes);
  return out;
}

bool scatter_in_pieces(const ScatterProblem& problem) {
  if (!problem.spec.unit_inner) return false;
  const int64_t bytes = size_of(problem.spec.type);
  const size_t inner = static_cast<size_t>(problem.axes) - 1;
  if (!keeps_pieces(problem.sizes[inner], bytes)) return false;
  for (const ScatterView* view : {&problem.past, &problem.update, &problem.present}) {
    if (!on_pieces(view->data) || !keeps_pieces(view->batch, bytes) ||
        !keeps_pieces(view->row, bytes)) {
      return false;
    }
    for (size_t axis = 0; axis < inner; ++axis) {
      if (!keeps_pieces(view->axes[axis], bytes)) return false;
    }
  }
  return true;
}

attnk::ScatterParams scatter_params(const CudaContext& context, const ScatterProblem& problem) {
  attnk::ScatterParams out{};
  out.past = scatter_view(problem.past);
  out.update = scatter_view(problem.update);
  out.present = scatter_view(problem.present);
  std::copy(problem.sizes.begin(), problem.sizes.end(), out.sizes);
  out.indices = reinterpret_cast<const attnk::i64*>(problem.indices);
  out.index_stride = problem.index_stride;
  out.new_rows = problem.new_rows;
  out.cache_rows = problem.cache_rows;
  out.rows = problem.spec.in_place ? problem.new_rows : problem.cache_rows;
  out.axes = problem.axes;
  out.bytes = static_cast<attnk::i32>(size_of(problem.spec.type));
  out.circular = problem.spec.circular;
  out.in_place = problem.spec.in_place;
  out.pieces = scatter_in_pieces(problem);
  const size_t inner = static_cast<size_t>(problem.axes) - 1;
  int64_t outer = 1;
  for (size_t axis = 0; axis < inner; ++axis) outer *= problem.sizes[axis];
  const int64_t units =
      out.pieces ? problem.sizes[inner] * out.bytes / kPieceBytes : problem.sizes[inner];
  out.grid = grid_of(problem.batch, outer * out.rows, units, context.multiprocessors);
  return out;
}

}  // namespace

KernelVariant rotary_variant(DType type) {
  KernelVariant out;
  out.source = "rows/rotary.cu";
  out.entry = "attn_rotary";
  out.definitions = {cat("ATTN_TYPE=", type_number(type))};
  out.threads = kThreads;
  return out;
}

KernelVariant scatter_variant() {
  KernelVariant out;
  out.source = "rows/scatter.cu";
  out.entry = "attn_scatter";
  out.threads = kThreads;
  return out;
}

void plan_rows(KernelStore& kernels, const Lowering& call, CudaPlan& plan) {
  const bool rotary = call.rotary.has_value();
  const KernelVariant variant = rotary ? rotary_variant(call.rotary->spec.type) : scatter_variant();
  plan.rows = kernels.get(variant);
  plan.end_call = kernels.get(session_variant("attn_end_call"));
  StageReport stage;
  stage.stage = rotary ? "rotary" : "scatter";
  stage.engine = rotary ? kRotaryName : kScatterName;
  stage.considered = {{stage.engine, true,
                       cat(rotary ? "a thread a pair of channels, or of pieces of 16 bytes"
                                  : "a thread an element, or a piece of 16 bytes",
                           "; kernel from ", plan.rows->origin)}};
  set_cost(
      rotary ? rotary_cost(call.rotary->spec, plan.range) : scatter_cost(*call.scatter, plan.range),
      stage);
  plan.stages.push_back(std::move(stage));
}

void check_device_rows(const CudaContext& context, const Lowering& call, CUstream stream) {
  if (call.rotary && call.rotary->rows > 0 && call.rotary->spec.transform.explicit_positions) {
    RotaryProblem problem = *call.rotary;
    Reach reach;
    reach.add(problem.batch, problem.transform.position_batch);
    reach.add(problem.rows, problem.transform.position_row);
    const DeviceCopy<int64_t> values(context.driver, problem.transform.positions, reach, stream);
    check(context.driver, context.driver.StreamSynchronize(stream), "cuStreamSynchronize");
    problem.transform.positions = values.first();
    check_positions(problem);
  }
  if (call.scatter && call.scatter->spec.indexed) {
    ScatterProblem problem = *call.scatter;
    Reach reach;
    reach.add(problem.batch, problem.index_stride);
    const DeviceCopy<int64_t> values(context.driver, problem.indices, reach, stream);
    check(context.driver, context.driver.StreamSynchronize(stream), "cuStreamSynchronize");
    problem.indices = values.first();
    check_write_indices(problem);
  }
}

CUdeviceptr copy_rows(const CudaContext& context, const CudaPlan& plan, const RowShape& shape,
                      View4& view, CUdeviceptr to, CudaSession& session, CUstream stream) {
  View4 target;
  target.data = reinterpret_cast<void*>(to);
  target.rows = view.rows;
  target.row = shape.channels;
  target.head = target.row * view.rows;
  target.batch = target.head * shape.heads;
  const CUdeviceptr end =
      to + static_cast<size_t>(shape.batch * target.batch * size_of(shape.type));
  if (end == to) {
    view = target;
    return end;
  }
  const auto scatter = [](const View4& v) {
    return ScatterView{v.data, v.batch, v.row, {v.head, v.channel}};
  };
  ScatterProblem problem;
  problem.spec.type = shape.type;
  problem.spec.unit_inner = view.channel == 1;
  problem.batch = shape.batch;
  problem.cache_rows = view.rows;
  problem.axes = 2;
  problem.sizes = {shape.heads, shape.channels};
  problem.past = problem.update = scatter(view);
  problem.present = scatter(target);
  attnk::ScatterParams params = scatter_params(context, problem);
  params.faults = session.faults();
  params.record = session.device_record();
  void* arguments[] = {static_cast<void*>(&params)};
  launch_kernel(context.driver, *plan.rows, shape.batch * params.grid.chunks, plan.rows->threads,
                stream, arguments, false);
  view = target;
  return end;
}

void run_rows(const CudaContext& context, const CudaPlan& plan, const Lowering& call,
              CudaSession& session, const Launch& request) {
  const auto stream = static_cast<CUstream>(request.stream);
  // Without anything to move, write indices and positions are still checked.
  const auto launch = [&](auto& params, bool checks) {
    if (params.grid.total == 0 && !checks) return;
    params.faults = session.faults();
    params.record = session.device_record();
    params.label = request.label;
    void* arguments[] = {static_cast<void*>(&params)};
    launch_kernel(context.driver, *plan.rows, call.batch * params.grid.chunks, plan.rows->threads,
                  stream, arguments, false);
  };
  bool may_fault;
  if (call.rotary) {
    attnk::RotaryParams params = rotary_params(context, *call.rotary);
    may_fault = call.rotary->spec.transform.explicit_positions && call.rotary->rows > 0;
    launch(params, may_fault);
  } else {
    attnk::ScatterParams params = scatter_params(context, *call.scatter);
    const ScatterSpec& spec = call.scatter->spec;
    may_fault = spec.indexed && !spec.circular;
    launch(params, may_fault);
  }
  if (!may_fault) return;
  attnk::FaultState* faults = session.faults();
  attnk::FaultRecord* record = session.device_record();
  void* arguments[] = {static_cast<void*>(&faults), static_cast<void*>(&record)};
  launch_kernel(context.driver, *plan.end_call, 1, 1, stream, arguments, false);
}

}  // namespace attn::cuda
