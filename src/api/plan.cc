#include "api/plan.h"

#include "api/guard.h"
#include "api/request.h"
#include "api/struct_io.h"
#include "api/text.h"

namespace attn::api {

BakedSlots baked_slots(const attn_op& op, const Arguments& arguments) {
  BakedSlots baked;
  if (!op.context->facts.can_capture) return baked;
  const OperatorSchema& schema = op.schema();
  for (size_t i = 0; i < schema.inputs.size() && baked.count < baked.slots.size(); ++i) {
    if (arguments.in[i].placement != Placement::kHost) continue;
    baked.slots[baked.count++] = schema.inputs[i].slot;
  }
  return baked;
}

void fill_plan_info(const attn_op& op, const PlanEntry& entry, const BakedSlots& baked,
                    attn_plan_info& info) {
  const BackendPlan& plan = entry.plan();
  const PlanKey& key = entry.key();
  info.workspace_bytes = plan.workspace_bytes();
  info.workspace_alignment = op.context->facts.workspace_alignment;
  info.max_batch = key.range.batch;
  info.max_query_length = key.range.query_rows;
  info.max_total_length = key.range.total;
  if (plan.capturable()) {
    info.capture_flags = ATTN_CAPTURE_SUPPORTED | ATTN_CAPTURE_POINTERS_BAKED;
    if (are_on_device(key.lengths)) info.capture_flags |= ATTN_CAPTURE_LENGTHS_ON_DEVICE;
    if (info.workspace_bytes > 0) info.capture_flags |= ATTN_CAPTURE_WORKSPACE_MUST_PERSIST;
  }
  info.baked_slot_count = baked.count;
  for (uint32_t i = 0; i < baked.count; ++i) info.baked_slots[i] = baked.slots[i];
  copy_text(info.reason, plan.capture_reason());
}

namespace {

attn_plan* prepare(attn_op& op, const attn_prepare_desc& desc) {
  attn_context& context = *op.context;
  const PlanChoice choice = choice_of(context, desc);
  const CallShape shape = {desc.inputs,       desc.input_count, desc.outputs,
                           desc.output_count, desc.aliases,     desc.alias_count};
  ArgumentSet set;
  Lowering lowering;
  lower_shapes(op, shape, Intake::kPlan, set, lowering);
  return new attn_plan(op, find_or_make_plan(context, op.title, lowering, choice),
                       baked_slots(op, set.tensors));
}

}  // namespace
}  // namespace attn::api

using attn::api::checked;
using attn::api::guard;
using attn::api::Subject;

attn_status attn_op_prepare(attn_op* op, const attn_prepare_desc* desc, attn_plan** plan,
                            attn_error* error) {
  return guard(error, [&](Subject& subject) {
    attn_op& self = checked(op, "op");
    subject.keep(self);
    subject.set(self.title);
    const attn_prepare_desc request = attn::api::copy_in(desc, "desc");
    if (plan == nullptr) attn::fail_argument("plan is null; it receives the plan");
    *plan = attn::api::prepare(self, request);
  });
}

void attn_plan_release(attn_plan* plan) { attn::api::release_handle(plan); }

attn_status attn_plan_get_info(attn_plan* plan, attn_plan_info* info, attn_error* error) {
  return guard(error, [&](Subject& subject) {
    attn_plan& self = checked(plan, "plan");
    subject.keep(self);
    subject.set(self.op->title);
    const attn::api::OutStruct out(info, "info");
    attn_plan_info filled{};
    attn::api::fill_plan_info(*self.op, *self.entry, self.baked, filled);
    out.write(filled);
  });
}

attn_status attn_plan_describe(attn_plan* plan, char* buffer, size_t capacity, size_t* needed,
                               attn_error* error) {
  return guard(error, [&](Subject& subject) {
    attn_plan& self = checked(plan, "plan");
    subject.keep(self);
    subject.set(self.op->title);
    attn::api::write_text(attn::api::describe_plan(*self.op, *self.entry), buffer, capacity,
                          needed);
  });
}
