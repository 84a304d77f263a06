// What a plan is keyed by, and whether a call fits it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/backend.h"
#include "core/problem.h"

namespace attn::api {

// A shape class with the range that its plan serves. Lowering's launch parameters (pointers,
// strides, lengths) are no part of it.
struct PlanKey {
  LengthSpec lengths;
  std::optional<KvUpdateSpec> kv_update;
  std::optional<AttentionSpec> attention;
  std::optional<RotarySpec> rotary;
  std::optional<ScatterSpec> scatter;
  std::optional<LinearAttentionSpec> linear_attention;
  std::string engine;  // forced, empty = the back end chooses
  uint32_t flags = 0;  // ATTN_PREPARE_...
  ShapeRange range;

  // Whether the call is of this shape class, whatever its sizes.
  bool same_class(const Lowering& call) const;
  bool operator==(const PlanKey& other) const;
};

// The sizes of a call: what a plan must at least serve. Of packed sequences it is their number
// alone, since a plan may be made for sequences that are shorter than all tokens.
ShapeRange range_of(const Lowering& call);
// The sizes that a plan serves where no others are named.
ShapeRange natural_range_of(const Lowering& call);

// Whether `inner` lies within `outer`.
bool covers(const ShapeRange& outer, const ShapeRange& inner);

PlanKey make_key(const Lowering& call, std::string engine, uint32_t flags, const ShapeRange& range);

PlanRequest request_of(const PlanKey& key);

// Whether the plan with this key may run the call. No allocation.
inline bool fits(const PlanKey& key, const Lowering& call) {
  return covers(key.range, range_of(call)) && key.same_class(call);
}

// For a call that does not fit: what differs, in words, and what to do.
std::string mismatch_text(const PlanKey& key, const Lowering& call);

}  // namespace attn::api
