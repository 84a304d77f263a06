// Running a lowered call: the last steps that plans and bindings share.
#pragma once

#include "api/op.h"
#include "api/plan_cache.h"
#include "api/session.h"
#include "attn_c.h"
#include "core/problem.h"

namespace attn::api {

// Refuses a stream where the device has none.
void check_stream(const attn_context& context, const void* stream);

// Copies and checks an execute desc; null means defaults. `known_flags` are ATTN_EXECUTE_...
attn_execute_desc execute_options(const attn_context& context, const attn_execute_desc* desc,
                                  uint32_t known_flags);

// Takes and checks the arguments of a call that runs now, then lowers it. No allocation.
void lower_call(const attn_op& op, const attn_arg* inputs, uint32_t input_count,
                const attn_arg* outputs, uint32_t output_count, Lowering& lowering);

// For a call that no plan at hand fits (`entry` null: there is none): throws NOT_PREPARED, or
// CAPTURE while the stream captures, with what differs in words.
[[noreturn]] void fail_unprepared(const attn_context& context, void* stream, const PlanEntry* entry,
                                  const Lowering& call);

// Hands a call that fits the plan to the back end. The session must be held. No allocation but for
// scratch that has to grow.
void run_call(const attn_op& op, const PlanEntry& entry, const Lowering& lowering,
              attn_session& session, const attn_execute_desc& options);

// An op and a session of one context may work together.
void check_same_context(const attn_op& op, const attn_session& session);

}  // namespace attn::api
