// What query and prepare have in common: descriptions of a call become its lowering.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "api/arguments.h"
#include "api/op.h"
#include "api/plan_cache.h"
#include "core/problem.h"

namespace attn::api {

// The argument lists of a query or prepare desc.
struct CallShape {
  const attn_arg* inputs = nullptr;
  uint32_t input_count = 0;
  const attn_arg* outputs = nullptr;
  uint32_t output_count = 0;
  const attn_alias* aliases = nullptr;
  uint32_t alias_count = 0;
};

// Takes the lists, infers the shapes of outputs that come without a tensor (required ones that are
// not listed count as wanted; sizes that depend on a value which is not there stay open), checks
// and lowers. Throws what the call would be refused with.
void lower_shapes(const attn_op& op, const CallShape& shape, Intake intake, ArgumentSet& set,
                  Lowering& lowering);

// Refuses known sizes that no plan can serve (UNSUPPORTED): the gate asks before the back end does.
void check_servable(const Lowering& call);

// Infers type, shape and row-major strides of the output in `position`. Returns whether a size
// depends on a value that is not there.
bool infer_output(const attn_op& op, const Arguments& arguments, int position, Tensor& output);

// How a caller wants a plan.
struct PlanChoice {
  std::string engine;  // forced, empty = the back end chooses
  uint32_t flags = 0;  // ATTN_PREPARE_...
  ShapeRange range;    // 0 = what the call has
};

// Checks flags, engine and range of a prepare desc; the context's engine stands in for none.
PlanChoice choice_of(const attn_context& context, const attn_prepare_desc& desc);

// The cached or new plan for the call. Throws UNSUPPORTED with the engines' reasons.
std::shared_ptr<const PlanEntry> find_or_make_plan(attn_context& context, const std::string& title,
                                                   const Lowering& call, const PlanChoice& choice);

// For a call that came without a plan: any cached plan that serves it, or a new one whose range has
// room to grow, so that a growing cache does not plan at every step.
std::shared_ptr<const PlanEntry> find_or_make_growing_plan(attn_context& context,
                                                           const std::string& title,
                                                           const Lowering& call,
                                                           const PlanChoice& choice);

}  // namespace attn::api
