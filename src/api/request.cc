#include "api/request.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "api/struct_io.h"
#include "core/error.h"

namespace attn::api {
namespace {

constexpr int64_t kMaxExtent = INT32_MAX;  // batch rows, query rows and keys of one plan

bool any_unknown(const Arguments& arguments) {
  const auto unknown = [](const Tensor& tensor) {
    return tensor.present && tensor.elements() == kAnyDim;
  };
  return std::any_of(arguments.in.begin(), arguments.in.end(), unknown) ||
         std::any_of(arguments.out.begin(), arguments.out.end(), unknown);
}

// The bound of one size: what is named, or what the call has.
int64_t bound_of(const char* field, int64_t named, int64_t called, int64_t natural) {
  if (named != 0 && named < called) {
    fail_argument(field, " is ", named, ", but the tensors have ", called);
  }
  const int64_t bound = named != 0 ? named : natural;
  if (bound > kMaxExtent) {
    fail_unsupported(field, " of ", bound, " is more than the ", kMaxExtent,
                     " that a plan can serve");
  }
  return bound;
}

ShapeRange bounds_of(const Lowering& call, const ShapeRange& named) {
  const ShapeRange called = range_of(call);
  const ShapeRange natural = natural_range_of(call);
  ShapeRange range;
  range.batch = bound_of("max_batch", named.batch, called.batch, natural.batch);
  range.query_rows =
      bound_of("max_query_length", named.query_rows, called.query_rows, natural.query_rows);
  range.total = bound_of("max_total_length", named.total, called.total, natural.total);
  return range;
}

}  // namespace

void check_servable(const Lowering& call) { bounds_of(call, {}); }

namespace {

int64_t room_to_grow(int64_t size) {
  const uint64_t power = std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(size, 1)));
  return std::min(static_cast<int64_t>(power), kMaxExtent);
}

void log_plan(const attn_context& context, const std::string& title, const PlanEntry& entry) {
  if (!context.callbacks.logs(ATTN_LOG_INFO)) return;
  const ShapeRange& range = entry.key().range;
  std::string line = cat(title, ": planned for batch ", range.batch, ", query length ",
                         range.query_rows, ", total length ", range.total, ":");
  for (const StageReport& stage : entry.plan().report()) {
    line += cat(" ", stage.stage, " by ", stage.engine, ";");
  }
  context.log(ATTN_LOG_INFO, cat(line, " workspace ", entry.plan().workspace_bytes(), " bytes"));
}

}  // namespace

bool infer_output(const attn_op& op, const Arguments& arguments, int position, Tensor& output) {
  const bool missing = op.contract->infer(arguments, position, output);
  output.present = true;
  output.placement =
      op.context->facts.identity.type == ATTN_DEVICE_CUDA ? Placement::kDevice : Placement::kHost;
  output.data = nullptr;
  check_bytes(op.schema().outputs[static_cast<size_t>(position)].name, output);
  set_row_major_strides(output);
  return missing;
}

void lower_shapes(const attn_op& op, const CallShape& shape, Intake intake, ArgumentSet& set,
                  Lowering& lowering) {
  const OperatorSchema& schema = op.schema();
  uint32_t wanted = 0;
  take_inputs(op.signature, shape.inputs, shape.input_count, intake, set);
  check_required_inputs(schema, set.tensors);
  take_outputs(op.signature, shape.outputs, shape.output_count, intake, set, &wanted);
  for (size_t position = 0; position < schema.outputs.size(); ++position) {
    Tensor& output = set.tensors.out[position];
    const bool infer = ((wanted >> position) & 1u) != 0 || !schema.outputs[position].optional;
    if (infer && !output.present) {
      infer_output(op, set.tensors, static_cast<int>(position), output);
    }
  }
  take_aliases(schema, shape.aliases, shape.alias_count, set.tensors);
  check_overlaps(schema, set);
  // A plan is made of known sizes, but for those of inferred outputs that depend on a value which
  // is not there: they are launch parameters like all sizes, and the range says how far they go.
  const bool open = intake == Intake::kShapes && any_unknown(set.tensors);
  op.contract->lower(set.tensors, open ? LowerMode::kQuery : LowerMode::kPlan, lowering);
}

PlanChoice choice_of(const attn_context& context, const attn_prepare_desc& desc) {
  check_flags(desc.flags,
              ATTN_PREPARE_BATCH_INVARIANT | ATTN_PREPARE_ALLOW_TF32 | ATTN_PREPARE_CHECK_ON_HOST,
              "desc");
  check_reserved(desc.reserved, "desc");
  PlanChoice choice;
  choice.flags = desc.flags;
  choice.engine = desc.engine != nullptr ? desc.engine : context.engine;
  context.check_engine(choice.engine, "engine");
  choice.range = {desc.max_batch, desc.max_query_length, desc.max_total_length};
  const std::pair<const char*, int64_t> bounds[] = {{"max_batch", desc.max_batch},
                                                    {"max_query_length", desc.max_query_length},
                                                    {"max_total_length", desc.max_total_length}};
  for (const auto& [name, bound] : bounds) {
    if (bound < 0) fail_argument(name, " is ", bound, "; 0 and up are accepted");
  }
  return choice;
}

std::shared_ptr<const PlanEntry> find_or_make_plan(attn_context& context, const std::string& title,
                                                   const Lowering& call, const PlanChoice& choice) {
  context.backend->reclaim();  // before this thread may hold a place in the cache
  const ShapeRange range = bounds_of(call, choice.range);
  bool made = false;
  const auto make = [&](const PlanKey& key) {
    const PlanRequest request = request_of(key);
    std::string reason;
    if (!context.backend->supports(call, request, &reason)) {
      throw_error(ATTN_UNSUPPORTED, std::move(reason));
    }
    auto plan = context.backend->plan(call, key.range, request);
    made = true;
    return plan;
  };
  auto entry = context.plans.find_or_make(make_key(call, choice.engine, choice.flags, range), make);
  // Only now that the cache holds the plan: a logger that asks for the same one finds it.
  if (made) log_plan(context, title, *entry);
  return entry;
}

std::shared_ptr<const PlanEntry> find_or_make_growing_plan(attn_context& context,
                                                           const std::string& title,
                                                           const Lowering& call,
                                                           const PlanChoice& choice) {
  const ShapeRange called = natural_range_of(call);
  const ShapeRange needed = {std::max(called.batch, choice.range.batch),
                             std::max(called.query_rows, choice.range.query_rows),
                             std::max(called.total, choice.range.total)};
  if (auto entry = context.plans.find_covering(call, choice.engine, choice.flags, needed)) {
    return entry;
  }
  PlanChoice growing = choice;
  const ShapeRange bounds = bounds_of(call, needed);
  growing.range = {room_to_grow(bounds.batch), room_to_grow(bounds.query_rows),
                   room_to_grow(bounds.total)};
  return find_or_make_plan(context, title, call, growing);
}

}  // namespace attn::api
