// attn_binding: an op's tensors tied to a session, converted once and run many times.
#pragma once

#include <memory>

#include "api/arguments.h"
#include "api/handle.h"
#include "api/op.h"
#include "api/plan.h"
#include "api/request.h"
#include "api/session.h"

// Threads: one call at a time, kept by `busy`; execute holds the session as well.
struct attn_binding final : attn::api::Object<attn_binding, attn::api::ObjectKind::kBinding> {
  attn_binding(attn_op& owner, attn_session& order);

  void set_input(int position, const attn_tensor* tensor);
  void set_output(int position, const attn_tensor* tensor);
  void set_tensors(const attn_arg* inputs, uint32_t input_count, const attn_arg* outputs,
                   uint32_t output_count);
  void prepare(const attn::api::PlanChoice& wish);
  // Why the plan at hand does not serve what is bound; empty when it does.
  std::string what_needs_prepare();
  void execute(const attn_execute_desc& options);

  attn::api::Ref<attn_op> op;
  attn::api::Ref<attn_session> session;
  attn::api::BusyFlag busy;
  std::shared_ptr<const attn::api::PlanEntry> entry;  // null before the first prepare

  // The facts of the plan for what was bound when it was made.
  attn::api::BakedSlots baked;

 private:
  // The rules that the bound tensors keep among themselves: judged once after a change.
  void check_set();
  std::shared_ptr<const attn::api::PlanEntry> plan_for(const attn::api::PlanChoice& wish,
                                                       bool growing);

  attn::api::LiveCount live_;
  attn::api::ArgumentSet set_;
  attn::api::PlanChoice choice_;  // of the last prepare
  bool checked_ = false;
};
