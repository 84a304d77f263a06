#include "api/binding.h"

#include "api/execute.h"
#include "api/guard.h"
#include "api/struct_io.h"
#include "api/text.h"

using attn::api::Intake;
using attn::api::PlanChoice;

attn_binding::attn_binding(attn_op& owner, attn_session& order)
    : op(owner), session(order), live_(owner.context->stats.bindings_live) {
  choice_.engine = owner.context->engine;
}

void attn_binding::set_input(int position, const attn_tensor* tensor) {
  attn::api::ArgumentSet one;
  if (tensor != nullptr) {
    attn::api::take_input(op->signature, position, tensor, Intake::kPlan, one);
  }
  const size_t at = static_cast<size_t>(position);
  set_.tensors.in[at] = one.tensors.in[at];
  set_.in_range[at] = one.in_range[at];
  checked_ = false;
}

void attn_binding::set_output(int position, const attn_tensor* tensor) {
  attn::api::ArgumentSet one;
  if (tensor != nullptr) {
    attn::api::take_output(op->signature, position, tensor, Intake::kPlan, one);
  }
  const size_t at = static_cast<size_t>(position);
  set_.tensors.out[at] = one.tensors.out[at];
  set_.out_range[at] = one.out_range[at];
  checked_ = false;
}

void attn_binding::set_tensors(const attn_arg* inputs, uint32_t input_count,
                               const attn_arg* outputs, uint32_t output_count) {
  attn::api::ArgumentSet all;
  attn::api::take_inputs(op->signature, inputs, input_count, Intake::kPlan, all);
  attn::api::take_outputs(op->signature, outputs, output_count, Intake::kPlan, all, nullptr);
  set_ = all;
  checked_ = false;
}

void attn_binding::check_set() {
  if (checked_) return;
  attn::api::check_required_inputs(op->schema(), set_.tensors);
  attn::api::check_required_outputs(op->schema(), set_.tensors);
  attn::api::check_overlaps(op->schema(), set_);
  checked_ = true;
}

// Plans are made from shapes: host values that are bound now may be others in the next call.
std::shared_ptr<const attn::api::PlanEntry> attn_binding::plan_for(const PlanChoice& wish,
                                                                   bool growing) {
  attn::Lowering shapes;
  op->contract->lower(set_.tensors, attn::LowerMode::kPlan, shapes);
  return growing ? attn::api::find_or_make_growing_plan(*op->context, op->title, shapes, wish)
                 : attn::api::find_or_make_plan(*op->context, op->title, shapes, wish);
}

void attn_binding::prepare(const PlanChoice& wish) {
  check_set();
  entry = plan_for(wish, false);
  baked = attn::api::baked_slots(*op, set_.tensors);
  choice_ = wish;
}

std::string attn_binding::what_needs_prepare() {
  if (entry == nullptr) return "the binding has no plan: prepare it first";
  try {
    check_set();
    attn::Lowering shapes;
    op->contract->lower(set_.tensors, attn::LowerMode::kPlan, shapes);
    if (attn::api::fits(entry->key(), shapes)) return {};
    return attn::api::mismatch_text(entry->key(), shapes);
  } catch (const attn::Error& error) {
    return error.message();
  }
}

void attn_binding::execute(const attn_execute_desc& options) {
  check_set();
  attn::api::check_data(op->schema(), set_.tensors);
  attn::Lowering call;
  op->contract->lower(set_.tensors, attn::LowerMode::kExecute, call);
  if (entry == nullptr || !attn::api::fits(entry->key(), call)) {
    if ((options.flags & ATTN_EXECUTE_PREPARE) == 0 ||
        op->context->backend->is_capturing(options.stream)) {
      attn::api::fail_unprepared(*op->context, options.stream, entry.get(), call);
    }
    entry = plan_for(choice_, true);
    baked = attn::api::baked_slots(*op, set_.tensors);
  }
  attn::api::run_call(*op, *entry, call, *session, options);
}

using attn::api::BusyGuard;
using attn::api::checked;
using attn::api::guard;
using attn::api::Subject;

