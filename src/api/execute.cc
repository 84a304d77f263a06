#include "api/execute.h"

#include <limits>

#include "api/arguments.h"
#include "api/guard.h"
#include "api/plan.h"
#include "api/struct_io.h"

namespace attn::api {

void check_stream(const attn_context& context, const void* stream) {
  if (stream != nullptr && context.facts.identity.type == ATTN_DEVICE_CPU) {
    fail_argument("stream is given; the CPU runs at once and has no streams: pass null");
  }
}

attn_execute_desc execute_options(const attn_context& context, const attn_execute_desc* desc,
                                  uint32_t known_flags) {
  attn_execute_desc options = copy_in_or_default(desc, "desc");
  check_flags(options.flags, known_flags, "desc");
  check_stream(context, options.stream);
  if (options.workspace == nullptr && options.workspace_bytes != 0) {
    fail_argument("workspace is null, but workspace_bytes is ", options.workspace_bytes);
  }
  return options;
}

void lower_call(const attn_op& op, const attn_arg* inputs, uint32_t input_count,
                const attn_arg* outputs, uint32_t output_count, Lowering& lowering) {
  const OperatorSchema& schema = op.schema();
  ArgumentSet set;
  take_inputs(op.signature, inputs, input_count, Intake::kExecute, set);
  take_outputs(op.signature, outputs, output_count, Intake::kExecute, set, nullptr);
  check_required_inputs(schema, set.tensors);
  check_required_outputs(schema, set.tensors);
  check_overlaps(schema, set);
  op.contract->lower(set.tensors, LowerMode::kExecute, lowering);
}

void fail_unprepared(const attn_context& context, void* stream, const PlanEntry* entry,
                     const Lowering& call) {
  const bool capturing = context.backend->is_capturing(stream);
  throw_error(capturing ? ATTN_CAPTURE : ATTN_NOT_PREPARED,
              cat(entry == nullptr ? std::string("the binding has no plan: prepare it first")
                                   : mismatch_text(entry->key(), call),
                  capturing ? " (the stream captures: prepare before the capture)" : ""));
}

void run_call(const attn_op& op, const PlanEntry& entry, const Lowering& lowering,
              attn_session& session, const attn_execute_desc& options) {
  attn_context& context = *op.context;
  Launch launch;
  launch.label = op.label_number;
  launch.stream = options.stream;
  launch.flags = options.flags;
  const uint64_t needed = entry.plan().workspace_bytes();
  if (options.workspace != nullptr) {
    const uint64_t alignment = context.facts.workspace_alignment;
    if (options.workspace_bytes < needed) {
      fail_argument("workspace_bytes is ", options.workspace_bytes, "; the plan needs ", needed);
    }
    const auto address = reinterpret_cast<uintptr_t>(options.workspace);
    if (address % alignment != 0) {
      fail_argument("workspace is not aligned to ", alignment, " bytes");
    }
    if (options.workspace_bytes > std::numeric_limits<uintptr_t>::max() - address) {
      fail_argument("workspace of ", options.workspace_bytes,
                    " bytes reaches beyond the end of the address space");
    }
    launch.workspace = options.workspace;
    launch.workspace_bytes = options.workspace_bytes;
  } else {
    launch.workspace = session.allocator_scratch(needed);
    launch.workspace_bytes = launch.workspace != nullptr ? needed : 0;
  }
  // Without batch rows there is nothing to run, whatever the layout that the plan expects. Tokens
  // that no sequence holds have results all the same.
  const bool packed = lowering.attention.has_value() && lowering.attention->spec.packed;
  if (lowering.batch != 0 || packed) {
    context.backend->execute(entry.plan(), lowering, *session.backend, launch);
  }
  context.stats.executions.fetch_add(1, std::memory_order_relaxed);
}

void check_same_context(const attn_op& op, const attn_session& session) {
  if (op.context.get() != session.context.get()) {
    fail_argument("session is of another context than the op; both must be of one");
  }
}

}  // namespace attn::api

attn_status attn_plan_execute(attn_plan* plan, attn_session* session, const attn_arg* inputs,
                              uint32_t input_count, const attn_arg* outputs, uint32_t output_count,
                              const attn_execute_desc* desc, attn_error* error) {
  return attn::api::guard(error, [&](attn::api::Subject& subject) {
    attn_plan& self = attn::api::checked(plan, "plan");
    subject.keep(self);
    const attn_op& op = *self.op;
    subject.set(op.title);
    attn_session& order = attn::api::checked(session, "session");
    subject.keep(order);
    attn::api::check_same_context(op, order);
    const attn_execute_desc options = attn::api::execute_options(
        *op.context, desc, ATTN_EXECUTE_BAKE_HOST_VALUES | ATTN_EXECUTE_EAGER);
    attn::Lowering lowering;
    attn::api::lower_call(op, inputs, input_count, outputs, output_count, lowering);
    if (!attn::api::fits(self.entry->key(), lowering)) {
      attn::api::fail_unprepared(*op.context, options.stream, self.entry.get(), lowering);
    }
    const attn::api::BusyGuard busy(order.busy, "session", order.label);
    attn::api::run_call(op, *self.entry, lowering, order, options);
  });
}
