// attn_plan: a shared plan as one op sees it.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "api/arguments.h"
#include "api/context.h"
#include "api/handle.h"
#include "api/op.h"
#include "api/plan_cache.h"

namespace attn::api {

// Host inputs whose values a capture would fix. Contexts that cannot capture have none.
struct BakedSlots {
  uint32_t count = 0;
  std::array<uint32_t, 16> slots{};
};

BakedSlots baked_slots(const attn_op& op, const Arguments& arguments);

void fill_plan_info(const attn_op& op, const PlanEntry& entry, const BakedSlots& baked,
                    attn_plan_info& info);

// The JSON text of attn_plan_describe.
std::string describe_plan(const attn_op& op, const PlanEntry& entry);

}  // namespace attn::api

// Immutable. Threads: any.
struct attn_plan final : attn::api::Object<attn_plan, attn::api::ObjectKind::kPlan> {
  attn_plan(attn_op& owner, std::shared_ptr<const attn::api::PlanEntry> shared,
            const attn::api::BakedSlots& baked_inputs)
      : op(owner), entry(std::move(shared)), baked(baked_inputs) {}

  attn::api::Ref<attn_op> op;
  std::shared_ptr<const attn::api::PlanEntry> entry;
  attn::api::BakedSlots baked;
};