namespace {

// Runs `body` with the binding held, its op in front of messages.
template <class Body>
attn_status with_binding(attn_binding* binding, attn_error* error, const Body& body) {
  return guard(error, [&](Subject& subject) {
    attn_binding& self = checked(binding, "binding");
    subject.keep(self);
    subject.set(self.op->title);
    const BusyGuard busy(self.busy, "binding");
    body(self);
  });
}

}  // namespace

attn_status attn_binding_create(attn_op* op, attn_session* session, attn_binding** binding,
                                attn_error* error) {
  return guard(error, [&](Subject& subject) {
    attn_op& owner = checked(op, "op");
    subject.keep(owner);
    subject.set(owner.title);
    attn_session& order = checked(session, "session");
    subject.keep(order);
    attn::api::check_same_context(owner, order);
    if (binding == nullptr) attn::fail_argument("binding is null; it receives the new binding");
    *binding = new attn_binding(owner, order);
  });
}

void attn_binding_release(attn_binding* binding) { attn::api::release_handle(binding); }

attn_status attn_binding_set_input(attn_binding* binding, uint32_t slot, const attn_tensor* tensor,
                                   attn_error* error) {
  return with_binding(binding, error, [&](attn_binding& self) {
    self.set_input(attn::api::input_position(self.op->schema(), slot), tensor);
  });
}

attn_status attn_binding_set_output(attn_binding* binding, uint32_t slot, const attn_tensor* tensor,
                                    attn_error* error) {
  return with_binding(binding, error, [&](attn_binding& self) {
    self.set_output(attn::api::output_position(self.op->schema(), slot), tensor);
  });
}

attn_status attn_binding_set_tensors(attn_binding* binding, const attn_arg* inputs,
                                     uint32_t input_count, const attn_arg* outputs,
                                     uint32_t output_count, attn_error* error) {
  return with_binding(binding, error, [&](attn_binding& self) {
    self.set_tensors(inputs, input_count, outputs, output_count);
  });
}

attn_status attn_binding_prepare(attn_binding* binding, const attn_prepare_desc* desc,
                                 attn_error* error) {
  return with_binding(binding, error, [&](attn_binding& self) {
    const attn_prepare_desc request = attn::api::copy_in_or_default(desc, "desc");
    if (request.input_count != 0 || request.output_count != 0 || request.alias_count != 0 ||
        request.inputs != nullptr || request.outputs != nullptr || request.aliases != nullptr) {
      attn::fail_argument(
          "desc: inputs, outputs and aliases must be empty; a binding prepares what is bound");
    }
    self.prepare(attn::api::choice_of(*self.op->context, request));
  });
}

attn_status attn_binding_execute(attn_binding* binding, const attn_execute_desc* desc,
                                 attn_error* error) {
  return with_binding(binding, error, [&](attn_binding& self) {
    const attn_execute_desc options = attn::api::execute_options(
        *self.op->context, desc,
        ATTN_EXECUTE_PREPARE | ATTN_EXECUTE_BAKE_HOST_VALUES | ATTN_EXECUTE_EAGER);
    const BusyGuard busy(self.session->busy, "session", self.session->label);
    self.execute(options);
  });
}

attn_status attn_binding_capture_support(attn_binding* binding, attn_plan_info* info,
                                         attn_error* error) {
  return with_binding(binding, error, [&](attn_binding& self) {
    const attn::api::OutStruct out(info, "info");
    attn_plan_info filled{};
    const std::string missing = self.what_needs_prepare();
    if (missing.empty()) {
      attn::api::fill_plan_info(*self.op, *self.entry, self.baked, filled);
    } else {
      filled.capture_flags = ATTN_CAPTURE_NEEDS_PREPARE;
      attn::api::copy_text(filled.reason, missing);
    }
    out.write(filled);
  });
}

attn_status attn_binding_describe(attn_binding* binding, char* buffer, size_t capacity,
                                  size_t* needed, attn_error* error) {
  return with_binding(binding, error, [&](attn_binding& self) {
    if (self.entry == nullptr) {
      attn::throw_error(ATTN_NOT_PREPARED, "the binding has no plan: prepare it first");
    }
    attn::api::write_text(attn::api::describe_plan(*self.op, *self.entry), buffer, capacity,
                          needed);
  });
}
